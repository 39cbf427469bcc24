"""One step of equations 1-6, for decoders: what they read next depends on what they wrote last.

In as few operations as PyTorch has for it, on any device, and nothing is read on the host: a loop of such
steps can be captured in a CUDA graph. Autograd keeps the memory of each step, so that a loop of T steps over
L slots needs room for T x L of them; where all words are known beforehand, `nse.ops.dispatch` does without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nse.ops.deferred import Linear, once
from nse.ops.types import LSTMLayer, Weights, real

Cell = tuple[Tensor, Tensor]
"""Hidden and cell state of one LSTM layer, each [B, k]."""

Use = Callable[[Tensor, Tensor | None], Linear]
"""How a weight and a bias become a map: `nse.ops.deferred.once`, or `many_times` for a loop of steps."""


LSTMMaps = tuple[Linear, Linear]
"""What an LSTM layer multiplies its input by, and its hidden state."""


class StepMaps(NamedTuple):
    """What a step multiplies by."""

    read: LSTMMaps
    compose: Linear
    write: LSTMMaps


def lstm_maps(layer: LSTMLayer, use: Use = once) -> LSTMMaps:
    """Make the maps of an LSTM layer."""
    return use(layer.ih, layer.bias_ih), use(layer.hh, layer.bias_hh)


def step_maps(weights: Weights, use: Use = once) -> StepMaps:
    """Make the maps of an NSE of one layer."""
    [read], [write] = weights.read, weights.write
    return StepMaps(lstm_maps(read, use), use(weights.compose, weights.compose_bias), lstm_maps(write, use))


def step(
    x: Tensor,  # [B, k], the word as the read LSTM sees it
    memories: tuple[Tensor, ...],  # [B, L, k] each, the own one first; padded slots finite
    closed: tuple[Tensor, ...],  # what `closed` gave for each memory
    read: Cell,
    write: Cell,
    maps: StepMaps,
    c_mask: Tensor | None = None,  # [B, d], multiplies c
) -> tuple[Cell, Cell, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Take a step: the new states of both LSTMs, the first of which is h; the memories; z [B, L] of each."""
    read = lstm(x, read, maps.read)
    o = read[0][:, None]  # (eq. 1, 7)
    z = [
        torch.baddbmm(shut, o, M.transpose(1, 2)).softmax(dim=-1)  # (eq. 2, 8, 10), [B, 1, L]
        for M, shut in zip(memories, closed, strict=True)
    ]
    m = [torch.bmm(z_j, M)[:, 0] for z_j, M in zip(z, memories, strict=True)]  # (eq. 3, 9, 11)
    c = maps.compose(torch.cat([read[0], *m], dim=-1))  # (eq. 4, 12)
    write = lstm(c if c_mask is None else c * c_mask, write, maps.write)  # (eq. 5, 13)
    h = write[0][:, None]
    after = tuple(
        torch.lerp(M, h, z_j.transpose(1, 2))  # (eq. 6, 14, 15)
        for M, z_j in zip(memories, z, strict=True)
    )
    return read, write, after, tuple(z_j[:, 0] for z_j in z)


def lstm(x: Tensor, state: Cell, maps: LSTMMaps) -> Cell:
    """Take a step of an LSTM layer."""
    (of_input, of_state), (h, c) = maps, state
    of_x, of_h = of_input(x), of_state(h)
    if x.is_cuda:  # what `torch.lstm_cell` does after its products, in one kernel
        h, c, _ = torch.ops.aten._thnn_fused_lstm_cell(of_x, of_h, c)
        return h, c
    return apply_gates(of_x + of_h, c)


def apply_gates(gates: Tensor, c: Tensor) -> Cell:
    """Return the state of an LSTM layer, of its gates [B, 4k] and the cell state before."""
    i, f, g, o = gates.chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def closed(lengths: Tensor | None, slots: Tensor) -> Tensor:
    """Make what is added to scores [B, 1, L] of slots [B, L, k] so that no padding is read.

    A memory has at least one real slot.
    """
    shut = slots.new_zeros(len(slots), 1, slots.shape[1])
    if lengths is None:
        return shut
    # Not -inf: a row of nothing but that has a NaN gradient.
    padding = ~real(lengths.clamp(min=1), slots.shape[1])[:, None]
    return shut.masked_fill(padding, torch.finfo(slots.dtype).min)
