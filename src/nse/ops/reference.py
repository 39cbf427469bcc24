"""The paper: equations 1-6 (NSE) and 7-15 (MMA-NSE), line by line, in its letters.

Written to be read and to be right, in any floating-point type. Everything faster is tested against
this file. Equations 7-15 are 1-6 with one more memory, so one loop states both; it takes any number
of shared memories. Two things are added to the paper's lines: padding (a padded slot has weight
exactly 0, a finished sequence stops changing) and what an empty memory means (it reads as zero).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.ops.types import LSTMLayer, LSTMState, Memory, Result, Weights, real, started


def recurrence(
    x: Tensor,
    lengths: Tensor | None,
    memories: tuple[Memory, ...],
    read: LSTMState | None,
    write: LSTMState | None,
    weights: Weights,
    c_mask: Tensor | None = None,
    keys: bool = False,
) -> Result:
    """Encode x, step by step. The arguments are those of `nse.ops.types.Backend`."""
    B, T, _ = x.shape
    if not T:  # take one step for which no sequence is running: then everything has a gradient
        one, nobody = F.pad(x, (0, 0, 0, 1)), torch.zeros(B, dtype=torch.long, device=x.device)
        mask = None if c_mask is None else F.pad(c_mask, (0, 0, 0, 1))
        result = recurrence(one, nobody, memories, read, write, weights, mask, keys)
        return result._replace(outputs=result.outputs[:, :0], keys=tuple(z[:, :0] for z in result.keys))
    read, write = started(read, x, weights.read), started(write, x, weights.write)
    steps = x.new_full((B,), T, dtype=torch.long) if lengths is None else lengths
    running = real(steps, T)[..., None]  # [B, T, 1]
    slots = [real_slots(memory) for memory in memories]  # [B, L] each
    x = x.masked_fill(~running, 0)
    M = [m.slots.masked_fill(~s[..., None], 0) for m, s in zip(memories, slots, strict=True)]
    h_steps, z_steps = [], []

    for t in range(T):
        now = running[:, t]  # [B, 1]
        read = keep_where(now, lstm(x[:, t], read, weights.read), read)
        o = read[0][-1]  # (eq. 1, 7)
        z = [attend(o, M_j, s) * now for M_j, s in zip(M, slots, strict=True)]  # (eq. 2, 8, 10)
        m = [torch.einsum("bl,blk->bk", z_j, M_j) for z_j, M_j in zip(z, M, strict=True)]  # (eq. 3, 9, 11)
        c = F.linear(torch.cat([o, *m], dim=-1), weights.compose, weights.compose_bias)  # (eq. 4, 12)
        c = c if c_mask is None else c * c_mask[:, t]
        write = keep_where(now, lstm(c, write, weights.write), write)
        h = write[0][-1]  # (eq. 5, 13)
        M = [
            M_j * (1 - z_j[..., None]) + h[:, None] * z_j[..., None]  # (eq. 6, 14, 15)
            for M_j, z_j in zip(M, z, strict=True)
        ]
        h_steps.append(h * now)
        z_steps.append(z)

    z_all = tuple(torch.stack(z, dim=1) for z in zip(*z_steps, strict=True))
    return Result(torch.stack(h_steps, dim=1), tuple(M), read, write, z_all if keys else ())


def attend(o: Tensor, M: Tensor, slots: Tensor) -> Tensor:
    """Take the softmax [B, L] of o [B, k] times every slot of M [B, L, k], not scaled.

    It is over the real slots alone: padded ones, and all of an empty memory's, get exactly 0.
    """
    scores = torch.einsum("bk,blk->bl", o, M)
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row of nothing but -inf has a NaN gradient
    return torch.softmax(scores.masked_fill(~slots, lowest), dim=-1) * slots


def lstm(x: Tensor, state: LSTMState, layers: tuple[LSTMLayer, ...]) -> LSTMState:
    """Take a step of a stack of LSTM layers on x [B, size]; the new state, whose last h is the output."""
    hs, cs = [], []
    for layer, h, c in zip(layers, *state, strict=True):
        gates = F.linear(x, layer.ih, layer.bias_ih) + F.linear(h, layer.hh, layer.bias_hh)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        x = h = torch.sigmoid(o) * torch.tanh(c)
        hs.append(h)
        cs.append(c)
    return torch.stack(hs), torch.stack(cs)


def keep_where(now: Tensor, new: LSTMState, old: LSTMState) -> LSTMState:
    """Give sequences that are still running the new state, those that have ended the old one."""
    return torch.where(now, new[0], old[0]), torch.where(now, new[1], old[1])


def real_slots(memory: Memory) -> Tensor:
    """Tell which slots are real: [B, L]."""
    B, L, _ = memory.slots.shape
    every = memory.slots.new_ones((B, L), dtype=torch.bool)
    return every if memory.lengths is None else real(memory.lengths, L)
