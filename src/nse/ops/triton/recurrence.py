"""The function of `reference` on a CUDA device, in fused Triton kernels.

As in `torch_loop`, o_t comes first for all steps, the part of compose that depends on o_t is one product,
and no memory is kept per step. Compose is folded into the gates if there is no dropout after it. The
sequential part is one kernel for each layer of the read LSTM and one for the memory, each of which runs all
steps in one launch. Nothing is read on the host, so a call can be captured in a CUDA graph, with lengths.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.ops.torch_loop import choose_product_dtype
from nse.ops.triton.driver import loop
from nse.ops.triton.length_groups import select_states, sort_by_length, zero_padding
from nse.ops.types import LSTMLayer, LSTMState, Memory, Result, Weights

Stack = list[tuple[Tensor | None, Tensor, Tensor | None]]
"""Input matrix, recurrent matrix and bias of each layer of the write LSTM.

If compose is folded, the first layer's input matrix and bias are `None`."""

FOLD_FROM = 4  # steps: folding saves a phase and a barrier at each step, and costs a product


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
    product_dtype = choose_product_dtype(weights)
    with torch.autocast(x.device.type, enabled=False):  # dtypes are explicit from here on
        batch = Batch(x, lengths)
        o, read_end = run_read_lstm(batch, x, read, weights.read, product_dtype)
        fold = c_mask is None and x.shape[1] >= FOLD_FROM
        hoisted, from_m, stack = hoist_compose(o, weights, fold, product_dtype, torch.float32)
        (W_ih, W_h, bias), *upper = stack
        W_m, W_x = (None, from_m) if fold else (from_m, W_ih)
        slots, slot_lengths = concat_memories(memories, batch)
        slot_sizes = [memory.slots.shape[1] for memory in memories]
        mask = None if c_mask is None else c_mask.float().contiguous()
        full = lengths is None and all(memory.lengths is None for memory in memories)
        H, C, M, z, *_ = loop(
            hoisted, o, mask, W_m, W_x, W_h, bias, *stack_upper(upper), *flatten_state(write), slots,
            slot_sizes, slot_lengths, batch.lengths, batch.order, full, torch.is_grad_enabled(),
        )  # fmt: skip
        outputs, *write_end = select_states(H, C, batch.lengths)
        return Result(
            outputs=outputs.to(x.dtype),
            memories=tuple(M_j.to(x.dtype) for M_j in M.split(slot_sizes, dim=1)),
            read=read_end,
            write=(write_end[0].to(x.dtype), write_end[1].to(x.dtype)),
            keys=tuple(z_j.to(x.dtype) for z_j in z.split(slot_sizes, dim=2)) if keys else (),
        )


class Batch:
    """Lengths of a batch of sequences, in the form that the kernels take.

    Attributes:
        lengths: [B] int32.
        order: [B] int32, from the longest to the shortest.
    """

    def __init__(self, x: Tensor, lengths: Tensor | None):
        B, T, _ = x.shape
        self.original_lengths = lengths
        if lengths is None:
            self.lengths = torch.full((B,), T, dtype=torch.int32, device=x.device)
            self.order = torch.arange(B, dtype=torch.int32, device=x.device)
        else:
            self.lengths, self.order = sort_by_length(lengths)


def hoist_compose(
    o: Tensor, weights: Weights, fold: bool, product_dtype: torch.dtype, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Stack]:
    """Compute the part of compose that depends on o [..., k] alone, for all steps.

    Returns:
        The part of c_t from o and the biases; the matrix from m_t to c_t; the write LSTM's layers. With
        `fold` (only without dropout on c_t) both are for the gates instead of c_t, and the first layer's
        input matrix and bias, which are then part of them, are `None`.
    """
    k = o.shape[-1]
    first, W, b = weights.write[0], weights.compose, weights.compose_bias
    stack: Stack = [
        (u.ih.to(product_dtype), u.hh.to(product_dtype), u.bias_ih + u.bias_hh) for u in weights.write
    ]
    if fold:
        W, b = first.ih @ W, F.linear(b, first.ih, stack[0][2])
        stack[0] = (None, stack[0][1], None)
    W_o, W_m = W.split([k, W.shape[1] - k], dim=1)
    return apply_linear(o, W_o, b, product_dtype, dtype), W_m.to(product_dtype).contiguous(), stack


