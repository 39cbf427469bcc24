"""Translation (section 4.5 of the paper): English to German, word by word, out of a shared memory.

Recipes NAME/lstm-lstm, NAME/nse-lstm and NAME/nse-nse of the data sets iwslt14, multi30k and europarl, or a
user's own translations. In nse-nse the decoder reads and writes the memory that the encoder left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.data.cache import TARGET, Column, Columns, Prepared
from nse.data.readers.parallel import LABELS
from nse.data.readers.table import Table, read_translations
from nse.data.splits import Rows
from nse.errors import ConfigError
from nse.inference.kinds import TRANSLATION
from nse.metrics.bleu import bleu
from nse.nn.translator import Translator
from nse.tasks.recipe import Recipe
from nse.tasks.source import ColumnNames, OwnFiles, PublishedData
from nse.tasks.task import Examples, Figure, Judged, Task, build_model, make_examples
from nse.text import moses
from nse.text.subwords import Pieces
from nse.text.tensors import Labelled, Texts
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import TargetVocabulary, Vocabulary

COLUMNS = ("source", TARGET)

PAPER = {
    "iwslt14/lstm-lstm": {"bleu": 0.1702},
    "iwslt14/nse-lstm": {"bleu": 0.1713},
    "iwslt14/nse-nse": {"bleu": 0.1793},
}
"""The paper's test figures, with GloVe 840B."""

UNTAUGHT = 0.1
"""Vectors of source words that are learned from nothing start uniform within this range."""

SHOWN = (
    Figure("bleu", "test", "test BLEU", scale=100, digits=2),
    Figure("bleu", "dev", "dev BLEU", scale=100, digits=2),
    Figure("accuracy", "train", "words right", scale=100, digits=1),
)

# fmt: off
LANGUAGES = (
    "as", "bn", "ca", "cs", "de", "el", "en", "es", "et", "fi", "fr", "ga", "gu", "hi", "hu", "is", "it",
    "kn", "lt", "lv", "ml", "mni", "mr", "nl", "or", "pa", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "ta",
    "tdt", "te", "yue", "zh",
)
# fmt: on
"""Languages whose abbreviations Moses knows."""


