"""What every reader of a data set gives."""

from __future__ import annotations

from typing import NamedTuple


class Rows(NamedTuple):
    """The labelled rows of one split.

    Attributes:
        texts: The columns by name, such as premise and hypothesis; a text for each row. A document is its
            sentences, one a line.
        labels: The number of each row's label; 0 where there are none, as in a translation.
        read: How many rows the file holds, those that are dropped for want of a label too.
        groups: For a ranking, which question each row belongs to, numbered from 0 in the order of the file;
            None where rows stand alone.
        tokenized: Whether the texts are words already, with one space between two.
    """

    texts: dict[str, list[str]]
    labels: list[int]
    read: int
    groups: list[int] | None = None
    tokenized: bool = False
