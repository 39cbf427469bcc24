"""Cross-entropy, its gradient, and how many scores are highest at the right label, in one kernel.

PyTorch takes eight for that, and on short sequences such small kernels are most of a training step.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

ROWS = 64  # at a time
MOST = 16384
"""Scores beyond so many are for PyTorch: here one program looks at all."""


def covered(scores: Tensor, labels: Tensor) -> bool:
    """Whether `judged` does these scores."""
    types = scores.dtype == torch.float32 and labels.dtype == torch.int64
    return types and 0 < scores.numel() <= MOST


@triton.jit(do_not_specialize=["B", "smoothing"])
def judge(
    scores,
    labels,
    loss,
    right,
    d_scores,
    B,
    smoothing,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Everything; there is one program."""
    label = tl.arange(0, COLUMNS)
    of_label = (label < N)[None, :]
    losses = tl.zeros([ROWS], tl.float32)
    rights = tl.zeros([ROWS], tl.float32)
    for first in range(0, B, ROWS):
        row = first + tl.arange(0, ROWS)
        of_row = row < B
        there = of_row[:, None] & of_label
        place = row[:, None] * N + label[None, :]
        score = tl.load(scores + place, mask=there, other=0.0)
        wanted = tl.load(labels + row, mask=of_row, other=0)
        highest = tl.max(tl.where(of_label, score, float("-inf")), axis=1)
        below = score - highest[:, None]
        power = tl.where(of_label, tl.exp(below), 0.0)
        total = tl.sum(power, axis=1)
        log_p = tl.where(of_label, below - tl.log(total)[:, None], 0.0)
        target = tl.where(label[None, :] == wanted[:, None], 1 - smoothing, 0.0) + smoothing / N
        losses -= tl.where(of_row, tl.sum(log_p * target, axis=1), 0.0)
        is_highest = of_label & (score == highest[:, None])
        found = tl.min(tl.where(is_highest, label[None, :], COLUMNS), axis=1)  # the first of several
        rights += tl.where(of_row & (found == wanted), 1.0, 0.0)
        tl.store(d_scores + place, (power / total[:, None] - target) / B, mask=there)
    tl.store(loss, tl.sum(losses, axis=0) / B)
    tl.store(right, tl.sum(rights, axis=0))


@torch.library.custom_op("nse::judged", mutates_args=())
def judged(scores: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean cross-entropy of scores, how many rows are highest at their label, and the loss's gradient.

    Args:
        scores: [B, labels] float32, not empty.
        labels: [B] int64.
        smoothing: How much of the probability is spread over all labels.
    """
    loss, right, d_scores = scores.new_empty(()), scores.new_empty(()), scores.new_empty(scores.shape)
    B, N = scores.shape
    judge[(1,)](
        scores.contiguous(), labels.contiguous(), loss, right, d_scores, B, smoothing, N, ROWS,
        triton.next_power_of_2(N),
    )  # fmt: skip
    return loss, right, d_scores


@judged.register_fake
def _(scores: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    return scores.new_empty(()), scores.new_empty(()), scores.new_empty(scores.shape)


def remember(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    scores, labels, ctx.smoothing = inputs
    _, right, d_scores = output
    ctx.save_for_backward(scores, labels, d_scores)
    ctx.mark_non_differentiable(right, d_scores)


def gradients(ctx: Any, d_loss: Tensor, *_: Any) -> tuple[Tensor, None, None]:
    """Of the scores; where it will be differentiated again, as PyTorch makes it."""
    scores, labels, d_scores = ctx.saved_tensors
    if torch.is_grad_enabled():
        loss = F.cross_entropy(scores, labels, label_smoothing=ctx.smoothing)
        (d_scores,) = torch.autograd.grad(loss, scores, create_graph=True)
    return d_loss * d_scores, None, None


judged.register_autograd(gradients, setup_context=remember)
