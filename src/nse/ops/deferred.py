"""A linear map that a loop uses step after step, with the gradient of its weights in one product at the end.

Autograd would make that gradient at every step and add it up: a product, two sums and their launches for each
step and each weight. Here a step's backward pass only hands its gradient on and remembers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Linear = Callable[[Tensor], Tensor]
"""From [..., n] to [..., m]."""

Uses = dict[int, list[tuple[Tensor, Tensor]]]
"""What went in [N, n] and the gradient of what came out [N, m], of each use, by the backward pass."""


def once(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """Make the map of a weight [m, n] and a bias [m], as PyTorch does it."""
    return lambda x: F.linear(x, weight, bias)


def many_times(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """Make the same map, its weight and bias with the gradient of all uses together.

    Only in an ordinary backward pass: in one that will be differentiated again each use makes its own.
    """
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return once(weight, bias)
    uses: Uses = {}
    # Depends on the weights and goes into every use: its own backward pass comes after those of all of them.
    last = _Last.apply(weight, bias, uses)
    return lambda x: _Use.apply(x, last, weight, bias, uses)


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, last: Tensor, weight: Tensor, bias: Tensor | None, uses: Uses) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.uses = uses
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_x = gradient @ weight if ctx.needs_input_grad[0] else None
        inputs, gradients = x.flatten(0, -2), gradient.flatten(0, -2)
        if torch.is_grad_enabled():
            d_bias = gradients.sum(dim=0) if ctx.needs_input_grad[3] else None
            return d_x, None, gradients.t() @ inputs, d_bias, None
        now = torch._C._current_graph_task_id()
        if now not in ctx.uses:  # what an earlier pass left, which wanted no gradient of the weights
            ctx.uses.clear()
        ctx.uses.setdefault(now, []).append((inputs.detach(), gradients))
        return d_x, None, None, None, None


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, uses: Uses) -> Tensor:
        ctx.uses, ctx.biased = uses, bias is not None
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # each use has made its own
            return None, None, None
        uses = ctx.uses.pop(torch._C._current_graph_task_id())
        x, gradient = (torch.cat(each) for each in zip(*uses, strict=True))
        return gradient.t() @ x, gradient.sum(dim=0) if ctx.biased else None, None
