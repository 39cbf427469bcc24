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

Uses = list[tuple[Tensor, Tensor]]
"""What went in [N, n] and the gradient of what came out [N, m], of each use."""


def once(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The map of a weight [m, n] and a bias [m], as PyTorch does it."""
    return lambda x: F.linear(x, weight, bias)


def many_times(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The same map, its weight and bias with the gradient of all uses together; differentiable once."""
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return once(weight, bias)
    uses: Uses = []
    # Depends on the weights and goes into every use: its own backward pass comes after those of all of them.
    last = _Last.apply(weight, bias, uses)
    fixed = weight.detach(), None if bias is None else bias.detach()
    return lambda x: _Use.apply(x, last, *fixed, uses)


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, last: Tensor, weight: Tensor, bias: Tensor | None, uses: Uses) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.uses = uses
        return F.linear(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        ctx.uses.append((x.detach().flatten(0, -2), gradient.flatten(0, -2)))
        return gradient @ weight if ctx.needs_input_grad[0] else None, None, None, None, None


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, uses: Uses) -> Tensor:
        ctx.uses, ctx.biased = uses, bias is not None
        return weight.new_zeros(())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        x, gradient = (torch.cat(each) for each in zip(*ctx.uses, strict=True))
        ctx.uses.clear()
        return gradient.t() @ x, gradient.sum(dim=0) if ctx.biased else None, None
