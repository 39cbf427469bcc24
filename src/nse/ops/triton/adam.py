"""Clipping, Adam and the average of the weights, for all tensors of a model in two Triton kernels.

PyTorch has a kernel for each of these, and gives a program 65,536 numbers: the few million of a small model
keep a third of a large card busy. Here a program has a few thousand. The first kernel adds up squares of the
gradients, each program those of its piece; in the second every program adds up what all of them found, in the
same order, so all know the same norm without waiting for one another.

Which tensor a program's piece belongs to is compiled in, and the tensors' addresses are arguments: nothing is
copied to the device and nothing read from it, so a CUDA graph can hold an update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers of a program at a time; eight for a thread, so that programs share a multiprocessor
WARPS = 8
MOST_SUMS = 1024  # of squares, about; with more numbers, a program of `measure` has more blocks
MOST_TENSORS = 80  # of a launch: six addresses each, so arguments stay below the 4 KiB that any driver takes


class Rule(NamedTuple):
    """What stands in the formulas of Adam; compiled in."""

    BETA_1: float  # how much of the mean of gradients each step keeps
    BETA_2: float  # likewise of their squares
    LOG_1: float  # their logarithms
    LOG_2: float
    EPS: float
    AVERAGED: bool  # whether there is an average of the weights


class Layout(NamedTuple):
    """How some tensors are cut into pieces, one for each program; compiled in."""

    STARTS: tuple[int, ...]  # the first piece of each tensor
    SIZES: tuple[int, ...]  # how many numbers it has
    BLOCKS: int  # of a piece


@triton.jit
def chosen(pointers, piece, A: tl.constexpr):
    """Of one pointer for each tensor, that of the tensor to which a piece belongs."""
    found = pointers[0]
    for i in tl.static_range(1, len(A.STARTS)):
        found = tl.where(piece >= A.STARTS[i], pointers[i], found)
    return found


@triton.jit
def place(piece, A: tl.constexpr, BLOCK: tl.constexpr):
    """Where a piece begins in its tensor, and how many of its numbers are the tensor's."""
    LENGTH: tl.constexpr = A.BLOCKS * BLOCK
    start = tl.zeros([], tl.int32)
    size = tl.full([], A.SIZES[0], tl.int64)
    for i in tl.static_range(1, len(A.STARTS)):
        here = piece >= A.STARTS[i]
        start = tl.where(here, A.STARTS[i], start)
        size = tl.where(here, A.SIZES[i], size)
    first = (piece - start).to(tl.int64) * LENGTH
    return first, tl.minimum(size - first, LENGTH).to(tl.int32)


@triton.jit
def sum_of_squares(gradient, left, WHOLE: tl.constexpr, A: tl.constexpr, BLOCK: tl.constexpr):
    """Of a piece of a gradient, with as many numbers left as it can hold or fewer."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, A.BLOCKS * BLOCK, BLOCK):
        i = first + tl.arange(0, BLOCK)
        if WHOLE:  # a mask would have numbers loaded one by one
            g = tl.load(gradient + i)
        else:
            g = tl.load(gradient + i, mask=i < left, other=0.0)
        total += g * g
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["before"])
def measure(gradients, steps, sums, before, A: tl.constexpr, BLOCK: tl.constexpr):
    """Each program: the sum of squares of its piece. And one more step is counted, once for each tensor."""
    piece = tl.program_id(0)
    first, left = place(piece, A, BLOCK)
    gradient = chosen(gradients, piece, A) + first
    if left == A.BLOCKS * BLOCK:
        total = sum_of_squares(gradient, left, True, A, BLOCK)
    else:
        total = sum_of_squares(gradient, left, False, A, BLOCK)
    tl.store(sums + before + piece, total)
    if first == 0:
        step = chosen(steps, piece, A)
        tl.store(step, tl.load(step) + 1)


@triton.jit
def one_minus_power(logarithm, exponent):
    """1 - b^n, given log(b) < 0: to float32's precision, which 1 - 0.999^1 computed in float32 has not."""
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
    left,
    sums,
    norm,
    rate,
    l2,
    clip,
    pull,
    COUNT: tl.constexpr,
    COUNT_PADDED: tl.constexpr,
    WHOLE: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One piece, with as many numbers left as it can hold or fewer."""
    i = tl.arange(0, BLOCK)
    inside = None if WHOLE else i < left
    # All loads come before the sum over the other programs' squares, which has threads wait for each other.
    g = tl.load(gradient + i, mask=inside)
    p = tl.load(parameter + i, mask=inside)
    m = tl.load(mean + i, mask=inside)
    v = tl.load(square + i, mask=inside)
    if R.AVERAGED:
        a = tl.load(average + i, mask=inside)
    n = tl.load(step)
    size = tl.load(rate) / one_minus_power(R.LOG_1, n)
    correction = 1 / tl.sqrt(one_minus_power(R.LOG_2, n))
    j = tl.arange(0, COUNT_PADDED)
    length = tl.sqrt(tl.sum(tl.load(sums + j, mask=j < COUNT, other=0.0), axis=0))
    if tl.program_id(0) == 0:
        tl.store(norm, length)
    scale = clip / (length + 1e-6)
    g = g * tl.where(scale > 1, 1.0, scale) + l2 * p  # and not the minimum, which of NaN and 1 is 1
    m = R.BETA_1 * m + (1 - R.BETA_1) * g
    v = R.BETA_2 * v + (1 - R.BETA_2) * g * g
    p -= size * m / (tl.sqrt(v) * correction + R.EPS)
    tl.store(parameter + i, p, mask=inside)
    tl.store(mean + i, m, mask=inside)
    tl.store(square + i, v, mask=inside)
    if R.AVERAGED:
        tl.store(average + i, a + pull * (p - a), mask=inside)


@triton.jit
def change(
    parameters,
    gradients,
    means,
    squares,
    steps,
    averages,
    sums,
    norm,
    rate,
    l2,
    clip,
    pull,
    COUNT: tl.constexpr,
    COUNT_PADDED: tl.constexpr,
    A: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each program: clip the gradient of its piece, and change whatever it changes."""
    piece = tl.program_id(0)
    first, left = place(piece, A, BLOCK)
    parameter = chosen(parameters, piece, A) + first
    gradient = chosen(gradients, piece, A) + first
    mean = chosen(means, piece, A) + first
    square = chosen(squares, piece, A) + first
    step = chosen(steps, piece, A)
    average = chosen(averages, piece, A) + first
    if left == BLOCK:  # a mask would have numbers loaded one by one
        update_piece(
            parameter, gradient, mean, square, step, average, left, sums, norm, rate, l2, clip, pull,
            COUNT, COUNT_PADDED, True, R, BLOCK,
        )  # fmt: skip
    else:
        update_piece(
            parameter, gradient, mean, square, step, average, left, sums, norm, rate, l2, clip, pull,
            COUNT, COUNT_PADDED, False, R, BLOCK,
        )  # fmt: skip


