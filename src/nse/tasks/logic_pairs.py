"""Source of the built-in corpus, whose generator is data/readers/logic.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from nse.data.cache import PreparedData
from nse.data.catalogue import DataSet
from nse.data.prepare import prepare
from nse.data.readers import logic
from nse.data.readers.logic_grammar import LABELS
from nse.inference.folder import ModelConfig
from nse.tasks.source import DataSource, NamedSplit
from nse.text.vocabulary import Vocabulary


@dataclass
class LogicPairs(logic.LogicData, DataSource):
    """Built-in corpus of pairs of sentences, generated on each load."""

    table = logic.NAME
    name: Literal["logic"] = "logic"
    """Name of the data set."""

    def __post_init__(self) -> None:
        """Raise ValueError if there are no training pairs or no dev pairs."""
        if self.train < 1 or self.dev < 1:
            raise ValueError(f"data.train and data.dev must be at least 1, got {self.train}, {self.dev}")

    def prepare(self, folder: Path | None, min_count: int = 1) -> PreparedData:
        """Generate all splits, with the vocabulary in alphabetical order; `folder` is not used."""
        rows = logic.read(self)
        data_set = DataSet(LABELS, "whitespace", find_sources=lambda _: {}, read=lambda _: rows)
        prepared = prepare(logic.NAME, None, Path(), data_set, min_count)
        prepared.information["fingerprint"] = logic.compute_fingerprint(rows)
        vocabulary = Vocabulary.from_texts([prepared.vocabulary.words])
        ids = np.array(vocabulary.encode(prepared.vocabulary.words), np.int32)
        for split in prepared.splits.values():
            for name, column in split.texts.items():
                split.texts[name] = column._replace(ids=ids[column.ids])
        return replace(prepared, vocabulary=vocabulary)

    def prepare_split(self, split: str | None, folder: Path | None, config: ModelConfig) -> NamedSplit:
        """Generate the corpus, with all of its words."""
        return self.prepare(folder, min_count=0), split or "test"
