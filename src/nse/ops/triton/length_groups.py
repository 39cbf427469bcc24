"""What depends on the sequences' lengths before and after a loop, as operators of PyTorch.

PyTorch could do the same with several small kernels each, and on short sequences such kernels are most of a
training step.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128  # sequences at a time


@triton.jit(do_not_specialize=["B"])
def rank(lengths, short, order, B, BLOCK: tl.constexpr):
    """Each program: some sequences' lengths as int32, and their places from the longest to the shortest."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(lengths + i, mask=i < B, other=0)
    place = tl.zeros([BLOCK], tl.int32)
    for first in range(0, B, BLOCK):
        j = first + tl.arange(0, BLOCK)
        other = tl.load(lengths + j, mask=j < B, other=-1)  # shorter than any
        same = (other[None, :] == mine[:, None]) & (j[None, :] < i[:, None])
        place += tl.sum(((other[None, :] > mine[:, None]) | same).to(tl.int32), axis=1)
    tl.store(order + place, i, mask=i < B)
    tl.store(short + i, mine.to(tl.int32), mask=i < B)


@torch.library.custom_op("nse::sort_by_length", mutates_args=())
def sort_by_length(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths [B] as int32, and the sequences [B], as int32 too, from the longest to the shortest."""
    short, order = torch.empty_like(lengths, dtype=torch.int32), torch.empty_like(lengths, dtype=torch.int32)
    B = len(lengths)
    rank[(triton.cdiv(B, BLOCK),)](lengths.contiguous(), short, order, B, BLOCK)
    return short, order


@sort_by_length.register_fake
def _(lengths: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(lengths, dtype=torch.int32), torch.empty_like(lengths, dtype=torch.int32)


@triton.jit(do_not_specialize=["T"])
def copy_unpadded(x, found, lengths, T, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Each program: one row of one sequence, or zeros past its end."""
    row = tl.program_id(0)
    unit = tl.arange(0, BLOCK_K)
    real = unit < tl.where(row % T < tl.load(lengths + row // T), K, 0)
    place = row.to(tl.int64) * K + unit
    tl.store(found + place, tl.load(x + place, mask=real, other=0.0), mask=unit < K)


@torch.library.custom_op("nse::zero_padding", mutates_args=())
def zero_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Words or slots [B, T, k] with zeros past each length [B], so that garbage there goes nowhere."""
    found = torch.empty_like(x, memory_format=torch.contiguous_format)
    B, T, k = x.shape
    if found.numel():
        copy_unpadded[(B * T,)](x.contiguous(), found, lengths, T, k, triton.next_power_of_2(k))
    return found


@zero_padding.register_fake
def _(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def remember_lengths(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    """Keep what the backward pass needs."""
    ctx.save_for_backward(inputs[1])
    ctx.set_materialize_grads(False)


def gradient_without_padding(ctx: Any, d: Tensor | None) -> tuple[Tensor | None, None]:
    """Nothing comes back for padding."""
    return None if d is None else zero_padding(d, *ctx.saved_tensors), None


zero_padding.register_autograd(gradient_without_padding, setup_context=remember_lengths)


@triton.jit(do_not_specialize=["B", "T"])
def take(H, C, lengths, outputs, h, c, B, T, LAYERS: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Each program: the state of one layer of one sequence after one step, to where it is wanted."""
    place = tl.program_id(0)
    row, t = place // (T + 1), place % (T + 1)
    layer, b = row // B, row % B
    unit = tl.arange(0, BLOCK_K)
    real = unit < K
    state = tl.load(H + place.to(tl.int64) * K + unit, mask=real)
    if (layer == 0) & (t > 0):
        tl.store(outputs + (b * T + t - 1).to(tl.int64) * K + unit, state, mask=real)
    if t == tl.load(lengths + b):
        end = ((LAYERS - 1 - layer) * B + b) * K + unit
        tl.store(h + end, state, mask=real)
        tl.store(c + end, tl.load(C + place.to(tl.int64) * K + unit, mask=real), mask=real)


@triton.jit(do_not_specialize=["B", "T"])
def put(
    d_outputs,
    d_end,
    d_states,
    lengths,
    B,
    T,
    OUTPUTS: tl.constexpr,
    END: tl.constexpr,
    LAYERS: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Each program: the gradient of one state, from those of what `take` made of it."""
    place = tl.program_id(0)
    row, t = place // (T + 1), place % (T + 1)
    layer, b = row // B, row % B
    unit = tl.arange(0, BLOCK_K)
    d = tl.zeros([BLOCK_K], tl.float32)
    if OUTPUTS:
        there = unit < tl.where((layer == 0) & (t > 0), K, 0)
        d += tl.load(d_outputs + (b * T + t - 1).to(tl.int64) * K + unit, mask=there, other=0.0)
    if END:
        there = unit < tl.where(t == tl.load(lengths + b), K, 0)
        d += tl.load(d_end + ((LAYERS - 1 - layer) * B + b) * K + unit, mask=there, other=0.0)
    tl.store(d_states + place.to(tl.int64) * K + unit, d, mask=unit < K)


@torch.library.custom_op("nse::outcome", mutates_args=())
def outcome(H: Tensor, C: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is wanted of the states of all steps.

    Args:
        H: [R, T + 1, k], of all layers from the top down, with the state at the start in front.
        C: Likewise the cell state.
        lengths: [B].

    Returns:
        The top layer's h of all steps [B, T, k], and h and c of all layers at each sequence's end, [layers,
        B, k], from the bottom up.
    """
    (R, steps, k), B = H.shape, len(lengths)
    outputs, h, c = H.new_empty(B, steps - 1, k), H.new_empty(R // B, B, k), H.new_empty(R // B, B, k)
    take[(R * steps,)](
        H, C, lengths, outputs, h, c, B, steps - 1, R // B, k, triton.next_power_of_2(k)
    )  # fmt: skip
    return outputs, h, c


@outcome.register_fake
def _(H: Tensor, C: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (R, steps, k), B = H.shape, len(lengths)
    return H.new_empty(B, steps - 1, k), H.new_empty(R // B, B, k), H.new_empty(R // B, B, k)


@torch.library.custom_op("nse::outcome_backward", mutates_args=())
def outcome_backward(
    d_outputs: Tensor | None, d_end: Tensor | None, lengths: Tensor, shape: list[int]
) -> Tensor:
    """The gradient of H, or of C, from those of what `outcome` took of it; of one of them at least."""
    given = [None if d is None else d.contiguous() for d in (d_outputs, d_end)]
    first = next(d for d in given if d is not None)
    d_states = first.new_empty(shape)
    (R, steps, k), B = shape, len(lengths)
    put[(R * steps,)](
        *(first if d is None else d for d in given), d_states, lengths, B, steps - 1,
        *(d is not None for d in given), R // B, k, triton.next_power_of_2(k),
    )  # fmt: skip
    return d_states


@outcome_backward.register_fake
def _(d_outputs: Tensor | None, d_end: Tensor | None, lengths: Tensor, shape: list[int]) -> Tensor:
    first = d_end if d_outputs is None else d_outputs
    assert first is not None
    return first.new_empty(shape)


def remember(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    H, _, lengths = inputs
    ctx.save_for_backward(lengths)
    ctx.shape = list(H.shape)
    ctx.set_materialize_grads(False)


def gradients(
    ctx: Any, d_outputs: Tensor | None, d_h: Tensor | None, d_c: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Of H and C, each only if something came back for it."""
    (lengths,) = ctx.saved_tensors
    nothing_for_H = d_outputs is None and d_h is None
    d_H = None if nothing_for_H else outcome_backward(d_outputs, d_h, lengths, ctx.shape)
    d_C = None if d_c is None else outcome_backward(None, d_c, lengths, ctx.shape)
    return d_H, d_C, None


outcome.register_autograd(gradients, setup_context=remember)
