"""Benchmark of the backends, in one run. Nothing is timed before it agrees with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import nse  # noqa: F401, first, because it sets how PyTorch's threads wait

# isort: split
import torch
from rich.console import Console

from benchmarks.speed import cpu, gpu
from benchmarks.speed.cpu import PARTS
from benchmarks.speed.plan import FULL, QUICK
from benchmarks.speed.report import compute_ratios, format_markdown, format_tables
from nse.errors import BackendError

__all__ = ["compute_ratios", "format_markdown", "format_tables", "run"]


def run(
    *,
    quick: bool,
    threads: int,
    log: Console,
    device: str = "auto",
    parts: Sequence[str] = PARTS,
    skip: Sequence[str] = (),
    save: Callable[[dict[str, Any]], None] = lambda report: None,
) -> dict[str, Any]:
    """Measure on one device; return the machine and a row per side and shape.

    Args:
        quick: Tiny sizes, to see that everything works.
        threads: CPU threads; ignored on a CUDA device.
        log: Console for each row as soon as it is measured.
        device: "cpu", "cuda", or "auto" for a CUDA device if there is one.
        parts: What to measure on a CPU.
        skip: Sides to leave out there.
        save: On a CUDA device, called after each shape with the report so far.
    """
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise BackendError(
            "--device cuda: PyTorch finds no CUDA device here; "
            "use --device cpu, or a PyTorch built for CUDA on a machine that has one"
        )
    if device == "cuda" or (device == "auto" and has_cuda):
        return gpu.run(QUICK if quick else FULL, log, save)
    return cpu.run(cpu.QUICK if quick else cpu.FULL, threads, log, parts, skip)
