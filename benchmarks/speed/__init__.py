"""The benchmark: backends side by side in one run, and no speed without a green parity check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console

from benchmarks.speed import cpu, gpu
from benchmarks.speed.plan import FULL, QUICK
from benchmarks.speed.report import figures, markdown, table
from nse.errors import BackendError

__all__ = ["figures", "markdown", "run", "table"]


def run(
    *,
    quick: bool,
    threads: int,
    log: Console,
    device: str = "auto",
    save: Callable[[dict[str, Any]], None] = lambda report: None,
) -> dict[str, Any]:
    """Measure on one device: where it was measured, and a row per side and shape.

    Args:
        quick: Tiny sizes, to see that everything works.
        threads: CPU threads; of no account on a CUDA device.
        log: Where each row is told as soon as it is measured.
        device: "cpu", "cuda", or "auto" for a CUDA device where there is one.
        save: On a CUDA device, called after each shape with the report so far.
    """
    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise BackendError(
            "--device cuda: PyTorch finds no CUDA device here; "
            "use --device cpu, or a PyTorch built for CUDA on a machine that has one"
        )
    if device == "cuda" or (device == "auto" and there):
        return gpu.run(QUICK if quick else FULL, log, save)
    return cpu.run(quick, threads, log)
