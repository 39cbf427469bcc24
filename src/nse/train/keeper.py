"""Where a training leaves what must not be lost."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from nse.text.tensors import Labelled
from nse.train.signals import Stop


class Keeper:
    """Keeps nothing, for a training without a folder; a run's own keeper writes.

    In a run of many processes each has one, but only the first process's is asked to load and to write.

    Attributes:
        stop: Whether this process was asked to stop.
        saved: The step of the last state that was saved; `None` before.
    """

    def __init__(self) -> None:
        self.stop = Stop()
        self.saved: int | None = None

    def load(self) -> dict[str, Any] | None:
        """The packed state to go on from; `None` starts from the beginning."""
        return None

    def due(self) -> bool:
        """Whether it is time to save, though no epoch is over."""
        return False

    def save(self, packed: dict[str, Any]) -> None:
        """Keep a packed state instead of the last one."""

    def best(self, model: nn.Module, row: dict[str, Any]) -> None:
        """Keep the model of the best epoch so far."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Take note of the figures of an epoch."""

    def scored(self, name: str, scores: Tensor, split: Labelled) -> None:
        """Take note of what the best model says of a split: scores [N, labels]."""

    def left(self) -> str:
        """What is left after an error."""
        return "nothing was saved"
