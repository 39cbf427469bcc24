"""Translation (section 4.5 of the paper): English to German, word by word, out of a shared memory.

Recipes NAME/lstm-lstm, NAME/nse-lstm and NAME/nse-nse of the data sets iwslt14, multi30k and europarl. In
nse-nse the decoder reads and writes the memory that the encoder left.
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

from nse.data.cache import TARGET, Column, Prepared
from nse.data.prepare import obtain
from nse.errors import ConfigError
from nse.inference.folder import ModelConfig
from nse.metrics.bleu import bleu
from nse.nn.translator import TranslationConfig, Translator
from nse.tasks.published import about, give_vectors, vectors_for
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Figure, Judged, Task
from nse.text.subwords import Pieces
from nse.text.tensors import Labelled, Texts
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


@dataclass
class TranslationData:
    """Which data."""

    name: Literal["iwslt14", "multi30k", "europarl"] = "multi30k"
    """The data set."""

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


@dataclass
class TranslationRecipe:
    """A run on translations."""

    task: Literal["translation"] = "translation"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: TranslationData = field(default_factory=TranslationData)
    """The data."""
    model: TranslationConfig = field(default_factory=TranslationConfig)
    """The model."""
    train: Training = field(default_factory=Training)
    """How it is trained."""

    def __post_init__(self) -> None:
        """Refuse vectors that are neither given nor learned."""
        if not self.data.vectors and not self.model.trained:
            raise ValueError('vectors = "" needs model.trained = true: nobody else gives the words vectors')


def examples(recipe: TranslationRecipe, data: Path | None = None) -> Examples:
    """Pairs as tensors, their words, and the vectors of the source words."""
    prepared = obtain(recipe.data.name, recipe.data.vectors or None, data)
    if "train" not in prepared.splits:
        there = ", ".join(prepared.splits)
        raise ConfigError(f"{recipe.data.name}: there are no pairs to train on, only {there}")
    source, target, tables = vocabularies(recipe.data, prepared)
    splits = {name: rows(columns.texts, tables) for name, columns in prepared.splits.items()}
    if recipe.data.longest:
        splits["train"] = splits["train"].select(short(prepared, recipe.data.longest))
    vectors = None if prepared.vectors is None else vectors_for(recipe.model, prepared)
    told = about(prepared, splits)
    told["fingerprint"] += f"-{len(source)}-{len(target)}"
    pairs = {name: spelled(prepared, name) for name in prepared.splits if name != "train"}
    return Examples(splits, source, told, vectors, target, pairs)


Table = list[list[int]]
"""For each word of a prepared data set, the ids that a model reads."""


def vocabularies(
    data: TranslationData, prepared: Prepared
) -> tuple[Vocabulary, TargetVocabulary, dict[str, Table]]:
    """What a model reads and writes, whole words or pieces, and how to get there from each column's words."""
    assert prepared.target is not None
    if data.subwords:
        return pieces_of(data.subwords, prepared)
    source = Vocabulary(prepared.vocabulary.words[len(Vocabulary.SPECIAL) : prepared.information["known"]])
    special = len(TargetVocabulary.SPECIAL)
    seen = int(prepared.splits["train"].texts[TARGET].ids.max(initial=special - 1)) + 1 - special
    most = min(data.targets or seen, seen)
    target = TargetVocabulary(prepared.target.words[special : special + most])
    tables: dict[str, Table] = {
        "source": [[i if i < len(source) else Vocabulary.UNKNOWN] for i in range(len(prepared.vocabulary))],
        TARGET: [[i if i < len(target) else Vocabulary.UNKNOWN] for i in range(len(prepared.target))],
    }
    return source, target, tables


def pieces_of(merges: int, prepared: Prepared) -> tuple[Vocabulary, TargetVocabulary, dict[str, Table]]:
    """Pieces that both languages share, learned from train; each side knows those that occur there."""
    counts = {name: counted(prepared, name) for name in COLUMNS}
    pieces = Pieces.learn(counts["source"] + counts[TARGET], merges)
    source = Vocabulary.counted(cut(pieces, counts["source"]))
    target = TargetVocabulary.counted(cut(pieces, counts[TARGET]))
    tables = {}
    for name, vocabulary in (("source", source), (TARGET, target)):
        own = Pieces(vocabulary.words)
        tables[name] = [vocabulary.encode(own.cut(word)) for word in prepared.words(name).words]
    return source, target, tables


