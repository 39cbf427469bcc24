"""The function of `reference` on a CPU, in a compiled kernel: all steps of a batch in one call.

`kernel.cpp` computes, ops/README.md explains it. Here are the calls as two PyTorch operators, forward and
backward. For answers compose is folded into the gates, and the weights are packed once and kept until they
change; in training they are packed at each call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from nse.errors import BackendError
from nse.ops import double_backward
from nse.ops.cpu.library import load_kernel
from nse.ops.types import LSTMLayer, LSTMState, Memory, Result, Weights

MAX_LAYERS = 4
IMPORTED_BY = os.getpid()

Eight = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class Call(ctypes.Structure):
    """Arguments of the kernel: the fields of `Call` in kernel.cpp, in the same order."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in "B T k layers memories S threads folded keep".split()),
        *((name, ctypes.c_void_p) for name in "lengths slot_sizes slot_lengths weights d_weights".split()),
        *((name, ctypes.c_void_p) for name in "packed x mask slots read_h read_c write_h write_c".split()),
        *((name, ctypes.c_void_p) for name in "kept outputs memory keys".split()),
        *((name, ctypes.c_void_p) for name in "read_h_end read_c_end write_h_end write_c_end".split()),
        *((name, ctypes.c_void_p) for name in "d_outputs d_memory d_keys".split()),
        *((f"d_{name}_end", ctypes.c_void_p) for name in "read_h read_c write_h write_c".split()),
        *((f"d_{name}", ctypes.c_void_p) for name in "x slots read_h read_c write_h write_c".split()),
        *((name, ctypes.c_void_p) for name in "run_openmp count_openmp_threads".split()),
    ]


def recurrence(
    x: Tensor,
    lengths: Tensor | None,
    memories: tuple[Memory, ...],
    read: LSTMState | None,
    write: LSTMState | None,
    weights: Weights,
    c_mask: Tensor | None = None,
    keys: bool = False,
) -> Result:
    """Encode x step by step; for the arguments see `nse.ops.types.Backend`."""
    B, T, _ = x.shape
    sizes = [memory.slots.shape[1] for memory in memories]
    slots = memories[0].slots if len(memories) == 1 else torch.cat([m.slots for m in memories], dim=1)
    slot_lengths = torch.stack([count_slots(memory) for memory in memories])
    lengths = x.new_full((B,), T, dtype=torch.long) if lengths is None else lengths.to(torch.long)
    flat = flatten_weights(weights)
    tensors = [x, slots, *(read or ()), *(write or ()), *flat]
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    outputs, memory, read_h, read_c, write_h, write_c, z, _ = torch.ops.nse.cpu_forward(
        x, lengths, c_mask, slots, sizes, slot_lengths, *(read or (None, None)), *(write or (None, None)),
        flat, keep, keys,
    )  # fmt: skip
    return Result(
        outputs,
        memory.split(sizes, dim=1) if len(sizes) > 1 else (memory,),
        (read_h, read_c),
        (write_h, write_c),
        z.split(sizes, dim=2) if keys else (),
    )


