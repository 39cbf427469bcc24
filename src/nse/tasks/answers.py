"""Answer sentence selection (section 4.2 of the paper): which sentences of an article answer a question?

The data is WikiQA, or a user's own questions. Recipe `wikiqa/mma-attention` is the paper's model: MMA-NSE
reads the answer first, then the question, which reads and writes the answer's memory too and attends over the
answer; one score ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.data.cache import EncodedSplit
from nse.data.readers.wikiqa import LABELS
from nse.data.records import BadLineError
from nse.errors import DataError
from nse.inference.kinds import RANKING
from nse.metrics import ranking
from nse.tasks.recipe import Recipe, Training
from nse.tasks.source import ColumnNames, OwnFiles, PublishedData
from nse.tasks.task import Examples, Figure, Judged, Task, read_examples
from nse.text.tensors import LabelledRows

RIGHT = {"1": 1, "true": 1, "yes": 1, "0": 0, "false": 0, "no": 0}
"""What a candidate may be labelled with, in any case, and whether it is right."""


@dataclass
class CandidateData:
    """Questions with candidate answers."""

    answerable: bool = False
    """Train only on questions that have a right answer among their candidates."""

    def pick(self, rows: LabelledRows, columns: EncodedSplit) -> LabelledRows:
        """Pick the rows whose question has a right answer, if that is wanted."""
        if not self.answerable:
            return rows
        assert rows.groups is not None
        return rows.select(torch.isin(rows.groups, rows.groups[rows.labels == 1]).nonzero().flatten())


@dataclass
class WikiQAData(CandidateData, PublishedData):
    """WikiQA."""

    table = "wikiqa"
    name: Literal["wikiqa"] = "wikiqa"
    """The data set."""


@dataclass
class CandidateColumns(ColumnNames):
    """Which column of the files is what."""

    question: str = "question"
    """The question."""
    answer: str = "answer"
    """A candidate answer to it."""
    label: str = "label"
    """Whether it is right: 1, true or yes; or wrong: 0, false or no."""
    group: str = ""
    """What the rows of a question have in common; "" means the question itself."""


@dataclass
class CandidateFiles(CandidateData, OwnFiles):
    """A user's own questions and answers."""

    table, labels_known, numbers = "own-ranking", LABELS, RIGHT
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    """Which column is what."""

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Refuse a label that is neither right nor wrong."""
        if (label := row["label"].lower()) not in RIGHT:
            label = row["label"][:40]
            raise BadLineError(f"the label is {label!r}; expected 1 for a right answer or 0 for a wrong one")
        row["label"] = label


@dataclass
class RankingTraining(Training):
    """How a model that ranks is trained."""

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
            raise ValueError('loss = "pairwise" needs together = true: it compares those of one question')


def examples(recipe: Recipe, folder: Path | None = None) -> Examples:
    """Read candidates as tensors; a split that no ranking can be judged by is refused before training."""
    data, found = recipe.data, read_examples(recipe, folder)
    for split in found.splits.keys() - {"train"}:
        rows = found.splits[split]
        assert rows.groups is not None
        if not ranking.count_questions(rows.groups.numpy(), rows.labels.numpy())["mixed"]:
            held = isinstance(data, OwnFiles) and not data.dev and split == "dev"
            place = f"{data.train}: what is held out for dev" if held else getattr(data, split, data.name)
            why = f"no question of {split} has both a right and a wrong answer to tell apart"
            raise DataError(f"{place}: {why}", ("dev",) if held else ())
    return found._replace(labels=("right",))


def loss(recipe: Recipe, scores: Tensor, batch: LabelledRows) -> Judged:
    """Sigmoid cross-entropy of scores [B, 1], or a ranking loss; and how many are on the right side of 0."""
    score, right = scores[:, 0], batch.labels == 1
    counted = ((score.detach() > 0) == right).sum()
    if recipe.train.loss == "pairwise":
        return pairwise(score, batch), counted
    weights = torch.where(right, recipe.train.weight, 1.0)
    return F.binary_cross_entropy_with_logits(score, right.to(score.dtype), weights), counted


def pairwise(score: Tensor, batch: LabelledRows) -> Tensor:
    """Measure how far right answers are not above the wrong ones of the same question, over all such pairs.

    Of several processes each has a part of the batch, and only the pairs within it.
    """
    assert batch.groups is not None
    right, wrong = batch.labels[:, None] == 1, batch.labels[None] == 0
    pairs = right & wrong & (batch.groups[:, None] == batch.groups[None])
    losses = F.softplus(score[None] - score[:, None])  # [right, wrong]
    return (losses * pairs).sum() / pairs.sum().clamp(min=1)


def figures(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute MAP and MRR over both sets of questions."""
    rows = examples.splits[split]
    assert rows.groups is not None
    return ranking.compute_measures(scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy())


TASK = Task(
    kind=RANKING,
    sources=(CandidateFiles, WikiQAData),
    training=RankingTraining,
    examples=examples,
    loss=loss,
    figures=figures,
    shown=(
        Figure("map", "test", "MAP"),
        Figure("mrr", "test", "MRR"),
        Figure("map_mixed", "test", "MAP, mixed"),
        Figure("mrr_mixed", "test", "MRR, mixed"),
        Figure("map", "dev", "dev MAP"),
    ),
    paper={
        "wikiqa/mma-attention": {"map": 0.6811, "mrr": 0.6993},
        "wikiqa/mma-attention-letter": {"map": 0.6811, "mrr": 0.6993},
    },
)
