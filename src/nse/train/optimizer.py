"""Optimizer: Adam, the learning rate schedule, gradient clipping and the moving average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from nse.ops.dispatch import choose_backend


def make_adam(parameters: Iterable[nn.Parameter], lr: float, l2: float, device: torch.device) -> Adam:
    """Return Adam with coupled weight decay; on CUDA fused, so that a graph can capture it."""
    if device.type != "cuda":
        return Adam(parameters, lr=lr, weight_decay=l2)
    # A captured graph would keep a number for good, but reads a tensor again at every replay.
    lr_on_device = torch.tensor(lr, device=device)
    return Adam(parameters, lr=lr_on_device, weight_decay=l2, fused=True, capturable=True)


def compute_lr(peak: float, schedule: str, progress: float, warmup: float = 0.0) -> float:
    """Return the learning rate at a fraction of the run; it rises from zero during the fraction `warmup`."""
    if progress < warmup:
        return peak * progress / warmup
    decay_progress = (progress - warmup) / (1 - warmup)
    if schedule == "cosine":
        return peak * (1 + math.cos(math.pi * decay_progress)) / 2
    return peak * (1 - decay_progress) if schedule == "linear" else peak


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate, also in graphs that are already captured."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


class WeightEMA:
    """Exponential moving average of the weights, with Adam's bias correction.

    It starts from zero and is corrected on use, so that the initial random weights have no part in it.
    """

    def __init__(self, parameters: list[nn.Parameter], decay: float):
        self.parameters, self.decay = parameters, decay
        # Not yet corrected, and always the same tensors: a captured step writes to them.
        self.values: list[Tensor] = [torch.zeros_like(p) for p in parameters]
        self._update = get_ema_multi_avg_fn(decay)

    def update(self) -> None:
        """Add the weights after one more step."""
        self._update(self.values, self.parameters, 0)

    @contextmanager
    def swap_weights(self, steps: int) -> Iterator[None]:
        """Replace the weights by their average after some steps in the block; in place, as graphs need it."""
        weights = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.values, strict=True):
                parameter.copy_(value / (1 - self.decay**steps))
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, weight in zip(self.parameters, weights, strict=True):
                    parameter.copy_(weight)


class OptimizerUpdate:
    """Update of the weights from their gradients: clipping, Adam, moving average.

    Two kernels of `nse.ops.triton.adam` do all of it on a CUDA device that can run them (unless
    NSE_BACKEND=torch), for float32 weights and an optimizer from `make_adam`. PyTorch does it elsewhere, and
    in a step in which some weights have no gradient.
    """

    def __init__(self, optimizer: Optimizer, clip: float, ema: WeightEMA | None):
        self.optimizer, self.clip, self.ema = optimizer, clip, ema
        self.parameters: list[nn.Parameter] = [p for g in optimizer.param_groups for p in g["params"]]
        self.use_kernels = self.parameters[0].is_cuda and self.can_use_kernels()

    def can_use_kernels(self) -> bool:
        """Return whether the kernels support these weights, this optimizer and this average."""
        first, *others = self.optimizer.param_groups
        return (
            type(self.optimizer) is Adam
            and not others
            and bool(first["capturable"] and first["fused"] and isinstance(first["lr"], Tensor))
            and not (first["amsgrad"] or first["maximize"] or first.get("decoupled_weight_decay", False))
            and all(p.dtype == torch.float32 and p.is_contiguous() for p in self.parameters)
            and (self.ema is None or [*map(id, self.ema.parameters)] == [*map(id, self.parameters)])
            and choose_backend("auto", self.parameters[0].device) == "triton"
        )

    def __call__(self, loss: Tensor) -> Tensor:
        """Update the weights and return the gradient's norm before clipping, []; the gradients are consumed.

        On a CPU nothing changes if the loss or a gradient is not finite.
        """
        if self.use_kernels and all(p.grad is not None for p in self.parameters):
            return self.update_with_kernels()
        return self.update_with_pytorch(loss)

    def update_with_pytorch(self, loss: Tensor) -> Tensor:
        """Clip, step and average in PyTorch."""
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip, error_if_nonfinite=False)
        if norm.is_cuda or (norm.isfinite() and loss.isfinite()):
            self.optimizer.step()
            if self.ema is not None:
                self.ema.update()
        return norm

    def update_with_kernels(self) -> Tensor:
        """Clip, step and average in two kernels."""
        from nse.ops.triton import adam as triton_adam  # only machines with a GPU have triton

        group, states = self.optimizer.param_groups[0], [self.get_adam_state(p) for p in self.parameters]
        return triton_adam.update(
            parameters=self.parameters,
            gradients=[p.grad for p in self.parameters if p.grad is not None],
            means=[state["exp_avg"] for state in states],
            squares=[state["exp_avg_sq"] for state in states],
            steps=[state["step"] for state in states],
            averages=self.ema.values if self.ema else None,
            lr=group["lr"],
            l2=group["weight_decay"],
            clip=self.clip,
            decay=self.ema.decay if self.ema else 0.0,
            betas=group["betas"],
            eps=group["eps"],
        )

    def get_adam_state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return Adam's state of a parameter; create it as Adam would in its first step.

        The kernels need it in the first step: it compiles and loads them, before the second may be captured.
        """
        state: dict[str, Tensor] = self.optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state
