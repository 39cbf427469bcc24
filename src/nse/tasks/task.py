"""`Task`: what the training loop needs to know of a task. Each task's file ends with one."""

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
    """Data of a task as tensors."""

    splits: dict[str, LabelledRows]  # train, dev to choose the best epoch on, and test splits
    vocabulary: Vocabulary
    about: dict[str, Any]  # written to data.json; its fingerprint must match when a run is resumed
    vectors: Tensor | None = None  # [V, d], pretrained
    labels: tuple[str, ...] = ()
    tokenizer: str = "whitespace"
    target: TargetVocabulary | None = None  # of translations
    pairs: dict[str, list[tuple[str, str]]] | None = None  # of translations, by split: source and reference


def load_examples(recipe: Recipe, folder: Path | None = None) -> Examples:
    """Load the data of a recipe; `folder` has the published files, `None` is the usual one."""
    data, inputs = recipe.data, recipe.data.inputs or KINDS[recipe.task].inputs
    prepared, max_words = data.prepare(folder), recipe.model.max_words
    splits = {name: make_labelled_rows(split, inputs, max_words) for name, split in prepared.splits.items()}
    return make_examples(recipe, prepared, splits)


def make_examples(recipe: Recipe, prepared: PreparedData, splits: dict[str, LabelledRows]) -> Examples:
    """Select the training rows and put all parts of the data together."""
    splits["train"] = recipe.data.select_rows(splits["train"], prepared.splits["train"])
    if not len(splits["train"].labels):
        raise DataError(f"{prepared.name}: no row is left to train on")
    about, vectors = recipe.data.describe(prepared, splits), get_vectors(recipe.model, prepared)
    tokenizer = prepared.information["tokenizer"]
    return Examples(splits, prepared.vocabulary, about, vectors, prepared.labels, tokenizer)


def make_labelled_rows(split: EncodedSplit, names: tuple[str, ...], max_words: int) -> LabelledRows:
    """Convert a split to tensors, with its texts in the order of `names`."""
    texts = tuple(make_texts(split.texts[name], max_words) for name in names)
    groups = None if split.groups is None else torch.from_numpy(split.groups).long()
    return LabelledRows(texts, torch.from_numpy(split.labels).long(), groups)


def make_texts(column: EncodedColumn, max_words: int) -> Texts | Documents:
    """Convert a column to tensors. Long texts are truncated, long sentences of documents are split."""
    ids, lengths = torch.from_numpy(column.ids), torch.from_numpy(column.lengths)
    if column.counts is None:
        return Texts.from_ids(ids, lengths, max_words)
    lengths, counts = split_sentences(lengths, torch.from_numpy(column.counts), max_words)
    return Documents.from_sentences(Texts.from_ids(ids, lengths), counts)


