"""Answer sentence selection (section 4.2 of the paper): which sentences of an article answer a question?

The data is WikiQA, or your own questions. The paper's model is the recipe `wikiqa/mma-attention`: MMA-NSE
encodes the answer, then the question with access to the answer's memory and attention over the answer. One
score ranks the answers.
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
from nse.tasks.task import Examples, LossAndCorrect, ResultColumn, Task, load_examples
from nse.text.tensors import LabelledRows

LABEL_IDS = {"1": 1, "true": 1, "yes": 1, "0": 0, "false": 0, "no": 0}
"""Accepted labels of a candidate, in any letter case; 1 is correct."""


@dataclass
class CandidateData:
    """Settings of any questions with candidate answers."""

    answerable: bool = False
    """Train only on questions with a correct answer among their candidates."""

    def select_rows(self, rows: LabelledRows, split: EncodedSplit) -> LabelledRows:
        """Select the rows of answerable questions if `answerable` is set."""
        if not self.answerable:
            return rows
        assert rows.groups is not None
        return rows.select(torch.isin(rows.groups, rows.groups[rows.labels == 1]).nonzero().flatten())


@dataclass
class WikiQAData(CandidateData, PublishedData):
    """Published questions of WikiQA."""

    table = "wikiqa"
    name: Literal["wikiqa"] = "wikiqa"
    """Name of the data set."""


@dataclass
class CandidateColumns(ColumnNames):
    """Columns of files of candidates."""

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
    """Your own questions and answers."""

    table, fixed_labels, label_ids = "own-ranking", LABELS, LABEL_IDS
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    """Names of the columns."""

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Check the label and convert it to lower case."""
        if (label := row["label"].lower()) not in LABEL_IDS:
            label = row["label"][:40]
            raise BadLineError(
                f"the label is {label!r}; expected 1 for a correct answer or 0 for an incorrect one"
            )
        row["label"] = label


@dataclass
class RankingTraining(Training):
    """Training settings of a ranking model."""

    loss: Literal["sigmoid", "pairwise"] = "sigmoid"
    """sigmoid: cross-entropy per candidate. pairwise: correct above incorrect candidates of a question."""
    pos_weight: float = 1.0
    """Weight of correct answers in the sigmoid loss, relative to incorrect ones."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be trained with."""
        super().__post_init__()
        if self.pos_weight <= 0:
            raise ValueError(f"pos_weight must be above 0, got {self.pos_weight}")
        if self.loss == "pairwise" and not self.group_by_question:
            raise ValueError('loss = "pairwise" needs group_by_question = true')


def load_rankings(recipe: Recipe, folder: Path | None = None) -> Examples:
    """Load the data of a recipe; raise DataError if a split has no question to compute MAP and MRR on."""
    data, examples = recipe.data, load_examples(recipe, folder)
    for split in examples.splits.keys() - {"train"}:
        rows = examples.splits[split]
        assert rows.groups is not None
        if not ranking.count_questions(rows.groups.numpy(), rows.labels.numpy())["mixed"]:
            held_out = isinstance(data, OwnFiles) and not data.dev and split == "dev"
            file = f"{data.train}: the dev set held out" if held_out else getattr(data, split, data.name)
            message = f"{file}: no question of {split} has both a correct and an incorrect answer"
            raise DataError(message, ("dev",) if held_out else ())
    return examples._replace(labels=("right",))


def compute_loss(recipe: Recipe, scores: Tensor, batch: LabelledRows) -> LossAndCorrect:
    """Compute the sigmoid cross-entropy of scores [B, 1] or the pairwise loss. Above 0 means correct."""
    score, is_correct = scores[:, 0], batch.labels == 1
    hits = ((score.detach() > 0) == is_correct).sum()
    if recipe.train.loss == "pairwise":
        return compute_pairwise_loss(score, batch), hits
    weights = torch.where(is_correct, recipe.train.pos_weight, 1.0)
    return F.binary_cross_entropy_with_logits(score, is_correct.to(score.dtype), weights), hits


def compute_pairwise_loss(score: Tensor, batch: LabelledRows) -> Tensor:
    """Compute softplus(incorrect - correct), averaged over all pairs of answers to the same question.

    With several processes, only pairs within the part of a process count.
    """
    assert batch.groups is not None
    correct, incorrect = batch.labels[:, None] == 1, batch.labels[None] == 0
    pairs = correct & incorrect & (batch.groups[:, None] == batch.groups[None])
    losses = F.softplus(score[None] - score[:, None])  # [correct, incorrect]
    return (losses * pairs).sum() / pairs.sum().clamp(min=1)


def compute_metrics(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute MAP and MRR over answerable questions, and over those with an incorrect answer too."""
    rows = examples.splits[split]
    assert rows.groups is not None
    return ranking.compute_measures(scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy())


TASK = Task(
    kind=RANKING,
    sources=(CandidateFiles, WikiQAData),
    training=RankingTraining,
    load_examples=load_rankings,
    compute_loss=compute_loss,
    compute_metrics=compute_metrics,
    columns=(
        ResultColumn("map", "test", "MAP"),
        ResultColumn("mrr", "test", "MRR"),
        ResultColumn("map_mixed", "test", "MAP, mixed"),
        ResultColumn("mrr_mixed", "test", "MRR, mixed"),
        ResultColumn("map", "dev", "dev MAP"),
    ),
    paper_results={
        "wikiqa/mma-attention": {"map": 0.6811, "mrr": 0.6993},
        "wikiqa/mma-attention-letter": {"map": 0.6811, "mrr": 0.6993},
    },
)
