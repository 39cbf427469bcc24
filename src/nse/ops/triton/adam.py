"""Gradient clipping, Adam and the moving average of the weights, for a whole model in two Triton kernels.

PyTorch has a kernel for each of these and gives each program 65,536 numbers, so the few million weights of a
small model keep a third of a large GPU busy. Here each program has a piece of a few thousand. In the first
kernel it sums the squared gradients of its piece; in the second it adds up the sums of all programs, in the
same order, so all of them get the same norm without a barrier.

The layout of the pieces is compiled in and the tensors' addresses are arguments: nothing is copied to or read
from the device, so an update can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers at a time; eight per thread, so that programs share a multiprocessor
WARPS = 8
MAX_SUMS = 1024  # approximate number of programs of `sum_squares`; large models have pieces of more blocks
MAX_TENSORS = 80  # per launch: with six addresses each, arguments stay below the 4 KiB of every driver


class Constants(NamedTuple):
    """Constants of Adam, compiled in."""

    BETA_1: float
    BETA_2: float
    LOG_1: float  # log(BETA_1)
    LOG_2: float
    EPS: float
    HAS_AVERAGE: bool  # whether there is a moving average of the weights


class Layout(NamedTuple):
    """Division of tensors into pieces, one per program; compiled in."""

    STARTS: tuple[int, ...]  # first piece of each tensor
    SIZES: tuple[int, ...]  # number of elements of each tensor
    BLOCKS: int  # per piece


@triton.jit
def select_pointer(pointers, piece, A: tl.constexpr):
    """Return the pointer of the tensor that a piece belongs to."""
    pointer = pointers[0]
    for i in tl.static_range(1, len(A.STARTS)):
        pointer = tl.where(piece >= A.STARTS[i], pointers[i], pointer)
    return pointer


@triton.jit
def locate_piece(piece, A: tl.constexpr, BLOCK: tl.constexpr):
    """Return the offset of a piece in its tensor, and its number of elements."""
    LENGTH: tl.constexpr = A.BLOCKS * BLOCK
    start = tl.zeros([], tl.int32)
    size = tl.full([], A.SIZES[0], tl.int64)
    for i in tl.static_range(1, len(A.STARTS)):
        is_later = piece >= A.STARTS[i]
        start = tl.where(is_later, A.STARTS[i], start)
        size = tl.where(is_later, A.SIZES[i], size)
    first = (piece - start).to(tl.int64) * LENGTH
    return first, tl.minimum(size - first, LENGTH).to(tl.int32)


@triton.jit
def sum_squares_of_piece(gradient, count, FULL: tl.constexpr, A: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the squares of a piece of a gradient with `count` elements; FULL if that is all it can have."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, A.BLOCKS * BLOCK, BLOCK):
        i = first + tl.arange(0, BLOCK)
        if FULL:  # with a mask, elements would be loaded one by one
            g = tl.load(gradient + i)
        else:
            g = tl.load(gradient + i, mask=i < count, other=0.0)
        total += g * g
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["before"])
def sum_squares(gradients, steps, sums, before, A: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the squares of this program's piece; also increment the step counter, once per tensor."""
    piece = tl.program_id(0)
    first, count = locate_piece(piece, A, BLOCK)
    gradient = select_pointer(gradients, piece, A) + first
    if count == A.BLOCKS * BLOCK:
        total = sum_squares_of_piece(gradient, count, True, A, BLOCK)
    else:
        total = sum_squares_of_piece(gradient, count, False, A, BLOCK)
    tl.store(sums + before + piece, total)
    if first == 0:
        step = select_pointer(steps, piece, A)
        tl.store(step, tl.load(step) + 1)


@triton.jit
def one_minus_power(logarithm, exponent):
    """Compute 1 - b^n from log(b) < 0 without cancellation, which 1 - 0.999^1 has in float32."""
    x = logarithm * exponent
    series = 1 + x / 8
    for i in tl.static_range(7, 1, -1):
        series = 1 + x / i * series
    return tl.where(x > -0.5, -x * series, 1 - tl.exp(x))


