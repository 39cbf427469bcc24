"""Sentence classification (section 4.3 of the paper): is what a sentence says of a film good or bad?

The data is the Stanford Sentiment Treebank, trained on all labelled phrases of the training trees and
evaluated on whole sentences; or a user's own texts. Recipes `sst/binary` and `sst/fine` are the paper's two
models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from nse.data.cache import EncodedSplit, PreparedData
from nse.data.prepare import load_or_prepare
from nse.inference.kinds import SENTENCE
from nse.tasks.source import ColumnNames, OwnFiles, PublishedData
from nse.tasks.task import Task
from nse.text.tensors import LabelledRows


@dataclass
class SSTData(PublishedData):
    """The Stanford Sentiment Treebank."""

    table = "sst"
    name: Literal["sst"] = "sst"
    """Name of the data set."""
    labels: Literal["binary", "fine"] = "binary"
    """fine: five labels, very negative to very positive. binary: two, without neutral phrases."""
    phrases: Literal["once", "all"] = "once"
    """Training phrases: each distinct phrase once, or as often as it occurs in the trees."""

    def prepare(self, folder: Path | None) -> PreparedData:
        """Take or prepare the treebank with these labels."""
        return load_or_prepare(f"sst-{self.labels}", self.vectors or None, folder)

    def pick(self, rows: LabelledRows, columns: EncodedSplit) -> LabelledRows:
        """Pick the rows that do not repeat an earlier one: the same ids, the same label."""
        if self.phrases == "all":
            return rows
        ids, lengths, _ = columns.texts["sentence"]
        ends = lengths.cumsum()
        places = zip((ends - lengths).tolist(), ends.tolist(), columns.labels.tolist(), strict=True)
        first: dict[tuple[bytes, int], int] = {}
        for number, (start, end, label) in enumerate(places):
            first.setdefault((ids[start:end].tobytes(), label), number)
        return rows.select(torch.tensor(list(first.values())))


@dataclass
class SentenceColumns(ColumnNames):
    """Which column of the files is what."""

    text: str = "text"
    """Column of the text."""
    label: str = "label"
    """Column of the label."""


@dataclass
class SentenceFiles(OwnFiles):
    """A user's own texts."""

    table, inputs = "own-sentence", ("text",)
    columns: SentenceColumns = field(default_factory=SentenceColumns)
    """Names of the columns."""


TASK = Task(
    kind=SENTENCE,
    sources=(SentenceFiles, SSTData),
    paper={"sst/binary": {"accuracy": 0.897}, "sst/fine": {"accuracy": 0.528}},
)
