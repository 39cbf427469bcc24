"""`recurrence`, the public function, which runs on the chosen backend.

The backend is the argument `backend`; if that is "auto", the environment variable NSE_BACKEND; if that is
not set, triton on a CUDA device that supports it, cpu on a CPU where its library loads, torch elsewhere.
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
from nse.ops import double_backward, reference, torch_loop
from nse.ops.cpu import call, library
from nse.ops.double_backward import Arguments
from nse.ops.types import Backend, LSTMState, Memory, Result, Weights

log = logging.getLogger(__name__)


def run_cpu(*arguments: Any, **options: Any) -> Result:
    """Run the compiled kernel, whose library loads on first use."""
    from nse.ops.cpu.operators import recurrence

    return recurrence(*arguments, **options)


def run_triton(*arguments: Any, **options: Any) -> Result:
    """Run the fused kernels, imported on first use because only machines with a GPU have triton."""
    from nse.ops.triton.recurrence import recurrence

    return recurrence(*arguments, **options)


BACKENDS: dict[str, Backend] = {
    "reference": reference.recurrence,
    "torch": torch_loop.recurrence,
    "cpu": run_cpu,
    "triton": run_triton,
}
"""All backends by name. They compute the same function."""

MAX_SIZE = 4096  # k: larger slots do not fit the registers of a program
MAX_LAYERS = 4  # the kernels are compiled with each layer written out


def choose_backend(backend: str = "auto", device: torch.device | str | None = None) -> str:
    """Return the name of the backend to run.

    Args:
        backend: A name, or "auto" for NSE_BACKEND or the fastest.
        device: Device of the tensors. Without one, only check that the backend can run on this machine.

    Raises:
        BackendError: There is no such backend, or it cannot run here.
    """
    name, source = backend, "backend="
    if name == "auto":
        name, source = os.environ.get("NSE_BACKEND", "auto") or "auto", "NSE_BACKEND="
    if name == "auto":
        fastest = "triton" if device is not None and torch.device(device).type == "cuda" else "cpu"
        return fastest if explain_no_backend(fastest, device) is None else "torch"
    if name not in BACKENDS:
        hint = f"did you mean {near!r}? " if (near := suggest(name, BACKENDS)) else ""
        raise BackendError(f"{source}{name!r} cannot run here: {hint}there are {', '.join(BACKENDS)}, auto")
    if (reason := explain_no_backend(name, device)) is not None:
        advice = "use 'auto', or 'torch', which runs anywhere"
        raise BackendError(f"{source}{name!r} cannot run here: {reason}; {advice}")
    return name


# A compiled function takes the answer for a constant. `torch.compiler.assume_constant_result` does the same,
# but imports the compiler, which takes seconds.
choose_backend._dynamo_marked_constant = True  # type: ignore[attr-defined]


def explain_no_backend(name: str, device: torch.device | str | None) -> str | None:
    """Return why a backend cannot run on a device (or, without one, on this machine); `None` if it can."""
    if name == "triton":
        return explain_no_triton(device)
    return explain_no_cpu(device) if name == "cpu" else None


def explain_no_cpu(device: torch.device | str | None = None) -> str | None:
    """Return why the compiled kernel cannot run on a device; `None` if it can."""
    if device is not None and torch.device(device).type != "cpu":
        return f"it needs a CPU, and this is {torch.device(device)}"
    return library.explain_no_kernel()


def explain_no_triton(device: torch.device | str | None = None) -> str | None:
    """Return why triton cannot run on a device (or, without one, on this machine); `None` if it can."""
    if find_spec("triton") is None:
        return "the package triton is not installed (pip install triton)"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return None  # on the CPU, slowly, for tests
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    if device is not None and torch.device(device).type != "cuda":
        return f"it needs a CUDA device, and this is {torch.device(device)}"
    if torch.version.hip is not None:
        return "it is written for NVIDIA devices"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs compute capability 8.0 or more"
    return None


def explain_no_bfloat16(device: torch.device) -> str | None:
    """Return why a device does not multiply bfloat16 fast; `None` if it does."""
    if device.type == "cuda":
        is_old = torch.cuda.get_device_capability(device) < (8, 0)
        return "it needs compute capability 8.0" if is_old else None
    if (reason := explain_no_cpu(device)) is not None:
        return reason
    return None if call.supports_half() else "the CPU has no products of bfloat16 (AVX512_BF16)"


def find_unsupported(name: str, x: Tensor, memories: tuple[Memory, ...], weights: Weights) -> str | None:
    """Return what a backend does not support about a call; `None` if it supports it."""
    if name == "cpu":
        from nse.ops.cpu import operators

        return operators.find_unsupported(x, memories, weights)
    if name != "triton":
        return None
    if max(len(weights.read), len(weights.write)) > MAX_LAYERS:
        return f"more than {MAX_LAYERS} layers"
    if len(memories) > 3:
        return "more than two shared memories"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return str(x.dtype).removeprefix("torch.")
    if x.shape[2] > MAX_SIZE:
        return f"sizes above {MAX_SIZE}"
    if not x.shape[0] * x.shape[1]:
        return "empty batches"
    return None


@cache
def log_fallback(name: str, unsupported: str) -> None:
    """Log that torch runs instead of a backend, once for each reason."""
    level = logging.INFO if name == "triton" else logging.DEBUG
    text = "the %s backend does not support %s: torch runs instead, with the same results"
    log.log(level, text, name, unsupported)


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
    """Run equations 1-6, or 7-15 with shared memories; see `nse.ops.types.Backend`."""
    name = choose_backend(backend, x.device)
    if (unsupported := find_unsupported(name, x, memories, weights)) is not None:
        log_fallback(name, unsupported)
        name = "torch"
    if name != "reference" and double_backward.is_transformed():
        name = "reference"
    arguments = Arguments(x, lengths, memories, read, write, weights, c_mask, keys)
    result = BACKENDS[name](*arguments)
    return result if name == "reference" else double_backward.add_double_backward(result, arguments)