def find_unsupported(x: Tensor, memories: tuple[Memory, ...], weights: Weights) -> str | None:
    """Return what the kernel does not support about a call; `None` if it supports it."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast"
    if {len(weights.read), len(weights.write)} - set(range(1, MAX_LAYERS + 1)):
        return f"more than {MAX_LAYERS} layers"
    for tensor in (x, weights.compose, *(memory.slots for memory in memories)):
        if tensor.dtype != torch.float32:
            return str(tensor.dtype).removeprefix("torch.")
        if tensor.device.type != "cpu":
            return f"the device {tensor.device}"
    return None if x.shape[0] * x.shape[1] * x.shape[2] else "empty batches"


def count_slots(memory: Memory) -> Tensor:
    """Count the slots [B] of a memory without padding."""
    if memory.lengths is not None:
        return memory.lengths.to(torch.long)
    B, L, _ = memory.slots.shape
    return torch.full((B,), L, dtype=torch.long, device=memory.slots.device)


def flatten_weights(weights: Weights) -> list[Tensor]:
    """List the weights in the order of the kernel."""
    read, write = ([tensor for layer in layers for tensor in layer] for layers in (weights.read, weights.write))
    return [*read, weights.compose, weights.compose_bias, *write]


def forward(
    x: Tensor,
    lengths: Tensor,
    mask: Tensor | None,
    slots: Tensor,
    sizes: list[int],
    slot_lengths: Tensor,
    read_h: Tensor | None,
    read_c: Tensor | None,
    write_h: Tensor | None,
    write_c: Tensor | None,
    weights: list[Tensor],
    keep: bool,
    keys: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run all steps.

    Args:
        x: [B, T, k].
        lengths: [B], number of steps.
        mask: [B, T, d], dropout on c_t.
        slots: [B, S, k], all memories.
        sizes: Number of slots of each memory, with padding.
        slot_lengths: [1 + n, B], number of slots without padding.
        read_h: [layers, B, k], initial state; `None` for zeros. `read_c`, `write_h` and `write_c` likewise.
        weights: In the order of `flatten_weights`.
        keep: Whether a backward pass will follow.
        keys: Whether to return z.

    Returns:
        h_t [B, T, k], the memories, the four final states, z [B, T, S] or empty, and what the backward pass
        needs, or empty.
    """
    folded = not keep and mask is None
    inputs = Inputs.prepare(x, lengths, mask, slots, sizes, slot_lengths, (read_h, read_c, write_h, write_c), weights)
    call = inputs.make_call(folded=folded, keep=keep)
    packed = get_answer_weights(inputs, call) if folded else pack_weights(inputs.weights, call)
    results = make_results(x, slots, len(weights), keep, keys, count_numbers("count_kept", call) if keep else 0)
    outputs, memory, *ends, z, kept = results
    set_pointers(call, packed=packed, outputs=outputs, memory=memory, keys=z.zero_() if keys else None)
    set_pointers(call, kept=kept if keep else None)
    set_pointers(call, **dict(zip(("read_h_end", "read_c_end", "write_h_end", "write_c_end"), ends, strict=True)))
    run_kernel("forward", call)
    return results


def make_results(x: Tensor, slots: Tensor, weights: int, keep: bool, keys: bool, kept: int) -> Eight:
    """Allocate the results of `cpu_forward`."""
    B, T, k = x.shape
    layers = (weights - 2) // 8
    ends = [x.new_empty(layers, B, k) for _ in range(4)]
    z = x.new_empty(B, T, slots.shape[1]) if keys else x.new_empty(0)
    outputs, memory = x.new_empty(B, T, k), x.new_empty(B, slots.shape[1], k)
    return outputs, memory, ends[0], ends[1], ends[2], ends[3], z, x.new_empty(kept)


def make_fake_results(x: Tensor, *arguments: Any) -> Eight:
    """Allocate the results of `cpu_forward` for a compiler."""
    _, _, slots, _, _, _, _, _, _, weights, keep, keys = arguments
    kept = torch.library.get_ctx().new_dynamic_size() if keep else 0
    return make_results(x, slots, len(weights), keep, keys, kept)  # type: ignore[arg-type]


def backward(
    x: Tensor,
    lengths: Tensor,
    mask: Tensor | None,
    slots: Tensor,
    sizes: list[int],
    slot_lengths: Tensor,
    weights: list[Tensor],
    kept: Tensor,
    d_outputs: Tensor | None,
    d_memory: Tensor | None,
    d_ends: list[Tensor | None],
    d_keys: Tensor | None,
    needs_weights: bool,
) -> list[Tensor]:
    """Run the backward pass of all steps.

    Returns:
        The gradients of x, the slots, the four initial states and, if they are needed, the weights.
    """
    inputs = Inputs.prepare(x, lengths, mask, slots, sizes, slot_lengths, (None,) * 4, weights)
    call = inputs.make_call(folded=False, keep=True)
    gradients = make_gradients(x, slots, weights, needs_weights)
    d_x, d_slots, *d_starts = gradients[:6]
    d_weights = [tensor.data_ptr() for tensor in gradients[6:]] or [0] * len(weights)
    pointers = (ctypes.c_void_p * len(weights))(*d_weights)
    call.d_weights = ctypes.cast(pointers, ctypes.c_void_p)
    results = [None if d is None else d.contiguous() for d in (d_outputs, d_memory, d_keys, *d_ends)]
    names = ("d_outputs", "d_memory", "d_keys", *(f"d_{name}_end" for name in STATES))
    set_pointers(call, kept=kept, d_x=d_x, d_slots=d_slots)
    set_pointers(call, **dict(zip(names, results, strict=True)))
    set_pointers(call, **{f"d_{name}": d for name, d in zip(STATES, d_starts, strict=True)})
    run_kernel("backward", call)
    return gradients


