"""Natural language inference (section 4.1 of the paper): does a premise entail or contradict a hypothesis?

The data is SNLI. Recipes `snli/nse`, `snli/mma` and `snli/mma-attention` are the paper's three models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nse.data.prepare import obtain
from nse.data.prepared import Column, Columns, Prepared
from nse.errors import ConfigError
from nse.hub import ModelConfig
from nse.nn.models import PairClassifier, PairConfig, left_padded
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Task
from nse.text.batching import Pairs, Texts
from nse.text.vocabulary import Vocabulary

LABELS = ("entailment", "contradiction", "neutral")

PAPER = {
    "snli/nse": 84.6,
    "snli/mma": 84.8,
    "snli/mma-attention": 85.4,
    "snli/nse-letter": 84.6,
    "snli/mma-letter": 84.8,
    "snli/mma-attention-letter": 85.4,
}
"""The paper's test accuracies, trained on all 549,367 pairs with GloVe 840B."""


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
    splits = {name: tensors(columns, recipe.model) for name, columns in prepared.splits.items()}
    if recipe.data.train:
        splits["train"] = splits["train"].select(
            torch.arange(len(splits["train"].labels))[: recipe.data.train]
        )
    assert prepared.vectors is not None
    vectors = torch.from_numpy(prepared.vectors).float()
    width = recipe.model.words or recipe.model.size
    if vectors.shape[1] != width:
        raise ConfigError(
            f"{recipe.data.vectors} has vectors of {vectors.shape[1]} numbers and the model takes {width}: "
            f"set model.words={vectors.shape[1]}"
        )
    return Examples(splits, prepared.vocabulary, about(prepared, splits), vectors)


def about(prepared: Prepared, splits: dict[str, Pairs]) -> dict[str, Any]:
    """What the data is, for the run's folder."""
    rows = prepared.information["rows"]
    return {
        "name": prepared.name,
        "fingerprint": f"{prepared.fingerprint}-{len(splits['train'].labels)}",
        "counts": {name: len(split.labels) for name, split in splits.items()},
        "published": {name: rows[name]["published"] for name in splits},
        "vectors": prepared.information["vectors"],
        "coverage": prepared.information["coverage"],
    }


def tensors(columns: Columns, config: PairConfig) -> Pairs:
    """One split, its sentences cut and padded as the model reads them."""

    def texts(column: Column) -> Texts:
        found = Texts.flat(torch.from_numpy(column.ids), torch.from_numpy(column.lengths), config.longest)
        return Texts(*left_padded(*found, config.longest)) if config.padding == "paper" else found

    labels = torch.from_numpy(columns.labels).long()
    return Pairs(texts(columns.texts["premise"]), texts(columns.texts["hypothesis"]), labels)


def model(recipe: SNLIRecipe, examples: Examples) -> nn.Module:
    """One of the paper's models, or a baseline with the same head."""
    made = PairClassifier(recipe.model, len(examples.vocabulary), len(LABELS))
    assert examples.vectors is not None
    with torch.no_grad():
        made.embedding.weight.copy_(examples.vectors)
        made.embedding.weight[Vocabulary.PAD] = padding(examples.vectors).half()  # as a model folder keeps it
    return made


def padding(vectors: Tensor) -> Tensor:
    """The vector that fills a sentence up: random, the same for every seed, and about as long as a word's.

    The original pads with one fixed random vector, nobody knows which. Where pads are read, a short one is
    like no word and a little like each: words then read and write the pads as well as what they look for.
    """
    words = vectors[len(Vocabulary.SPECIAL) :]
    spread = words.square().mean().sqrt() if len(words) else vectors.new_ones(())
    always = torch.Generator().manual_seed(0)
    uniform = torch.rand(vectors.shape[1], generator=always) * 2 - 1
    return uniform * spread * math.sqrt(3)  # the standard deviation of a uniform number is 1 / sqrt(3)


def scores(model: nn.Module, batch: Pairs) -> Tensor:
    """The scores of the labels."""
    result: Tensor = model(*batch.premise, *batch.hypothesis)
    return result


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


TASK = Task(SNLIRecipe, examples, model, scores, folder)