def split_sentences(lengths: Tensor, counts: Tensor, max_words: int) -> tuple[Tensor, Tensor]:
    """Split sentences into parts of at most `max_words`: new lengths, and counts [N] per document.

    Args:
        lengths: [S], of the sentences of all documents.
        counts: [N], number of sentences of each document.
        max_words: At least 1.
    """
    parts = (-(-lengths.long() // max_words)).clamp(min=1)
    ends, last = F.pad(parts.cumsum(0), (1, 0)), counts.long().cumsum(0)
    part_lengths = torch.full((int(ends[-1]),), max_words)
    part_lengths[ends[1:] - 1] = lengths - (parts - 1) * max_words
    return part_lengths, ends[last] - ends[last - counts]


def get_vectors(model: TextConfig, prepared: PreparedData) -> Tensor | None:
    """Return the pretrained word vectors, or raise ConfigError if the model has another embedding size."""
    if prepared.vectors is None:
        return None
    size, expected = prepared.vectors.shape[1], model.embedding_size or model.size
    if size != expected:
        vectors = f"{prepared.information['vectors']} has vectors of {size} numbers"
        raise ConfigError(f"{vectors} and the model takes {expected}: set model.embedding_size={size}")
    return torch.from_numpy(prepared.vectors).float()


def build_model(recipe: Recipe, examples: Examples) -> nn.Module:
    """Build a new model with the word vectors and, for word overlap, the rarity of each word."""
    outputs = examples.labels if examples.target is None else examples.target
    model: Any = KINDS[recipe.task].module(recipe.model, len(examples.vocabulary), len(outputs))
    set_vectors(model, examples)
    if getattr(recipe.model, "word_overlap", False):
        model.rarity.copy_(compute_rarity(examples.splits["train"].texts[0], len(examples.vocabulary)))
    return model  # type: ignore[no-any-return]


def set_vectors(model: TextModel, examples: Examples) -> None:
    """Set the pretrained word vectors; without them, only the vector of unknown words, to zero."""
    with torch.no_grad():
        if examples.vectors is None:
            model.embedding.weight[Vocabulary.UNKNOWN] = 0  # as in pretrained vectors
        else:
            model.embedding.weight.copy_(examples.vectors)
            # float16, as in a model folder
            model.embedding.weight[Vocabulary.PAD] = draw_padding_vector(examples.vectors).half()


def draw_padding_vector(vectors: Tensor) -> Tensor:
    """Draw the vector of padding: the same for every seed, with the mean length of a word vector.

    The original code pads with a fixed random vector, which is not published.
    """
    words = vectors[len(Vocabulary.SPECIAL) :]
    scale = words.square().mean().sqrt() if len(words) else vectors.new_ones(())
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(vectors.shape[1], generator=generator) * 2 - 1
    return uniform * scale * math.sqrt(3)  # uniform numbers have the standard deviation 1 / sqrt(3)


def compute_rarity(texts: Texts, vocab_size: int) -> Tensor:
    """Compute the inverse document frequency of each word [vocab_size], with add-one smoothing."""
    rows = torch.arange(len(texts.ids))[:, None].expand_as(texts.ids)
    pairs = torch.stack([rows.flatten(), texts.ids.flatten()]).unique(dim=1)
    counts: Tensor = pairs[1].bincount(minlength=vocab_size)
    return torch.log((1 + len(texts.ids)) / (1 + counts))


def make_model_config(recipe: Recipe, examples: Examples) -> ModelConfig:
    """Make the configuration of a model folder, which loads without the recipe."""
    data, frozen = recipe.data, examples.vectors is not None and not recipe.model.trainable
    settings: dict[str, Any] = {
        "kind": recipe.task,
        "inputs": list(data.inputs),
        "task": data.table,
        "labels": list(examples.labels),
        "tokenizer": examples.tokenizer,
        "pieces": getattr(data, "bpe_merges", 0) > 0,
        "vectors": "float16" if frozen else "float32",
        "data": examples.about["name"],
    }
    return ModelConfig(model=recipe.model, **settings)


LossAndCorrect = tuple[Tensor, Tensor]
"""A loss, and the number of correct rows."""


def compute_cross_entropy(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> LossAndCorrect:
    """Compute the cross-entropy of scores [B, labels]."""
    if scores.is_cuda and dispatch.choose_backend("auto", scores.device) == "triton":
        from nse.ops.triton import cross_entropy as triton  # only machines with a GPU have triton

        if triton.is_supported(scores, labels):
            loss, correct, _ = triton.cross_entropy(scores, labels, smoothing)
            return loss, correct
    loss = F.cross_entropy(scores, labels, label_smoothing=smoothing)
    return loss, (scores.detach().argmax(dim=-1) == labels).sum()


def compute_label_loss(recipe: Recipe, scores: Tensor, batch: LabelledRows) -> LossAndCorrect:
    """Compute the cross-entropy of a batch, with label smoothing."""
    return compute_cross_entropy(scores, batch.labels, recipe.train.label_smoothing)


def compute_batch_scores(recipe: Recipe | None, model: nn.Module, batch: LabelledRows) -> Tensor:
    """Compute the scores [B, labels] of a batch."""
    scores: Tensor = model(*batch.inputs)
    return scores.float()


def compute_accuracy(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute the accuracy of scores [N, labels] on a split."""
    labels = examples.splits[split].labels
    return {"accuracy": int((scores.argmax(dim=-1) == labels).sum()) / max(len(labels), 1)}


class ResultColumn(NamedTuple):
    """Column of a table of results: a metric of a split, its format and its largest possible value."""

    measure: str
    split: str
    heading: str
    scale: int = 1
    digits: int = 3
    maximum: float = 1.0


ACCURACY = tuple(
    ResultColumn("accuracy", split, split, scale=100, digits=1) for split in ("test", "dev", "train")
)
"""In percent."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Kind of model, sources of data, loss and metrics."""

    kind: Kind
    sources: tuple[type[DataSource], ...]  # a recipe without data.name takes the first
    training: type[Training] = Training
    load_examples: Callable[..., Examples] = load_examples
    build_model: Callable[[Any, Examples], nn.Module] = build_model
    compute_loss: Callable[[Any, Tensor, LabelledRows], LossAndCorrect] = compute_label_loss
    compute_outputs: Callable[[Any, nn.Module, LabelledRows], Tensor] = (
        compute_batch_scores  # [B, n] of a batch
    )
    compute_metrics: Callable[[Any, Tensor, Examples, str], dict[str, float]] = compute_accuracy  # of outputs
    columns: tuple[ResultColumn, ...] = ACCURACY
    paper_results: Mapping[str, dict[str, float]] = field(default_factory=dict)  # on test, by recipe
    paper_vectors: str = "glove.840B.300d"

    def compute_main_metric(self, recipe: Any, outputs: Tensor, examples: Examples, split: str) -> float:
        """Compute the metric that the best epoch is chosen by: that of the first column."""
        return self.compute_metrics(recipe, outputs, examples, split)[self.columns[0].measure]
