"""Benchmark on the CPU: the backends, PyTorch's LSTM and peers in one run, timed only after they agree.

The sides take turns in rounds. In each a side is called for a fraction of a second, after one call that does
not count; its figure of the round is the median, and its ratio to the LSTM is that of the same round. Peak
memory is measured in a process of its own: how far one call raises the resident memory (from /proc, so on
Linux only).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.console import Console

from benchmarks.speed import parity, peers
from benchmarks.speed.calls import Eager, Problem, Results
from benchmarks.speed.plan import ENCODERS
from nse.errors import BackendError
from nse.nn.encoder import NSE


class Shape(NamedTuple):
    """B sequences of T words, forward or train, with bounds of the time over that of an LSTM."""

    B: int
    T: int
    mode: str
    must: float | None = None
    aim: float | None = None

    def __str__(self) -> str:
        """Return a label for the log."""
        return f"B={self.B} T={self.T} {self.mode}"


class Plan(NamedTuple):
    """Shapes to measure, and how long."""

    k: int
    shapes: Sequence[Shape]
    lengths: Sequence[tuple[int, Sequence[int]]]  # B, and the T to measure with it
    batches: tuple[int, Sequence[int]]  # T, and the B
    rounds: int
    seconds: float  # of a side in a round, unless a single call takes longer


FULL = Plan(
    k=300,
    shapes=(
        Shape(1, 25, "forward", 1.15, 0.8),
        Shape(8, 25, "forward", 1.25, 1.0),
        Shape(128, 25, "forward", 1.4, 1.25),
        Shape(8, 400, "forward", 1.9, 1.4),
        Shape(1, 400, "forward", 2.3, 1.4),
        Shape(1, 25, "train", 1.4, 1.0),
        Shape(128, 25, "train", 1.4, 1.25),
        Shape(8, 400, "train", 2.5, 1.6),
    ),
    lengths=((1, (25, 50, 100, 200, 400, 800, 1600)), (8, (25, 50, 100, 200, 400, 800, 1600))),
    batches=(25, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
    rounds=7,
    seconds=0.2,
)
QUICK = Plan(
    k=8,
    shapes=(Shape(2, 5, "forward", 1.0, 1.0), Shape(2, 5, "train")),
    lengths=((2, (3, 5)),),
    batches=(5, (1, 2)),
    rounds=2,
    seconds=0.01,
)
MEMORY = Shape(8, 400, "train", 0.06, 0.03)
"""Bounds of the peak memory over the reference's."""

PARTS = ("shapes", "growth", "isa")

BACKENDS = ("reference", "torch", "cpu")
LSTM = "lstm"  # PyTorch's own, of two layers, as many as an NSE has
PEERS = ("torch.compile", "jax", "onnxruntime")
GROWTH = ("torch", "cpu", LSTM)

TOLERANCE = 1e-3  # of the norm of each tensor
SLOW = 0.5  # seconds: a side whose calls take longer has SLOW_ROUNDS rounds, of one call each
SLOW_ROUNDS = 3
IDLE = 0.02  # seconds before a burst, for the threads of the side before to stop waiting actively
MAX_CALLS = 50  # of a side in a round
MAX_SECONDS = 10  # the plain loop is not measured where it would take longer
MAX_COMPILED_LENGTH = 25  # the compiler unrolls the loop, and takes a minute for 25 words
Run = Callable[[], object]


def run(
    plan: Plan, threads: int, log: Console, parts: Sequence[str] = PARTS, skip: Sequence[str] = ()
) -> dict[str, Any]:
    """Measure all parts or some; return the machine and the rows of each."""
    from benchmarks.speed.instruction_sets import compare_instruction_sets

    torch.set_num_threads(threads)
    report: dict[str, Any] = {"machine": describe_machine(threads)}
    if "shapes" in parts:
        report |= measure_shapes(plan, threads, log, skip)
    if "growth" in parts:
        report["growth"] = measure_growth(plan, log)
    if "isa" in parts:
        report["isa"] = compare_instruction_sets(plan, threads, log)
    return report


