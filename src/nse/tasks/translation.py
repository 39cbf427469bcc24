"""Translation (section 4.5 of the paper): English to German, word by word, with a shared memory.

The data sets are iwslt14, multi30k and europarl, with the recipes lstm-lstm, nse-lstm and nse-nse each, or
your own translations. In nse-nse the decoder reads and writes the memory of the encoder.
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
from nse.tasks.task import Examples, LossAndCorrect, ResultColumn, Task, build_model, make_examples
from nse.text import moses
from nse.text.subwords import Pieces
from nse.text.tensors import LabelledRows, Texts
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import TargetVocabulary, Vocabulary

SIDES = ("source", TARGET)

LANGUAGES = (
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk sl sv ta "
    "tdt te yue zh"
)
"""Languages whose abbreviations the Moses tokenizer knows."""

MAX_WORDS = 1_000  # per side of a pair in your own files; one longer line would pad its whole batch

INIT_RANGE = 0.1  # of source word vectors that are not pretrained


@dataclass
class TranslationData:
    """Settings of any translations."""

    target_vocab_size: int = 25_000
    """Size of the target vocabulary, the most frequent words; 0 for all."""
    max_words: int = 25
    """Skip training pairs with more words on either side; 0 keeps all."""
    bpe_merges: int = 0
    """Merges of byte-pair encoding, learned from both languages; 0 for whole words."""

    def __post_init__(self) -> None:
        """Raise ValueError for negative numbers."""
        if min(self.target_vocab_size, self.max_words, self.bpe_merges) < 0:
            raise ValueError("target_vocab_size, max_words and bpe_merges must be at least 0")

    def select_rows(self, rows: LabelledRows, split: EncodedSplit) -> LabelledRows:
        """Select the pairs of at most `max_words` words on either side."""
        if not self.max_words:
            return rows
        is_short = np.maximum(*(split.texts[side].lengths for side in SIDES)) <= self.max_words
        return rows.select(torch.from_numpy(is_short.nonzero()[0]))


@dataclass
class ParallelData(TranslationData, PublishedData):
    """Published translations."""

    table = "translation"
    name: Literal["iwslt14", "multi30k", "europarl"] = "multi30k"
    """Name of the data set."""


@dataclass
class TranslationColumns(ColumnNames):
    """Columns of files of translations."""

    source: str = "source"
    """Column of the source sentence."""
    target: str = "target"
    """Column of the translation."""


@dataclass
class TranslationFiles(TranslationData, OwnFiles):
    """Your own translations."""

    table, fixed_labels = "own-translation", LABELS
    columns: TranslationColumns = field(default_factory=TranslationColumns)
    """Names of the columns."""
    tokenizer: Literal["moses-en", "treebank", "informal", "whitespace"] = "moses-en"
    """Tokenizer of the source; moses-en is the Moses tokenizer for English, lower-cased."""
    language: str = "de"
    """Language of the Moses tokenizer for the target, lower-cased; "" splits at spaces."""

    def __post_init__(self) -> None:
        """Check the values."""
        OwnFiles.__post_init__(self)
        TranslationData.__post_init__(self)
        if self.language not in ("", *(names := LANGUAGES.split(" "))):
            raise ValueError(f'language: expected "" or one of {", ".join(names)}, got {self.language!r}')

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Tokenize both sides; raise BadLineError if one has no words or too many."""
        for role, tokenize in (("source", TOKENIZERS[self.tokenizer]), ("target", self.tokenize_target)):
            words = tokenize(row[role])
            if not words:
                raise BadLineError(f"the {role} has no words")
            if len(words) > MAX_WORDS:
                raise BadLineError(
                    f"the {role} has {len(words):,} words, more than {MAX_WORDS:,}: break it up"
                )
            row[role] = " ".join(words)

    def tokenize_target(self, text: str) -> list[str]:
        """Split a translation into words."""
        plain = moses.normalize_spaces(text)
        if not self.language:
            return plain.split()
        return [word.lower() for word in moses.tokenize_moses(plain, self.language)]


def load_pairs(recipe: Recipe, folder: Path | None = None) -> Examples:
    """Load the pairs of a recipe, both vocabularies and the source word vectors."""
    prepared = recipe.data.prepare(folder)
    if "train" not in prepared.splits:
        names = ", ".join(prepared.splits)
        raise ConfigError(f"{recipe.data.name}: there are no pairs to train on, only {names}")
    source, target, tables = build_vocabularies(recipe.data, prepared)
    splits = {}
    for name, split in prepared.splits.items():
        texts = tuple(map_ids(split.texts[side], tables[side]) for side in SIDES)
        splits[name] = LabelledRows(texts, torch.from_numpy(split.labels).long())
    examples = make_examples(recipe, prepared, splits)
    examples.about["fingerprint"] += f"-{len(source)}-{len(target)}"
    pairs = {name: spell_pairs(prepared, name) for name in prepared.splits if name != "train"}
    return examples._replace(vocabulary=source, labels=(), target=target, pairs=pairs)


IdTable = list[list[int]]
"""Ids of a model for each word of a prepared data set; several for a word split into subwords."""


