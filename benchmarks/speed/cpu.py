"""Benchmark on the CPU: all backends in one run, timed only after they agree.

Times are medians of repeated calls after a warm-up, the backends taking turns. The first call and peak memory
are measured for each row in a process of its own: how long one call takes before the allocator has the
memory it needs, and how far it raises the process's resident memory (read from /proc, so on Linux only).
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor, nn

from nse.errors import BackendError
from nse.nn.encoder import NSE, Encoding


class Shape(NamedTuple):
    """Shape of a measurement: B sequences of T words of size k, with or without the backward pass."""

    B: int
    T: int
    k: int
    mode: str
    repeats: int


SHAPES = [
    Shape(1, 25, 300, "forward", 200),
    Shape(1, 25, 300, "train", 50),
    Shape(8, 25, 300, "forward", 50),
    Shape(128, 25, 300, "forward", 20),
    Shape(128, 25, 300, "train", 10),
    Shape(8, 400, 300, "forward", 5),
    Shape(8, 400, 300, "train", 5),
]
QUICK = [Shape(2, 5, 8, "forward", 2), Shape(2, 5, 8, "train", 2)]
SIDES = ("reference", "torch")
PEER = "lstm"  # PyTorch's own LSTM of two layers, as many as an NSE has: what a recurrence can cost
TOLERANCE = 1e-4


def run(quick: bool, threads: int, log: Console) -> dict[str, Any]:
    """Measure all shapes; return the machine and a row per backend and shape."""
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    for shape in QUICK if quick else SHAPES:
        check_parity(shape)
        times = measure(shape)
        for backend in (*SIDES, PEER):
            rows.append(
                {
                    "name": "nn.LSTM, two layers" if backend == PEER else "NSE",
                    "backend": backend,
                    "B": shape.B,
                    "T": shape.T,
                    "k": shape.k,
                    "dtype": "float32",
                    "mode": shape.mode,
                    "ms": round(statistics.median(times[backend]), 3),
                    "ms_least": round(min(times[backend]), 3),
                    "ms_most": round(max(times[backend]), 3),
                    "calls": shape.repeats,
                    **run_first_call(backend, shape, threads),
                }
            )
            log.print(f"{backend} B={shape.B} T={shape.T} {shape.mode}: {rows[-1]['ms']} ms", highlight=False)
    return {"machine": describe_machine(threads), "rows": rows}


def describe_machine(threads: int) -> dict[str, Any]:
    """Describe the machine and the versions."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            cpu = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "device": "cpu",
        "cpu": cpu,
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def make_subject(backend: str, shape: Shape) -> tuple[nn.Module, Tensor]:
    """Make a model and its input, with the same weights and words for every backend."""
    torch.manual_seed(0)
    x = torch.randn(shape.B, shape.T, shape.k, requires_grad=shape.mode == "train")
    if backend == PEER:
        return nn.LSTM(shape.k, shape.k, num_layers=2, batch_first=True), x
    return NSE(shape.k, backend=backend), x


def run_once(model: nn.Module, x: Tensor, mode: str) -> list[Tensor]:
    """Run a forward pass or, in training, a forward and backward pass for words and weights."""
    if mode == "forward":
        with torch.no_grad():
            return list_tensors(model(x))
    model.zero_grad()
    x.grad = None
    outputs = list_tensors(model(x))
    outputs[0].sum().backward()
    return [*outputs, *(p.grad for p in (x, *model.parameters()) if p.grad is not None)]


def list_tensors(output: Any) -> list[Tensor]:
    """List the outputs of an LSTM, or the outputs and memory of an NSE."""
    return [output.outputs, output.memory.slots] if isinstance(output, Encoding) else [output[0]]


def check_parity(shape: Shape) -> None:
    """Raise BackendError if the backends do not agree."""
    expected, actual = (run_once(*make_subject(backend, shape), shape.mode) for backend in SIDES)
    for a, b in zip(actual, expected, strict=True):
        error = ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()
        if not error < TOLERANCE:
            raise BackendError(
                f"{' and '.join(SIDES)} differ by {error:.1e} at {shape}: no speed is worth that"
            )


def measure(shape: Shape) -> dict[str, list[float]]:
    """Measure milliseconds of each call; the backends take turns after a warm-up."""
    sides = {backend: make_subject(backend, shape) for backend in (*SIDES, PEER)}
    times: dict[str, list[float]] = {backend: [] for backend in sides}
    warm_up = 1 + shape.repeats // 2  # short calls need many: libraries go on preparing for a while
    for repeat in range(warm_up + shape.repeats):
        for backend, (model, x) in sides.items():
            started = time.perf_counter()
            run_once(model, x, shape.mode)
            if repeat >= warm_up:
                times[backend].append(1e3 * (time.perf_counter() - started))
    return times


def run_first_call(backend: str, shape: Shape, threads: int) -> dict[str, float]:
    """Measure time and peak memory of one call in a new process."""
    command = [sys.executable, str(Path(__file__).parent), "--threads", str(threads)]
    command += ["--first-call", backend, json.dumps(shape)]
    answer: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer


def measure_first_call(backend: str, shape: Shape) -> dict[str, float]:
    """Measure milliseconds of one call and the MiB that it adds to the peak of resident memory."""
    small = Shape(1, 2, shape.k, shape.mode, 1)
    run_once(*make_subject(backend, small), small.mode)  # libraries load and threads start
    model, x = make_subject(backend, shape)
    before, started = read_resident_memory("VmRSS"), time.perf_counter()
    run_once(model, x, shape.mode)
    ms = 1e3 * (time.perf_counter() - started)
    return {"first_ms": round(ms, 3), "peak_mb": round(max(0.0, read_resident_memory("VmHWM") - before), 1)}


def read_resident_memory(field: str) -> float:
    """Read the resident memory of this process in MiB: now (VmRSS) or its peak (VmHWM)."""
    # Not getrusage: its maximum survives exec, so a child of a large process would start with that.
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(float(line.split()[1]) / 1024 for line in status if line.startswith(field))
