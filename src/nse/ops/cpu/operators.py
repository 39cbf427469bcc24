"""The function of `reference` on a CPU, in a compiled kernel: all steps of a batch in one call.

`kernel.cpp` computes, ops/README.md explains it. Here are the calls as two PyTorch operators, forward and
backward. For answers compose is folded into the gates, and the weights are packed once and kept until they
change; in training they are packed at each call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nse.errors import BackendError
from nse.ops import double_backward
from nse.ops.cpu.call import (
    STATES,
    Call,
    allocate,
    count_numbers,
    make_pointers,
    run_kernel,
    set_pointers,
    supports_half,
)
from nse.ops.cpu.packed import get_answer_weights, pack_weights
from nse.ops.types import LSTMState, Memory, Result, Weights

MAX_LAYERS = 4

Eight = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


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
    if torch.compiler.is_compiling():  # the compiler refuses one tensor as two arguments
        slots = slots.view_as(slots)
    slot_lengths = torch.stack([count_slots(memory) for memory in memories])
    lengths = x.new_full((B,), T, dtype=torch.long) if lengths is None else lengths.to(torch.long)
    c_mask = None if c_mask is None else c_mask.to(x.dtype)
    flat = flatten_weights(weights)
    tensors = [x, slots, *(read or ()), *(write or ()), *flat]
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    outputs, memory, read_h, read_c, write_h, write_c, z, _ = torch.ops.nse.cpu_forward(
        x, lengths, c_mask, slots, sizes, slot_lengths, *(read or (None, None)), *(write or (None, None)),
        flat, keep, keys, not keep and is_half_wanted(),
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
    if {len(weights.read), len(weights.write)} - set(range(1, MAX_LAYERS + 1)):
        return f"more than {MAX_LAYERS} layers"
    for tensor in (x, *flatten_weights(weights), *(memory.slots for memory in memories)):
        if tensor.dtype != torch.float32:
            return str(tensor.dtype).removeprefix("torch.")
        if tensor.device.type != "cpu":
            return f"the device {tensor.device}"
    return None if x.shape[0] * x.shape[1] * x.shape[2] else "empty batches"


def is_half_wanted() -> bool:
    """Return whether autocast asks for products in bfloat16, and the CPU has them."""
    if not (torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16):
        return False
    return supports_half()


def count_slots(memory: Memory) -> Tensor:
    """Count the slots [B] of a memory without padding."""
    if memory.lengths is not None:
        return memory.lengths.to(torch.long)
    B, L, _ = memory.slots.shape
    return torch.full((B,), L, dtype=torch.long, device=memory.slots.device)


def flatten_weights(weights: Weights) -> list[Tensor]:
    """List the weights in the order of the kernel."""
    read, write = (
        [tensor for layer in layers for tensor in layer] for layers in (weights.read, weights.write)
    )
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
    half: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run all steps.

    Args:
        x: [B, T, k].
        lengths: [B], number of steps.
        mask: [B, T, d], dropout on c_t.
        slots: [B, S, k], all memories.
        sizes: Number of slots of each memory, with padding.
        slot_lengths: [1 + n, B], number of slots without padding.
        read_h: [layers, B, k], initial h of the read LSTM; `None` for zeros.
        read_c: Its initial cell state.
        write_h: The same of the write LSTM.
        write_c: The same of the write LSTM.
        weights: In the order of `flatten_weights`.
        keep: Whether a backward pass will follow.
        keys: Whether to return z.
        half: Whether to multiply in bfloat16, for answers.

    Returns:
        h_t [B, T, k], the memories, the four final states, z [B, T, S] or empty, and what the backward pass
        needs, or empty.
    """
    folded = not keep and mask is None
    inputs = Inputs.prepare(
        x, lengths, mask, slots, sizes, slot_lengths, (read_h, read_c, write_h, write_c), weights
    )
    call = inputs.make_call(folded, keep, half and folded)
    packed = get_answer_weights(inputs.weights, call) if folded else pack_weights(inputs.weights, call)
    results = make_results(x, slots, len(weights), keep, keys)
    outputs, memory, *ends, z, kept = results
    set_pointers(call, packed=packed, outputs=outputs, memory=memory, keys=z.zero_() if keys else None)
    if keep:
        kept = allocate(count_numbers("count_kept", call))
        set_pointers(call, kept=kept)
    set_pointers(
        call, **dict(zip(("read_h_end", "read_c_end", "write_h_end", "write_c_end"), ends, strict=True))
    )
    run_kernel("forward", call)
    return (*results[:-1], kept)


