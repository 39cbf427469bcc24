"""What depends on the sequences' lengths before and after the loop, as operators of PyTorch.

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


@torch.library.custom_op("nse::longest_first", mutates_args=())
def longest_first(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths [B] as int32, and the sequences [B], as int32 too, from the longest to the shortest."""
    short, order = torch.empty_like(lengths, dtype=torch.int32), torch.empty_like(lengths, dtype=torch.int32)
    B = len(lengths)
    rank[(triton.cdiv(B, BLOCK),)](lengths.contiguous(), short, order, B, BLOCK)
    return short, order


@longest_first.register_fake
def _(lengths: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(lengths, dtype=torch.int32), torch.empty_like(lengths, dtype=torch.int32)


@triton.jit(do_not_specialize=["T"])
def copy_real(x, found, lengths, T, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Each program: one row of one sequence, or zeros past its end."""
    row = tl.program_id(0)
    unit = tl.arange(0, BLOCK_K)
    real = unit < tl.where(row % T < tl.load(lengths + row // T), K, 0)
    place = row.to(tl.int64) * K + unit
    tl.store(found + place, tl.load(x + place, mask=real, other=0.0), mask=unit < K)


@torch.library.custom_op("nse::without_padding", mutates_args=())
def without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Words or slots [B, T, k] with zeros past each length [B], so that garbage there goes nowhere."""
    found = torch.empty_like(x, memory_format=torch.contiguous_format)
    B, T, k = x.shape
    if found.numel():
        copy_real[(B * T,)](x.contiguous(), found, lengths, T, k, triton.next_power_of_2(k))
    return found


@without_padding.register_fake
def _(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def remember_lengths(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    """Keep what the backward pass needs."""
    ctx.save_for_backward(inputs[1])


def gradient_without_padding(ctx: Any, d: Tensor) -> tuple[Tensor, None]:
    """Nothing comes back for padding."""
    return without_padding(d, *ctx.saved_tensors), None


without_padding.register_autograd(gradient_without_padding, setup_context=remember_lengths)


@triton.jit(do_not_specialize=["B", "T"])
def take(H, C, lengths, h, c, B, T, LAYERS: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Each program: of one layer of one sequence, h and c at its end."""
    row = tl.program_id(0)
    layer, b = row // B, row % B
    unit = tl.arange(0, BLOCK_K)
    real = unit < K
    place = (row.to(tl.int64) * (T + 1) + tl.load(lengths + b)) * K + unit
    out = ((LAYERS - 1 - layer) * B + b) * K + unit
    tl.store(h + out, tl.load(H + place, mask=real), mask=real)
    tl.store(c + out, tl.load(C + place, mask=real), mask=real)


@triton.jit(do_not_specialize=["B", "T"])
def put(d, d_states, lengths, B, T, LAYERS: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Each program: of one layer of one sequence, the gradient of one step's state, zero but at its end."""
    place = tl.program_id(0)
    row, t = place // (T + 1), place % (T + 1)
    layer, b = row // B, row % B
    unit = tl.arange(0, BLOCK_K)
    at_end = unit < tl.where(t == tl.load(lengths + b), K, 0)
    found = tl.load(d + ((LAYERS - 1 - layer) * B + b) * K + unit, mask=at_end, other=0.0)
    tl.store(d_states + place.to(tl.int64) * K + unit, found, mask=unit < K)


@torch.library.custom_op("nse::ends", mutates_args=())
def ends(H: Tensor, C: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The states at each sequence's end.

    Args:
        H: [R, T + 1, k], of all layers from the top down, with the state at the start in front.
        C: Likewise the cell state.
        lengths: [B].

    Returns:
        Both at the end, [layers, B, k], layers from the bottom up.
    """
    (R, steps, k), B = H.shape, len(lengths)
    h, c = H.new_empty(R // B, B, k), C.new_empty(R // B, B, k)
    take[(R,)](H, C, lengths, h, c, B, steps - 1, R // B, k, triton.next_power_of_2(k))
    return h, c


@ends.register_fake
def _(H: Tensor, C: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    (R, _, k), B = H.shape, len(lengths)
    return H.new_empty(R // B, B, k), C.new_empty(R // B, B, k)


@torch.library.custom_op("nse::ends_backward", mutates_args=())
def ends_backward(d: Tensor, lengths: Tensor, T: int) -> Tensor:
    """The gradient of H [R, T + 1, k], or of C, from that of what `ends` took of it."""
    layers, B, k = d.shape
    d_states = d.new_empty(layers * B, T + 1, k)
    programs = layers * B * (T + 1)
    put[(programs,)](d.contiguous(), d_states, lengths, B, T, layers, k, triton.next_power_of_2(k))
    return d_states


@ends_backward.register_fake
def _(d: Tensor, lengths: Tensor, T: int) -> Tensor:
    layers, B, k = d.shape
    return d.new_empty(layers * B, T + 1, k)


def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    H, _, lengths = inputs
    ctx.save_for_backward(lengths)
    ctx.T = H.shape[1] - 1
    ctx.set_materialize_grads(False)


def gradients(ctx: Any, d_h: Tensor | None, d_c: Tensor | None) -> tuple[Tensor | None, ...]:
    """Of H and C, each only if something came back for it."""
    (lengths,) = ctx.saved_tensors
    d_H, d_C = (None if d is None else ends_backward(d, lengths, ctx.T) for d in (d_h, d_c))
    return d_H, d_C, None


ends.register_autograd(gradients, setup_context=remember)
