"""Translation (section 4.5 of the paper): English to German, word by word, out of a shared memory.

Recipes NAME/lstm-lstm, NAME/nse-lstm and NAME/nse-nse of the data sets iwslt14, multi30k and europarl, or a
user's own translations. In nse-nse the decoder reads and writes the memory that the encoder left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.data.cache import TARGET, EncodedColumn, EncodedSplit, PreparedData
from nse.data.readers.parallel import LABELS
from nse.data.records import BadLineError
from nse.errors import ConfigError
from nse.inference.kinds import TRANSLATION
from nse.metrics.bleu import bleu
from nse.nn.translator import Translator
from nse.tasks.recipe import Recipe
from nse.tasks.source import ColumnNames, OwnFiles, PublishedData
from nse.tasks.task import Examples, Figure, Judged, Task, build_model, make_examples
from nse.text import moses
from nse.text.subwords import Pieces
from nse.text.tensors import LabelledRows, Texts
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import TargetVocabulary, Vocabulary

COLUMNS = ("source", TARGET)

LANGUAGES = (
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk sl sv ta "
    "tdt te yue zh"
)
"""Languages whose abbreviations Moses knows."""

MOST_WORDS = 1_000
"""On a side of a user's own pair: what is longer is no sentence, and one such line would pad all others."""

UNTAUGHT = 0.1
"""Vectors of source words that are learned from nothing start uniform within this range."""


@dataclass
class TranslationData:
    """Sentences and their translations."""

    target_vocab_size: int = 25_000
    """Size of the target vocabulary, the most frequent words; 0 for all."""
    max_words: int = 25
    """Skip training pairs with more words on either side; 0 keeps all."""
    bpe_merges: int = 0
    """Merges of byte-pair encoding, learned from both languages; 0 for whole words."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if min(self.target_vocab_size, self.max_words, self.bpe_merges) < 0:
            raise ValueError("target_vocab_size, max_words and bpe_merges must be at least 0")

    def pick(self, rows: LabelledRows, columns: EncodedSplit) -> LabelledRows:
        """Pick the pairs that have at most so many words on each side."""
        if not self.max_words:
            return rows
        kept = np.maximum(*(columns.texts[name].lengths for name in COLUMNS)) <= self.max_words
        return rows.select(torch.from_numpy(kept.nonzero()[0]))


@dataclass
class ParallelData(TranslationData, PublishedData):
    """Published translations."""

    table = "translation"
    name: Literal["iwslt14", "multi30k", "europarl"] = "multi30k"
    """Name of the data set."""


@dataclass
class TranslationColumns(ColumnNames):
    """Which column of the files is what."""

    source: str = "source"
    """Column of the source sentence."""
    target: str = "target"
    """Column of the translation."""


@dataclass
class TranslationFiles(TranslationData, OwnFiles):
    """A user's own translations."""

    table, labels_known = "own-translation", LABELS
    columns: TranslationColumns = field(default_factory=TranslationColumns)
    """Names of the columns."""
    tokenizer: Literal["moses-en", "treebank", "informal", "whitespace"] = "moses-en"
    """Tokenizer of the source; moses-en is the Moses tokenizer for English, lower-cased."""
    language: str = "de"
    """Language of the Moses tokenizer for the target, lower-cased; "" splits at spaces."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        OwnFiles.__post_init__(self)
        TranslationData.__post_init__(self)
        if self.language not in ("", *(known := LANGUAGES.split(" "))):
            raise ValueError(f'language: expected "" or one of {", ".join(known)}, got {self.language!r}')

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Cut both sides into words, and refuse those without any, and with too many."""
        for role, cut in (("source", TOKENIZERS[self.tokenizer]), ("target", self.cut_target)):
            words = cut(row[role])
            if not words:
                raise BadLineError(f"the {role} has no words")
            if len(words) > MOST_WORDS:
                raise BadLineError(
                    f"the {role} has {len(words):,} words, more than {MOST_WORDS:,}: break it up"
                )
            row[role] = " ".join(words)

    def cut_target(self, text: str) -> list[str]:
        """Cut a translation into words."""
        plain = moses.normalize_spaces(text)
        if not self.language:
            return plain.split()
        return [word.lower() for word in moses.tokenize_moses(plain, self.language)]


def examples(recipe: Recipe, data: Path | None = None) -> Examples:
    """Read pairs as tensors, their words, and the vectors of the source words."""
    prepared = recipe.data.prepare(data)
    if "train" not in prepared.splits:
        there = ", ".join(prepared.splits)
        raise ConfigError(f"{recipe.data.name}: there are no pairs to train on, only {there}")
    source, target, tables = learn_words(recipe.data, prepared)
    splits = {}
    for split, columns in prepared.splits.items():
        texts = tuple(map_ids(columns.texts[name], tables[name]) for name in COLUMNS)
        splits[split] = LabelledRows(texts, torch.from_numpy(columns.labels).long())
    found = make_examples(recipe, prepared, splits)
    found.about["fingerprint"] += f"-{len(source)}-{len(target)}"
    pairs = {name: spell_pairs(prepared, name) for name in prepared.splits if name != "train"}
    return found._replace(vocabulary=source, labels=(), target=target, pairs=pairs)


Ids = list[list[int]]
"""For each word of a prepared data set, the ids that a model reads."""


