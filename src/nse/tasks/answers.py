"""Answer sentence selection (section 4.2 of the paper): which sentences of an article answer a question?

The data is WikiQA. Recipe `wikiqa/mma-attention` is the paper's model: MMA-NSE reads the answer first, then
the question, which reads and writes the answer's memory too and attends over the answer; one score ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nse.data.prepare import obtain
from nse.errors import DataError
from nse.inference.folder import ModelConfig
from nse.metrics import ranking
from nse.nn.pair import PairClassifier, PairConfig
from nse.tasks.published import as_examples, give_vectors, labelled
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Figure, Judged, Task
from nse.text.tensors import Labelled, Texts

Array = NDArray[Any]

COLUMNS = ("answer", "question")
"""In the order in which they are read."""

RIGHT = "right"
"""What the score stands for."""

PAPER = {
    "wikiqa/mma-attention": {"map": 0.6811, "mrr": 0.6993},
    "wikiqa/mma-attention-letter": {"map": 0.6811, "mrr": 0.6993},
}
"""The paper's test figures, with GloVe 840B."""

SHOWN = (
    Figure("map", "test", "MAP"),
    Figure("mrr", "test", "MRR"),
    Figure("map_mixed", "test", "MAP, mixed"),
    Figure("mrr_mixed", "test", "MRR, mixed"),
    Figure("map", "dev", "dev MAP"),
)


@dataclass
class WikiQAData:
    """Which data."""

    vectors: str = "spacy.md.300d"
    """Word vectors by name, such as glove.840B.300d, the paper's; two joined by + are put side by side."""

    answerable: bool = False
    """Train only on questions that have a right answer among their candidates."""


@dataclass
class WikiQATraining(Training):
    """How a model of WikiQA is trained."""

    loss: Literal["sigmoid", "pairwise"] = "sigmoid"
    """sigmoid: each candidate by itself. pairwise: right ones above the wrong ones of a question."""

    weight: float = 1.0
    """What a right answer counts for, where a wrong one counts 1; of twenty candidates one is right."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        super().__post_init__()
        if self.weight <= 0:
            raise ValueError(f"weight must be above 0, got {self.weight}")
        if self.loss == "pairwise" and not self.together:
            raise ValueError(
                'loss = "pairwise" needs together = true: it compares candidates of one question'
            )


@dataclass
class WikiQARecipe:
    """A run on WikiQA."""

    task: Literal["wikiqa"] = "wikiqa"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: WikiQAData = field(default_factory=WikiQAData)
    """The data."""
    model: PairConfig = field(default_factory=PairConfig)
    """The model."""
    train: WikiQATraining = field(default_factory=WikiQATraining)
    """How it is trained."""


def examples(recipe: WikiQARecipe, data: Path | None = None) -> Examples:
    """WikiQA as tensors, with the vectors of its words."""
    prepared = obtain("wikiqa", recipe.data.vectors, data)
    splits = {name: labelled(columns, COLUMNS, recipe.model) for name, columns in prepared.splits.items()}
    for name in ("dev", "test"):
        refuse_without_choice(name, splits[name])
    if recipe.data.answerable:
        splits["train"] = splits["train"].select(with_right_answers(splits["train"]))
    return as_examples(prepared, splits, recipe.model)


def refuse_without_choice(name: str, split: Labelled) -> None:
    """Refuse a split that no ranking can be judged by, before hours of training."""
    assert split.groups is not None
    if not ranking.questions(split.groups.numpy(), split.labels.numpy())["mixed"]:
        raise DataError(f"wikiqa: no question of {name} has both a right and a wrong answer to tell apart")


def with_right_answers(split: Labelled) -> Tensor:
    """The numbers of the rows whose question has a right answer."""
    assert split.groups is not None
    return torch.isin(split.groups, split.groups[split.labels == 1]).nonzero().flatten()


def model(recipe: WikiQARecipe, examples: Examples) -> nn.Module:
    """The paper's model, or a baseline with the same head."""
    made = PairClassifier(recipe.model, len(examples.vocabulary), labels=1)
    give_vectors(made, examples)
    if recipe.model.counts:
        made.rarity.copy_(rarity(examples.splits["train"].texts[0], len(examples.vocabulary)))
    return made


def rarity(answers: Texts, words: int) -> Tensor:
    """What it tells that a word occurs in an answer [words]: the logarithm of how few answers have it."""
    rows = torch.arange(len(answers.ids))[:, None].expand_as(answers.ids)
    pairs = torch.stack([rows.flatten(), answers.ids.flatten()]).unique(dim=1)
    have: Tensor = pairs[1].bincount(minlength=words)
    return torch.log((1 + len(answers.ids)) / (1 + have))


def loss(recipe: WikiQARecipe, scores: Tensor, batch: Labelled) -> Judged:
    """Sigmoid cross-entropy of scores [B, 1], or a ranking loss; and how many are on the right side of 0."""
    score, right = scores[:, 0], batch.labels == 1
    counted = ((score.detach() > 0) == right).sum()
    if recipe.train.loss == "pairwise":
        return pairwise(score, batch), counted
    weights = torch.where(right, recipe.train.weight, 1.0)
    return F.binary_cross_entropy_with_logits(score, right.to(score.dtype), weights), counted


def pairwise(score: Tensor, batch: Labelled) -> Tensor:
    """How far right answers are not above the wrong ones of the same question, over all such pairs.

    Of several processes each has a part of the batch, and only the pairs within it.
    """
    assert batch.groups is not None
    right, wrong = batch.labels[:, None] == 1, batch.labels[None] == 0
    pairs = right & wrong & (batch.groups[:, None] == batch.groups[None])
    losses = F.softplus(score[None] - score[:, None])  # [right, wrong]
    return (losses * pairs).sum() / pairs.sum().clamp(min=1)


def choose(recipe: WikiQARecipe, scores: Tensor, examples: Examples, split: str) -> float:
    """Choose the epoch by mean average precision."""
    return figures(recipe, scores, examples, split)["map"]


def as_arrays(scores: Tensor, split: Labelled) -> tuple[Array, Array, Array]:
    """Scores, groups and labels, for the metrics."""
    assert split.groups is not None
    return scores[:, 0].numpy(), split.groups.numpy(), split.labels.numpy()


def figures(recipe: WikiQARecipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute MAP and MRR over both sets of questions."""
    return ranking.figures(*as_arrays(scores, examples.splits[split]))


def folder(recipe: WikiQARecipe) -> ModelConfig:
    """What a model folder says."""
    return ModelConfig(
        kind="ranking",
        task="wikiqa",
        labels=[RIGHT],
        tokenizer="lower",
        data="wikiqa",
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(WikiQARecipe, examples, model, folder, COLUMNS, PAPER, loss, choose, figures, SHOWN)
