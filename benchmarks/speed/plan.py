"""Sides and shapes that the benchmark measures on a CUDA device."""

from __future__ import annotations

from typing import Any, NamedTuple

MODES = ("forward", "train")
ENCODERS = ("NSE", "LSTM, two layers")
"""Names of the rows that measure an encoder alone, which are those that may be compared."""


class Side(NamedTuple):
    """NSE on a backend, or a peer, run eagerly or replayed as a CUDA graph."""

    name: str
    backend: str
    graph: bool = False


SIDES = (
    Side("reference", "reference"),
    Side("torch", "torch"),
    Side("torch graph", "torch", graph=True),
    Side("triton", "triton"),
    Side("triton graph", "triton", graph=True),
    Side("cudnn", "cudnn"),
    Side("cudnn graph", "cudnn", graph=True),
    Side("jax", "jax"),
)
ALL_SIDES = tuple(side.name for side in SIDES)
SWEEP_SIDES = ("triton graph", "cudnn graph", "torch graph")
LONG_SWEEP_SIDES = ("triton graph", "cudnn graph")
MAX_TORCH_GRAPH_LENGTH = 100  # in a sweep: a graph of many thousands of kernels takes long to capture
BFLOAT16_SIDES = ("triton", "triton graph", "torch graph", "cudnn graph")


class Plan(NamedTuple):
    """Shapes to measure: main shapes on every side, and two sweeps."""

    k: int
    main: tuple[tuple[int, int], ...]  # B, T
    bfloat16: tuple[tuple[int, int], ...]
    lengths: tuple[int, tuple[int, ...]]  # at this B, these T
    batches: tuple[int, tuple[int, ...]]  # at this T, these B
    seconds: float  # spent on timing one side at one shape, unless the fewest calls take longer
    steps: bool  # whether a whole training step is measured as well


FULL = Plan(
    k=300,
    main=((128, 25), (256, 25), (256, 50), (32, 400)),
    bfloat16=((128, 25),),
    lengths=(32, (10, 25, 50, 100, 200, 400, 800)),
    batches=(25, (1, 8, 32, 128, 256, 512, 1024)),
    seconds=0.3,
    steps=True,
)
QUICK = Plan(
    k=16,
    main=((2, 5),),
    bfloat16=((2, 5),),
    lengths=(2, (3, 5)),
    batches=(5, (1, 2)),
    seconds=0.02,
    steps=False,
)


class Case(NamedTuple):
    """Shape and dtype with the names of the sides to measure."""

    B: int
    T: int
    k: int
    dtype: str
    sides: tuple[str, ...]

    def describe(self, mode: str) -> dict[str, Any]:
        """Return the columns of a row that identify the measurement."""
        return {"B": self.B, "T": self.T, "k": self.k, "dtype": self.dtype, "mode": mode}

    def label(self, mode: str) -> str:
        """Return a short label for the log."""
        return f"B={self.B} T={self.T} {self.dtype} {mode}"


def list_cases(plan: Plan) -> list[Case]:
    """List every shape once; main shapes are measured on every side, even if in a sweep."""
    sides = dict.fromkeys(plan.main, ALL_SIDES)
    (B, lengths), (T, batches) = plan.lengths, plan.batches
    for shape in [*((B, each) for each in lengths), *((each, T) for each in batches)]:
        sides.setdefault(shape, SWEEP_SIDES if shape[1] <= MAX_TORCH_GRAPH_LENGTH else LONG_SWEEP_SIDES)
    exact = [Case(*shape, plan.k, "float32", names) for shape, names in sides.items()]
    return exact + [Case(*shape, plan.k, "bfloat16", BFLOAT16_SIDES) for shape in plan.bfloat16]
