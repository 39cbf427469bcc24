"""No speed for a wrong answer: every side is compared with the reference in float64 before it is timed."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.calls import Eager, Problem, Results
from nse.errors import BackendError

TOLERANCES = {"float32": 2e-2, "bfloat16": 6e-2}
"""Of the norm of each tensor, by the type of words and weights.

Products of float32 are TF32 here, whose rounding a long recurrence multiplies; that the backends agree to
5e-5 where products are exact is what `make test-gpu` checks."""

ROOM_ON_CPU = 2**30


class ParityError(BackendError):
    """A side computes something else than the reference. It stops the benchmark, unlike a side that fails."""


def exact(problem: Problem) -> Results:
    """The reference's outputs, memory and gradients in float64, for the same words and weights.

    It keeps a memory for every step, so it takes as many sequences at a time as there is room for. Sequences
    do not know of each other: their results stand side by side, and the gradients of the weights add up.
    """
    problem = problem.to(torch.float64)
    model = problem.encoder("reference")
    count = sequences_at_a_time(problem.x)
    parts = [
        Eager(model, Problem(x, weighting, problem.weights), "train")()
        for x, weighting in zip(problem.x.split(count), problem.weighting.split(count), strict=True)
    ]
    found = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        per_sequence = name in ("outputs", "memory", "gradient of x")
        found[name] = torch.cat(tensors) if per_sequence else torch.stack(tensors).sum(dim=0)
    return found


def sequences_at_a_time(x: Tensor) -> int:
    """How many sequences the reference can train on in half of the memory that is free."""
    B, T, k = x.shape
    room = torch.cuda.mem_get_info()[0] // 2 if x.is_cuda else ROOM_ON_CPU
    per_sequence = 4 * T * T * k * x.element_size()  # a step keeps three memories, and some more
    return max(1, min(B, room // max(1, per_sequence)))


def check(side: str, got: Results, wanted: Results, tolerance: float) -> None:
    """Refuse a side of which any tensor is further from `wanted` than `tolerance` of its norm."""
    for name, tensor in got.items():
        error = relative_error(tensor, wanted[name])
        if not error < tolerance:  # NaN is not below anything
            raise ParityError(
                f"{side} and reference differ by {error:.1e} of the norm in the {name}, "
                f"more than {tolerance:.0e}: no speed is worth that"
            )


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """The norm of the difference, of the norm of what was wanted."""
    difference = torch.linalg.vector_norm(got.to(wanted) - wanted)
    return float(difference / torch.linalg.vector_norm(wanted).clamp(min=1e-30))