STATES = ("read_h", "read_c", "write_h", "write_c")


def make_gradients(x: Tensor, slots: Tensor, weights: Sequence[Tensor], needs_weights: bool) -> list[Tensor]:
    """Allocate the results of `cpu_backward`."""
    layers = (len(weights) - 2) // 8
    starts = [x.new_empty(layers, x.shape[0], x.shape[2]) for _ in range(4)]
    like = [weight.new_empty(weight.shape) for weight in weights] if needs_weights else []
    return [x.new_empty(x.shape), slots.new_empty(slots.shape), *starts, *like]


def make_fake_gradients(x: Tensor, *arguments: Any) -> list[Tensor]:
    """Allocate the results of `cpu_backward` for a compiler."""
    _, _, slots, _, _, weights, *_, needs_weights = arguments
    return make_gradients(x, slots, weights, needs_weights)


def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Eight) -> None:
    """Keep what the backward pass needs."""
    x, lengths, mask, slots, sizes, slot_lengths, *states, weights, _, _ = inputs
    ctx.save_for_backward(x, lengths, mask, slots, slot_lengths, *weights, output[-1])
    ctx.sizes, ctx.has_states = sizes, [state is not None for state in states]
    ctx.set_materialize_grads(False)


def compute_gradients(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    """Compute the gradients of the arguments of `cpu_forward`."""
    double_backward.refuse_double_backward(*gradients)
    d_outputs, d_memory, *d_ends, d_keys, _ = gradients
    x, lengths, mask, slots, slot_lengths, *weights, kept = ctx.saved_tensors
    if all(d is None for d in gradients[:-1]):
        return (None,) * 10 + ([None] * len(weights), None, None)
    needs = ctx.needs_input_grad[10]
    d_x, d_slots, *rest = torch.ops.nse.cpu_backward(
        x, lengths, mask, slots, ctx.sizes, slot_lengths, weights, kept, d_outputs, d_memory, d_ends, d_keys,
        any(needs),
    )  # fmt: skip
    d_weights = rest[4:] or [None] * len(weights)
    d_states = (d if is_there else None for d, is_there in zip(rest, ctx.has_states, strict=False))
    return (d_x, None, None, d_slots, None, None, *d_states, d_weights, None, None)


# Not `torch.library.custom_op`, whose first call imports PyTorch's compiler, which takes seconds.
LIBRARY = torch.library.Library("nse", "FRAGMENT")
for function, fake in ((forward, make_fake_results), (backward, make_fake_gradients)):
    name = f"cpu_{function.__name__}"
    LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=()))
    LIBRARY.impl(name, function, "CPU")
    torch.library.register_fake(f"nse::{name}", fake, lib=LIBRARY)
torch.library.register_autograd(
    "nse::cpu_forward", compute_gradients, setup_context=save_for_backward, lib=LIBRARY
)


class Inputs(NamedTuple):
    """Arguments of a call, contiguous."""

    x: Tensor
    lengths: Tensor
    mask: Tensor | None
    slots: Tensor
    sizes: list[int]
    slot_lengths: Tensor
    states: tuple[Tensor | None, ...]
    weights: list[Tensor]

    @staticmethod
    def prepare(*arguments: Any) -> Inputs:
        """Make all tensors contiguous."""
        x, lengths, mask, slots, sizes, slot_lengths, states, weights = arguments
        tensors = (None if t is None else t.contiguous() for t in (x, lengths, mask, slots, slot_lengths))
        x, lengths, mask, slots, slot_lengths = tensors
        states = tuple(None if state is None else state.contiguous() for state in states)
        return Inputs(x, lengths, mask, slots, sizes, slot_lengths, states, [w.contiguous() for w in weights])

    def make_call(self, folded: bool, keep: bool) -> Call:
        """Make the call, with pointers to these tensors."""
        (B, T, k), layers = self.x.shape, (len(self.weights) - 2) // 8
        call = Call(B, T, k, layers, len(self.sizes), self.slots.shape[1], torch.get_num_threads(), folded, keep)
        call.run_openmp, call.count_openmp_threads = find_openmp(os.getpid())
        call.buffers = [point_to(self.weights), (ctypes.c_int64 * len(self.sizes))(*self.sizes)]
        call.weights, call.slot_sizes = (ctypes.addressof(buffer) for buffer in call.buffers)
        set_pointers(call, x=self.x, lengths=self.lengths, mask=self.mask, slots=self.slots)
        set_pointers(call, slot_lengths=self.slot_lengths, **dict(zip(STATES, self.states, strict=True)))
        return call


