"""The public function: the recurrence on the backend that was chosen.

A backend is chosen by `backend=`, or, where that says "auto", by the environment variable NSE_BACKEND, or
else it is the fastest that can run: triton on a CUDA device, lean anywhere.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from nse.errors import BackendError, suggest
from nse.ops import double_backward as second_derivatives
from nse.ops import lean, reference
from nse.ops.double_backward import Arguments
from nse.ops.types import Backend, LSTMState, Memory, Result, Weights

log = logging.getLogger(__name__)


def run_triton(*arguments: Any, **named: Any) -> Result:
    """Run the fused kernels, imported when they are first needed: only machines with a GPU have triton."""
    from nse.ops.triton.recurrence import recurrence

    return recurrence(*arguments, **named)


BACKENDS: dict[str, Backend] = {
    "reference": reference.recurrence,
    "lean": lean.recurrence,
    "triton": run_triton,
}
"""Every backend by name; all compute the same function."""

LARGEST = 4096  # k: a slot of more numbers does not fit the registers of a program
MOST_LAYERS = 4  # the kernels are compiled with each layer written out


def choose(backend: str = "auto", device: torch.device | str | None = None) -> str:
    """Name the backend to run: `backend`, or NSE_BACKEND where that is "auto", or the fastest.

    Without a device, only whether it can run anywhere here is checked.
    """
    asked, by = backend, "backend="
    if asked == "auto":
        asked, by = os.environ.get("NSE_BACKEND", "auto") or "auto", "NSE_BACKEND="
    if asked == "auto":
        there = device is not None and torch.device(device).type == "cuda" and why_no_triton(device) is None
        return "triton" if there else "lean"
    if asked not in BACKENDS:
        hint = f"did you mean {near!r}? " if (near := suggest(asked, BACKENDS)) else ""
        raise BackendError(f"{by}{asked!r} cannot run here: {hint}there are {', '.join(BACKENDS)}, auto")
    if asked == "triton" and (why := why_no_triton(device)) is not None:
        raise BackendError(f"{by}'triton' cannot run here: {why}; use 'auto', or 'lean', which runs anywhere")
    return asked


# In a compiled function the answer is asked for once; what `torch.compiler.assume_constant_result` does, but
# that imports the compiler, which takes seconds.
choose._dynamo_marked_constant = True  # type: ignore[attr-defined]


def why_no_triton(device: torch.device | str | None = None) -> str | None:
    """Say why triton cannot run on a device, or on any without one; `None` if it can."""
    if find_spec("triton") is None:
        return "the package triton is not installed (pip install triton)"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return None  # on the CPU, slowly: for tests
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    if device is not None and torch.device(device).type != "cuda":
        return f"it needs a CUDA device, and this is {torch.device(device)}"
    if torch.version.hip is not None:
        return "it is written for NVIDIA devices"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs compute capability 8.0 or more"
    return None


def what_triton_lacks(x: Tensor, memories: tuple[Memory, ...], weights: Weights) -> str | None:
    """Say why the kernels do not cover a call, or `None` if they do."""
    if max(len(weights.read), len(weights.write)) > MOST_LAYERS:
        return f"more than {MOST_LAYERS} layers"
    if len(memories) > 3:
        return "more than two shared memories"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return str(x.dtype).removeprefix("torch.")
    if x.shape[2] > LARGEST:
        return f"sizes above {LARGEST}"
    if not x.shape[0] * x.shape[1]:
        return "empty batches"
    return None


@cache
def tell_once(what: str) -> None:
    """Say that lean stands in, once for each reason."""
    log.info("the triton backend does not cover %s: lean runs instead, with the same results", what)


def recurrence(
    x: Tensor,
    lengths: Tensor | None,
    memories: tuple[Memory, ...],
    read: LSTMState | None,
    write: LSTMState | None,
    weights: Weights,
    c_mask: Tensor | None = None,
    keys: bool = False,
    backend: str = "auto",
) -> Result:
    """Run equations 1-6, or 7-15 where memories are shared; see `nse.ops.types.Backend`."""
    name = choose(backend, x.device)
    if name == "triton" and (lacks := what_triton_lacks(x, memories, weights)) is not None:
        tell_once(lacks)
        name = "lean"
    if name != "reference" and second_derivatives.cannot_take_part():
        name = "reference"
    arguments = Arguments(x, lengths, memories, read, write, weights, c_mask, keys)
    result = BACKENDS[name](*arguments)
    return result if name == "reference" else second_derivatives.allow(result, arguments)