def make_results(x: Tensor, slots: Tensor, weights: int, keep: bool, keys: bool, kept: int = 0) -> Eight:
    """Allocate the results of `cpu_forward`."""
    B, T, k = x.shape
    layers = (weights - 2) // 8
    ends = [x.new_empty(layers, B, k) for _ in range(4)]
    z = x.new_empty(B, T, slots.shape[1]) if keys else x.new_empty(0)
    outputs, memory = x.new_empty(B, T, k), x.new_empty(B, slots.shape[1], k)
    return outputs, memory, ends[0], ends[1], ends[2], ends[3], z, x.new_empty(kept)


def make_fake_results(x: Tensor, *arguments: Any) -> Eight:
    """Allocate the results of `cpu_forward` for a compiler."""
    _, _, slots, _, _, _, _, _, _, weights, keep, keys, _ = arguments
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
    call = inputs.make_call(folded=False, keep=True, half=False)
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
    x, lengths, mask, slots, sizes, slot_lengths, *states, weights, _, _, _ = inputs
    ctx.save_for_backward(x, lengths, mask, slots, slot_lengths, *weights, output[-1])
    ctx.sizes, ctx.has_states = sizes, [state is not None for state in states]
    ctx.set_materialize_grads(False)


def compute_gradients(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    """Compute the gradients of the arguments of `cpu_forward`."""
    double_backward.refuse_double_backward(*gradients)
    d_outputs, d_memory, *d_ends, d_keys, _ = gradients
    x, lengths, mask, slots, slot_lengths, *weights, kept = ctx.saved_tensors
    if all(d is None for d in gradients[:-1]):
        return (None,) * 10 + ([None] * len(weights), None, None, None)
    needs = ctx.needs_input_grad[10]
    d_x, d_slots, *rest = torch.ops.nse.cpu_backward(
        x, lengths, mask, slots, ctx.sizes, slot_lengths, weights, kept, d_outputs, d_memory, d_ends, d_keys,
        any(needs),
    )  # fmt: skip
    d_weights = rest[4:] or [None] * len(weights)
    d_states = (d if is_there else None for d, is_there in zip(rest, ctx.has_states, strict=False))
    return (d_x, None, None, d_slots, None, None, *d_states, d_weights, None, None, None)


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


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply a function to all tensors in tuples and lists."""
    if isinstance(tree, Tensor):
        return function(tree)
    return [map_tensors(function, item) for item in tree] if isinstance(tree, tuple | list) else tree


class Inputs(NamedTuple):
    """Arguments of a call, contiguous."""

    x: Tensor
    lengths: Tensor
    mask: Tensor | None
    slots: Tensor
    sizes: list[int]
    slot_lengths: Tensor
    states: list[Tensor | None]
    weights: list[Tensor]

    @staticmethod
    def prepare(*arguments: Any) -> Inputs:
        """Make all tensors contiguous, and check them."""
        contiguous = map_tensors(lambda tensor: tensor.contiguous(), arguments)
        inputs = Inputs(*contiguous)
        inputs.check()
        return inputs

    def check(self) -> None:
        """Raise a `BackendError` for tensors of another type or shape: the kernel would read garbage."""
        (B, T, k), layers, S = self.x.shape, (len(self.weights) - 2) // 8, self.slots.shape[1]
        d = (1 + len(self.sizes)) * k
        square = [(4 * k, k), (4 * k, k), (4 * k,), (4 * k,)]
        shapes = [(B, T, k), (B, S, k), *(4 * [(layers, B, k)])]
        expected = [*shapes, (B, T, d), *square * layers, (d, d), (d,), (4 * k, d), *square[1:]]
        expected += square * (layers - 1)
        tensors = [self.x, self.slots, *self.states, self.mask, *self.weights]
        for tensor, shape in zip(tensors, expected, strict=True):
            if tensor is not None and (tensor.dtype != torch.float32 or tensor.shape != shape):
                raise BackendError(
                    f"cpu: expected float32 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}"
                )
        for tensor, shape in ((self.lengths, (B,)), (self.slot_lengths, (len(self.sizes), B))):
            if tensor.dtype != torch.long or tensor.shape != shape or sum(self.sizes) != S:
                raise BackendError(f"cpu: expected lengths {list(shape)}, got {list(tensor.shape)}")

    def make_call(self, folded: bool, keep: bool, half: bool) -> Call:
        """Make the call, with pointers to these tensors."""
        (B, T, k), layers = self.x.shape, (len(self.weights) - 2) // 8
        counts = (B, T, k, layers, len(self.sizes), self.slots.shape[1], torch.get_num_threads())
        call = Call(*counts, folded, keep, half)
        call.buffers = [make_pointers(self.weights), (ctypes.c_int64 * len(self.sizes))(*self.sizes)]
        call.weights, call.slot_sizes = (ctypes.addressof(buffer) for buffer in call.buffers)
        set_pointers(call, x=self.x, lengths=self.lengths, mask=self.mask, slots=self.slots)
        set_pointers(call, slot_lengths=self.slot_lengths, **dict(zip(STATES, self.states, strict=True)))
        return call