def apply_linear(x: Tensor, W: Tensor, b: Tensor, product_dtype: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Compute W x + b in `dtype`, with the product in its own."""
    if product_dtype == dtype:
        return F.linear(x, W, b)
    return F.linear(x.to(product_dtype), W.to(product_dtype)).to(dtype) + b


def stack_upper(upper: Stack) -> tuple[Tensor | None, ...]:
    """Stack weights and biases of the upper layers for `loop`, from the top layer down."""
    if not upper:
        return None, None, None
    ih, hh, bias = zip(*reversed(upper), strict=True)
    return torch.stack(ih), torch.stack(hh), torch.stack(bias)


def flatten_state(state: LSTMState | None) -> tuple[Tensor | None, ...]:
    """Flatten a state [layers, B, k] to [layers B, k] for `loop`, from the top layer down."""
    if state is None:
        return None, None
    return tuple(s[0].float() if len(s) == 1 else s.float().flip(0).flatten(0, 1) for s in state)


def run_read_lstm(
    batch: Batch,
    x: Tensor,
    state: LSTMState | None,
    layers: tuple[LSTMLayer, ...],
    product_dtype: torch.dtype,
) -> tuple[Tensor, LSTMState]:
    """Compute all o_t [B, T, k], and the read LSTM's state at the end of each sequence."""
    x = x if batch.original_lengths is None else zero_padding(x, batch.lengths)
    ends = []
    starts = [None] * len(layers) if state is None else list(zip(*state, strict=True))
    for layer, layer_start in zip(layers, starts, strict=True):
        x, end = run_layer(batch, x, layer_start, layer, product_dtype)
        ends.append(end)
    if len(ends) == 1:
        return x, ends[0]
    h_ends, c_ends = zip(*ends, strict=True)
    return x, (torch.cat(h_ends), torch.cat(c_ends))  # (eq. 1, 7)


def run_layer(
    batch: Batch, x: Tensor, state: LSTMState | None, layer: LSTMLayer, product_dtype: torch.dtype
) -> tuple[Tensor, LSTMState]:
    """Run one layer of the read LSTM; its initial state is [B, k], its final one [1, B, k]."""
    B, _, k = x.shape
    hoisted = apply_linear(x, layer.ih, layer.bias_ih + layer.bias_hh, product_dtype, torch.float32)
    no_memory = x.new_zeros(B, 0, k, dtype=torch.float32)
    h, c = (None, None) if state is None else (s.float() for s in state)
    full, no_slots = batch.original_lengths is None, batch.lengths.new_zeros(0, B)
    H, C, *_ = loop(
        hoisted, no_memory, None, None, None, layer.hh.to(product_dtype), None, None, None, None, h, c,
        no_memory, [], no_slots, batch.lengths, batch.order, full, torch.is_grad_enabled(),
    )  # fmt: skip
    o, h, c = select_states(H, C, batch.lengths)
    return o, (h.to(layer.hh.dtype), c.to(layer.hh.dtype))


def concat_memories(memories: tuple[Memory, ...], batch: Batch) -> tuple[Tensor, Tensor]:
    """Concatenate all memories [B, L, k], zero in padded slots; also return their lengths [1 + n, B]."""
    slots, lengths = [], []
    for memory in memories:
        B, L, _ = memory.slots.shape
        if memory.lengths is None:
            slots.append(memory.slots.float())
            lengths.append(torch.full((B,), L, dtype=torch.int32, device=memory.slots.device))
        else:
            lengths.append(
                batch.lengths if memory.lengths is batch.original_lengths else memory.lengths.int()
            )
            slots.append(zero_padding(memory.slots.float(), lengths[-1]))
    if len(memories) == 1:
        return slots[0].contiguous(), lengths[0][None]
    return torch.cat(slots, dim=1), torch.stack(lengths)
