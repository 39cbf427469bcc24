"""Looks at what steps gave, as rarely as a device needs; a loss that is not finite stops a run."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nse.train.state import NotFiniteError, Sums

EVERY = 50
"""Steps between two looks on a GPU."""

SHOWN = 8
"""So many examples of a batch are named."""


class Seen(NamedTuple):
    """A step that was taken."""

    where: str  # which one, for people
    batch: Tensor  # the numbers of its examples
    size: int  # how many of them this process had
    result: Tensor  # [3], as `Step` returns it


class Coming(NamedTuple):
    """The results of some steps, on their way to the host."""

    steps: list[Seen]
    results: Tensor  # [N, 3], in the order of the steps, once they are there
    there: torch.cuda.Event | None  # when they are; `None` where they need not come


def fetch(steps: list[Seen]) -> Coming:
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
    """Adds up the results of steps every so often, on a GPU those of the period before: it is not to wait."""

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
        """Wait for all results and add them up; one that is not finite is an error."""
        self.turn()
        self.turn()  # at what the first one sent for

    def turn(self) -> None:
        """Send for what is unseen, and add up what was sent for before."""
        before, self.coming = self.coming, fetch(self.unseen) if self.unseen else None
        self.unseen = []
        if before is None:
            return
        if before.there is not None:
            before.there.synchronize()
        for seen, (loss, right, norm) in zip(before.steps, before.results.tolist(), strict=True):
            refuse_not_finite("loss", loss, seen)
            refuse_not_finite("gradient's norm", norm, seen)
            self.sums.loss += loss * seen.size
            self.sums.right += right if seen.size else 0
            self.sums.examples += seen.size


def refuse_not_finite(what: str, value: float, seen: Seen) -> None:
    """Refuse a value that is not finite."""
    if not math.isfinite(value):
        first = ", ".join(map(str, seen.batch[:SHOWN].tolist()))
        more = ", ..." if len(seen.batch) > SHOWN else ""
        raise NotFiniteError(
            f"the {what} is {value} at {seen.where} (examples {first}{more}): "
            "try a smaller train.rate or train.clip"
        )
