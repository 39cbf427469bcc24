"""Answer sentence selection (section 4.2 of the paper): which sentences of an article answer a question?

The data is WikiQA, or a user's own questions. Recipe `wikiqa/mma-attention` is the paper's model: MMA-NSE
reads the answer first, then the question, which reads and writes the answer's memory too and attends over the
answer; one score ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.data.cache import Columns
from nse.data.readers.table import Table, find_labels, read_candidates
from nse.data.readers.wikiqa import LABELS
from nse.data.splits import Rows
from nse.errors import DataError
from nse.inference.kinds import RANKING
from nse.metrics import ranking
from nse.tasks.recipe import Recipe, Training
from nse.tasks.source import ColumnNames, OwnFiles, PublishedData
from nse.tasks.task import Examples, Figure, Judged, Task, read_examples
from nse.text.tensors import Labelled

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
class CandidateData:
    """Questions with candidate answers."""

    answerable: bool = False
    """Train only on questions that have a right answer among their candidates."""

    def pick(self, rows: Labelled, columns: Columns) -> Labelled:
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

    table = "own-ranking"

    columns: CandidateColumns = field(default_factory=CandidateColumns)
    """Which column is what."""

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """Give wrong and right."""
        find_labels(train)  # refuses a file in which all are alike
        return LABELS

    def make_rows(self, table: Table, labels: Sequence[str]) -> Rows:
        """Make the rows of a file."""
        return read_candidates(table)


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
            raise ValueError(
                'loss = "pairwise" needs together = true: it compares candidates of one question'
            )


def examples(recipe: Recipe, data: Path | None = None) -> Examples:
    """Read candidates as tensors; a split that no ranking can be judged by is refused before training."""
    found = read_examples(recipe, data)
    for split in found.splits.keys() - {"train"}:
        rows = found.splits[split]
        assert rows.groups is not None
        if not ranking.questions(rows.groups.numpy(), rows.labels.numpy())["mixed"]:
            place, hint = recipe.data.place(split)
            raise DataError(f"{place}: no question has both a right and a wrong answer to tell apart{hint}")
    return found._replace(labels=(RIGHT,))


def loss(recipe: Recipe, scores: Tensor, batch: Labelled) -> Judged:
    """Sigmoid cross-entropy of scores [B, 1], or a ranking loss; and how many are on the right side of 0."""
    score, right = scores[:, 0], batch.labels == 1
    counted = ((score.detach() > 0) == right).sum()
    if recipe.train.loss == "pairwise":
        return pairwise(score, batch), counted
    weights = torch.where(right, recipe.train.weight, 1.0)
    return F.binary_cross_entropy_with_logits(score, right.to(score.dtype), weights), counted


def pairwise(score: Tensor, batch: Labelled) -> Tensor:
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
    return ranking.figures(scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy())


def choose(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> float:
    """Choose the epoch by mean average precision."""
    return figures(recipe, scores, examples, split)["map"]


TASK = Task(
    kind=RANKING,
    sources=(CandidateFiles, WikiQAData),
    training=RankingTraining,
    paper=PAPER,
    examples=examples,
    loss=loss,
    choose=choose,
    figures=figures,
    shown=SHOWN,
)
