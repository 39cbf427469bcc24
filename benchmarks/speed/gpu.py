"""Benchmark on a CUDA device: NSE's backends, cuDNN's LSTM and JAX in one run.

At every shape, each side of an NSE is compared with the reference in float64 before any is timed there; one
that differs stops the benchmark, and nothing is reported. One that fails (out of memory, not for this shape)
is told, listed as missing and left out. Times are medians, the sides taking turns in rounds after a warm-up.
"""

from __future__ import annotations

import gc
import platform
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console

from benchmarks.speed import parity, peers
from benchmarks.speed.calls import Call, Eager, Graph, Problem, Results
from benchmarks.speed.fits import fit_sweeps
from benchmarks.speed.peers import find_version
from benchmarks.speed.plan import ENCODERS, MODES, SIDES, Case, Plan, Side, list_cases
from benchmarks.speed.step import measure_snli_steps
from nse.errors import BackendError
from nse.nn.encoder import NSE

ROUNDS = 5
MAX_CALLS_PER_ROUND = 40


class Ledger:
    """Rows of results and of failures, each logged at once."""

    def __init__(self, log: Console):
        self.rows: list[dict[str, Any]] = []
        self.missing: list[dict[str, Any]] = []
        self.log = log

    def add(self, side: Side, case: Case, mode: str, figures: dict[str, float | None]) -> None:
        """Add the result of a side."""
        name = ENCODERS[side.backend == "cudnn"]
        self.rows.append({"name": name, "backend": side.name, **case.describe(mode), **figures})
        self.log.print(f"{side.name} {case.label(mode)}: {figures['ms']} ms", highlight=False)

    def leave_out(self, side: str, case: Case, mode: str, error: Exception) -> None:
        """Add the failure of a side at a shape."""
        reason = peers.first_line(error)
        self.missing.append({"backend": side, **case.describe(mode), "reason": reason})
        self.log.print(
            f"{side} {case.label(mode)} is left out: {reason}", highlight=False, markup=False, soft_wrap=True
        )

    def leave_out_backend(self, backend: str, reason: str) -> None:
        """Add a backend that does not run on this machine."""
        names = [side.name for side in SIDES if side.backend == backend]
        self.missing += [{"backend": name, "reason": reason} for name in names]
        self.log.print(
            f"{' and '.join(names)}: left out, {reason}", highlight=False, markup=False, soft_wrap=True
        )


def run(
    plan: Plan,
    log: Console,
    save: Callable[[dict[str, Any]], None] = lambda report: None,
    device: str = "cuda",
) -> dict[str, Any]:
    """Measure all shapes; return the machine, rows, fits of the sweeps and what is missing.

    Args:
        plan: Shapes to measure.
        log: Console for each row as soon as it is measured.
        save: Called after each shape with the report so far.
        device: Device to measure on; only tests use another than "cuda".
    """
    ledger = Ledger(log)
    available = list_available_sides(device, ledger)
    with enable_tf32():
        for case in list_cases(plan):
            sides = [side for side in available if side.name in case.sides]
            try:
                measure(case, sides, plan.seconds, device, ledger)
            except parity.ParityError:
                raise
            except Exception as error:  # the reference in float64 failed: no side can be checked
                ledger.leave_out("every side", case, "of both modes", error)
            save(make_report(ledger, plan))
        ledger.rows += measure_snli_steps(log) if plan.steps else []
    if not ledger.rows:
        raise BackendError(f"nothing could be measured; the first reason: {ledger.missing[0]['reason']}")
    return make_report(ledger, plan)


def make_report(ledger: Ledger, plan: Plan) -> dict[str, Any]:
    """Make the report of what has been measured so far."""
    return {
        "machine": describe_machine(),
        "rows": ledger.rows,
        "fits": fit_sweeps(ledger.rows, plan.lengths[0], plan.batches[0]),
        "missing": ledger.missing,
    }


def list_available_sides(device: str, ledger: Ledger) -> list[Side]:
    """List the sides that run on this machine."""
    backends = dict.fromkeys(side.backend for side in SIDES)
    reasons = {backend: find_obstacle(backend, device) for backend in backends}
    for backend, reason in reasons.items():
        if reason is not None:
            ledger.leave_out_backend(backend, reason)
    return [side for side in SIDES if reasons[side.backend] is None]