@cache
def find_openmp(process: int) -> tuple[int | None, int | None]:
    """Find the OpenMP runtime that PyTorch has loaded; not in a forked process, where it would wait forever."""
    if process != IMPORTED_BY:
        return None, None
    try:
        everything = ctypes.CDLL(None)
        functions = everything.GOMP_parallel, everything.omp_get_num_threads
    except (AttributeError, OSError, TypeError):
        return None, None
    run, count = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
    return run, count


def point_to(tensors: Sequence[Tensor]) -> Any:
    """Make an array of the tensors' addresses."""
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def set_pointers(call: Call, **tensors: Tensor | None) -> None:
    """Point fields of the call to tensors, or to nothing."""
    for name, tensor in tensors.items():
        setattr(call, name, None if tensor is None else tensor.data_ptr())


def count_numbers(name: str, call: Call) -> int:
    """Count the numbers of a buffer."""
    function = load_kernel().get(name)
    function.restype = ctypes.c_int64
    return int(function(ctypes.byref(call)))


def run_kernel(name: str, call: Call) -> None:
    """Run a function of the kernel; other Python threads go on meanwhile."""
    if load_kernel().get(name)(ctypes.byref(call)):
        raise BackendError("the CPU kernel has no memory or threads left: use smaller batches")


# ---- Packed weights

class Packed(NamedTuple):
    """Weights packed for answers.

    Attributes:
        weights: Packed weights.
        origin: Addresses, versions, instruction set and a checksum, which tell whether they are up to date.
    """

    weights: Tensor
    origin: tuple[Any, ...]


ANSWER_WEIGHTS = WeakIdKeyDictionary()
"""Packed weights by the tensor of compose's weights, as long as that lives."""


def get_answer_weights(inputs: Inputs, call: Call) -> Tensor:
    """Return the folded and packed weights, made anew if a weight has changed."""
    origin = describe_weights(inputs.weights)
    compose = inputs.weights[4 * call.layers]
    entry = ANSWER_WEIGHTS.get(compose)
    if entry is None or entry.origin != origin:
        entry = Packed(pack_weights(fold_compose(inputs.weights, call.layers), call), origin)
        ANSWER_WEIGHTS[compose] = entry
    return entry.weights


def describe_weights(weights: list[Tensor]) -> tuple[Any, ...]:
    """Describe weights so that a change shows: also one that PyTorch's version counter does not see."""
    kernel = load_kernel()
    sample = kernel.get("sample")
    sample.restype = ctypes.c_int64
    sizes = (ctypes.c_int64 * len(weights))(*(weight.numel() for weight in weights))
    versions = tuple(0 if weight.is_inference() else weight._version for weight in weights)
    addresses = tuple(weight.data_ptr() for weight in weights)
    return kernel.isa, addresses, versions, sample(point_to(weights), sizes, ctypes.c_int64(len(weights)))


def pack_weights(weights: list[Tensor], call: Call) -> Tensor:
    """Pack weights for the forward pass in the layout of the kernel."""
    packed = weights[0].new_empty(count_numbers("count_packed", call))
    pointers = point_to(weights)
    call.weights = ctypes.addressof(pointers)
    set_pointers(call, packed=packed)
    run_kernel("pack", call)
    call.weights = None
    return packed


def fold_compose(weights: list[Tensor], layers: int) -> list[Tensor]:
    """Fold compose into the input matrix of the write LSTM: W_ih (W c + b) = (W_ih W) c + W_ih b."""
    compose, bias = weights[4 * layers : 4 * layers + 2]
    ih, hh, bias_ih, bias_hh = weights[4 * layers + 2 : 4 * layers + 6]
    folded = multiply(ih, torch.cat([compose, bias[:, None]], dim=1))
    to_gates, gate_bias = folded[:, :-1].contiguous(), folded[:, -1] + bias_ih + bias_hh
    return [*weights[: 4 * layers], to_gates, gate_bias, *weights[4 * layers + 2 :]]


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices; the result does not depend on the number of threads, as PyTorch's does."""
    out = a.new_empty(a.shape[0], b.shape[1])
    arguments = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (out, a, b))
    sizes = (*a.shape, b.shape[1], torch.get_num_threads())
    load_kernel().get("multiply")(*arguments, *map(ctypes.c_int64, sizes))
    return out
