"""What every reader of a data set gives."""

from __future__ import annotations

from typing import NamedTuple


class Rows(NamedTuple):
    """The labelled rows of one split.

    Attributes:
        texts: The columns by name, such as premise and hypothesis; a text for each row.
        labels: The number of each row's label.
        read: How many rows the file holds, those that are dropped for want of a label too.
        groups: For a ranking, which question each row belongs to, numbered from 0 in the order of the file;
            None where rows stand alone.
    """

    texts: dict[str, list[str]]
    labels: list[int]
    read: int
    groups: list[int] | None = None