def learn_words(
    data: TranslationData, prepared: PreparedData
) -> tuple[Vocabulary, TargetVocabulary, dict[str, Ids]]:
    """Learn from train what a model reads and writes, words or pieces, and which of it each word becomes."""
    counts = {name: count_words(prepared, name) for name in COLUMNS}
    if data.bpe_merges:
        pieces = Pieces.learn(counts["source"] + counts[TARGET], data.bpe_merges)
        source = Vocabulary.from_counts(count_pieces(pieces, counts["source"]))
        target = TargetVocabulary.from_counts(count_pieces(pieces, counts[TARGET]))
    else:
        assert prepared.target is not None
        first, special = len(Vocabulary.SPECIAL), len(TargetVocabulary.SPECIAL)
        known = len(counts[TARGET].keys() - set(TargetVocabulary.SPECIAL))
        source = Vocabulary(prepared.vocabulary.words[first : prepared.information["known"]])
        size = min(data.target_vocab_size or known, known)
        target = TargetVocabulary(prepared.target.words[special:][:size])
    tables = {}
    for name, vocabulary in zip(COLUMNS, (source, target), strict=True):
        cut = Pieces(vocabulary.words).split if data.bpe_merges else lambda word: [word]
        tables[name] = [vocabulary.encode(cut(word)) for word in prepared.get_vocabulary(name).words]
    return source, target, tables


def count_words(prepared: PreparedData, name: str) -> Counter[str]:
    """Count how often each word of a column occurs in train."""
    words = prepared.get_vocabulary(name).words
    numbers = np.bincount(prepared.splits["train"].texts[name].ids, minlength=len(words)).tolist()
    return Counter({word: n for word, n in zip(words, numbers, strict=True) if n})


def count_pieces(pieces: Pieces, counts: Counter[str]) -> Counter[str]:
    """Count how often each piece of these words occurs."""
    found: Counter[str] = Counter()
    for word, n in counts.items():
        for piece in pieces.split(word):
            found[piece] += n
    return found


def map_ids(column: EncodedColumn, table: Ids) -> Texts:
    """Map a column to the ids of a table, several for a word where words are cut."""
    sizes = np.array([len(ids) for ids in table])
    flat = np.array([i for ids in table for i in ids])
    starts = sizes.cumsum() - sizes
    many = sizes[column.ids]
    within = np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
    owner = np.repeat(np.arange(len(column.lengths)), column.lengths)
    lengths = np.bincount(owner, weights=many, minlength=len(column.lengths)).astype(np.int64)
    ids = flat[np.repeat(starts[column.ids], many) + within]
    return Texts.from_ids(torch.from_numpy(ids), torch.from_numpy(lengths))


def spell_pairs(prepared: PreparedData, split: str) -> list[tuple[str, str]]:
    """Spell the words of each pair of a split, as they are in the data."""
    sides = []
    for name in COLUMNS:
        column, words = prepared.splits[split].texts[name], prepared.get_vocabulary(name).words
        ends = column.lengths.cumsum().tolist()
        ids = column.ids.tolist()
        sides.append([" ".join(words[i] for i in ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)])
    return list(zip(*sides, strict=True))


def model(recipe: Recipe, examples: Examples) -> nn.Module:
    """Build one of the paper's models, or of ours."""
    made = build_model(recipe, examples)
    if examples.vectors is None:
        assert isinstance(made, Translator)
        nn.init.uniform_(made.embedding.weight, -UNTAUGHT, UNTAUGHT)
    return made


def loss(recipe: Recipe, scores: Tensor, batch: LabelledRows) -> Judged:
    """Cross-entropy of the next words [B, T + 1, V], and of how many rows they are right, as a share."""
    ids, lengths = batch.texts[1]
    wanted = F.pad(ids, (0, 1)).scatter(1, lengths[:, None], TargetVocabulary.END)
    pad, smoothing = Vocabulary.PAD, recipe.train.label_smoothing
    found = F.cross_entropy(
        scores.flatten(0, 1), wanted.flatten(), ignore_index=pad, label_smoothing=smoothing
    )
    real = wanted != pad
    right = ((scores.detach().argmax(dim=-1) == wanted) & real).sum() / real.sum()
    return found, right * len(ids)


def answers(recipe: Recipe, model: nn.Module, batch: LabelledRows) -> Tensor:
    """Translate: ids, then for each the place of the source word that was most attended to."""
    assert isinstance(model, Translator)
    found = model.translate(*batch.texts[0])
    return torch.cat([found.ids, found.positions], dim=1)


def figures(recipe: Recipe, found: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute BLEU."""
    assert examples.target is not None
    assert examples.pairs is not None
    pairs = examples.pairs[split]
    ids, places = found.long().chunk(2, dim=1)
    sources = [source.split(" ") for source, _ in pairs]
    if recipe.data.bpe_merges:  # places are those of pieces
        sources = list(map(Pieces(examples.vocabulary.words).split_all, sources))
    translations = []
    for row, at, source in zip(ids.tolist(), places.tolist(), sources, strict=True):
        words = examples.target.decode(row, at, source if recipe.model.replace_unknown else ())
        translations.append(" ".join(Pieces.join(words) if recipe.data.bpe_merges else words))
    return {"bleu": bleu(translations, [reference for _, reference in pairs])}


TASK = Task(
    kind=TRANSLATION,
    sources=(ParallelData, TranslationFiles),
    examples=examples,
    model=model,
    loss=loss,
    answers=answers,
    figures=figures,
    shown=(
        Figure("bleu", "test", "test BLEU", scale=100, digits=2),
        Figure("bleu", "dev", "dev BLEU", scale=100, digits=2),
        Figure("accuracy", "train", "words right", scale=100, digits=1),
    ),
    paper={
        "iwslt14/lstm-lstm": {"bleu": 0.1702},
        "iwslt14/nse-lstm": {"bleu": 0.1713},
        "iwslt14/nse-nse": {"bleu": 0.1793},
    },
)
