"""Cross-entropy, its gradient and the number of correct predictions, in one kernel.

PyTorch takes eight small kernels, which are most of a training step on short sequences.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

ROWS = 64  # at a time
MAX_SCORES = 16384
"""Largest number of scores: one program reads all of them."""


def is_supported(scores: Tensor, labels: Tensor) -> bool:
    """Return whether `cross_entropy` supports these scores."""
    has_dtypes = scores.dtype == torch.float32 and labels.dtype == torch.int64
    return has_dtypes and 0 < scores.numel() <= MAX_SCORES


@triton.jit(do_not_specialize=["B", "smoothing"])
def run_cross_entropy(
    scores,
    labels,
    loss,
    correct,
    d_scores,
    B,
    smoothing,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute everything in one program."""
    label = tl.arange(0, COLUMNS)
    real_label = (label < N)[None, :]
    losses = tl.zeros([ROWS], tl.float32)
    corrects = tl.zeros([ROWS], tl.float32)
    for first in range(0, B, ROWS):
        row = first + tl.arange(0, ROWS)
        real_row = row < B
        real = real_row[:, None] & real_label
        offset = row[:, None] * N + label[None, :]
        score = tl.load(scores + offset, mask=real, other=0.0)
        target_label = tl.load(labels + row, mask=real_row, other=0)
        highest = tl.max(tl.where(real_label, score, float("-inf")), axis=1)
        below = score - highest[:, None]
        power = tl.where(real_label, tl.exp(below), 0.0)
        total = tl.sum(power, axis=1)
        log_p = tl.where(real_label, below - tl.log(total)[:, None], 0.0)
        target = tl.where(label[None, :] == target_label[:, None], 1 - smoothing, 0.0) + smoothing / N
        losses -= tl.where(real_row, tl.sum(log_p * target, axis=1), 0.0)
        is_highest = real_label & (score == highest[:, None])
        predicted = tl.min(
            tl.where(is_highest, label[None, :], COLUMNS), axis=1
        )  # the first, if several are highest
        corrects += tl.where(real_row & (predicted == target_label), 1.0, 0.0)
        tl.store(d_scores + offset, (power / total[:, None] - target) / B, mask=real)
    tl.store(loss, tl.sum(losses, axis=0) / B)
    tl.store(correct, tl.sum(corrects, axis=0))


@torch.library.custom_op("nse::cross_entropy", mutates_args=())
def cross_entropy(scores: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the mean cross-entropy, the number of correct predictions, and the gradient of the scores.

    Args:
        scores: [B, labels] float32, not empty.
        labels: [B] int64.
        smoothing: Probability that is spread over all labels.
    """
    loss, correct, d_scores = scores.new_empty(()), scores.new_empty(()), scores.new_empty(scores.shape)
    B, N = scores.shape
    run_cross_entropy[(1,)](
        scores.contiguous(), labels.contiguous(), loss, correct, d_scores, B, smoothing, N, ROWS,
        triton.next_power_of_2(N),
    )  # fmt: skip
    return loss, correct, d_scores


@cross_entropy.register_fake
def _(scores: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    return scores.new_empty(()), scores.new_empty(()), scores.new_empty(scores.shape)


def save_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    scores, labels, ctx.smoothing = inputs
    _, correct, d_scores = output
    ctx.save_for_backward(scores, labels, d_scores)
    ctx.mark_non_differentiable(correct, d_scores)


def compute_gradients(ctx: Any, d_loss: Tensor, *_: Any) -> tuple[Tensor, None, None]:
    """Compute the gradient of the scores; with `create_graph=True`, by PyTorch."""
    scores, labels, d_scores = ctx.saved_tensors
    if torch.is_grad_enabled():
        loss = F.cross_entropy(scores, labels, label_smoothing=ctx.smoothing)
        (d_scores,) = torch.autograd.grad(loss, scores, create_graph=True)
    return d_loss * d_scores, None, None


cross_entropy.register_autograd(compute_gradients, setup_context=save_for_backward)
