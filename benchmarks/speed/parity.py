"""Parity check: every side is compared with the reference in float64 before it is timed."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.calls import Eager, Problem, Results
from nse.errors import BackendError

TOLERANCES = {"float32": 2e-2, "bfloat16": 6e-2}
"""Largest relative error, as a fraction of the norm of each tensor, by dtype.

Products of float32 are TF32 here, whose rounding a long recurrence multiplies; that the backends agree to
5e-5 where products are exact is what `make test-gpu` checks."""

ROOM_ON_CPU = 2**30


class ParityError(BackendError):
    """Raised when a side differs from the reference; it stops the benchmark."""


def compute_reference(problem: Problem) -> Results:
    """Compute outputs, memory and gradients of the reference in float64.

    The reference keeps the memory of every step, so it runs in chunks of sequences. Results of sequences are
    concatenated, gradients of weights are summed.
    """
    problem = problem.to(torch.float64)
    model = problem.make_encoder("reference")
    count = choose_chunk_size(problem.x)
    parts = [
        Eager(model, Problem(x, weighting, problem.weights), "train")()
        for x, weighting in zip(problem.x.split(count), problem.weighting.split(count), strict=True)
    ]
    results = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        per_sequence = name in ("outputs", "memory", "gradient of x")
        results[name] = torch.cat(tensors) if per_sequence else torch.stack(tensors).sum(dim=0)
    return results


def choose_chunk_size(x: Tensor) -> int:
    """Return how many sequences the reference can train on in half of the free memory."""
    B, T, k = x.shape
    room = torch.cuda.mem_get_info()[0] // 2 if x.is_cuda else ROOM_ON_CPU
    per_sequence = 4 * T * T * k * x.element_size()  # a step keeps three memories, and some more
    return max(1, min(B, room // max(1, per_sequence)))


def check(side: str, actual: Results, expected: Results, tolerance: float) -> None:
    """Raise ParityError if a tensor differs from `expected` by more than `tolerance` of its norm."""
    for name, tensor in actual.items():
        error = compute_relative_error(tensor, expected[name])
        if not error < tolerance:  # NaN is not below anything
            raise ParityError(
                f"{side} and reference differ by {error:.1e} of the norm in the {name}, "
                f"more than {tolerance:.0e}: no speed is worth that"
            )


def compute_relative_error(actual: Tensor, expected: Tensor) -> float:
    """Compute the norm of the difference over the norm of `expected`."""
    difference = torch.linalg.vector_norm(actual.to(expected) - expected)
    return float(difference / torch.linalg.vector_norm(expected).clamp(min=1e-30))