def find_obstacle(backend: str, device: str) -> str | None:
    """Return why a backend cannot be measured on this device, or `None`."""
    if backend == "cudnn":
        return None
    if backend == "jax":
        return peers.find_jax_obstacle(device)
    try:
        NSE(1, backend=backend)
    except BackendError as error:
        return str(error)
    return None


def measure(case: Case, sides: list[Side], seconds: float, device: str, ledger: Ledger) -> None:
    """Measure one case in both modes, on the same words and weights."""
    problem = Problem.draw(case.B, case.T, case.k, getattr(torch, case.dtype), device)
    expected = parity.compute_reference(problem)
    for mode in MODES:
        free_memory()
        measure_mode(case, mode, sides, problem, expected, seconds, ledger)
    free_memory()


def measure_mode(
    case: Case,
    mode: str,
    sides: list[Side],
    problem: Problem,
    expected: Results,
    seconds: float,
    ledger: Ledger,
) -> None:
    """Prepare every side, then time them in turns; leave out sides that fail."""
    calls: dict[Side, Call] = {}
    figures: dict[Side, dict[str, float | None]] = {}
    for side in sides:
        try:
            call = prepare(side, problem, mode)
            check(side, call, case, mode, expected)
            figures[side] = call.measure_memory()
            calls[side] = call
        except parity.ParityError:
            raise
        except Exception as error:  # whatever it is, the other sides can still be measured
            ledger.leave_out(side.name, case, mode, error)
    times: dict[Side, list[float]] = {side: [] for side in calls}
    bursts: dict[Side, int] = {}
    for turn in range(1 + ROUNDS):
        for side in list(times):
            try:
                if turn == 0:
                    bursts[side] = warm_up(calls[side], seconds)
                else:
                    times[side] += calls[side].measure_times(bursts[side])
            except Exception as error:
                del times[side]
                ledger.leave_out(side.name, case, mode, error)
    for side, side_times in times.items():
        ledger.add(
            side, case, mode, {**summarize(side_times), "calls": ROUNDS * bursts[side], **figures[side]}
        )


def prepare(side: Side, problem: Problem, mode: str) -> Call:
    """Prepare the call of a side."""
    if side.backend == "jax":
        return peers.Jax(problem, mode)
    model = peers.lstm(problem) if side.backend == "cudnn" else problem.make_encoder(side.backend)
    eager = Eager(model, problem, mode)
    return Graph(eager) if side.graph else eager


def check(side: Side, call: Call, case: Case, mode: str, expected: Results) -> None:
    """Call a side once; raise ParityError if it is an NSE and differs from the reference."""
    results = call.compute_results()
    if side.backend != "cudnn":
        parity.check(f"{side.name} at {case.label(mode)}", results, expected, parity.TOLERANCES[case.dtype])


def warm_up(call: Call, seconds: float) -> int:
    """Warm up; return the calls per round with which all rounds take about `seconds`."""
    ms = min(call.measure_times(2))
    burst = max(1, min(MAX_CALLS_PER_ROUND, int(1e3 * seconds / ROUNDS / max(ms, 1e-3))))
    if burst > 1:  # short calls need more: clocks rise, libraries go on preparing for a while
        call.measure_times(burst)
    return burst


def summarize(times: list[float]) -> dict[str, float | None]:
    """Compute median, minimum and maximum in milliseconds."""
    least, middle, most = min(times), statistics.median(times), max(times)
    return {"ms": round(middle, 4), "ms_least": round(least, 4), "ms_most": round(most, 4)}


def free_memory() -> None:
    """Return memory of deleted calls and graphs to the device."""
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def enable_tf32() -> Iterator[None]:
    """Use TF32 for float32 matrix products, as cuDNN and JAX do by default."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def describe_machine() -> dict[str, Any]:
    """Describe the machine and the versions."""
    return {
        "device": "cuda",
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": find_version("triton"),
        "jax": find_version("jax"),
        "python": platform.python_version(),
        "tf32": True,
    }
