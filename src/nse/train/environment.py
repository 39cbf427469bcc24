"""Environment of a run: versions, device, precision and CPU threads."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import nse
from nse.inference.kinds import KINDS
from nse.train.distributed import Processes

SMALL_MODEL_SIZE = 128
"""Below this size one thread is used, because the threads of small matrix products mostly wait for each
other: two are a quarter to a third faster on an idle machine, and less than half as fast next to a busy
process. Documents have large products, of many sentences at a time. Figures: docs/training.md."""


def describe_environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Return versions, device and number of processes; nothing that identifies a machine or a person."""
    return {
        "nse": nse.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": get_device_name(device),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def get_device_name(device: torch.device) -> str:
    """Return the name of a device, such as "NVIDIA H200" or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def set_thread_count(recipe: Any, checkpoint: dict[str, Any] | None, processes: Processes) -> None:
    """Set the number of CPU threads of this process; it never depends on how busy the machine is.

    The first of these counts: `train.threads`; the number in the checkpoint, for as many processes;
    OMP_NUM_THREADS; 1 for a small model, unless it reads documents; the number of cores.
    """
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    elif checkpoint and len(checkpoint["processes"]) == processes.size:
        torch.set_num_threads(checkpoint["processes"][processes.rank]["threads"])
    elif "OMP_NUM_THREADS" in os.environ or KINDS[recipe.task].has_sentences:
        return
    elif recipe.model.size < SMALL_MODEL_SIZE:
        torch.set_num_threads(1)


@contextmanager
def set_precision(tf32: bool, device: torch.device) -> Iterator[None]:
    """Multiply in TF32 or float32 on a GPU in the block; restore precision and thread count after it."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn_tf32 = torch.backends.cudnn.allow_tf32
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = cudnn_tf32