def describe_machine(threads: int) -> dict[str, Any]:
    """Describe the machine and the versions."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            cpu = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    versions = {name: peers.find_version(name) for name in ("torch", "jax", "onnxruntime")}
    spins = os.environ.get("GOMP_SPINCOUNT")  # how long a thread of PyTorch waits before it sleeps
    where = {"device": "cpu", "cpu": cpu, "threads": threads, "spins": spins}
    return {**where, **versions, "python": platform.python_version()}


def measure_shapes(plan: Plan, threads: int, log: Console, skip: Sequence[str]) -> dict[str, Any]:
    """Measure every side at every shape; return rows, and what is missing and why."""
    obstacles = {side: find_obstacle(side) for side in (*BACKENDS, *PEERS) if side not in skip}
    missing = [{"backend": side, "reason": reason} for side, reason in obstacles.items() if reason]
    for each in missing:
        log.print(
            f"{each['backend']} is left out: {each['reason']}", highlight=False, markup=False, soft_wrap=True
        )
    rows: list[dict[str, Any]] = []
    for shape in plan.shapes:
        problem, sides = draw_problem(shape, plan.k), [side for side in obstacles if not obstacles[side]]
        calls = {side: prepare(side, problem, shape.mode) for side in sides if supports(side, shape)}
        calls[LSTM] = prepare(LSTM, problem, shape.mode)
        seconds = check_parity(calls, shape)
        for row in measure_in_turns(calls, shape, plan):
            if row["backend"] in ("torch.compile", "jax"):
                row["compile_s"] = round(seconds[row["backend"]], 1)
            if shape.mode == "train" and row["backend"] not in PEERS:
                row["peak_mb"] = run_memory_child(row["backend"], shape, plan.k, threads)
            rows.append(row)
            log.print(f"{row['backend']} {shape}: {describe_row(row)}", highlight=False)
    return {"rows": rows, "missing": missing}


def describe_row(row: dict[str, Any]) -> str:
    """Describe a figure in words."""
    return f"{row['ms']} ms, {row['over_lstm']} times nn.LSTM"


def find_obstacle(side: str) -> str | None:
    """Return why a side cannot be measured on this machine, or `None`."""
    if side == LSTM:
        return None
    if side in PEERS:
        return peers.find_cpu_obstacle(side)
    try:
        NSE(1, backend=side)
    except BackendError as error:
        return str(error)
    return None


def supports(side: str, shape: Shape) -> bool:
    """Return whether a side is measured at a shape."""
    if side == "onnxruntime":
        return shape.mode == "forward"
    return side != "torch.compile" or shape.T <= MAX_COMPILED_LENGTH


def draw_problem(shape: Shape, k: int) -> Problem:
    """Draw words of this shape, and weights that do not depend on it: onnxruntime's model is made once."""
    weights = Problem.draw(1, 1, k, torch.float32, "cpu").weights
    return Problem.draw(shape.B, shape.T, k, torch.float32, "cpu")._replace(weights=weights)


def prepare(side: str, problem: Problem, mode: str) -> Callable[[], Results]:
    """Prepare the call of a side."""
    if side == "jax":
        return peers.make_jax_call(problem, mode)
    if side == "onnxruntime":
        return peers.make_onnx_call(problem)
    if side == LSTM:
        return Eager(peers.lstm(problem), problem, mode)
    model = problem.make_encoder("reference" if side == "torch.compile" else side)
    if side == "torch.compile":
        torch.compiler.reset()  # its cache of compiled shapes is small
        model.compile(dynamic=False)
    return Eager(model, problem, mode)


def check_parity(calls: Mapping[str, Callable[[], Results]], shape: Shape) -> dict[str, float]:
    """Compare every NSE with the reference; return the seconds of each first call."""
    seconds, expected = {}, calls["reference"]()
    for side, call in calls.items():
        started = time.perf_counter()
        results = peers.to_tensors(call())
        seconds[side] = time.perf_counter() - started
        if side != LSTM:
            parity.check(f"{side} at {shape}", results, expected, TOLERANCE)
    return seconds


