"""Fit time against length and against batch size: a line through each sweep, and its last slope."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.speed.plan import ENCODERS, MODES

FITTED = ("triton graph", "cudnn graph")


def fit_sweeps(rows: list[dict[str, Any]], B: int, T: int) -> list[dict[str, Any]]:
    """Fit a line for each backend, mode and sweep: over T at this B, and over B at this T.

    Returns:
        `fixed_ms` and `each_ms` (a step's, or a sequence's) of ms = fixed + each * T (or B); `worst`, the
        largest relative error of that line; `exponent` of the power law through the last two points.
    """
    results = []
    rows = [row for row in rows if row["name"] in ENCODERS]
    for sweep, fixed in (("T", {"B": B}), ("B", {"T": T})):
        for backend in FITTED:
            for mode in MODES:
                expected = {"backend": backend, "mode": mode, "dtype": "float32", **fixed}
                points = {
                    row[sweep]: row["ms"]
                    for row in rows
                    if all(row[key] == expected[key] for key in expected)
                }
                if len(points) > 1:
                    where = {"backend": backend, "mode": mode, "sweep": sweep, **fixed}
                    results.append({**where, **fit_line(sorted(points.items()))})
    return results


def fit_line(points: list[tuple[int, float]]) -> dict[str, float]:
    """Fit a line through (size, ms) with least squares of relative errors."""
    size, ms = np.array(points, dtype=float).T
    terms = np.stack([1 / ms, size / ms], axis=1)
    fixed, each = np.linalg.lstsq(terms, np.ones_like(ms), rcond=None)[0]
    (size_1, ms_1), (size_2, ms_2) = points[-2:]
    return {
        "fixed_ms": round(float(fixed), 6),
        "each_ms": round(float(each), 6),
        "worst": round(float(np.abs(terms @ [fixed, each] - 1).max()), 4),
        "exponent": round(math.log(ms_2 / ms_1) / math.log(size_2 / size_1), 3),
    }