@triton.jit
def update_piece(
    parameter,
    gradient,
    mean,
    square,
    step,
    average,
    count,
    sums,
    norm,
    lr,
    l2,
    clip,
    average_weight,
    SUMS: tl.constexpr,
    SUMS_PADDED: tl.constexpr,
    FULL: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Update a piece with `count` elements; FULL if that is all it can have."""
    i = tl.arange(0, BLOCK)
    inside = None if FULL else i < count
    # All loads come before the sum over the programs, at which threads wait for each other.
    g = tl.load(gradient + i, mask=inside)
    p = tl.load(parameter + i, mask=inside)
    m = tl.load(mean + i, mask=inside)
    v = tl.load(square + i, mask=inside)
    if R.HAS_AVERAGE:
        a = tl.load(average + i, mask=inside)
    n = tl.load(step)
    step_size = tl.load(lr) / one_minus_power(R.LOG_1, n)
    correction = 1 / tl.sqrt(one_minus_power(R.LOG_2, n))
    j = tl.arange(0, SUMS_PADDED)
    length = tl.sqrt(tl.sum(tl.load(sums + j, mask=j < SUMS, other=0.0), axis=0))
    if tl.program_id(0) == 0:
        tl.store(norm, length)
    scale = clip / (length + 1e-6)
    g = g * tl.where(scale > 1, 1.0, scale) + l2 * p  # not tl.minimum, which of NaN and 1 is 1
    m = R.BETA_1 * m + (1 - R.BETA_1) * g
    v = R.BETA_2 * v + (1 - R.BETA_2) * g * g
    p -= step_size * m / (tl.sqrt(v) * correction + R.EPS)
    tl.store(parameter + i, p, mask=inside)
    tl.store(mean + i, m, mask=inside)
    tl.store(square + i, v, mask=inside)
    if R.HAS_AVERAGE:
        tl.store(average + i, a + average_weight * (p - a), mask=inside)


@triton.jit
def update_pieces(
    parameters,
    gradients,
    means,
    squares,
    steps,
    averages,
    sums,
    norm,
    lr,
    l2,
    clip,
    average_weight,
    SUMS: tl.constexpr,
    SUMS_PADDED: tl.constexpr,
    A: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Clip the gradient of this program's piece, and update the parameter, its moments and its average."""
    piece = tl.program_id(0)
    first, count = locate_piece(piece, A, BLOCK)
    parameter = select_pointer(parameters, piece, A) + first
    gradient = select_pointer(gradients, piece, A) + first
    mean = select_pointer(means, piece, A) + first
    square = select_pointer(squares, piece, A) + first
    step = select_pointer(steps, piece, A)
    average = select_pointer(averages, piece, A) + first
    if count == BLOCK:  # with a mask, elements would be loaded one by one
        update_piece(
            parameter, gradient, mean, square, step, average, count, sums, norm, lr, l2, clip,
            average_weight, SUMS, SUMS_PADDED, True, R, BLOCK,
        )  # fmt: skip
    else:
        update_piece(
            parameter, gradient, mean, square, step, average, count, sums, norm, lr, l2, clip,
            average_weight, SUMS, SUMS_PADDED, False, R, BLOCK,
        )  # fmt: skip


def divide_tensors(sizes: tuple[int, ...], blocks: int) -> tuple[Layout, int]:
    """Divide tensors of these sizes into pieces of `blocks` blocks; also return the number of pieces."""
    starts = [0]
    for size in sizes:  # an empty tensor has one piece, which counts its steps
        starts.append(starts[-1] + max(1, math.ceil(size / (blocks * BLOCK))))
    return Layout(tuple(starts[:-1]), sizes, blocks), starts[-1]


def update(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    lr: Tensor,
    l2: float,
    clip: float,
    decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> Tensor:
    """Clip gradients by their global norm, take a step of Adam, and update the moving average of the weights.

    Equals `torch.nn.utils.clip_grad_norm_`, `torch.optim.Adam` and `torch._foreach_lerp_` up to rounding, and
    leaves the gradients unchanged. Results are deterministic to the bit. NaN and infinity
    spread as they do in PyTorch. All tensors are contiguous, float32 and on one device; all but `gradients`
    and `lr` are updated in place.

    Args:
        parameters: The weights.
        gradients: Their gradients.
        means: Adam's `exp_avg`.
        squares: Adam's `exp_avg_sq`.
        steps: Number of steps of each parameter, a scalar each.
        averages: Moving averages of the parameters, or `None`.
        lr: Learning rate, a scalar.
        l2: Weight decay: this times the parameter is added to its gradient, after clipping.
        clip: Largest global norm.
        decay: Decay of the moving averages.
        betas: Decay of `means` and `squares`.
        eps: Added to the denominator.

    Returns:
        The norm before clipping, a scalar on the device.
    """
    tensors = [
        parameters,
        [g.contiguous() for g in gradients],
        means,
        squares,
        steps,
        parameters if averages is None else averages,  # without averages, a pointer that is never used
    ]
    sizes = tuple(p.numel() for p in parameters)
    launches = [slice(i, i + MAX_TENSORS) for i in range(0, len(sizes), MAX_TENSORS)]
    blocks = max(1, math.ceil(sum(sizes) / BLOCK / MAX_SUMS))
    layouts = [divide_tensors(sizes[launch], blocks) for launch in launches]
    count = sum(pieces for _, pieces in layouts)
    sums, norm = parameters[0].new_empty(count), parameters[0].new_empty(())
    beta_1, beta_2 = betas
    has_average = averages is not None
    constants = Constants(beta_1, beta_2, math.log(beta_1), math.log(beta_2), eps, has_average)
    with torch.cuda.device_of(norm):  # Triton launches on the current one
        before = 0
        for launch, (layout, pieces) in zip(launches, layouts, strict=True):
            sum_squares[(pieces,)](
                tuple(tensors[1][launch]), tuple(steps[launch]), sums, before, layout, BLOCK, num_warps=WARPS
            )
            before += pieces
        for launch in launches:
            layout, pieces = divide_tensors(sizes[launch], 1)
            update_pieces[(pieces,)](
                *(tuple(group[launch]) for group in tensors), sums, norm, lr, float(l2), float(clip),
                1.0 - decay, count, triton.next_power_of_2(count), layout, constants, BLOCK, num_warps=WARPS,
            )  # fmt: skip
    return norm
