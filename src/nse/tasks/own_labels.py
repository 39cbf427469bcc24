"""Labels of a user's own pairs and sentences: recipes `own/pair` and `own/sentence`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import nn

from nse.inference.folder import ModelConfig
from nse.nn.pair import PairConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.tasks import own
from nse.tasks.published import labelled
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Task

PAIR = ("first", "second")
SENTENCE = ("text",)
"""In the order in which they are read."""

LATER = ["as the data says"]
"""Stands for labels in a model folder until the run knows those of the training file."""


@dataclass
class PairColumns(own.Columns):
    """Which column of the files is what."""

    first: str = "first"
    """The first text."""

    second: str = "second"
    """The second text."""

    label: str = "label"
    """What to tell of the two."""


@dataclass
class SentenceColumns(own.Columns):
    """Which column of the files is what."""

    text: str = "text"
    """The text."""

    label: str = "label"
    """What to tell of it."""


@dataclass
class PairData(own.OwnData):
    """Which files, and how they are read."""

    columns: PairColumns = field(default_factory=PairColumns)
    """Which column is what."""


@dataclass
class SentenceData(own.OwnData):
    """Which files, and how they are read."""

    columns: SentenceColumns = field(default_factory=SentenceColumns)
    """Which column is what."""


@dataclass
class PairRecipe:
    """A run on a user's own pairs."""

    task: Literal["own-pair"] = "own-pair"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: PairData = field(default_factory=PairData)
    """The data."""
    model: PairConfig = field(default_factory=PairConfig)
    """The model."""
    train: Training = field(default_factory=Training)
    """How it is trained."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        own.refuse_unlearned(self.data, self.model)


@dataclass
class SentenceRecipe:
    """A run on a user's own sentences."""

    task: Literal["own-sentence"] = "own-sentence"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: SentenceData = field(default_factory=SentenceData)
    """The data."""
    model: SentenceConfig = field(default_factory=SentenceConfig)
    """The model."""
    train: Training = field(default_factory=Training)
    """How it is trained."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        own.refuse_unlearned(self.data, self.model)


def examples(recipe: PairRecipe | SentenceRecipe, data: Path | None = None) -> Examples:
    """The files as tensors."""
    read = own.read_splits(recipe.data)
    prepared = own.prepared(recipe.data, read, data)
    names = PAIR if isinstance(recipe, PairRecipe) else SENTENCE
    splits = {split: labelled(columns, names, recipe.model) for split, columns in prepared.splits.items()}
    about = own.told(prepared, splits, read.notes) | {"labels": list(prepared.labels)}
    return Examples(splits, prepared.vocabulary, about, own.vectors_of(recipe.model, prepared))


def model(recipe: PairRecipe | SentenceRecipe, examples: Examples) -> nn.Module:
    """A model for as many labels as the training file has."""
    labels = len(examples.about["labels"])
    if isinstance(recipe, PairRecipe):
        return own.pair_model(recipe, examples, labels)
    made = SentenceClassifier(recipe.model, len(examples.vocabulary), labels)
    own.give_words(made, examples)
    return made


def folder(recipe: PairRecipe | SentenceRecipe) -> ModelConfig:
    """What a model folder says, but for the labels."""
    return ModelConfig(
        kind="pair" if isinstance(recipe, PairRecipe) else "sentence",
        inputs=["first", "second"] if isinstance(recipe, PairRecipe) else ["text"],
        task=recipe.task,
        labels=LATER,
        tokenizer=recipe.data.tokenizer,
        data=recipe.data.name,
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


PAIRS = Task(PairRecipe, examples, model, folder, PAIR, paper={})
SENTENCES = Task(SentenceRecipe, examples, model, folder, SENTENCE, paper={})
