"""What a run computes on: versions, device, threads and the precision of products."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import nse
from nse.train.distributed import Team

SMALL = 128
"""Below so many numbers a vector, products are so small that threads mostly wait for each other: one is
a quarter to a third slower than two on an idle machine, and more than twice as fast beside a busy neighbour.
Documents are read many sentences at a time, so their products are large. docs/training.md has the figures."""


def environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Return versions, device and number of processes; nothing that names a machine or a person."""
    return {
        "nse": nse.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": device_name(device),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def device_name(device: torch.device) -> str:
    """Return what the device is called, such as NVIDIA H200; a CPU is "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def take_threads(recipe: Any, packed: dict[str, Any] | None, team: Team) -> None:
    """Set the number of threads of this process: by the recipe, never by how busy the machine is.

    In this order: `train.threads`; as many as the run began with, if it had as many processes;
    OMP_NUM_THREADS; one for a small model, unless it reads documents; as many as there are cores.
    """
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    elif packed and len(packed["processes"]) == team.size:
        torch.set_num_threads(packed["processes"][team.rank]["threads"])
    elif "OMP_NUM_THREADS" not in os.environ and recipe.model.size < SMALL and recipe.task != "documents":
        torch.set_num_threads(1)


@contextmanager
def compute_with(tf32: bool, device: torch.device) -> Iterator[None]:
    """Let a GPU multiply in TF32, or in float32; in the end that and the number of threads are as before."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    of_cudnn = torch.backends.cudnn.allow_tf32
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = of_cudnn