def build_vocabularies(
    data: TranslationData, prepared: PreparedData
) -> tuple[Vocabulary, TargetVocabulary, dict[str, IdTable]]:
    """Build both vocabularies, of words or subwords, from train; and the table of ids of each side."""
    counts = {side: count_words(prepared, side) for side in SIDES}
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
    for side, vocabulary in zip(SIDES, (source, target), strict=True):
        split = Pieces(vocabulary.words).split if data.bpe_merges else lambda word: [word]
        tables[side] = [vocabulary.encode(split(word)) for word in prepared.get_vocabulary(side).words]
    return source, target, tables


def count_words(prepared: PreparedData, name: str) -> Counter[str]:
    """Count how often each word of a column occurs in train."""
    words = prepared.get_vocabulary(name).words
    counts = np.bincount(prepared.splits["train"].texts[name].ids, minlength=len(words)).tolist()
    return Counter({word: n for word, n in zip(words, counts, strict=True) if n})


def count_pieces(pieces: Pieces, word_counts: Counter[str]) -> Counter[str]:
    """Count how often each piece of the words occurs."""
    counts: Counter[str] = Counter()
    for word, n in word_counts.items():
        for piece in pieces.split(word):
            counts[piece] += n
    return counts


def map_ids(column: EncodedColumn, table: IdTable) -> Texts:
    """Replace each word of a column by its ids in a table."""
    sizes = np.array([len(ids) for ids in table])
    flat_table = np.array([i for ids in table for i in ids])
    starts = sizes.cumsum() - sizes
    counts = sizes[column.ids]  # of ids, per word
    offsets = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    rows = np.repeat(np.arange(len(column.lengths)), column.lengths)
    lengths = np.bincount(rows, weights=counts, minlength=len(column.lengths)).astype(np.int64)
    ids = flat_table[np.repeat(starts[column.ids], counts) + offsets]
    return Texts.from_ids(torch.from_numpy(ids), torch.from_numpy(lengths))


def spell_pairs(prepared: PreparedData, split: str) -> list[tuple[str, str]]:
    """Join the words of both sides of each pair of a split."""
    sides = []
    for side in SIDES:
        column, words = prepared.splits[split].texts[side], prepared.get_vocabulary(side).words
        ends = column.lengths.cumsum().tolist()
        ids = column.ids.tolist()
        sides.append([" ".join(words[i] for i in ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)])
    return list(zip(*sides, strict=True))


def build_translator(recipe: Recipe, examples: Examples) -> nn.Module:
    """Build a new model."""
    model = build_model(recipe, examples)
    if examples.vectors is None:
        assert isinstance(model, Translator)
        nn.init.uniform_(model.embedding.weight, -INIT_RANGE, INIT_RANGE)
    return model


def compute_loss(recipe: Recipe, scores: Tensor, batch: LabelledRows) -> LossAndCorrect:
    """Compute the cross-entropy of the next words, given scores [B, T + 1, V].

    The second value is the fraction of correct words, times B.
    """
    ids, lengths = batch.texts[1]
    targets = F.pad(ids, (0, 1)).scatter(1, lengths[:, None], TargetVocabulary.END)
    pad, smoothing = Vocabulary.PAD, recipe.train.label_smoothing
    loss = F.cross_entropy(
        scores.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=smoothing
    )
    is_word = targets != pad
    accuracy = ((scores.detach().argmax(dim=-1) == targets) & is_word).sum() / is_word.sum()
    return loss, accuracy * len(ids)


def translate_batch(recipe: Recipe, model: nn.Module, batch: LabelledRows) -> Tensor:
    """Translate a batch: word ids, then the position of the most attended source word for each id."""
    assert isinstance(model, Translator)
    translation = model.translate(*batch.texts[0])
    return torch.cat([translation.ids, translation.positions], dim=1)


def compute_metrics(recipe: Recipe, outputs: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute BLEU of the outputs of `translate_batch`."""
    assert examples.target is not None
    assert examples.pairs is not None
    pairs = examples.pairs[split]
    ids, positions = outputs.long().chunk(2, dim=1)
    sources = [source.split(" ") for source, _ in pairs]
    if recipe.data.bpe_merges:  # positions count subwords
        sources = list(map(Pieces(examples.vocabulary.words).split_all, sources))
    translations = []
    for row, attended, source in zip(ids.tolist(), positions.tolist(), sources, strict=True):
        words = examples.target.decode(row, attended, source if recipe.model.replace_unknown else ())
        translations.append(" ".join(Pieces.join(words) if recipe.data.bpe_merges else words))
    return {"bleu": bleu(translations, [reference for _, reference in pairs])}


TASK = Task(
    kind=TRANSLATION,
    sources=(ParallelData, TranslationFiles),
    load_examples=load_pairs,
    build_model=build_translator,
    compute_loss=compute_loss,
    compute_outputs=translate_batch,
    compute_metrics=compute_metrics,
    columns=(
        ResultColumn("bleu", "test", "test BLEU", scale=100, digits=2),
        ResultColumn("bleu", "dev", "dev BLEU", scale=100, digits=2),
        ResultColumn("accuracy", "train", "words right", scale=100, digits=1),
    ),
    paper_results={
        "iwslt14/lstm-lstm": {"bleu": 0.1702},
        "iwslt14/nse-lstm": {"bleu": 0.1713},
        "iwslt14/nse-nse": {"bleu": 0.1793},
    },
)
