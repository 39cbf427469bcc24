"""Sentence classification (section 4.3 of the paper): is a sentence about a film positive or negative?

The data is the Stanford Sentiment Treebank, with all labelled phrases for training and whole sentences for
testing, or your own texts. The paper's two models are the recipes `sst/binary` and `sst/fine`.
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
    """Stanford Sentiment Treebank."""

    table = "sst"
    name: Literal["sst"] = "sst"
    """Name of the data set."""
    labels: Literal["binary", "fine"] = "binary"
    """fine: five labels, very negative to very positive. binary: two, without neutral phrases."""
    phrases: Literal["once", "all"] = "once"
    """Training phrases: each distinct phrase once, or as often as it occurs in the trees."""

    def prepare(self, folder: Path | None) -> PreparedData:
        """Load or prepare the treebank with these labels."""
        return load_or_prepare(f"sst-{self.labels}", self.vectors or None, folder)

    def select_rows(self, rows: LabelledRows, split: EncodedSplit) -> LabelledRows:
        """Select the first of all rows with the same ids and label."""
        if self.phrases == "all":
            return rows
        ids, lengths, _ = split.texts["sentence"]
        ends = lengths.cumsum()
        spans = zip((ends - lengths).tolist(), ends.tolist(), split.labels.tolist(), strict=True)
        first_rows: dict[tuple[bytes, int], int] = {}
        for row, (start, end, label) in enumerate(spans):
            first_rows.setdefault((ids[start:end].tobytes(), label), row)
        return rows.select(torch.tensor(list(first_rows.values())))


@dataclass
class SentenceColumns(ColumnNames):
    """Columns of files of texts."""

    text: str = "text"
    """Column of the text."""
    label: str = "label"
    """Column of the label."""


@dataclass
class SentenceFiles(OwnFiles):
    """Your own texts."""

    table, inputs = "own-sentence", ("text",)
    columns: SentenceColumns = field(default_factory=SentenceColumns)
    """Names of the columns."""


TASK = Task(
    kind=SENTENCE,
    sources=(SentenceFiles, SSTData),
    paper_results={"sst/binary": {"accuracy": 0.897}, "sst/fine": {"accuracy": 0.528}},
)
