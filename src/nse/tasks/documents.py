"""Document sentiment (section 4.4 of the paper): how many stars does a review give?

Recipes NAME/nse-nse, NAME/nse-lstm and NAME/lstm-lstm of the data sets yelp13, imdb and aclimdb: an NSE, or
the baseline's LSTM, over the words of each sentence, and an NSE or LSTM over the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from nse.data.cache import Columns
from nse.data.catalogue import data_set
from nse.data.prepare import obtain
from nse.inference.folder import ModelConfig
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.tasks.published import as_examples, give_vectors
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Figure, Task, accuracy
from nse.text.tensors import Documents, Labelled, Texts

COLUMNS = ("document",)

PAPER = {
    "yelp13/nse-nse": {"accuracy": 0.666, "mse": 0.48},
    "yelp13/nse-lstm": {"accuracy": 0.670, "mse": 0.47},
    "imdb/nse-nse": {"accuracy": 0.483, "mse": 1.94},
    "imdb/nse-lstm": {"accuracy": 0.481, "mse": 1.98},
}
"""The paper's test figures."""

SHOWN = (
    Figure("accuracy", "test", "test", scale=100, digits=1),
    Figure("mse", "test", "MSE", digits=2, most=81),
    Figure("accuracy", "dev", "dev", scale=100, digits=1),
    Figure("mse", "dev", "dev MSE", digits=2, most=81),
    Figure("accuracy", "train", "train", scale=100, digits=1),
)


@dataclass
class DocumentData:
    """Which data."""

    name: Literal["yelp13", "imdb", "aclimdb"] = "aclimdb"
    """The data set."""

    vectors: str = "glove.6B.100d"
    """Word vectors by name; two joined by + are put side by side."""


@dataclass
class DocumentRecipe:
    """A run on reviews."""

    task: Literal["documents"] = "documents"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: DocumentData = field(default_factory=DocumentData)
    """The data."""
    model: DocumentConfig = field(default_factory=DocumentConfig)
    """The model."""
    train: Training = field(default_factory=Training)
    """How it is trained."""


def examples(recipe: DocumentRecipe, data: Path | None = None) -> Examples:
    """Reviews as tensors, with the vectors of their words."""
    prepared = obtain(recipe.data.name, recipe.data.vectors, data)
    splits = {name: labelled(columns, recipe.model.longest) for name, columns in prepared.splits.items()}
    return as_examples(prepared, splits, recipe.model)


def labelled(columns: Columns, longest: int) -> Labelled:
    """One split, its sentences of at most so many words."""
    column = columns.texts["document"]
    assert column.counts is not None
    ids, lengths, counts = (torch.from_numpy(each) for each in (column.ids, column.lengths, column.counts))
    documents = as_documents(ids, lengths, counts, longest)
    return Labelled((documents,), torch.from_numpy(columns.labels).long())


def as_documents(ids: Tensor, lengths: Tensor, counts: Tensor, longest: int) -> Documents:
    """From the ids of all words, the lengths of all sentences [S] and their number in each document [N]."""
    lengths, counts = in_pieces(lengths, counts, longest)
    return Documents.of(Texts.flat(ids, lengths), counts)


def in_pieces(lengths: Tensor, counts: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """The lengths of sentences [S] and their number in each document [N], once none is too long."""
    lengths, counts = lengths.long(), counts.long()
    pieces = (-(-lengths // longest)).clamp(min=1)
    first = (pieces.cumsum(0) - pieces).repeat_interleave(pieces)
    done = (torch.arange(int(pieces.sum())) - first) * longest
    ends = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    last = counts.cumsum(0)
    return (lengths.repeat_interleave(pieces) - done).clamp(max=longest), ends[last] - ends[last - counts]


def model(recipe: DocumentRecipe, examples: Examples) -> nn.Module:
    """The paper's model, or the baseline."""
    labels = data_set(recipe.data.name).labels
    made = DocumentClassifier(recipe.model, len(examples.vocabulary), len(labels))
    give_vectors(made, examples)
    return made


def figures(recipe: DocumentRecipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Accuracy, and the mean squared error of the predicted class, in stars."""
    right = examples.splits[split].labels
    return {
        "accuracy": accuracy(recipe, scores, examples, split),
        "mse": squared_error(scores, right, data_set(recipe.data.name).labels),
    }


def squared_error(scores: Tensor, right: Tensor, labels: Sequence[str]) -> float:
    """The mean squared error of the labels with the highest scores [N, labels], as numbers; of none, zero."""
    stars = torch.tensor([float(label) for label in labels])
    wrong = stars[scores.argmax(dim=-1)] - stars[right]
    return float(wrong.square().sum()) / max(len(right), 1)


def folder(recipe: DocumentRecipe) -> ModelConfig:
    """What a model folder says."""
    return ModelConfig(
        kind="document",
        task="documents",
        labels=list(data_set(recipe.data.name).labels),
        tokenizer=data_set(recipe.data.name).tokenizer,  # type: ignore[arg-type]  # one of those it may be
        data=recipe.data.name,
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(
    DocumentRecipe,
    examples,
    model,
    folder,
    COLUMNS,
    PAPER,
    figures=figures,
    shown=SHOWN,
    vectors="glove.6B.100d",
)