def measure_in_turns(calls: Mapping[str, Run], shape: Shape, plan: Plan) -> list[dict[str, Any]]:
    """Measure all sides in rounds; return a row for each."""
    counts = {side: count_calls(call, plan.seconds) for side, call in calls.items()}
    figures: dict[str, list[float]] = {side: [] for side in calls}
    for number in range(plan.rounds):
        for side, call in calls.items():
            if counts[side] or number < SLOW_ROUNDS:
                figures[side].append(time_burst(call, counts[side]))
    return [
        {
            "name": ENCODERS[side == LSTM],
            "backend": side,
            "B": shape.B,
            "T": shape.T,
            "k": plan.k,
            "dtype": "float32",
            "mode": shape.mode,
            "ms": round(median(each), 3),
            "ms_least": round(min(each), 3),
            "ms_most": round(max(each), 3),
            "over_lstm": round(median(a / b for a, b in zip(each, figures[LSTM], strict=False)), 3),
            "rounds": len(each),
            "calls": max(1, counts[side]),
        }
        for side, each in figures.items()
    ]


def count_calls(call: Run, seconds: float) -> int:
    """Return the calls of a round that take about `seconds`; 0 if a single one is slow."""
    call()
    spent = time_burst(call, 0) / 1e3
    return 0 if spent > SLOW else max(1, min(MAX_CALLS, int(seconds / spent)))


def time_burst(call: Run, count: int) -> float:
    """Return the median milliseconds of `count` calls after one that does not count; 0 is a single call."""
    if count:
        time.sleep(IDLE)
        call()  # its weights are in the caches then
    times = []
    for _ in range(max(1, count)):
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return median(times)


def measure_growth(plan: Plan, log: Console) -> list[dict[str, Any]]:
    """Measure the fast backends and the LSTM over lengths and over batches, in fewer rounds."""
    plan = plan._replace(rounds=min(plan.rounds, 3), seconds=plan.seconds / 2)
    sides = [side for side in GROWTH if find_obstacle(side) is None]
    (fixed, batches), rows = plan.batches, []
    sizes = [(B, T) for B, lengths in plan.lengths for T in lengths]
    slow: set[tuple[str, str, int]] = set()  # side, mode, B
    for B, T in dict.fromkeys([*sizes, *((B, fixed) for B in batches)]):
        for mode in ("forward", "train"):
            shape = Shape(B, T, mode)
            problem = draw_problem(shape, plan.k)
            names = [side for side in sides if (side, mode, B) not in slow]
            for row in measure_in_turns({each: prepare(each, problem, mode) for each in names}, shape, plan):
                rows.append(row)
                log.print(f"{row['backend']} {shape}: {describe_row(row)}", highlight=False)
                if row["backend"] == "torch" and 4 * row["ms"] > 1e3 * MAX_SECONDS:  # with twice the words
                    slow.add((row["backend"], mode, B))
    return rows


def run_memory_child(side: str, shape: Shape, k: int, threads: int) -> float:
    """Measure the peak memory of a side in a new process."""
    command = [sys.executable, str(Path(__file__).parent), "--threads", str(threads)]
    command += ["--memory-of", side, json.dumps([*shape, k])]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measure_memory(side: str, shape: Shape, k: int, threads: int) -> float:
    """Return the MiB that one call adds to the peak of this process's resident memory."""
    torch.set_num_threads(threads)
    prepare(side, draw_problem(shape._replace(B=1, T=2), k), shape.mode)()  # libraries load, threads start
    call = prepare(side, draw_problem(shape, k), shape.mode)
    before = read_resident_memory("VmRSS")
    call()
    return round(max(0.0, read_resident_memory("VmHWM") - before), 1)


def read_resident_memory(field: str) -> float:
    """Read the resident memory of this process in MiB: now (VmRSS) or its peak (VmHWM)."""
    # Not getrusage: its maximum survives exec, so a child of a large process would start with that.
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(float(line.split()[1]) / 1024 for line in status if line.startswith(field))
