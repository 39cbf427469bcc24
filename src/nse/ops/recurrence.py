"""The public function: the recurrence on the backend that was chosen.

A backend is chosen by `backend=`, or, where that says "auto", by the environment variable NSE_BACKEND.
"""

from __future__ import annotations

import os
from difflib import get_close_matches

from torch import Tensor

from nse.errors import BackendError
from nse.ops import lean, reference
from nse.ops.parts import Backend, LSTMState, Memory, Result, Weights

BACKENDS: dict[str, Backend] = {"reference": reference.recurrence, "lean": lean.recurrence}
"""Every backend by name; all compute the same function."""


def choose(backend: str = "auto") -> str:
    """The name of the backend to run: `backend`, or NSE_BACKEND where that is "auto", or the fastest here."""
    asked, by = backend, "backend="
    if asked == "auto":
        asked, by = os.environ.get("NSE_BACKEND", "auto") or "auto", "NSE_BACKEND="
    if asked == "auto":
        return "lean"
    if asked not in BACKENDS:
        near = get_close_matches(asked, BACKENDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BackendError(
            f"{by}{asked!r} cannot run here: {hint}this machine has {', '.join(BACKENDS)}, auto"
        )
    return asked


def recurrence(
    x: Tensor,
    lengths: Tensor | None,
    memories: tuple[Memory, ...],
    read: LSTMState,
    write: LSTMState,
    weights: Weights,
    c_mask: Tensor | None = None,
    keys: bool = False,
    backend: str = "auto",
) -> Result:
    """Run equations 1-6, or 7-15 where memories are shared; see `nse.ops.parts.Backend`."""
    run = BACKENDS[choose(backend)]
    return run(x, lengths, memories, read, write, weights, c_mask, keys)
