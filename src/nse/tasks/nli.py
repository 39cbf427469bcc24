"""Natural language inference (section 4.1 of the paper): does a premise entail or contradict a hypothesis?

The data is SNLI. Recipes `snli/nse`, `snli/mma` and `snli/mma-attention` are the paper's three models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from nse.data.prepare import obtain
from nse.inference.folder import ModelConfig
from nse.nn.pair import PairClassifier, PairConfig
from nse.tasks.published import as_examples, give_vectors, labelled
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Task

LABELS = ("entailment", "contradiction", "neutral")

COLUMNS = ("premise", "hypothesis")

PAPER = {
    "snli/nse": {"accuracy": 0.846},
    "snli/mma": {"accuracy": 0.848},
    "snli/mma-attention": {"accuracy": 0.854},
    "snli/nse-letter": {"accuracy": 0.846},
    "snli/mma-letter": {"accuracy": 0.848},
    "snli/mma-attention-letter": {"accuracy": 0.854},
}
"""The paper's test figures, trained on all 549,367 pairs with GloVe 840B."""


@dataclass
class SNLIData:
    """Which data."""

    vectors: str = "spacy.md.300d"
    """Word vectors by name, such as glove.840B.300d, the paper's; two joined by + are put side by side."""

    train: int = 0
    """Train on the first so many pairs; 0 means on all there are."""

    def __post_init__(self) -> None:
        """Refuse a number of pairs that is none."""
        if self.train < 0:
            raise ValueError(f"train must be at least 0, got {self.train}")


@dataclass
class SNLIRecipe:
    """A run on SNLI."""

    task: Literal["snli"] = "snli"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: SNLIData = field(default_factory=SNLIData)
    """The data."""
    model: PairConfig = field(default_factory=PairConfig)
    """The model."""
    train: Training = field(default_factory=Training)
    """How it is trained."""


def examples(recipe: SNLIRecipe, data: Path | None = None) -> Examples:
    """SNLI as tensors, with the vectors of its words."""
    prepared = obtain("snli", recipe.data.vectors, data)
    splits = {name: labelled(columns, COLUMNS, recipe.model) for name, columns in prepared.splits.items()}
    if recipe.data.train:
        splits["train"] = splits["train"].select(
            torch.arange(len(splits["train"].labels))[: recipe.data.train]
        )
    return as_examples(prepared, splits, recipe.model)


def model(recipe: SNLIRecipe, examples: Examples) -> nn.Module:
    """One of the paper's models, or a baseline with the same head."""
    made = PairClassifier(recipe.model, len(examples.vocabulary), len(LABELS))
    give_vectors(made, examples)
    return made


def folder(recipe: SNLIRecipe) -> ModelConfig:
    """What a model folder says."""
    return ModelConfig(
        task="snli",
        labels=list(LABELS),
        tokenizer="paper",
        data="snli",
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(SNLIRecipe, examples, model, folder, COLUMNS, PAPER)
