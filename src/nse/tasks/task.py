"""What training needs to know of a task: one `Task` at the end of each task's file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.data.cache import EncodedColumn, EncodedSplit, PreparedData
from nse.errors import ConfigError, DataError
from nse.inference.folder import ModelConfig
from nse.inference.kinds import KINDS, Kind
from nse.nn.text_model import TextConfig, TextModel
from nse.ops import dispatch
from nse.tasks.recipe import Recipe, Training
from nse.tasks.source import DataSource
from nse.text.tensors import Documents, LabelledRows, Texts
from nse.text.vocabulary import TargetVocabulary, Vocabulary


class Examples(NamedTuple):
    """The data of a task as tensors."""

    splits: dict[
        str, LabelledRows
    ]  # "train" to learn from, "dev" to choose by, the others to report on, once
    vocabulary: Vocabulary
    about: dict[str, Any]  # its name, counts, and a fingerprint by which a resumed run knows it again
    vectors: Tensor | None = None  # [V, d], of the words, where they are given
    labels: tuple[str, ...] = ()
    tokenizer: str = "whitespace"
    target: TargetVocabulary | None = None  # the words of translations, where there are some
    pairs: dict[str, list[tuple[str, str]]] | None = None  # by split, the words of both sides, spaced


def read_examples(recipe: Recipe, folder: Path | None = None) -> Examples:
    """Read the data of a recipe as tensors; `folder` is that of the published files, `None` the usual one."""
    data, inputs = recipe.data, recipe.data.inputs or KINDS[recipe.task].inputs
    prepared = data.prepare(folder)
    splits = {
        name: read_rows(columns, inputs, recipe.model.max_words) for name, columns in prepared.splits.items()
    }
    return make_examples(recipe, prepared, splits)


def make_examples(recipe: Recipe, prepared: PreparedData, splits: dict[str, LabelledRows]) -> Examples:
    """Put examples together, of the rows that are picked to train on."""
    splits["train"] = recipe.data.pick(splits["train"], prepared.splits["train"])
    if not len(splits["train"].labels):
        raise DataError(f"{prepared.name}: no row is left to train on")
    about, vectors = recipe.data.describe(prepared, splits), read_vectors(recipe.model, prepared)
    tokenizer = prepared.information["tokenizer"]
    return Examples(splits, prepared.vocabulary, about, vectors, prepared.labels, tokenizer)


def read_rows(columns: EncodedSplit, names: tuple[str, ...], longest: int) -> LabelledRows:
    """Turn one split into tensors, its texts in the order of `names`."""
    texts = tuple(read_texts(columns.texts[name], longest) for name in names)
    groups = None if columns.groups is None else torch.from_numpy(columns.groups).long()
    return LabelledRows(texts, torch.from_numpy(columns.labels).long(), groups)


def read_texts(column: EncodedColumn, longest: int) -> Texts | Documents:
    """Turn a column into tensors: a long text is cut, a long sentence of a document becomes several."""
    ids, lengths = torch.from_numpy(column.ids), torch.from_numpy(column.lengths)
    if column.counts is None:
        return Texts.from_ids(ids, lengths, longest)
    lengths, counts = cut_sentences(lengths, torch.from_numpy(column.counts), longest)
    return Documents.from_sentences(Texts.from_ids(ids, lengths), counts)


def cut_sentences(lengths: Tensor, counts: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Give the lengths of sentences [S] and their number in each document [N], once none is too long."""
    pieces = (-(-lengths.long() // longest)).clamp(min=1)
    ends, last = F.pad(pieces.cumsum(0), (1, 0)), counts.long().cumsum(0)
    cut = torch.full((int(ends[-1]),), longest)
    cut[ends[1:] - 1] = lengths - (pieces - 1) * longest
    return cut, ends[last] - ends[last - counts]


def read_vectors(model: TextConfig, prepared: PreparedData) -> Tensor | None:
    """Give the vectors of a data set's words, if a model of these sizes takes them."""
    if prepared.vectors is None:
        return None
    size, width = prepared.vectors.shape[1], model.embedding_size or model.size
    if size != width:
        given = f"{prepared.information['vectors']} has vectors of {size} numbers and the model takes {width}"
        raise ConfigError(f"{given}: set model.embedding_size={size}")
    return torch.from_numpy(prepared.vectors).float()


def build_model(recipe: Recipe, examples: Examples) -> nn.Module:
    """Build a fresh model, which knows the vectors of its words, and how rare they are if it counts them."""
    outputs = examples.labels if examples.target is None else examples.target
    model: Any = KINDS[recipe.task].module(recipe.model, len(examples.vocabulary), len(outputs))
    give_vectors(model, examples)
    if getattr(recipe.model, "word_overlap", False):
        model.rarity.copy_(measure_rarity(examples.splits["train"].texts[0], len(examples.vocabulary)))
    made: nn.Module = model
    return made


def give_vectors(model: TextModel, examples: Examples) -> None:
    """Give a model the vectors of its words; those that are learned start at random, the unknown at zero."""
    with torch.no_grad():
        if examples.vectors is None:
            model.embedding.weight[Vocabulary.UNKNOWN] = 0  # as where vectors are given
        else:
            model.embedding.weight.copy_(examples.vectors)
            # as a model folder keeps it
            model.embedding.weight[Vocabulary.PAD] = draw_padding(examples.vectors).half()


def draw_padding(vectors: Tensor) -> Tensor:
    """Draw the vector that fills a sentence up: the same for every seed, and about as long as a word's.

    The original pads with one fixed random vector, nobody knows which; a short one is a bit like each word.
    """
    words = vectors[len(Vocabulary.SPECIAL) :]
    spread = words.square().mean().sqrt() if len(words) else vectors.new_ones(())
    always = torch.Generator().manual_seed(0)
    uniform = torch.rand(vectors.shape[1], generator=always) * 2 - 1
    return uniform * spread * math.sqrt(3)  # the standard deviation of a uniform number is 1 / sqrt(3)


def measure_rarity(answers: Texts, words: int) -> Tensor:
    """Measure what it tells that a word is in a text [words]: the logarithm of how few texts have it."""
    rows = torch.arange(len(answers.ids))[:, None].expand_as(answers.ids)
    pairs = torch.stack([rows.flatten(), answers.ids.flatten()]).unique(dim=1)
    have: Tensor = pairs[1].bincount(minlength=words)
    return torch.log((1 + len(answers.ids)) / (1 + have))


def describe_model(recipe: Recipe, examples: Examples) -> ModelConfig:
    """Tell what a model folder says of the model, to be loaded without the recipe."""
    data, fixed = recipe.data, examples.vectors is not None and not recipe.model.trainable
    told: dict[str, Any] = {
        "kind": recipe.task,
        "inputs": list(data.inputs),
        "task": data.table,
        "labels": list(examples.labels),
        "tokenizer": examples.tokenizer,
        "pieces": getattr(data, "bpe_merges", 0) > 0,
        "vectors": "float16" if fixed else "float32",
        "data": examples.about["name"],
    }
    return ModelConfig(model=recipe.model, **told)


Judged = tuple[Tensor, Tensor]
"""A loss, and how many rows are right."""


def judged(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> Judged:
    """The cross-entropy of scores [B, labels], and how many of them are highest at the right label."""
    if scores.is_cuda and dispatch.choose_backend("auto", scores.device) == "triton":
        from nse.ops.triton import cross_entropy as triton  # only machines with a GPU have triton

        if triton.is_supported(scores, labels):
            loss, right, _ = triton.cross_entropy(scores, labels, smoothing)
            return loss, right
    loss = F.cross_entropy(scores, labels, label_smoothing=smoothing)
    return loss, (scores.detach().argmax(dim=-1) == labels).sum()


def cross_entropy(recipe: Recipe, scores: Tensor, batch: LabelledRows) -> Judged:
    """Compute the loss where one of several labels is right."""
    return judged(scores, batch.labels, recipe.train.label_smoothing)


def scores_of(recipe: Recipe | None, model: nn.Module, batch: LabelledRows) -> Tensor:
    """Compute what a model says of rows: scores [B, labels]."""
    scores: Tensor = model(*batch.inputs)
    return scores.float()


def accuracy(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute the part of a split's rows whose highest score [N, labels] is at the right label."""
    labels = examples.splits[split].labels
    return {"accuracy": int((scores.argmax(dim=-1) == labels).sum()) / max(len(labels), 1)}


class Figure(NamedTuple):
    """A column of a task's table: a measure of a split, how it is written, and the most it can be."""

    measure: str
    split: str
    heading: str
    scale: int = 1
    digits: int = 3
    most: float = 1.0


ACCURACY = tuple(Figure("accuracy", split, split, scale=100, digits=1) for split in ("test", "dev", "train"))
"""In percent."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A kind of model, where its data comes from, its loss and its measures, as the loop sees it."""

    kind: Kind
    sources: tuple[type[DataSource], ...]  # the first one where a recipe names no data
    training: type[Training] = Training
    examples: Callable[..., Examples] = read_examples
    model: Callable[[Any, Examples], nn.Module] = build_model
    loss: Callable[[Any, Tensor, LabelledRows], Judged] = cross_entropy
    answers: Callable[[Any, nn.Module, LabelledRows], Tensor] = scores_of  # of a model to rows [B, n]
    figures: Callable[[Any, Tensor, Examples, str], dict[str, float]] = accuracy  # of the answers to a split
    shown: tuple[Figure, ...] = ACCURACY  # the columns of its table
    paper: Mapping[str, dict[str, float]] = field(default_factory=dict)  # its test figures, by recipe
    vectors: str = "glove.840B.300d"  # with which the paper's figures were made

    def choose(self, recipe: Any, answers: Tensor, examples: Examples, split: str) -> float:
        """Compute the figure by which an epoch is chosen, that of the table's first column."""
        return self.figures(recipe, answers, examples, split)[self.shown[0].measure]
