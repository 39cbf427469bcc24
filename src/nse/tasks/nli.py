"""Natural language inference (section 4.1 of the paper): does a premise entail or contradict a hypothesis?

The data is SNLI, the built-in corpus, or your own pairs of texts. The paper's three models are the recipes
`snli/nse`, `snli/mma` and `snli/mma-attention`: `PairClassifier` of nn/pair.py with different encoders.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from nse.data.cache import EncodedSplit
from nse.inference.kinds import PAIR
from nse.tasks.logic_pairs import LogicPairs
from nse.tasks.source import ColumnNames, OwnFiles, PublishedData
from nse.tasks.task import Task
from nse.text.tensors import LabelledRows


@dataclass
class SNLIData(PublishedData):
    """SNLI, with all or the first training pairs."""

    table = "snli"
    name: Literal["snli"] = "snli"
    """Name of the data set."""
    train: int = 0
    """Number of training pairs, the first of the file; 0 for all."""

    def __post_init__(self) -> None:
        """Raise ValueError if the number of training pairs is negative."""
        if self.train < 0:
            raise ValueError(f"train must be at least 0, got {self.train}")

    def select_rows(self, rows: LabelledRows, split: EncodedSplit) -> LabelledRows:
        """Select the first `train` pairs."""
        return rows.select(torch.arange(len(rows.labels))[: self.train]) if self.train else rows


@dataclass
class PairColumns(ColumnNames):
    """Columns of files of pairs."""

    first: str = "first"
    """Column of the first text."""
    second: str = "second"
    """Column of the second text."""
    label: str = "label"
    """Column of the label."""


@dataclass
class PairFiles(OwnFiles):
    """Your own pairs of texts."""

    table, inputs = "own-pair", ("first", "second")
    columns: PairColumns = field(default_factory=PairColumns)
    """Names of the columns."""


TASK = Task(
    kind=PAIR,
    sources=(PairFiles, SNLIData, LogicPairs),
    paper_results={
        "snli/nse": {"accuracy": 0.846},
        "snli/mma": {"accuracy": 0.848},
        "snli/mma-attention": {"accuracy": 0.854},
        "snli/nse-letter": {"accuracy": 0.846},
        "snli/mma-letter": {"accuracy": 0.848},
        "snli/mma-attention-letter": {"accuracy": 0.854},
    },
)
