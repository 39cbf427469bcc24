"""How many threads of the CPU a run computes on: those that it began with, for its bits depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nse.train.distributed import Team


def take_threads(wanted: int, packed: dict[str, Any] | None, team: Team) -> None:
    """Set the number of threads of this process.

    Args:
        wanted: The recipe's; 0 takes as many as the run began with, else as many as PyTorch takes by itself.
        packed: The state to go on from, if there is one.
        team: The processes; if there were more or fewer, what the run began with does not count.
    """
    if wanted:
        torch.set_num_threads(wanted)
    elif packed and len(packed["processes"]) == team.size:
        torch.set_num_threads(packed["processes"][team.rank]["threads"])


@contextmanager
def same_threads_after() -> Iterator[None]:
    """Set the number of threads back to what it was."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
