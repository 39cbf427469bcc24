"""The benchmark on a CUDA device: NSE's backends, cuDNN's LSTM and JAX side by side in one run.

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
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from rich.console import Console

from benchmarks.speed import parity, peers
from benchmarks.speed.calls import Call, Eager, Graph, Problem, Results
from benchmarks.speed.fits import fits
from benchmarks.speed.plan import ENCODERS, MODES, SIDES, Case, Plan, Side, cases
from benchmarks.speed.step import snli_step_rows
from nse.errors import BackendError
from nse.nn.encoder import NSE

ROUNDS = 5
MOST_CALLS_A_ROUND = 40


class Ledger:
    """What was measured and what could not be, each told as soon as it is known."""

    def __init__(self, log: Console):
        self.rows: list[dict[str, Any]] = []
        self.missing: list[dict[str, Any]] = []
        self.log = log

    def add(self, side: Side, case: Case, mode: str, figures: dict[str, float | None]) -> None:
        """A side was measured."""
        name = ENCODERS[side.backend == "cudnn"]
        self.rows.append({"name": name, "backend": side.name, **case.where(mode), **figures})
        self.log.print(f"{side.name} {case.told(mode)}: {figures['ms']} ms", highlight=False)

    def leave_out(self, side: str, case: Case, mode: str, error: Exception) -> None:
        """A side failed at this shape."""
        reason = peers.first_line(error)
        self.missing.append({"backend": side, **case.where(mode), "reason": reason})
        self.log.print(
            f"{side} {case.told(mode)} is left out: {reason}", highlight=False, markup=False, soft_wrap=True
        )

    def leave_out_everywhere(self, backend: str, reason: str) -> None:
        """A backend does not exist on this machine."""
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
    """Measure everything: the machine, rows by side, shape and mode, fits of the sweeps, what is missing.

    Args:
        plan: Which shapes.
        log: Where each row is told as soon as it is measured.
        save: Called after each shape with what is known so far.
        device: Where to measure; another than "cuda" only makes sense in tests.
    """
    ledger = Ledger(log)
    there = available(device, ledger)
    with tf32():
        for case in cases(plan):
            sides = [side for side in there if side.name in case.sides]
            try:
                measure(case, sides, plan.seconds, device, ledger)
            except parity.ParityError:
                raise
            except Exception as error:  # the reference in float64 failed: no side can be checked
                ledger.leave_out("every side", case, "of both modes", error)
            save(report(ledger, plan))
        ledger.rows += snli_step_rows(log) if plan.steps else []
    if not ledger.rows:
        raise BackendError(f"nothing could be measured; the first reason: {ledger.missing[0]['reason']}")
    return report(ledger, plan)


def report(ledger: Ledger, plan: Plan) -> dict[str, Any]:
    """What was measured."""
    return {
        "machine": machine(),
        "rows": ledger.rows,
        "fits": fits(ledger.rows, plan.lengths[0], plan.batches[0]),
        "missing": ledger.missing,
    }


def available(device: str, ledger: Ledger) -> list[Side]:
    """The sides that exist here."""
    backends = dict.fromkeys(side.backend for side in SIDES)
    reasons = {backend: why_not(backend, device) for backend in backends}
    for backend, reason in reasons.items():
        if reason is not None:
            ledger.leave_out_everywhere(backend, reason)
    return [side for side in SIDES if reasons[side.backend] is None]


def why_not(backend: str, device: str) -> str | None:
    """Why a backend cannot be measured on this device, or `None` where it can."""
    if backend == "cudnn":
        return None
    if backend == "jax":
        return peers.why_no_jax(device)
    try:
        NSE(1, backend=backend)
    except BackendError as error:
        return str(error)
    return None


def measure(case: Case, sides: list[Side], seconds: float, device: str, ledger: Ledger) -> None:
    """Measure one case in both modes, on the same words and weights."""
    problem = Problem.random(case.B, case.T, case.k, getattr(torch, case.dtype), device)
    wanted = parity.exact(problem)
    for mode in MODES:
        release()
        measure_mode(case, mode, sides, problem, wanted, seconds, ledger)
    release()


def measure_mode(
    case: Case,
    mode: str,
    sides: list[Side],
    problem: Problem,
    wanted: Results,
    seconds: float,
    ledger: Ledger,
) -> None:
    """Prepare every side, then time them in turns; a side that fails on the way is left out."""
    calls: dict[Side, Call] = {}
    figures: dict[Side, dict[str, float | None]] = {}
    for side in sides:
        try:
            call = prepare(side, problem, mode)
            check(side, call, case, mode, wanted)
            figures[side] = call.memory()
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
                    times[side] += calls[side].times(bursts[side])
            except Exception as error:
                del times[side]
                ledger.leave_out(side.name, case, mode, error)
    for side, found in times.items():
        ledger.add(side, case, mode, {**summary(found), "calls": ROUNDS * bursts[side], **figures[side]})


def prepare(side: Side, problem: Problem, mode: str) -> Call:
    """A side, ready to be called."""
    if side.backend == "jax":
        return peers.Jax(problem, mode)
    model = peers.lstm(problem) if side.backend == "cudnn" else problem.encoder(side.backend)
    eager = Eager(model, problem, mode)
    return Graph(eager) if side.graph else eager


def check(side: Side, call: Call, case: Case, mode: str, wanted: Results) -> None:
    """Call a side once; refuse it where it is an NSE and differs."""
    found = call.results()
    if side.backend != "cudnn":
        parity.check(f"{side.name} at {case.told(mode)}", found, wanted, parity.TOLERANCES[case.dtype])


def warm_up(call: Call, seconds: float) -> int:
    """See how long a call takes; return how many make a round, so that all rounds take about `seconds`."""
    ms = min(call.times(2))
    burst = max(1, min(MOST_CALLS_A_ROUND, int(1e3 * seconds / ROUNDS / max(ms, 1e-3))))
    if burst > 1:  # short calls need more: clocks rise, libraries go on preparing for a while
        call.times(burst)
    return burst


def summary(times: list[float]) -> dict[str, float | None]:
    """The median in milliseconds, and between what it lies."""
    least, middle, most = min(times), statistics.median(times), max(times)
    return {"ms": round(middle, 4), "ms_least": round(least, 4), "ms_most": round(most, 4)}


def release() -> None:
    """Give the memory of calls and graphs that are gone back to the device."""
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def tf32() -> Iterator[None]:
    """Let products of float32 matrices be TF32, as cuDNN's and JAX's are by default."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def machine() -> dict[str, Any]:
    """Where the figures were measured."""
    return {
        "device": "cuda",
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": installed("triton"),
        "jax": installed("jax"),
        "python": platform.python_version(),
        "tf32": True,
    }


def installed(package: str) -> str | None:
    """The version of a package, or `None` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
