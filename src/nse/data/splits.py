"""What every reader of a data set gives."""

from __future__ import annotations

from typing import NamedTuple

SPLITS = ("train", "dev", "test")


class Rows(NamedTuple):
    """The labelled rows of one split."""

    texts: dict[str, list[str]]
    """The columns by name, such as premise and hypothesis. A document is its sentences, one a line."""
    labels: list[int]
    """The number of each row's label; 0 where there are none, as in a translation."""
    read: int
    """How many rows the file holds, those that are dropped for want of a label too."""
    groups: list[int] | None = None
    """Of a ranking: which question each row belongs to, from 0 in the order of the file."""
    tokenized: bool = False
    """Whether the texts are words already, with one space between two."""
