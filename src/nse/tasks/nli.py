"""Natural language inference (section 4.1 of the paper): does a premise entail or contradict a hypothesis?

The data is SNLI, the built-in corpus, or a user's own pairs of texts. Recipes `snli/nse`, `snli/mma` and
`snli/mma-attention` are the paper's three models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from nse.data.cache import Columns, Prepared
from nse.data.readers import logic
from nse.inference.folder import ModelConfig
from nse.inference.kinds import PAIR
from nse.tasks.source import ColumnNames, DataSource, OwnFiles, PublishedData
from nse.tasks.task import Task
from nse.text.tensors import Labelled

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
class SNLIData(PublishedData):
    """SNLI."""

    table = "snli"

    name: Literal["snli"] = "snli"
    """The data set."""

    train: int = 0
    """Train on the first so many pairs; 0 means on all there are."""

    def __post_init__(self) -> None:
        """Refuse a number of pairs that is none."""
        if self.train < 0:
            raise ValueError(f"train must be at least 0, got {self.train}")

    def pick(self, rows: Labelled, columns: Columns) -> Labelled:
        """Pick the first pairs."""
        return rows.select(torch.arange(len(rows.labels))[: self.train]) if self.train else rows


@dataclass
class LogicPairs(logic.LogicData, DataSource):
    """The built-in corpus."""

    table = "logic"

    name: Literal["logic"] = "logic"
    """The built-in corpus."""

    def __post_init__(self) -> None:
        """Refuse a corpus without anything to learn from or to choose by."""
        if self.train < 1 or self.dev < 1:
            raise ValueError(f"data.train and data.dev must be at least 1, got {self.train}, {self.dev}")

    def prepare(self, folder: Path | None) -> Prepared:
        """Generate the corpus; no folder of data is looked at."""
        return logic.prepare(self)

    def prepare_split(self, split: str, folder: Path | None, config: ModelConfig) -> Prepared:
        """Generate the corpus, with all of its words."""
        return logic.prepare(self, every=True)

    def describe(self, prepared: Prepared, splits: Mapping[str, Labelled]) -> dict[str, Any]:
        """Tell what the corpus is."""
        counts = {name: len(split.labels) for name, split in splits.items()}
        fingerprint = prepared.information["fingerprint"]
        return {"name": self.name, "fingerprint": fingerprint, "counts": counts, "vectors": None}


@dataclass
class PairColumns(ColumnNames):
    """Which column of the files is what."""

    first: str = "first"
    """The first text."""

    second: str = "second"
    """The second text."""

    label: str = "label"
    """What to tell of the two."""


@dataclass
class PairFiles(OwnFiles):
    """A user's own pairs of texts."""

    table, inputs = "own-pair", ("first", "second")

    columns: PairColumns = field(default_factory=PairColumns)
    """Which column is what."""


TASK = Task(kind=PAIR, sources=(PairFiles, SNLIData, LogicPairs), paper=PAPER)
