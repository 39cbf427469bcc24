"""Looks at what steps gave, as rarely as a device needs; a loss or gradient that is no number stops a run."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nse.errors import RunError
from nse.train.state import Sums

EVERY = 50
"""Steps between two looks on a GPU: each look waits for it."""

SHOWN = 8
"""So many examples of a batch are named."""

TRY = "try a smaller train.rate or train.clip"


class NotFiniteError(RunError):
    """A run came to a number that is none."""


class Seen(NamedTuple):
    """A step that was taken.

    Attributes:
        where: Which one, for people.
        batch: The numbers of its examples.
        size: How many of them this process had.
        result: [3], as `Step` returns it.
    """

    where: str
    batch: Tensor
    size: int
    result: Tensor


class Watch:
    """Looks at the results of steps.

    Args:
        sums: What they are added to.
        every: Steps between two looks.
    """

    def __init__(self, sums: Sums, every: int):
        self.sums, self.every = sums, every
        self.unseen: list[Seen] = []

    def add(self, seen: Seen) -> None:
        """Take one more step's result, without waiting for it unless it is time to look."""
        self.unseen.append(seen)
        if len(self.unseen) >= self.every:
            self.look()

    def look(self) -> None:
        """Wait for the results and add them up.

        Raises:
            NotFiniteError: One is not finite.
        """
        if not self.unseen:
            return
        results = torch.stack([seen.result for seen in self.unseen]).tolist()
        for seen, (loss, right, norm) in zip(self.unseen, results, strict=True):
            refuse("loss", loss, seen)
            refuse("gradient's norm", norm, seen)
            self.sums.loss += loss * seen.size
            self.sums.right += right if seen.size else 0
            self.sums.examples += seen.size
        self.unseen.clear()


def refuse(what: str, value: float, seen: Seen) -> None:
    """Refuse a value that is not finite."""
    if not math.isfinite(value):
        first = ", ".join(map(str, seen.batch[:SHOWN].tolist()))
        more = ", ..." if len(seen.batch) > SHOWN else ""
        raise NotFiniteError(f"the {what} is {value} at {seen.where} (examples {first}{more}): {TRY}")
