"""Linear maps for loops, which compute the gradient of their weights in one product after the loop.

Autograd would compute that gradient at every step and add it up: a product, two sums and their launches for
each step and weight. Here the backward pass of a step only passes its gradient on and records it.
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
"""Input [N, n] and gradient of the output [N, m] of each use, by the id of the backward pass."""


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """Make the linear map of a weight [m, n] and a bias [m], with PyTorch's own gradients."""
    return lambda x: F.linear(x, weight, bias)


def make_deferred_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """Make the same map for many uses, with the gradients of weight and bias computed once for all of them.

    With `create_graph=True` each use computes its own gradients, which can be differentiated again.
    """
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return make_linear(weight, bias)
    uses: Uses = {}
    # An input of every use that depends on the weights: its backward pass runs after those of all uses.
    anchor = _WeightGradient.apply(weight, bias, uses)
    return lambda x: _DeferredLinear.apply(x, anchor, weight, bias, uses)


class _DeferredLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, anchor: Tensor, weight: Tensor, bias: Tensor | None, uses: Uses
    ) -> Tensor:
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
        backward_id = torch._C._current_graph_task_id()
        if backward_id not in ctx.uses:  # drop what a pass without gradients of the weights left
            ctx.uses.clear()
        ctx.uses.setdefault(backward_id, []).append((inputs.detach(), gradients))
        return d_x, None, None, None, None


class _WeightGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, uses: Uses) -> Tensor:
        ctx.uses, ctx.has_bias = uses, bias is not None
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # each use has computed its own
            return None, None, None
        uses = ctx.uses.pop(torch._C._current_graph_task_id())
        x, gradient = (torch.cat(tensors) for tensors in zip(*uses, strict=True))
        return gradient.t() @ x, gradient.sum(dim=0) if ctx.has_bias else None, None
