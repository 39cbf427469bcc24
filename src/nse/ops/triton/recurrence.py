"""The same function as `reference`, on a CUDA device in fused Triton kernels.

The ideas are those of `lean`: o_t for all steps first, compose's o-half in one product, compose folded into
the gates where no dropout stands behind it, no memory kept per step. What is sequential runs in few kernels,
one for each layer of the read LSTM and one for the memory, each all steps in one launch. Nothing is read on
the host, so a call can be captured in a CUDA graph with lengths and all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nse.ops.lean import compose_all, linear, product_type
from nse.ops.lean_loop import Stack
from nse.ops.triton.driver import loop
from nse.ops.triton.length_groups import outcome, sort_by_length, zero_padding
from nse.ops.types import LSTMLayer, LSTMState, Memory, Result, Weights

FOLD_FROM = 4  # steps: a folded step saves a phase and a barrier, folding costs a product


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
    product = product_type(weights)
    with torch.autocast(x.device.type, enabled=False):  # types are chosen by hand from here on
        batch = Batch(x, lengths)
        o, read_end = run_read_lstm(batch, x, read, weights.read, product)
        fold = c_mask is None and x.shape[1] >= FOLD_FROM
        ahead, onto_m, [(W_ih, W_h, bias), *upper] = compose_all(o, weights, fold, product, torch.float32)
        W_m, W_x = (None, onto_m) if fold else (onto_m, W_ih)
        slots, slot_lengths = start(memories, batch)
        slot_sizes = [memory.slots.shape[1] for memory in memories]
        H, C, M, z, *_ = loop(
            ahead,
            o,
            None if c_mask is None else c_mask.float().contiguous(),
            W_m,
            W_x,
            W_h,
            bias,
            *stack_upper(upper),
            *flatten_state(write),
            slots,
            slot_sizes,
            slot_lengths,
            batch.lengths,
            batch.order,
            lengths is None and all(memory.lengths is None for memory in memories),
            torch.is_grad_enabled(),
        )
        outputs, *write_end = outcome(H, C, batch.lengths)
        return Result(
            outputs=outputs.to(x.dtype),
            memories=tuple(M_j.to(x.dtype) for M_j in M.split(slot_sizes, dim=1)),
            read=read_end,
            write=(write_end[0].to(x.dtype), write_end[1].to(x.dtype)),
            keys=tuple(z_j.to(x.dtype) for z_j in z.split(slot_sizes, dim=2)) if keys else (),
        )


class Batch:
    """How long the sequences of a batch are, as the kernels want to know it.

    Attributes:
        lengths: [B] int32.
        order: [B] int32, from the longest to the shortest.
    """

    def __init__(self, x: Tensor, lengths: Tensor | None):
        B, T, _ = x.shape
        self.given = lengths
        if lengths is None:
            self.lengths = torch.full((B,), T, dtype=torch.int32, device=x.device)
            self.order = torch.arange(B, dtype=torch.int32, device=x.device)
        else:
            self.lengths, self.order = sort_by_length(lengths)


def stack_upper(upper: Stack) -> tuple[Tensor | None, ...]:
    """The upper layers' weights and biases as `loop` wants them, each in one tensor."""
    if not upper:
        return None, None, None
    ih, hh, bias = zip(*reversed(upper), strict=True)
    return torch.stack(ih), torch.stack(hh), torch.stack(bias)


def flatten_state(state: LSTMState | None) -> tuple[Tensor | None, ...]:
    """A state [layers, B, k] as `loop` wants it, one layer after the other from the top down."""
    if state is None:
        return None, None
    return tuple(s[0].float() if len(s) == 1 else s.float().flip(0).flatten(0, 1) for s in state)


def run_read_lstm(
    batch: Batch, x: Tensor, state: LSTMState | None, layers: tuple[LSTMLayer, ...], product: torch.dtype
) -> tuple[Tensor, LSTMState]:
    """All o_t [B, T, k], and the read LSTM's state at each true end."""
    x = x if batch.given is None else zero_padding(x, batch.lengths)
    ends_of_layers = []
    starts = [None] * len(layers) if state is None else list(zip(*state, strict=True))
    for layer, layer_start in zip(layers, starts, strict=True):
        x, end_of_layer = read_layer(batch, x, layer_start, layer, product)
        ends_of_layers.append(end_of_layer)
    if len(ends_of_layers) == 1:
        return x, ends_of_layers[0]
    h_ends, c_ends = zip(*ends_of_layers, strict=True)
    return x, (torch.cat(h_ends), torch.cat(c_ends))  # (eq. 1, 7)


def read_layer(
    batch: Batch, x: Tensor, state: LSTMState | None, layer: LSTMLayer, product: torch.dtype
) -> tuple[Tensor, LSTMState]:
    """As `run_read_lstm`, one layer, whose state at the start is [B, k] and at the end [1, B, k]."""
    B, _, k = x.shape
    ahead = linear(x, layer.ih, layer.bias_ih + layer.bias_hh, product, torch.float32)
    nothing = x.new_zeros(B, 0, k, dtype=torch.float32)
    H, C, *_ = loop(
        ahead,
        nothing,
        None,
        None,
        None,
        layer.hh.to(product),
        None,
        None,
        None,
        None,
        *((None, None) if state is None else (s.float() for s in state)),
        nothing,
        [],
        batch.lengths.new_zeros(0, B),
        batch.lengths,
        batch.order,
        batch.given is None,
        torch.is_grad_enabled(),
    )
    o, h, c = outcome(H, C, batch.lengths)
    return o, (h.to(layer.hh.dtype), c.to(layer.hh.dtype))


def start(memories: tuple[Memory, ...], batch: Batch) -> tuple[Tensor, Tensor]:
    """All memories side by side [B, L, k], padded slots zero, and how many are real in each [1 + n, B]."""
    slots, lengths = [], []
    for memory in memories:
        B, L, _ = memory.slots.shape
        if memory.lengths is None:
            slots.append(memory.slots.float())
            lengths.append(torch.full((B,), L, dtype=torch.int32, device=memory.slots.device))
        else:
            lengths.append(batch.lengths if memory.lengths is batch.given else memory.lengths.int())
            slots.append(zero_padding(memory.slots.float(), lengths[-1]))
    if len(memories) == 1:
        return slots[0].contiguous(), lengths[0][None]
    return torch.cat(slots, dim=1), torch.stack(lengths)
