"""Sentence classification (section 4.3 of the paper): is what a sentence says of a film good or bad?

The data is the Stanford Sentiment Treebank: trained on all labelled phrases of the training trees, evaluated
on whole sentences. Recipes `sst/binary` and `sst/fine` are the paper's two models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from nse.data.cache import Columns
from nse.data.catalogue import data_set
from nse.data.prepare import obtain
from nse.inference.folder import ModelConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.tasks.published import as_examples, give_vectors, labelled
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Task

COLUMNS = ("sentence",)

PAPER = {"sst/binary": {"accuracy": 0.897}, "sst/fine": {"accuracy": 0.528}}
"""The paper's test figures, with GloVe 840B."""


@dataclass
class SSTData:
    """Which data."""

    labels: Literal["binary", "fine"] = "binary"
    """fine: five, from very negative to very positive. binary: two, and neutral phrases are left out."""

    phrases: Literal["once", "all"] = "once"
    """To train on: each phrase once, as the model reads it, or as often as it occurs in the trees."""

    vectors: str = "spacy.md.300d"
    """Word vectors by name, such as glove.840B.300d, the paper's; two joined by + are put side by side."""


@dataclass
class SSTRecipe:
    """A run on the Stanford Sentiment Treebank."""

    task: Literal["sst"] = "sst"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: SSTData = field(default_factory=SSTData)
    """The data."""
    model: SentenceConfig = field(default_factory=SentenceConfig)
    """The model."""
    train: Training = field(default_factory=Training)
    """How it is trained."""


def examples(recipe: SSTRecipe, data: Path | None = None) -> Examples:
    """The treebank as tensors, with the vectors of its words."""
    prepared = obtain(f"sst-{recipe.data.labels}", recipe.data.vectors, data)
    splits = {name: labelled(columns, COLUMNS, recipe.model) for name, columns in prepared.splits.items()}
    if recipe.data.phrases == "once":
        splits["train"] = splits["train"].select(first_of_each(prepared.splits["train"]))
    return as_examples(prepared, splits, recipe.model)


def first_of_each(columns: Columns) -> Tensor:
    """The numbers of the rows without those that repeat an earlier one: the same ids, the same label."""
    ids, lengths, _ = columns.texts["sentence"]
    ends = lengths.cumsum()
    rows = zip((ends - lengths).tolist(), ends.tolist(), columns.labels.tolist(), strict=True)
    seen: dict[tuple[bytes, int], int] = {}
    for number, (start, end, label) in enumerate(rows):
        seen.setdefault((ids[start:end].tobytes(), label), number)
    return torch.tensor(list(seen.values()))


def model(recipe: SSTRecipe, examples: Examples) -> nn.Module:
    """The paper's model, or a baseline with the same head."""
    labels = data_set(f"sst-{recipe.data.labels}").labels
    made = SentenceClassifier(recipe.model, len(examples.vocabulary), len(labels))
    give_vectors(made, examples)
    return made


def folder(recipe: SSTRecipe) -> ModelConfig:
    """What a model folder says."""
    name = f"sst-{recipe.data.labels}"
    return ModelConfig(
        kind="sentence",
        task="sst",
        labels=list(data_set(name).labels),
        tokenizer="treebank",
        data=name,
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(SSTRecipe, examples, model, folder, COLUMNS, PAPER)
