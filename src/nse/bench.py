"""The benchmark: backends side by side in one run, and no speed without a green parity check.

Times are medians of repeated calls, the backends taking turns. Peak memory is measured for each row in
a process of its own: how far the call raised the process's high-water mark of resident memory.
"""

from __future__ import annotations

import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from nse.errors import BackendError
from nse.nn.encoder import NSE, Encoding


class Shape(NamedTuple):
    """One measurement: B sequences of T words of size k, forward only or with the backward pass."""

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
SIDES = ("reference", "lean")
TOLERANCE = 1e-4


def run(quick: bool, threads: int, log: Console) -> dict[str, Any]:
    """Measure everything: the machine, its versions, and a row per backend and shape."""
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    for shape in QUICK if quick else SHAPES:
        check_parity(shape)
        times = measure(shape)
        for backend in SIDES:
            rows.append(
                {
                    "name": f"nse-{backend}",
                    "backend": backend,
                    "B": shape.B,
                    "T": shape.T,
                    "k": shape.k,
                    "dtype": "float32",
                    "mode": shape.mode,
                    "ms": round(statistics.median(times[backend]), 3),
                    "ms_all": [round(ms, 3) for ms in times[backend]],
                    "peak_mb": peak_mb(backend, shape, threads),
                }
            )
            log.print(f"{backend} B={shape.B} T={shape.T} {shape.mode}: {rows[-1]['ms']} ms", highlight=False)
    return {"machine": machine(threads), "rows": rows}


def machine(threads: int) -> dict[str, Any]:
    """Where the figures were measured."""
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


def encoder_and_words(backend: str, shape: Shape) -> tuple[NSE, Tensor]:
    """The same weights and words for every backend."""
    torch.manual_seed(0)
    encoder = NSE(shape.k, backend=backend)
    return encoder, torch.randn(shape.B, shape.T, shape.k, requires_grad=shape.mode == "train")


def once(encoder: NSE, x: Tensor, mode: str) -> Encoding:
    """What is timed: a forward pass, or forward and backward for words and weights alike."""
    if mode == "forward":
        with torch.no_grad():
            out: Encoding = encoder(x)
        return out
    encoder.zero_grad()
    x.grad = None
    out = encoder(x)
    out.outputs.sum().backward()
    return out


def check_parity(shape: Shape) -> None:
    """Refuse to measure backends that do not agree."""
    results = []
    for backend in SIDES:
        encoder, x = encoder_and_words(backend, shape)
        out = once(encoder, x, shape.mode)
        gradients = [p.grad for p in (x, *encoder.parameters()) if p.grad is not None]
        results.append([out.outputs.detach(), out.memory.slots.detach(), *gradients])
    for a, b in zip(*results, strict=True):
        error = ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()
        if not error < TOLERANCE:
            raise BackendError(
                f"{' and '.join(SIDES)} differ by {error:.1e} at {shape}: no speed is worth that"
            )


def measure(shape: Shape) -> dict[str, list[float]]:
    """Milliseconds of each call, the backends taking turns after a warm-up."""
    sides = {backend: encoder_and_words(backend, shape) for backend in SIDES}
    times: dict[str, list[float]] = {backend: [] for backend in SIDES}
    for repeat in range(shape.repeats + 1):
        for backend, (encoder, x) in sides.items():
            started = time.perf_counter()
            once(encoder, x, shape.mode)
            if repeat:
                times[backend].append(1e3 * (time.perf_counter() - started))
    return times


def peak_mb(backend: str, shape: Shape, threads: int) -> float:
    """Peak memory of one call, in a process of its own."""
    command = [sys.executable, "-m", "nse.bench", backend, json.dumps(shape), str(threads)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(answer.stdout)


def peak_of_one_call(backend: str, shape: Shape) -> float:
    """How far one call raises the high-water mark of resident memory, in MiB."""
    small = Shape(1, 2, shape.k, shape.mode, 1)
    once(*encoder_and_words(backend, small), small.mode)  # libraries load and threads start
    encoder, x = encoder_and_words(backend, shape)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    once(encoder, x, shape.mode)
    return round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1)


def table(report: dict[str, Any]) -> Table:
    """The rows as a table, with how lean compares with the reference."""
    shown = Table(title=f"{report['machine']['cpu']}, {report['machine']['threads']} threads")
    for column in ("B", "T", "k", "mode", "backend", "ms", "peak MiB", "speed-up", "memory"):
        shown.add_column(column, justify="left" if column in ("mode", "backend") else "right")
    for row in report["rows"]:
        if row["backend"] == SIDES[0]:
            base = row
        sizes = [str(row[name]) for name in ("B", "T", "k", "mode", "backend")]
        share = f"{row['peak_mb'] / base['peak_mb']:.3f}" if base["peak_mb"] else ""
        shown.add_row(
            *sizes, f"{row['ms']:.2f}", f"{row['peak_mb']:.1f}", f"{base['ms'] / row['ms']:.2f}", share
        )
    return shown


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    print(peak_of_one_call(sys.argv[1], Shape(*json.loads(sys.argv[2]))))
