"""The same function as `reference`, fast on any device in plain PyTorch.

Four ideas, derived in ops/README.md:

1. o_t does not depend on the memory, so the read LSTM is one call over all steps, and so is
   everything that compose makes of o_t.
2. Compose is affine. With no dropout behind it, it folds into the write LSTM's input matrix, exactly.
3. Autograd would keep M_t for every t. `lean_loop` keeps z_t and h_t, and the memory every so many
   steps; those between are replayed from z_t and h_t by the write rule alone.
4. Sequences are packed (see `packing`), so no step computes padding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.ops import reference
from nse.ops.lean_loop import Inputs, Plan, Stack, run
from nse.ops.packing import Packing
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
    """Encode x, step by step. The arguments are those of `nse.ops.types.Backend`."""
    pack = Packing(len(x), x.shape[1], lengths, x.device)
    if not pack.total:
        return reference.recurrence(x, lengths, memories, read, write, weights, c_mask, keys)
    read, write = default_to_zeros(read, x, weights.read), default_to_zeros(write, x, weights.write)
    o, read = run_read_lstm(pack, pack.pack(x), read, weights.read)
    # Sums, states and memories have at least float32, whatever products have.
    product, exact = product_type(weights), torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):  # types are chosen by hand from here on
        # Folding costs one product of 4k rows, and saves one of as many rows as there are.
        fold = c_mask is None and len(o) >= 4 * x.shape[2]
        hoisted, onto_m, stack = compose_all(o, weights, fold, product, exact)
        slots, blocked, empty = zip(*(start(memory, pack, exact) for memory in memories), strict=True)
        mask = None if c_mask is None else pack.pack(c_mask).to(exact)
        h, c = (pack.sort(s, 1).to(exact) for s in write)
        left = run(
            Plan(pack, blocked, empty, keys),
            Inputs(hoisted, o.to(exact), mask, onto_m, h, c, list(slots), stack),
        )
        return Result(
            outputs=pack.unpack(left.rows).to(x.dtype),
            memories=tuple(pack.unsort(M_j).to(x.dtype) for M_j in left.slots),
            read=read,
            write=(pack.unsort(left.h, 1).to(x.dtype), pack.unsort(left.c, 1).to(x.dtype)),
            keys=tuple(pack.unpack(z_j).to(x.dtype) for z_j in left.keys),
        )


def run_read_lstm(
    pack: Packing, x: Tensor, state: LSTMState, layers: tuple[LSTMLayer, ...]
) -> tuple[Tensor, LSTMState]:
    """Make all o_t in one call of PyTorch's LSTM: o [rows, k] of x [rows, k], and the state at each end."""
    weights = [weight for layer in layers for weight in layer]
    # With biases, so many layers, no dropout, for training or not, one direction.
    settings = (True, len(layers), 0.0, torch.is_grad_enabled(), False)
    h, c = (pack.sort(s, 1) for s in state)
    first = pack.counts[0]  # sequences with any step at all
    now = (h[:, :first].contiguous(), c[:, :first].contiguous())
    if pack.counts[-1] == first:
        o, h_end, c_end = torch.lstm(x.view(-1, first, x.shape[-1]), now, weights, *settings, False)
        o = o.flatten(0, 1)
    else:
        o, h_end, c_end = torch.lstm(x, torch.tensor(pack.counts, device="cpu"), now, weights, *settings)
    h = torch.cat([h_end.to(h.dtype), h[:, first:]], dim=1)
    c = torch.cat([c_end.to(c.dtype), c[:, first:]], dim=1)
    return o, (pack.unsort(h, 1), pack.unsort(c, 1))  # (eq. 1, 7)


def compose_all(
    o: Tensor, weights: Weights, fold: bool, product: torch.dtype, exact: torch.dtype
) -> tuple[Tensor, Tensor, Stack]:
    """Do what can be done of compose before the loop; say what is left for it.

    Returned are what o [..., k] and the biases add at each row, the matrix that maps what was read from the
    memories to the same space, and the write LSTM's layers. With `fold` (no dropout may stand between) that
    space is the gates', and the first layer's input matrix and bias are `None`: used up.
    """
    k = o.shape[-1]
    first, W, b = weights.write[0], weights.compose, weights.compose_bias
    stack: Stack = [(u.ih.to(product), u.hh.to(product), u.bias_ih + u.bias_hh) for u in weights.write]
    if fold:
        W, b = first.ih @ W, F.linear(b, first.ih, stack[0][2])
        stack[0] = (None, stack[0][1], None)
    onto_o, onto_m = W.split([k, W.shape[1] - k], dim=1)  # whose gradients are joined in one go
    return linear(o, onto_o, b, product, exact), onto_m.to(product).contiguous(), stack


def linear(x: Tensor, W: Tensor, b: Tensor, product: torch.dtype, exact: torch.dtype) -> Tensor:
    """Compute W x + b in the exact type, the product in its own."""
    return F.linear(x, W, b) if product == exact else F.linear(x.to(product), W.to(product)).to(exact) + b


def start(memory: Memory, pack: Packing, exact: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Bring a memory into packed order: its slots, which of them are padding, which memories have none."""
    slots = pack.sort(memory.slots).to(exact)
    L = slots.shape[1]
    if memory.lengths is None:
        return slots, None, None
    lengths = pack.sort(memory.lengths)
    shortest = int(lengths.min()) if len(lengths) else L
    if shortest == L:
        return slots, None, None
    blocked, empty = ~make_mask(lengths, L), (lengths == 0)[:, None] if shortest == 0 else None
    return slots.masked_fill(blocked[..., None], 0), blocked, empty


def product_type(weights: Weights) -> torch.dtype:
    """Choose the type of matrix products: the weights' own, or what autocast asks for."""
    device = weights.compose.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights.compose.dtype
