"""The same function as `reference`, on a CUDA device in fused Triton kernels.

The ideas are those of `lean`: o_t for all steps first, compose's o-half in one product, compose folded into
the gates where no dropout stands behind it, no memory kept per step. What is sequential runs in two kernels,
one for the read LSTM and one for the memory, each all steps in one launch. Nothing is read on the host, so a
call can be captured in a CUDA graph with lengths and all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nse.ops.lean import compose_all, linear, product_type
from nse.ops.parts import LSTMLayer, LSTMState, Memory, Result, Weights, real
from nse.ops.triton_loop import loop

FOLD_FROM = 4  # steps: a folded step saves a phase and a barrier, folding costs a product


def recurrence(
    x: Tensor,
    lengths: Tensor | None,
    memories: tuple[Memory, ...],
    read: LSTMState,
    write: LSTMState,
    weights: Weights,
    c_mask: Tensor | None = None,
    keys: bool = False,
) -> Result:
    """Encode x, step by step. The arguments are those of `nse.ops.parts.Backend`."""
    product = product_type(weights)
    with torch.autocast(x.device.type, enabled=False):  # types are chosen by hand from here on
        batch = Batch(x, lengths)
        o, read_end = read_all(batch, x, read, weights.read[0], product)
        fold = c_mask is None and x.shape[1] >= FOLD_FROM
        ahead, onto_m, [(W_ih, W_h, bias)] = compose_all(o, weights, fold, product, torch.float32)
        W_m, W_x = (None, onto_m) if fold else (onto_m, W_ih)
        slots, slot_lengths = start(memories)
        slot_sizes = [memory.slots.shape[1] for memory in memories]
        H, C, M, z, *_ = loop(
            ahead,
            o,
            None if c_mask is None else c_mask.float().contiguous(),
            W_m,
            W_x,
            W_h,
            bias,
            *(s[0].float() for s in write),
            slots,
            slot_sizes,
            slot_lengths,
            batch.lengths,
            batch.order,
            lengths is None and all(memory.lengths is None for memory in memories),
            torch.is_grad_enabled(),
        )
        return Result(
            outputs=H[:, 1:].to(x.dtype, memory_format=torch.contiguous_format),
            memories=tuple(M_j.to(x.dtype) for M_j in M.split(slot_sizes, dim=1)),
            read=read_end,
            write=batch.last(H, C, x.dtype),
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
            self.lengths = lengths.int()
            self.order = self.lengths.argsort(descending=True, stable=True).int()

    def last(self, H: Tensor, C: Tensor, dtype: torch.dtype) -> LSTMState:
        """The states at each sequence's true end, from those of all steps with the start in front."""
        return end(H, self.given).to(dtype)[None], end(C, self.given).to(dtype)[None]


def end(states: Tensor, lengths: Tensor | None) -> Tensor:
    """Of [B, T + 1, k], the entry at each length."""
    if lengths is None:
        return states[:, -1]
    return states.gather(1, lengths[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


def read_all(
    batch: Batch, x: Tensor, state: LSTMState, layer: LSTMLayer, product: torch.dtype
) -> tuple[Tensor, LSTMState]:
    """All o_t [B, T, k], and the read LSTM's state at each true end."""
    B, T, k = x.shape
    if batch.given is not None:
        x = x.masked_fill(~real(batch.given, T)[..., None], 0)  # so that garbage in the padding goes nowhere
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
        *(s[0].float() for s in state),
        nothing,
        [],
        batch.lengths.new_zeros(0, B),
        batch.lengths,
        batch.order,
        batch.given is None,
        torch.is_grad_enabled(),
    )
    return H[:, 1:].contiguous(), batch.last(H, C, state[0].dtype)  # (eq. 1, 7)


def start(memories: tuple[Memory, ...]) -> tuple[Tensor, Tensor]:
    """All memories side by side [B, L, k], padded slots zero, and how many are real in each [1 + n, B]."""
    slots, lengths = [], []
    for memory in memories:
        B, L, _ = memory.slots.shape
        if memory.lengths is None:
            slots.append(memory.slots.float())
            lengths.append(torch.full((B,), L, dtype=torch.int32, device=memory.slots.device))
        else:
            slots.append(memory.slots.float().masked_fill(~real(memory.lengths, L)[..., None], 0))
            lengths.append(memory.lengths.int())
    if len(memories) == 1:
        return slots[0].contiguous(), lengths[0][None]
    return torch.cat(slots, dim=1), torch.stack(lengths)