def counted(prepared: Prepared, name: str) -> Counter[str]:
    """How often each word of a column occurs in train."""
    words = prepared.words(name).words
    numbers = np.bincount(prepared.splits["train"].texts[name].ids, minlength=len(words)).tolist()
    return Counter({word: n for word, n in zip(words, numbers, strict=True) if n})


def cut(pieces: Pieces, counts: Counter[str]) -> Counter[str]:
    """How often each piece occurs."""
    found: Counter[str] = Counter()
    for word, n in counts.items():
        for piece in pieces.cut(word):
            found[piece] += n
    return found


def rows(texts: dict[str, Column], tables: dict[str, Table]) -> Labelled:
    """One split by the ids that a model reads."""
    columns = tuple(as_texts(texts[name], tables[name]) for name in COLUMNS)
    return Labelled(columns, torch.zeros(len(columns[0].lengths), dtype=torch.long))


def as_texts(column: Column, table: Table) -> Texts:
    """A column by the ids of a table, several for a word where words are cut."""
    sizes = np.array([len(ids) for ids in table])
    flat = np.array([i for ids in table for i in ids])
    starts = sizes.cumsum() - sizes
    many = sizes[column.ids]
    within = np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
    owner = np.repeat(np.arange(len(column.lengths)), column.lengths)
    lengths = np.bincount(owner, weights=many, minlength=len(column.lengths)).astype(np.int64)
    ids = flat[np.repeat(starts[column.ids], many) + within]
    return Texts.flat(torch.from_numpy(ids), torch.from_numpy(lengths))


def short(prepared: Prepared, longest: int) -> Tensor:
    """The numbers of the pairs to train on that have at most so many words on each side."""
    texts = prepared.splits["train"].texts
    kept = np.maximum(*(texts[name].lengths for name in COLUMNS)) <= longest
    return torch.from_numpy(kept.nonzero()[0])


def spelled(prepared: Prepared, split: str) -> list[tuple[str, str]]:
    """The words of each pair of a split, as they are in the data."""
    sides = []
    for name in COLUMNS:
        column, words = prepared.splits[split].texts[name], prepared.words(name).words
        ends = column.lengths.cumsum().tolist()
        ids = column.ids.tolist()
        sides.append([" ".join(words[i] for i in ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)])
    return list(zip(*sides, strict=True))


def model(recipe: TranslationRecipe, examples: Examples) -> nn.Module:
    """One of the paper's models, or of ours."""
    assert examples.target is not None
    made = Translator(recipe.model, len(examples.vocabulary), len(examples.target))
    if examples.vectors is None:
        nn.init.uniform_(made.embedding.weight, -UNTAUGHT, UNTAUGHT)
    else:
        give_vectors(made, examples)
    return made


def loss(recipe: TranslationRecipe, scores: Tensor, batch: Labelled) -> Judged:
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


def answers(recipe: TranslationRecipe, model: nn.Module, batch: Labelled) -> Tensor:
    """Translations: ids, then for each the place of the source word that was most attended to."""
    assert isinstance(model, Translator)
    found = model.translate(*batch.texts[0].inputs)
    return torch.cat([found.ids, found.places], dim=1)


def choose(recipe: TranslationRecipe, found: Tensor, examples: Examples, split: str) -> float:
    """BLEU."""
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


def figures(recipe: TranslationRecipe, found: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """BLEU alone."""
    return {"bleu": choose(recipe, found, examples, split)}


def folder(recipe: TranslationRecipe) -> ModelConfig:
    """What a model folder says."""
    return ModelConfig(
        kind="translation",
        task="translation",
        labels=[],
        tokenizer="moses-en",
        pieces=recipe.data.subwords > 0,
        data=recipe.data.name,
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(TranslationRecipe, examples, model, folder, COLUMNS, PAPER, loss, choose, figures, SHOWN, answers)
