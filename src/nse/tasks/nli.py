"""Natural language inference (section 4.1 of the paper): does a premise entail or contradict a hypothesis?

The data is SNLI, the built-in corpus, or a user's own pairs of texts. Recipes `snli/nse`, `snli/mma` and
`snli/mma-attention` are the paper's three models.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from nse.data.cache import EncodedSplit, PreparedData
from nse.data.catalogue import DataSet
from nse.data.prepare import prepare
from nse.data.readers import logic
from nse.data.readers.logic_grammar import LABELS as LOGIC_LABELS
from nse.inference.folder import ModelConfig
from nse.inference.kinds import PAIR
from nse.tasks.source import ColumnNames, DataSource, NamedSplit, OwnFiles, PublishedData
from nse.tasks.task import Task
from nse.text.tensors import LabelledRows
from nse.text.vocabulary import Vocabulary


@dataclass
class SNLIData(PublishedData):
    """SNLI."""

    table = "snli"
    name: Literal["snli"] = "snli"
    """Name of the data set."""
    train: int = 0
    """Number of training pairs, the first of the file; 0 for all."""

    def __post_init__(self) -> None:
        """Refuse a number of pairs that is none."""
        if self.train < 0:
            raise ValueError(f"train must be at least 0, got {self.train}")

    def pick(self, rows: LabelledRows, columns: EncodedSplit) -> LabelledRows:
        """Pick the first pairs."""
        return rows.select(torch.arange(len(rows.labels))[: self.train]) if self.train else rows


@dataclass
class LogicPairs(logic.LogicData, DataSource):
    """The built-in corpus."""

    table = logic.NAME
    name: Literal["logic"] = "logic"
    """Name of the data set."""

    def __post_init__(self) -> None:
        """Refuse a corpus without anything to learn from or to choose by."""
        if self.train < 1 or self.dev < 1:
            raise ValueError(f"data.train and data.dev must be at least 1, got {self.train}, {self.dev}")

    def prepare(self, folder: Path | None, least: int = 1) -> PreparedData:
        """Generate the corpus; no folder of data is looked at. Its words are in the order of the alphabet."""
        rows = logic.read(self)
        entry = DataSet(LOGIC_LABELS, "whitespace", find_sources=lambda _: {}, read=lambda _: rows)
        found = prepare(logic.NAME, None, Path(), entry, least)
        found.information["fingerprint"] = logic.compute_fingerprint(rows)
        vocabulary = Vocabulary.from_texts([found.vocabulary.words])
        ids = np.array(vocabulary.encode(found.vocabulary.words), np.int32)
        for columns in found.splits.values():
            for name, column in columns.texts.items():
                columns.texts[name] = column._replace(ids=ids[column.ids])
        return replace(found, vocabulary=vocabulary)

    def prepare_split(self, split: str | None, folder: Path | None, config: ModelConfig) -> NamedSplit:
        """Generate the corpus with all of its words."""
        return self.prepare(folder, least=0), split or "test"


@dataclass
class PairColumns(ColumnNames):
    """Which column of the files is what."""

    first: str = "first"
    """Column of the first text."""
    second: str = "second"
    """Column of the second text."""
    label: str = "label"
    """Column of the label."""


@dataclass
class PairFiles(OwnFiles):
    """A user's own pairs of texts."""

    table, inputs = "own-pair", ("first", "second")
    columns: PairColumns = field(default_factory=PairColumns)
    """Names of the columns."""


TASK = Task(
    kind=PAIR,
    sources=(PairFiles, SNLIData, LogicPairs),
    paper={
        "snli/nse": {"accuracy": 0.846},
        "snli/mma": {"accuracy": 0.848},
        "snli/mma-attention": {"accuracy": 0.854},
        "snli/nse-letter": {"accuracy": 0.846},
        "snli/mma-letter": {"accuracy": 0.848},
        "snli/mma-attention-letter": {"accuracy": 0.854},
    },
)
