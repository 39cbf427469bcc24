"""A report as `make bench-gpu` writes it, of times that follow a rule known to the tests."""

from benchmarks.speed import gpu
from benchmarks.speed.fits import fit_sweeps
from benchmarks.speed.plan import FULL, MODES, SIDES, Plan, list_cases

FACTORS = {"reference": 80, "torch": 30, "torch graph": 4, "triton": 1.5, "triton graph": 1, "cudnn": 0.9}
FACTORS |= {"cudnn graph": 0.5, "jax": 5}


def milliseconds(side: str, B: int, T: int, mode: str) -> float:
    return FACTORS[side] * (0.05 + 0.01 * T + 0.0002 * B) * (1 if mode == "forward" else 3)


def made_up(plan: Plan = FULL) -> dict:
    rows = []
    for case in list_cases(plan):
        for mode in MODES:
            for side in SIDES:
                if side.name in case.sides:
                    ms = milliseconds(side.name, case.B, case.T, mode)
                    peak = None if side.backend == "jax" else 2 * FACTORS[side.name]
                    kept = peak / 2 if peak and mode == "train" else None
                    figures = {"ms": ms, "ms_least": ms, "ms_most": ms, "calls": 5}
                    figures |= {"peak_mb": peak, "kept_mb": kept}
                    name = "LSTM, two layers" if side.backend == "cudnn" else "NSE"
                    rows.append({"name": name, "backend": side.name, **case.describe(mode), **figures})
    machine = {"device": "cuda", "gpu": "NVIDIA made up", "torch": "2", "cuda": "13.0", "cudnn": 91900}
    machine |= {"triton": "3", "jax": gpu.find_version("no such package"), "python": "3.12", "tf32": True}
    return {
        "machine": machine,
        "rows": rows,
        "fits": fit_sweeps(rows, plan.lengths[0], plan.batches[0]),
        "missing": [],
    }
