"""Looks at what steps gave, as rarely as a device needs; a loss or gradient that is no number stops a run."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nse.errors import RunError
from nse.train.state import Sums

EVERY = 50
"""Steps between two looks on a GPU."""

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


class Coming(NamedTuple):
    """The results of some steps, on their way to the host.

    Attributes:
        steps: Of which.
        results: [N, 3], theirs in that order, once they are there.
        there: When they are; `None` where they need not come.
    """

    steps: list[Seen]
    results: Tensor
    there: torch.cuda.Event | None


def fetched(steps: list[Seen]) -> Coming:
    """Send for the results of steps, without waiting for them."""
    results = torch.stack([step.result for step in steps])
    if not results.is_cuda:
        return Coming(steps, results, None)
    on_host = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
    on_host.copy_(results, non_blocking=True)
    there = torch.cuda.Event()
    there.record()
    return Coming(steps, on_host, there)


class Watch:
    """Looks at the results of steps.

    On a GPU it looks at those of the last but one period, so that the device has work while the host looks.

    Args:
        sums: What they are added to.
        every: Steps between two looks.
    """

    def __init__(self, sums: Sums, every: int):
        self.sums, self.every = sums, every
        self.unseen: list[Seen] = []
        self.coming: Coming | None = None

    def add(self, seen: Seen) -> None:
        """Take one more step's result, and look at earlier ones if it is time."""
        self.unseen.append(seen)
        if len(self.unseen) >= self.every:
            self.turn() if seen.result.is_cuda else self.look()

    def look(self) -> None:
        """Wait for all results and add them up.

        Raises:
            NotFiniteError: One is not finite.
        """
        self.turn()
        self.turn()  # at what the first one sent for

    def turn(self) -> None:
        """Send for what is unseen, and look at what was sent for before."""
        before, self.coming = self.coming, fetched(self.unseen) if self.unseen else None
        self.unseen = []
        self.take(before)

    def take(self, coming: Coming | None) -> None:
        """Add up what has come."""
        if coming is None:
            return
        if coming.there is not None:
            coming.there.synchronize()
        for seen, (loss, right, norm) in zip(coming.steps, coming.results.tolist(), strict=True):
            refuse("loss", loss, seen)
            refuse("gradient's norm", norm, seen)
            self.sums.loss += loss * seen.size
            self.sums.right += right if seen.size else 0
            self.sums.examples += seen.size


def refuse(what: str, value: float, seen: Seen) -> None:
    """Refuse a value that is not finite."""
    if not math.isfinite(value):
        first = ", ".join(map(str, seen.batch[:SHOWN].tolist()))
        more = ", ..." if len(seen.batch) > SHOWN else ""
        raise NotFiniteError(f"the {what} is {value} at {seen.where} (examples {first}{more}): {TRY}")
