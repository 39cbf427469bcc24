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
    """Train only on questions with a correct answer among their candidates."""

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
    """Name of the data set."""


@dataclass
class CandidateColumns(ColumnNames):
    """Which column of the files is what."""

    question: str = "question"
    """Column of the question."""
    answer: str = "answer"
    """Column of the candidate answer."""
    label: str = "label"
    """Column of the label: 1, true or yes if the answer is correct; 0, false or no if not."""
    group: str = ""
    """Column that identifies a question; "" for the question itself."""


@dataclass
class CandidateFiles(CandidateData, OwnFiles):
    """A user's own questions and answers."""

    table, labels_known, numbers = "own-ranking", LABELS, RIGHT
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    """Names of the columns."""

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Refuse a label that is neither right nor wrong."""
        if (label := row["label"].lower()) not in RIGHT:
            label = row["label"][:40]
            raise BadLineError(f"the label is {label!r}; expected 1 for a right answer or 0 for a wrong one")
        row["label"] = label


@dataclass
class RankingTraining(Training):
    """Training settings of a ranking model."""

    loss: Literal["sigmoid", "pairwise"] = "sigmoid"
    """sigmoid: cross-entropy per candidate. pairwise: correct above incorrect candidates of a question."""
    pos_weight: float = 1.0
    """Weight of correct answers in the sigmoid loss, relative to incorrect ones."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        super().__post_init__()
        if self.pos_weight <= 0:
            raise ValueError(f"pos_weight must be above 0, got {self.pos_weight}")
        if self.loss == "pairwise" and not self.group_by_question:
            raise ValueError('loss = "pairwise" needs group_by_question = true')


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
    weights = torch.where(right, recipe.train.pos_weight, 1.0)
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