@dataclass
class TranslationData:
    """Sentences and their translations."""

    vectors: str = "spacy.md.300d"
    """Vectors of the source words by name, such as glove.840B.300d, the paper's; "" for none."""

    targets: int = 25_000
    """So many of the most frequent target words are known; 0 means all."""

    longest: int = 25
    """Pairs with more words on a side are not trained on; 0 means that all are."""

    subwords: int = 0
    """Cut words of both languages into pieces, found by so many merges; 0 leaves words whole."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if min(self.targets, self.longest, self.subwords) < 0:
            raise ValueError("targets, longest and subwords must be at least 0")
        if self.subwords and self.vectors:
            raise ValueError('pieces of words have no vectors: subwords needs vectors = ""')

    def pick(self, rows: Labelled, columns: Columns) -> Labelled:
        """Pick the pairs that have at most so many words on each side."""
        if not self.longest:
            return rows
        kept = np.maximum(*(columns.texts[name].lengths for name in COLUMNS)) <= self.longest
        return rows.select(torch.from_numpy(kept.nonzero()[0]))


@dataclass
class ParallelData(TranslationData, PublishedData):
    """Published translations."""

    table = "translation"

    name: Literal["iwslt14", "multi30k", "europarl"] = "multi30k"
    """The data set."""


@dataclass
class TranslationColumns(ColumnNames):
    """Which column of the files is what."""

    source: str = "source"
    """A sentence."""

    target: str = "target"
    """Its translation."""


@dataclass
class TranslationFiles(TranslationData, OwnFiles):
    """A user's own translations."""

    table = "own-translation"

    columns: TranslationColumns = field(default_factory=TranslationColumns)
    """Which column is what."""

    vectors: str = ""
    """Vectors of the source words by name, or by the path of a file of them; "" learns them."""

    tokenizer: Literal["moses-en", "treebank", "informal", "whitespace"] = "moses-en"
    """How a source sentence becomes words; moses-en: by the rules of Moses for English, in lower case."""

    language: str = "de"
    """Of the translations, whose words Moses makes by its rules, in lower case; "" takes what is spaced."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        OwnFiles.__post_init__(self)
        TranslationData.__post_init__(self)
        if self.language and self.language not in LANGUAGES:
            raise ValueError(f'language: expected "" or one of {", ".join(LANGUAGES)}, got {self.language!r}')

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """Give what a pair has: none."""
        return LABELS

    def make_rows(self, table: Table, labels: Sequence[str]) -> Rows:
        """Make the rows of a file."""
        return read_translations(table, TOKENIZERS[self.tokenizer], self.cut_target)

    def cut_target(self, text: str) -> list[str]:
        """Cut a translation into words."""
        plain = moses.plain(text)
        if not self.language:
            return plain.split()
        return [word.lower() for word in moses.moses(plain, self.language)]


def examples(recipe: Recipe, data: Path | None = None) -> Examples:
    """Read pairs as tensors, their words, and the vectors of the source words."""
    prepared = recipe.data.prepare(data)
    if "train" not in prepared.splits:
        there = ", ".join(prepared.splits)
        raise ConfigError(f"{recipe.data.name}: there are no pairs to train on, only {there}")
    source, target, tables = vocabularies(recipe.data, prepared)
    splits = {name: read_pairs(columns.texts, tables) for name, columns in prepared.splits.items()}
    found = make_examples(recipe, prepared, splits)
    found.about["fingerprint"] += f"-{len(source)}-{len(target)}"
    pairs = {name: spell_pairs(prepared, name) for name in prepared.splits if name != "train"}
    return found._replace(vocabulary=source, labels=(), target=target, pairs=pairs)


Ids = list[list[int]]
"""For each word of a prepared data set, the ids that a model reads."""


def vocabularies(
    data: TranslationData, prepared: Prepared
) -> tuple[Vocabulary, TargetVocabulary, dict[str, Ids]]:
    """Give what a model reads and writes, whole words or pieces, and how to get there from each column."""
    assert prepared.target is not None
    if data.subwords:
        return learn_pieces(data.subwords, prepared)
    source = Vocabulary(prepared.vocabulary.words[len(Vocabulary.SPECIAL) : prepared.information["known"]])
    special = len(TargetVocabulary.SPECIAL)
    seen = int(prepared.splits["train"].texts[TARGET].ids.max(initial=special - 1)) + 1 - special
    most = min(data.targets or seen, seen)
    target = TargetVocabulary(prepared.target.words[special : special + most])
    tables: dict[str, Ids] = {
        name: [[i if i < len(known) else Vocabulary.UNKNOWN] for i in range(len(prepared.words(name)))]
        for name, known in zip(COLUMNS, (source, target), strict=True)
    }
    return source, target, tables


def learn_pieces(merges: int, prepared: Prepared) -> tuple[Vocabulary, TargetVocabulary, dict[str, Ids]]:
    """Learn pieces that both languages share from train; each side knows those that occur there."""
    counts = [count_words(prepared, name) for name in COLUMNS]
    pieces = Pieces.learn(counts[0] + counts[1], merges)
    source = Vocabulary.counted(cut_words(pieces, counts[0]))
    target = TargetVocabulary.counted(cut_words(pieces, counts[1]))
    tables = {}
    for name, vocabulary in zip(COLUMNS, (source, target), strict=True):
        own = Pieces(vocabulary.words)
        tables[name] = [vocabulary.encode(own.cut(word)) for word in prepared.words(name).words]
    return source, target, tables


def count_words(prepared: Prepared, name: str) -> Counter[str]:
    """Count how often each word of a column occurs in train."""
    words = prepared.words(name).words
    numbers = np.bincount(prepared.splits["train"].texts[name].ids, minlength=len(words)).tolist()
    return Counter({word: n for word, n in zip(words, numbers, strict=True) if n})


def cut_words(pieces: Pieces, counts: Counter[str]) -> Counter[str]:
    """Count how often each piece occurs."""
    found: Counter[str] = Counter()
    for word, n in counts.items():
        for piece in pieces.cut(word):
            found[piece] += n
    return found


def read_pairs(texts: dict[str, Column], tables: dict[str, Ids]) -> Labelled:
    """Turn one split into tensors of the ids that a model reads."""
    columns = tuple(map_ids(texts[name], tables[name]) for name in COLUMNS)
    return Labelled(columns, torch.zeros(len(columns[0].lengths), dtype=torch.long))


def map_ids(column: Column, table: Ids) -> Texts:
    """Map a column to the ids of a table, several for a word where words are cut."""
    sizes = np.array([len(ids) for ids in table])
    flat = np.array([i for ids in table for i in ids])
    starts = sizes.cumsum() - sizes
    many = sizes[column.ids]
    within = np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
    owner = np.repeat(np.arange(len(column.lengths)), column.lengths)
    lengths = np.bincount(owner, weights=many, minlength=len(column.lengths)).astype(np.int64)
    ids = flat[np.repeat(starts[column.ids], many) + within]
    return Texts.flat(torch.from_numpy(ids), torch.from_numpy(lengths))


def spell_pairs(prepared: Prepared, split: str) -> list[tuple[str, str]]:
    """Spell the words of each pair of a split, as they are in the data."""
    sides = []
    for name in COLUMNS:
        column, words = prepared.splits[split].texts[name], prepared.words(name).words
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


def loss(recipe: Recipe, scores: Tensor, batch: Labelled) -> Judged:
    """Cross-entropy of the next words [B, T + 1, V], and of how many rows they are right, as a share."""
    ids, lengths = batch.texts[1].inputs
    wanted = F.pad(ids, (0, 1)).scatter(1, lengths[:, None], TargetVocabulary.END)
    found = F.cross_entropy(
        scores.flatten(0, 1),
        wanted.flatten(),
        ignore_index=Vocabulary.PAD,
        label_smoothing=recipe.train.smoothing,
    )
    real = wanted != Vocabulary.PAD
    right = ((scores.detach().argmax(dim=-1) == wanted) & real).sum() / real.sum()
    return found, right * len(ids)


def answers(recipe: Recipe, model: nn.Module, batch: Labelled) -> Tensor:
    """Translate: ids, then for each the place of the source word that was most attended to."""
    assert isinstance(model, Translator)
    found = model.translate(*batch.texts[0].inputs)
    return torch.cat([found.ids, found.places], dim=1)


def choose(recipe: Recipe, found: Tensor, examples: Examples, split: str) -> float:
    """Compute BLEU."""
    assert examples.target is not None
    assert examples.pairs is not None
    pairs = examples.pairs[split]
    ids, places = found.long().chunk(2, dim=1)
    sources = [source.split(" ") for source, _ in pairs]
    if recipe.data.subwords:  # places are those of pieces
        sources = list(map(Pieces(examples.vocabulary.words).cut_all, sources))
    translations = []
    for row, at, source in zip(ids.tolist(), places.tolist(), sources, strict=True):
        words = examples.target.decode(row, at, source if recipe.model.replace else ())
        translations.append(" ".join(Pieces.join(words) if recipe.data.subwords else words))
    return bleu(translations, [reference for _, reference in pairs])


def figures(recipe: Recipe, found: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Report BLEU."""
    return {"bleu": choose(recipe, found, examples, split)}


TASK = Task(
    kind=TRANSLATION,
    sources=(ParallelData, TranslationFiles),
    paper=PAPER,
    examples=examples,
    model=model,
    loss=loss,
    answers=answers,
    choose=choose,
    figures=figures,
    shown=SHOWN,
)