def layout(sizes: tuple[int, ...], blocks: int) -> tuple[Layout, int]:
    """Tensors of these sizes cut into pieces of so many blocks, and how many pieces there are."""
    starts = [0]
    for size in sizes:  # an empty tensor has a piece too, by which its steps are counted
        starts.append(starts[-1] + max(1, math.ceil(size / (blocks * BLOCK))))
    return Layout(tuple(starts[:-1]), sizes, blocks), starts[-1]


def update(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    rate: Tensor,
    l2: float,
    clip: float,
    decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> Tensor:
    """Clip gradients by their global norm, take a step of Adam, and take its weights into their average.

    It computes what `torch.nn.utils.clip_grad_norm_`, `torch.optim.Adam` and `torch._foreach_lerp_` do, but
    for rounding, and that the gradients stay as they are. The same numbers give the same bits every time. A
    gradient that is not finite spreads as it does there.

    Args:
        parameters: Contiguous, float32, all on one device, as everything else; changed.
        gradients: Of the same shapes.
        means: Of gradients, likewise; changed.
        squares: The means of their squares, likewise; changed.
        steps: How many steps each parameter has taken, a float32 number [] each; changed.
        averages: Of the parameters; changed. `None` if there are none.
        rate: The learning rate, [].
        l2: What of a parameter is added to its gradient, after clipping.
        clip: The largest global norm.
        decay: How much of the averages is kept.
        betas: How much of `means` and of `squares` is kept.
        eps: Added to the divisor.

    Returns:
        [], the norm before clipping, on the device, which is not waited for.
    """
    everything = [
        parameters,
        [g.contiguous() for g in gradients],
        means,
        squares,
        steps,
        parameters if averages is None else averages,  # addresses that are never followed, or theirs
    ]
    sizes = tuple(p.numel() for p in parameters)
    launches = [slice(i, i + MOST_TENSORS) for i in range(0, len(sizes), MOST_TENSORS)]
    blocks = max(1, math.ceil(sum(sizes) / BLOCK / MOST_SUMS))
    layouts = [layout(sizes[some], blocks) for some in launches]
    count = sum(pieces for _, pieces in layouts)
    sums, norm = parameters[0].new_empty(count), parameters[0].new_empty(())
    one, two = betas
    rule = Rule(one, two, math.log(one), math.log(two), eps, averages is not None)
    with torch.cuda.device_of(norm):  # Triton launches on the current one
        before = 0
        for some, (each, pieces) in zip(launches, layouts, strict=True):
            measure[(pieces,)](
                tuple(everything[1][some]), tuple(steps[some]), sums, before, each, BLOCK, num_warps=WARPS
            )
            before += pieces
        for some in launches:
            each, pieces = layout(sizes[some], 1)
            change[(pieces,)](
                *(tuple(tensors[some]) for tensors in everything), sums, norm, rate, float(l2), float(clip),
                1.0 - decay, count, triton.next_power_of_2(count), each, rule, BLOCK, num_warps=WARPS,
            )  # fmt: skip
    return norm
