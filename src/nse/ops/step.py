"""One step of equations 1-6, for decoders: their next input depends on their last output.

A step takes as few operations as PyTorch has for it, on any device, and reads nothing on the host, so a loop
of steps can be captured in a CUDA graph. Autograd keeps the memory of each step: a loop of T steps over L
slots needs room for T x L slots. Where all inputs are known beforehand, `nse.ops.dispatch` does without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nse.ops.deferred import Linear, make_linear
from nse.ops.types import LSTMLayer, Weights, make_mask

LayerState = tuple[Tensor, Tensor]
"""Hidden and cell state of one LSTM layer, each [B, k]."""

MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""`nse.ops.deferred.make_linear`, or `make_deferred_linear` for weights that a loop of steps shares."""

LSTMLinears = tuple[Linear, Linear]
"""Linear maps of an LSTM layer: of its input, and of its hidden state."""


class StepLinears(NamedTuple):
    """Linear maps of a step of an NSE."""

    read: LSTMLinears
    compose: Linear
    write: LSTMLinears


def make_lstm_linears(layer: LSTMLayer, make: MakeLinear = make_linear) -> LSTMLinears:
    """Make the linear maps of an LSTM layer."""
    return make(layer.ih, layer.bias_ih), make(layer.hh, layer.bias_hh)


def make_step_linears(weights: Weights, make: MakeLinear = make_linear) -> StepLinears:
    """Make the linear maps of an NSE whose LSTMs have one layer."""
    [read], [write] = weights.read, weights.write
    compose = make(weights.compose, weights.compose_bias)
    return StepLinears(make_lstm_linears(read, make), compose, make_lstm_linears(write, make))


def step(
    x: Tensor,  # [B, k], input of the read LSTM, after dropout
    memories: tuple[Tensor, ...],  # [B, L, k] each, the own one first; padded slots must be finite
    score_masks: tuple[Tensor, ...],  # one per memory, from `make_score_mask`
    read: LayerState,
    write: LayerState,
    linears: StepLinears,
    c_mask: Tensor | None = None,  # [B, d], multiplies c: dropout
) -> tuple[LayerState, LayerState, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Take a step.

    Returns:
        The states of the read and the write LSTM (`write[0]` is h), the memories, and z [B, L] of each.
    """
    read = lstm_cell(x, read, linears.read)
    o = read[0][:, None]  # (eq. 1, 7)
    z = [
        torch.baddbmm(mask, o, M.transpose(1, 2)).softmax(dim=-1)  # (eq. 2, 8, 10), [B, 1, L]
        for M, mask in zip(memories, score_masks, strict=True)
    ]
    m = [torch.bmm(z_j, M)[:, 0] for z_j, M in zip(z, memories, strict=True)]  # (eq. 3, 9, 11)
    c = linears.compose(torch.cat([read[0], *m], dim=-1))  # (eq. 4, 12)
    write = lstm_cell(c if c_mask is None else c * c_mask, write, linears.write)  # (eq. 5, 13)
    h = write[0][:, None]
    memories = tuple(
        torch.lerp(M, h.to(M.dtype), z_j.transpose(1, 2).to(M.dtype))  # (eq. 6, 14, 15)
        for M, z_j in zip(memories, z, strict=True)
    )
    return read, write, memories, tuple(z_j[:, 0] for z_j in z)


def lstm_cell(x: Tensor, state: LayerState, linears: LSTMLinears) -> LayerState:
    """Take a step of an LSTM layer."""
    (input_linear, hidden_linear), (h, c) = linears, state
    from_x, from_h = input_linear(x), hidden_linear(h)
    if x.is_cuda:  # the kernel that `torch.lstm_cell` runs after its products
        gates = from_x.to(c.dtype), from_h.to(c.dtype)  # under autocast c alone stays float32
        h, c, _ = torch.ops.aten._thnn_fused_lstm_cell(*gates, c)
        return h, c
    return apply_gates(from_x + from_h, c)


def apply_gates(gates: Tensor, c: Tensor) -> LayerState:
    """Compute the new state of an LSTM layer from its gates [B, 4k] and its cell state."""
    i, f, g, o = gates.chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def make_score_mask(lengths: Tensor | None, slots: Tensor) -> Tensor:
    """Make a mask [B, 1, L] to add to the scores of slots [B, L, k]: 0, or the lowest number for padding.

    The first slot is never masked: a memory without slots is not supported.
    """
    mask = slots.new_zeros(len(slots), 1, slots.shape[1])
    if lengths is None:
        return mask
    padding = ~make_mask(lengths.clamp(min=1), slots.shape[1])[:, None]
    # Not -inf: a row of nothing but -inf has a NaN gradient.
    return mask.masked_fill(padding, torch.finfo(slots.dtype).min)
