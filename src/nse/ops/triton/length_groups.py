"""PyTorch operators for the sequences' lengths, run before and after a loop.

Each replaces several small kernels of PyTorch, which are most of a training step on short sequences.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128  # sequences at a time


@triton.jit(do_not_specialize=["B"])
def rank_by_length(lengths, short, order, B, BLOCK: tl.constexpr):
    """Convert some sequences' lengths to int32, and store the sequences at their ranks, longest first."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(lengths + i, mask=i < B, other=0)
    rank = tl.zeros([BLOCK], tl.int32)
    for first in range(0, B, BLOCK):
        j = first + tl.arange(0, BLOCK)
        other = tl.load(lengths + j, mask=j < B, other=-1)  # -1 is shorter than any
        same = (other[None, :] == length[:, None]) & (j[None, :] < i[:, None])
        rank += tl.sum(((other[None, :] > length[:, None]) | same).to(tl.int32), axis=1)
    tl.store(order + rank, i, mask=i < B)
    tl.store(short + i, length.to(tl.int32), mask=i < B)


@torch.library.custom_op("nse::sort_by_length", mutates_args=())
def sort_by_length(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lengths [B] and the indices of the sequences [B] from longest to shortest, both int32."""
    short, order = torch.empty_like(lengths, dtype=torch.int32), torch.empty_like(lengths, dtype=torch.int32)
    B = len(lengths)
    rank_by_length[(triton.cdiv(B, BLOCK),)](lengths.contiguous(), short, order, B, BLOCK)
    return short, order


@sort_by_length.register_fake
def _(lengths: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(lengths, dtype=torch.int32), torch.empty_like(lengths, dtype=torch.int32)


@triton.jit(do_not_specialize=["T"])
def copy_unpadded(x, out, lengths, T, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Copy one row of a sequence, or store zeros past its end."""
    row = tl.program_id(0)
    unit = tl.arange(0, BLOCK_K)
    real = unit < tl.where(row % T < tl.load(lengths + row // T), K, 0)
    offset = row.to(tl.int64) * K + unit
    tl.store(out + offset, tl.load(x + offset, mask=real, other=0.0), mask=unit < K)


@torch.library.custom_op("nse::zero_padding", mutates_args=())
def zero_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Return [B, T, k] with zeros past each length [B], so that NaN in the padding does not spread."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    B, T, k = x.shape
    if out.numel():
        copy_unpadded[(B * T,)](x.contiguous(), out, lengths, T, k, triton.next_power_of_2(k))
    return out


@zero_padding.register_fake
def _(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def save_lengths(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    """Keep what the backward pass needs."""
    ctx.save_for_backward(inputs[1])
    ctx.set_materialize_grads(False)


def zero_padding_backward(ctx: Any, d: Tensor | None) -> tuple[Tensor | None, None]:
    """Set the gradient of the padding to zero."""
    return None if d is None else zero_padding(d, *ctx.saved_tensors), None


zero_padding.register_autograd(zero_padding_backward, setup_context=save_lengths)


@triton.jit(do_not_specialize=["B", "T"])
def select_state(
    H, C, lengths, outputs, h, c, B, T, LAYERS: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Copy the state of one layer of a sequence after one step to the outputs and final states."""
    index = tl.program_id(0)
    row, t = index // (T + 1), index % (T + 1)
    layer, b = row // B, row % B
    unit = tl.arange(0, BLOCK_K)
    real = unit < K
    state = tl.load(H + index.to(tl.int64) * K + unit, mask=real)
    if (layer == 0) & (t > 0):
        tl.store(outputs + (b * T + t - 1).to(tl.int64) * K + unit, state, mask=real)
    if t == tl.load(lengths + b):
        end = ((LAYERS - 1 - layer) * B + b) * K + unit
        tl.store(h + end, state, mask=real)
        tl.store(c + end, tl.load(C + index.to(tl.int64) * K + unit, mask=real), mask=real)


@triton.jit(do_not_specialize=["B", "T"])
def add_state_gradients(
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
    """Compute the gradient of one state from those of the outputs and final states that it was copied to."""
    index = tl.program_id(0)
    row, t = index // (T + 1), index % (T + 1)
    layer, b = row // B, row % B
    unit = tl.arange(0, BLOCK_K)
    d = tl.zeros([BLOCK_K], tl.float32)
    if OUTPUTS:
        there = unit < tl.where((layer == 0) & (t > 0), K, 0)
        d += tl.load(d_outputs + (b * T + t - 1).to(tl.int64) * K + unit, mask=there, other=0.0)
    if END:
        there = unit < tl.where(t == tl.load(lengths + b), K, 0)
        d += tl.load(d_end + ((LAYERS - 1 - layer) * B + b) * K + unit, mask=there, other=0.0)
    tl.store(d_states + index.to(tl.int64) * K + unit, d, mask=unit < K)


@torch.library.custom_op("nse::select_states", mutates_args=())
def select_states(H: Tensor, C: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Select the outputs and the final states from the states of all steps.

    Args:
        H: [R, T + 1, k], hidden states of all layers from the top down, after the initial one.
        C: [R, T + 1, k], cell states.
        lengths: [B].

    Returns:
        The top layer's h of all steps [B, T, k], and h and c of all layers at the end of each sequence
        [layers, B, k], from the bottom up.
    """
    (R, steps, k), B = H.shape, len(lengths)
    outputs, h, c = H.new_empty(B, steps - 1, k), H.new_empty(R // B, B, k), H.new_empty(R // B, B, k)
    select_state[(R * steps,)](
        H, C, lengths, outputs, h, c, B, steps - 1, R // B, k, triton.next_power_of_2(k)
    )  # fmt: skip
    return outputs, h, c


@select_states.register_fake
def _(H: Tensor, C: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (R, steps, k), B = H.shape, len(lengths)
    return H.new_empty(B, steps - 1, k), H.new_empty(R // B, B, k), H.new_empty(R // B, B, k)


@torch.library.custom_op("nse::select_states_backward", mutates_args=())
def select_states_backward(
    d_outputs: Tensor | None, d_end: Tensor | None, lengths: Tensor, shape: list[int]
) -> Tensor:
    """Compute the gradient of H or C from those of the outputs and final states; one may be `None`."""
    inputs = [None if d is None else d.contiguous() for d in (d_outputs, d_end)]
    first = next(d for d in inputs if d is not None)
    d_states = first.new_empty(shape)
    (R, steps, k), B = shape, len(lengths)
    add_state_gradients[(R * steps,)](
        *(first if d is None else d for d in inputs), d_states, lengths, B, steps - 1,
        *(d is not None for d in inputs), R // B, k, triton.next_power_of_2(k),
    )  # fmt: skip
    return d_states


@select_states_backward.register_fake
def _(d_outputs: Tensor | None, d_end: Tensor | None, lengths: Tensor, shape: list[int]) -> Tensor:
    first = d_end if d_outputs is None else d_outputs
    assert first is not None
    return first.new_empty(shape)


def save_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    H, _, lengths = inputs
    ctx.save_for_backward(lengths)
    ctx.shape = list(H.shape)
    ctx.set_materialize_grads(False)


def compute_gradients(
    ctx: Any, d_outputs: Tensor | None, d_h: Tensor | None, d_c: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of H and C, each only if one of its results has a gradient."""
    (lengths,) = ctx.saved_tensors
    has_d_H = d_outputs is not None or d_h is not None
    d_H = select_states_backward(d_outputs, d_h, lengths, ctx.shape) if has_d_H else None
    d_C = None if d_c is None else select_states_backward(None, d_c, lengths, ctx.shape)
    return d_H, d_C, None


select_states.register_autograd(compute_gradients, setup_context=save_for_backward)
