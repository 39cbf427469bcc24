"""What every reader of a data set gives."""

from __future__ import annotations

from typing import NamedTuple


class Rows(NamedTuple):
    """The labelled rows of one split.

    Attributes:
        texts: The columns by name, such as premise and hypothesis; a text for each row.
        labels: The number of each row's label.
        read: How many rows the file holds, those without a label too.
    """

    texts: dict[str, list[str]]
    labels: list[int]
    read: int
