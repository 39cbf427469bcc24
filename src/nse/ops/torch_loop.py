"""The function of `reference`, fast on any device in plain PyTorch.

Four ideas, derived in ops/README.md:

1. o_t does not depend on the memory, so the read LSTM is one call over all steps, and so is the part of
   compose that depends on o_t.
2. Compose is affine. Without dropout after it, it is folded into the write LSTM's input matrix, exactly.
3. Autograd would keep M_t for every t. `torch_backward` keeps z_t and h_t, and the memory only every sqrt(T)
   steps; the backward pass recomputes the memories between them with the write rule.
4. Sequences are packed (see `packing`), so no step computes padding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.ops import reference
from nse.ops.packing import Packing
from nse.ops.torch_backward import LoopInputs, LoopPlan, Stack, run_loop
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
    pack = Packing(len(x), x.shape[1], lengths, x.device)
    if not pack.total:
        return reference.recurrence(x, lengths, memories, read, write, weights, c_mask, keys)
    read, write = default_to_zeros(read, x, weights.read), default_to_zeros(write, x, weights.write)
    o, read = run_read_lstm(pack, pack.pack(x), read, weights.read)
    # Products may be in lower precision; sums, states and memories are at least float32.
    product_dtype, dtype = choose_product_dtype(weights), torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):  # dtypes are explicit from here on
        # Folding costs a product of 4k rows and saves one of len(o) rows.
        fold = c_mask is None and len(o) >= 4 * x.shape[2]
        hoisted, W_m, stack = hoist_compose(o, weights, fold, product_dtype, dtype)
        slots, padding, empty = zip(*(pack_memory(m, pack, dtype) for m in memories), strict=True)
        mask = None if c_mask is None else pack.pack(c_mask).to(dtype)
        h, c = (pack.sort(s, 1).to(dtype) for s in write)
        outputs = run_loop(
            LoopPlan(pack, padding, empty, keys),
            LoopInputs(hoisted, o.to(dtype), mask, W_m, h, c, list(slots), stack),
        )
        return Result(
            outputs=pack.unpack(outputs.rows).to(x.dtype),
            memories=tuple(pack.unsort(M_j).to(x.dtype) for M_j in outputs.slots),
            read=read,
            write=(pack.unsort(outputs.h, 1).to(x.dtype), pack.unsort(outputs.c, 1).to(x.dtype)),
            keys=tuple(pack.unpack(z_j).to(x.dtype) for z_j in outputs.keys),
        )


def run_read_lstm(
    pack: Packing, x: Tensor, state: LSTMState, layers: tuple[LSTMLayer, ...]
) -> tuple[Tensor, LSTMState]:
    """Compute o [rows, k] of x [rows, k] in one call of PyTorch's LSTM, and the state at each end."""
    weights = [weight for layer in layers for weight in layer]
    # Biases, layers, dropout, training, both directions.
    settings = (True, len(layers), 0.0, torch.is_grad_enabled(), False)
    h, c = (pack.sort(s, 1) for s in state)
    first = pack.counts[0]  # number of sequences that are not empty
    start = (h[:, :first].contiguous(), c[:, :first].contiguous())
    if pack.counts[-1] == first:
        o, h_end, c_end = torch.lstm(x.view(-1, first, x.shape[-1]), start, weights, *settings, False)
        o = o.flatten(0, 1)
    else:
        o, h_end, c_end = torch.lstm(x, torch.tensor(pack.counts, device="cpu"), start, weights, *settings)
    h = torch.cat([h_end.to(h.dtype), h[:, first:]], dim=1)
    c = torch.cat([c_end.to(c.dtype), c[:, first:]], dim=1)
    return o, (pack.unsort(h, 1), pack.unsort(c, 1))  # (eq. 1, 7)


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


def pack_memory(
    memory: Memory, pack: Packing, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Sort a memory into packed order: slots, mask of padded slots [B, L], mask of empty memories [B, 1]."""
    slots = pack.sort(memory.slots).to(dtype)
    L = slots.shape[1]
    if memory.lengths is None:
        return slots, None, None
    lengths = pack.sort(memory.lengths)
    shortest = int(lengths.min()) if len(lengths) else L
    if shortest == L:
        return slots, None, None
    padding, empty = ~make_mask(lengths, L), (lengths == 0)[:, None] if shortest == 0 else None
    return slots.masked_fill(padding[..., None], 0), padding, empty


def choose_product_dtype(weights: Weights) -> torch.dtype:
    """Return the dtype of matrix products: autocast's, or else the weights'."""
    device = weights.compose.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights.compose.dtype
