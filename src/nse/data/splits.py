"""What every reader of a data set gives."""

from __future__ import annotations

from typing import NamedTuple

SPLITS = ("train", "dev", "test")


class Rows(NamedTuple):
    """The labelled rows of one split."""

    texts: dict[str, list[str]]  # the columns by name; a document is its sentences, one a line
    labels: list[int]  # the number of each row's label; 0 where there are none, as in a translation
    read: int  # how many rows the file holds, those that are dropped for want of a label too
    groups: list[int] | None = None  # of a ranking: the question of each row, from 0 in the order of the file
    tokenized: bool = False  # whether the texts are words already, with one space between two
