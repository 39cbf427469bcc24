"""The paper: equations 1-6 (NSE) and 7-15 (MMA-NSE), line by line, in its letters.

Written to be read and to be correct, in any floating-point type; everything faster is tested against this
file. Equations 7-15 are 1-6 with one more memory, so one loop states both, for any number of shared
memories. Two things are added to the paper: padding (a padded slot has weight exactly 0, a finished
sequence stops changing) and empty memories (they read as zero).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.ops.types import LSTMLayer, LSTMState, Memory, Result, Weights, default_to_zeros, make_mask


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
    """Encode x step by step; for the arguments see `nse.ops.types.Backend`."""
    B, T, _ = x.shape
    if not T:  # take one step in which no sequence is running, so that everything has a gradient
        x, lengths = F.pad(x, (0, 0, 0, 1)), torch.zeros(B, dtype=torch.long, device=x.device)
        c_mask = None if c_mask is None else F.pad(c_mask, (0, 0, 0, 1))
        result = recurrence(x, lengths, memories, read, write, weights, c_mask, keys)
        return result._replace(outputs=result.outputs[:, :0], keys=tuple(z[:, :0] for z in result.keys))
    read, write = default_to_zeros(read, x, weights.read), default_to_zeros(write, x, weights.write)
    steps = x.new_full((B,), T, dtype=torch.long) if lengths is None else lengths
    is_running = make_mask(steps, T)[..., None]  # [B, T, 1]
    masks = [make_slot_mask(memory) for memory in memories]  # [B, L] each
    x = x.masked_fill(~is_running, 0)
    M = [m.slots.masked_fill(~mask[..., None], 0) for m, mask in zip(memories, masks, strict=True)]
    h_steps, z_steps = [], []

    for t in range(T):
        running = is_running[:, t]  # [B, 1]
        read = keep_where(running, lstm(x[:, t], read, weights.read), read)
        o = read[0][-1]  # (eq. 1, 7)
        z = [attend(o, M_j, mask) * running for M_j, mask in zip(M, masks, strict=True)]  # (eq. 2, 8, 10)
        m = [torch.einsum("bl,blk->bk", z_j, M_j) for z_j, M_j in zip(z, M, strict=True)]  # (eq. 3, 9, 11)
        c = F.linear(torch.cat([o, *m], dim=-1), weights.compose, weights.compose_bias)  # (eq. 4, 12)
        c = c if c_mask is None else c * c_mask[:, t]
        write = keep_where(running, lstm(c, write, weights.write), write)
        h = write[0][-1]  # (eq. 5, 13)
        M = [
            M_j * (1 - z_j[..., None]) + h[:, None] * z_j[..., None]  # (eq. 6, 14, 15)
            for M_j, z_j in zip(M, z, strict=True)
        ]
        h_steps.append(h * running)
        z_steps.append(z)

    all_keys = tuple(torch.stack(z, dim=1) for z in zip(*z_steps, strict=True))
    return Result(torch.stack(h_steps, dim=1), tuple(M), read, write, all_keys if keys else ())


def attend(o: Tensor, M: Tensor, mask: Tensor) -> Tensor:
    """Compute the softmax [B, L] of the products of o [B, k] with every slot of M [B, L, k], unscaled.

    Slots outside the mask [B, L] get exactly 0; so do all slots of an empty memory.
    """
    scores = torch.einsum("bk,blk->bl", o, M)
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row of nothing but -inf has a NaN gradient
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1) * mask


def lstm(x: Tensor, state: LSTMState, layers: tuple[LSTMLayer, ...]) -> LSTMState:
    """Take one step of a stack of LSTM layers on x [B, size]; the output is the last h of the new state."""
    hs, cs = [], []
    for layer, h, c in zip(layers, *state, strict=True):
        gates = F.linear(x, layer.ih, layer.bias_ih) + F.linear(h, layer.hh, layer.bias_hh)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        x = h = torch.sigmoid(o) * torch.tanh(c)
        hs.append(h)
        cs.append(c)
    return torch.stack(hs), torch.stack(cs)


def keep_where(running: Tensor, new: LSTMState, old: LSTMState) -> LSTMState:
    """Return the new state of running sequences and the old state of finished ones."""
    return torch.where(running, new[0], old[0]), torch.where(running, new[1], old[1])


def make_slot_mask(memory: Memory) -> Tensor:
    """Make a mask [B, L] that is true for slots and false for padding."""
    B, L, _ = memory.slots.shape
    everything = memory.slots.new_ones((B, L), dtype=torch.bool)
    return everything if memory.lengths is None else make_mask(memory.lengths, L)
