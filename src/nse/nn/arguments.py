"""What the encoder refuses: each message names the argument, what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nse.errors import InputError
from nse.ops.types import LSTMState, Memory, real


def refuse(name: str, expected: str, got: object) -> InputError:
    """Make the error to raise for argument `name`."""
    return InputError(f"{name}: expected {expected}, got {describe(got)}")


def describe(value: object) -> str:
    """Describe a value in few words."""
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"a tensor of shape {list(value.shape)} ({kind}, {value.device})"
    if isinstance(value, int | float | str | bool | None):
        return repr(value)
    return f"{type(value).__name__} {str(value)[:60]}"


def counts(**counts: tuple[Any, int]) -> None:
    """Check arguments of a constructor that count something, each given with the least that it may be."""
    for name, (value, least) in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise refuse(name, f"an integer of at least {least}", value)


def choices(dropout: Any, padding: Any, init: Any, init_range: Any) -> None:
    """Check the other arguments of a constructor."""
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise refuse("dropout", "a probability of at least 0 and below 1", dropout)
    if padding not in ("masked", "paper"):
        raise refuse("padding", "'masked' or 'paper'", padding)
    if init not in ("uniform", "lookup"):
        raise refuse("init", "'uniform' or 'lookup'", init)
    if not isinstance(init_range, int | float) or not 0 <= init_range < float("inf"):
        raise refuse("init_range", "a finite number of at least 0", init_range)


def floats(name: str, tensor: Any, shape: Sequence[int | str], like: Tensor) -> None:
    """Check for this shape (a letter stands for any number) and for the type and device of `like`."""
    sizes = ", ".join(map(str, shape))
    if (
        not isinstance(tensor, Tensor)
        or tensor.dim() != len(shape)
        or any(isinstance(want, int) and want != is_ for want, is_ in zip(shape, tensor.shape, strict=True))
    ):
        raise refuse(name, f"a tensor [{sizes}]", tensor)
    if not tensor.is_floating_point():
        raise refuse(name, "floating-point vectors (embed token ids first)", tensor)
    if tensor.dtype != like.dtype and not torch.is_autocast_enabled(like.device.type):
        wanted = str(like.dtype).removeprefix("torch.")
        raise refuse(name, f"{wanted}, as the encoder's weights are (use .to(...) or autocast)", tensor)
    if tensor.device != like.device:
        raise refuse(name, f"a tensor on {like.device}, where the encoder's weights are", tensor)


def lengths(name: str, given: Any, batch: int, most: int, device: torch.device) -> Tensor | None:
    """Check lengths to lie in 0..most, and make them an int64 tensor [B] on the device."""
    if given is None:
        return None
    empty = isinstance(given, list | tuple) and not given  # which would be taken for floats
    try:
        tensor = torch.as_tensor(given, dtype=torch.long if empty else None)
    except (TypeError, ValueError, RuntimeError):
        raise refuse(name, f"{batch} integers", given) from None
    counts = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    if not counts or tensor.shape != (batch,):
        raise refuse(name, f"{batch} integers, one for each sequence of the batch", given)
    # Looking at values on a CUDA device waits for it, which is not possible while a graph is captured,
    # and in a compiled function it would cut the function in two.
    unseen = torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    if not unseen and batch and (int(tensor.min()) < 0 or int(tensor.max()) > most):
        wrong = [v for v in tensor.tolist() if not 0 <= v <= most]
        raise InputError(f"{name}: expected each in 0..{most}, got {', '.join(map(str, wrong[:5]))}")
    return tensor.to(device=device, dtype=torch.long)


def memory(name: str, given: Any, batch: int, size: int, like: Tensor) -> Memory:
    """Check a memory [B, any, size], or a tensor taken as one whose slots are all real."""
    if isinstance(given, Tensor):
        given = Memory(given)
    if not isinstance(given, Memory):
        raise refuse(name, "an nse.Memory or a tensor [B, L, k]", given)
    floats(f"{name}.slots", given.slots, (batch, "L", size), like)
    L = given.slots.shape[1]
    return Memory(given.slots, lengths(f"{name}.lengths", given.lengths, batch, L, like.device))


def lstm_state(name: str, given: Any, shape: tuple[int, int, int], like: Tensor) -> LSTMState:
    """Check hidden and cell state of an LSTM."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise refuse(name, f"a pair of tensors {list(shape)}", given)
    for part, tensor in zip("hc", given, strict=True):
        floats(f"{name}.{part}", tensor, shape, like)
    return given[0], given[1]


def finite(name: str, tensor: Tensor, real_lengths: Tensor | None) -> None:
    """Check that [B, L, k] holds neither NaN nor infinity before the true end of each sequence."""
    bad = ~tensor.isfinite().all(dim=-1)
    if real_lengths is not None:
        bad &= real(real_lengths, tensor.shape[1])
    if bad.any():
        row, column = bad.nonzero()[0].tolist()
        raise InputError(f"{name}: expected finite numbers, got NaN or infinity at {name}[{row}, {column}]")
