"""Checks of the encoder's arguments. Each error names the argument, what was expected and what it got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nse.errors import InputError
from nse.ops.types import LSTMState, Memory, State, make_mask


def make_error(name: str, expected: str, got: object) -> InputError:
    """Make the error to raise for the argument `name`."""
    return InputError(f"{name}: expected {expected}, got {describe(got)}")


def describe(value: object) -> str:
    """Describe a value in a few words."""
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a tensor of shape {list(value.shape)} ({dtype}, {value.device})"
    if isinstance(value, int | float | str | bool | None):
        return repr(value)
    return f"{type(value).__name__} {str(value)[:60]}"


def check_counts(**counts: tuple[Any, int]) -> None:
    """Check integer arguments, each given with its smallest allowed value."""
    for name, (value, minimum) in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise make_error(name, f"an integer of at least {minimum}", value)


def check_options(dropout: Any, padding: Any, init: Any, init_range: Any) -> None:
    """Check the constructor's other arguments."""
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise make_error("dropout", "a probability of at least 0 and below 1", dropout)
    if padding not in ("masked", "paper"):
        raise make_error("padding", "'masked' or 'paper'", padding)
    if init not in ("uniform", "lookup"):
        raise make_error("init", "'uniform' or 'lookup'", init)
    if not isinstance(init_range, int | float) or not 0 <= init_range < float("inf"):
        raise make_error("init_range", "a finite number of at least 0", init_range)


def check_tensor(name: str, tensor: Any, shape: Sequence[int | str], like: Tensor) -> None:
    """Check a tensor's shape (a letter stands for any number), and its dtype and device against `like`."""
    if (
        not isinstance(tensor, Tensor)
        or tensor.dim() != len(shape)
        or any(isinstance(n, int) and n != size for n, size in zip(shape, tensor.shape, strict=True))
    ):
        raise make_error(name, f"a tensor [{', '.join(map(str, shape))}]", tensor)
    if not tensor.is_floating_point():
        raise make_error(name, "floating-point vectors (embed token ids first)", tensor)
    if tensor.dtype != like.dtype and not torch.is_autocast_enabled(like.device.type):
        dtype = str(like.dtype).removeprefix("torch.")
        raise make_error(name, f"{dtype}, as the encoder's weights are (use .to(...) or autocast)", tensor)
    if tensor.device != like.device:
        raise make_error(name, f"a tensor on {like.device}, where the encoder's weights are", tensor)


def check_lengths(name: str, lengths: Any, batch: int, maximum: int, device: torch.device) -> Tensor | None:
    """Check that lengths are in 0..maximum, and return them as an int64 tensor [B] on the device."""
    if lengths is None:
        return None
    is_empty = isinstance(lengths, list | tuple) and not lengths  # PyTorch would make an empty list float32
    try:
        tensor = torch.as_tensor(lengths, dtype=torch.long if is_empty else None)
    except (TypeError, ValueError, RuntimeError):
        raise make_error(name, f"{batch} integers", lengths) from None
    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    if not is_integer or tensor.shape != (batch,):
        raise make_error(name, f"{batch} integers, one for each sequence of the batch", lengths)
    # Reading values waits for a CUDA device, which a graph capture forbids, and breaks a compiled function.
    may_read = not torch.compiler.is_compiling()
    may_read = may_read and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    if may_read and batch and (int(tensor.min()) < 0 or int(tensor.max()) > maximum):
        wrong = [str(length) for length in tensor.tolist() if not 0 <= length <= maximum]
        raise InputError(f"{name}: expected each in 0..{maximum}, got {', '.join(wrong[:5])}")
    return tensor.to(device=device, dtype=torch.long)


def check_memories(memory: Any, shared: Any, count: int, batch: int, size: int, like: Tensor) -> list[Memory]:
    """Check an encoder's own memory and its `count` shared ones, and return them in this order."""
    if isinstance(shared, Memory | Tensor) or len(shared) != count:
        expected = f"a list of {count} memories, as the encoder was built with shared={count}"
        raise make_error("shared", expected, shared)
    named = {"memory": memory} | {f"shared[{j}]": shared_j for j, shared_j in enumerate(shared)}
    return [check_memory(name, value, batch, size, like) for name, value in named.items()]


def check_memory(name: str, memory: Any, batch: int, size: int, like: Tensor) -> Memory:
    """Check a memory [B, L, size]; a tensor is a memory without padding."""
    if isinstance(memory, Tensor):
        memory = Memory(memory)
    if not isinstance(memory, Memory):
        raise make_error(name, "an nse.Memory or a tensor [B, L, k]", memory)
    check_tensor(f"{name}.slots", memory.slots, (batch, "L", size), like)
    L = memory.slots.shape[1]
    return Memory(memory.slots, check_lengths(f"{name}.lengths", memory.lengths, batch, L, like.device))


def choose_memories(state: Any, memory: Any, shared: Any) -> tuple[Any, Any]:
    """Return the memories of one step: those given, or else those of the state."""
    if not isinstance(state, State | None):
        raise make_error("state", "an nse.State, such as the state of an earlier step", state)
    if state is not None:
        memory = state.memory if memory is None else memory
        shared = state.shared if shared is None else shared
    if memory is None:
        raise make_error("memory", "a memory to start from, here or in the state", None)
    return memory, () if shared is None else shared


def check_state(
    state: Any, layers: int, batch: int, size: int, weight: Tensor
) -> tuple[LSTMState | None, LSTMState | None]:
    """Check a state, and return the states of the read and the write LSTM in the weight's dtype."""
    if state is None:
        return None, None
    if not isinstance(state, State):
        raise make_error("state", "an nse.State, such as the state of an earlier call", state)
    shape = (layers, batch, size)
    return (
        check_lstm_state("state.read", state.read, shape, weight),
        check_lstm_state("state.write", state.write, shape, weight),
    )


def check_lstm_state(name: str, state: Any, shape: tuple[int, int, int], like: Tensor) -> LSTMState:
    """Check the hidden and the cell state of an LSTM, and return them in the dtype of `like`."""
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise make_error(name, f"a pair of tensors {list(shape)}", state)
    for part, tensor in zip("hc", state, strict=True):
        check_tensor(f"{name}.{part}", tensor, shape, like)
    return state[0].to(like.dtype), state[1].to(like.dtype)


def check_finite(x: Tensor, lengths: Tensor | None, memories: Sequence[Memory]) -> None:
    """Check that x and the memories hold neither NaN nor infinity before the end of each sequence."""
    names = ["x", "memory", *(f"shared[{j}]" for j in range(len(memories) - 1))]
    for name, (values, value_lengths) in zip(names, [Memory(x, lengths), *memories], strict=True):
        bad = ~values.isfinite().all(dim=-1)
        if value_lengths is not None:
            bad &= make_mask(value_lengths, values.shape[1])
        if bad.any():
            row, column = bad.nonzero()[0].tolist()
            where = f"{name}[{row}, {column}]"
            raise InputError(f"{name}: expected finite numbers, got NaN or infinity at {where}")
