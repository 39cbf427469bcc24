"""How many threads of the CPU a run computes on: those that it began with, for its bits depend on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nse.train.distributed import Team

SMALL = 128
"""Below so many numbers a vector, products are so small that threads mostly wait for each other: one is
a quarter to a third slower than two on an idle machine, and more than twice as fast beside a busy neighbour.
Documents are read many sentences at a time, so their products are large. docs/training.md has the figures."""


def take_threads(recipe: Any, packed: dict[str, Any] | None, team: Team) -> None:
    """Set the number of threads of this process: by the recipe, never by how busy the machine is.

    In this order: `train.threads`; as many as the run began with, if it had as many processes;
    OMP_NUM_THREADS; one for a small model, unless it reads documents; as many as there are cores.

    Args:
        recipe: The run's.
        packed: The state to go on from, if there is one.
        team: The processes.
    """
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    elif packed and len(packed["processes"]) == team.size:
        torch.set_num_threads(packed["processes"][team.rank]["threads"])
    elif "OMP_NUM_THREADS" not in os.environ and recipe.model.size < SMALL and recipe.task != "documents":
        torch.set_num_threads(1)


@contextmanager
def same_threads_after() -> Iterator[None]:
    """Set the number of threads back to what it was."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
