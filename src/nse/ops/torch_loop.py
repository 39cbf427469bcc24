"""The function of `reference`, fast on any device in plain PyTorch, with a backward pass of its own.

Three ideas, derived in ops/README.md:

1. o_t does not depend on the memory, so each layer of the read LSTM is one call over all steps, and the part
   of compose that depends on o_t is one product.
2. Autograd would keep M_t for every t. The loop keeps z_t and h_t, and the memory only every sqrt(T) steps;
   the backward pass recomputes the memories between them with the write rule.
3. Gradients of weights are one product over all steps, after the loop.

Nothing is read on the host, so a call can be captured in a CUDA graph: steps past a sequence's end are
computed, and masks keep them from changing anything. Shared memories lie behind the own one in one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nse.ops import double_backward, reference
from nse.ops.types import (
    LSTMLayer,
    LSTMState,
    Memory,
    Result,
    Weights,
    default_to_zeros,
    make_full_lengths,
    make_mask,
)

Layer = tuple[Tensor, Tensor, Tensor]
"""Input matrix, recurrent matrix and bias of a layer of the write LSTM."""

HOLD = 1e4
"""Input of a gate that makes its sigmoid 1; minus this makes it 0."""


class Masks(NamedTuple):
    """Steps and slots that do not count."""

    finished: Tensor  # [T, B, 1], steps past a sequence's end
    blocked: Tensor  # [B, 1 + n, L], for each memory its padded slots and the slots of the others


class LoopInputs(NamedTuple):
    """Differentiable arguments of the loop, in the order that autograd sees; or their gradients."""

    hoisted: Tensor  # [T, B, d], the part of c_t that needs no memory
    o: Tensor  # [T, B, k]
    c_mask: Tensor | None  # [T, B, d], dropout on c_t
    W: Tensor  # [d, (1 + n) k], from m_t to c_t
    h: Tensor  # [layers, B, k], initial state of the write LSTM
    c: Tensor
    M: Tensor  # [B, L, k], initial slots of all memories, zero in the padding
    stack: list[Layer]

    def flatten(self) -> tuple[Tensor | None, ...]:
        """List all tensors, as inputs of an autograd function."""
        return (*self[:7], *(tensor for layer in self.stack for tensor in layer))

    @staticmethod
    def unflatten(flat: tuple[Any, ...]) -> LoopInputs:
        """Undo `flatten`."""
        return LoopInputs._make((*flat[:7], list(zip(*[iter(flat[7:])] * 3, strict=True))))


class Record(NamedTuple):
    """Values of all steps that the backward pass needs; their size grows with T (L + k), not T L k."""

    h: Tensor  # [T, layers, B, k]
    z: Tensor  # [T, B, L]
    c: Tensor  # [T, layers, B, k]
    gates: Tensor  # [T, layers, B, 4k], activated
    m: Tensor  # [T, B, (1 + n) k]
    composed: Tensor  # [T, B, d], c_t
    kept: Tensor  # [pieces, B, L, k], M before each sqrt(T)th step


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
    if not x.shape[0] * x.shape[1]:
        return reference.recurrence(x, lengths, memories, read, write, weights, c_mask, keys)
    read, write = default_to_zeros(read, x, weights.read), default_to_zeros(write, x, weights.write)
    lengths = make_full_lengths(x) if lengths is None else lengths
    finished = ~make_mask(lengths, x.shape[1]).t()[..., None]
    o, read = run_read_lstm(x.transpose(0, 1), lengths, finished, read, weights.read)
    # Products may be in lower precision; sums, states and memories are at least float32.
    product_dtype, dtype = choose_product_dtype(weights), torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):  # dtypes are explicit from here on
        W_o, W_m = weights.compose.tensor_split([x.shape[2]], dim=1)
        o = o.to(dtype)
        hoisted = multiply(o, W_o.to(product_dtype).t()) + weights.compose_bias
        mask = None if c_mask is None else c_mask.transpose(0, 1).to(dtype)
        M, blocked = join_memories(memories, dtype)
        h, c = (s.to(dtype) for s in write)
        stack = [
            (u.ih.to(product_dtype), u.hh.to(product_dtype), u.bias_ih + u.bias_hh) for u in weights.write
        ]
        inputs = LoopInputs(hoisted, o, mask, W_m.to(product_dtype), h, c, M, stack)
        h, c, M, *z = run_loop(Masks(finished, blocked), inputs, keys)
        outputs = h[:, -1].masked_fill(finished, 0).transpose(0, 1)
        sizes = [memory.slots.shape[1] for memory in memories]
        return Result(
            outputs=outputs.to(x.dtype).contiguous(),
            memories=M.to(x.dtype).split(sizes, dim=1),
            read=read,
            write=(h[-1].to(x.dtype), c.to(x.dtype)),
            keys=z[0].transpose(0, 1).to(x.dtype).split(sizes, dim=2) if keys else (),
        )


def run_read_lstm(
    x: Tensor, lengths: Tensor, finished: Tensor, state: LSTMState, layers: tuple[LSTMLayer, ...]
) -> tuple[Tensor, LSTMState]:
    """Compute o [T, B, k] of x [T, B, k] in one call of PyTorch's LSTM per layer, and the state at each end.

    The call returns c at step T only. So past a sequence's end one more input closes the input gate and opens
    the forget gate, and c stays what it is.
    """
    hs, cs = [], []
    for (ih, *others), h, c in zip(layers, *state, strict=True):
        k = h.shape[1]
        gates = torch.cat([ih.new_full((k, 1), -HOLD), ih.new_full((k, 1), HOLD), ih.new_zeros(2 * k, 1)])
        inputs = torch.cat([x.masked_fill(finished, 0), finished.to(x.dtype)], dim=2)
        settings = (True, 1, 0.0, torch.is_grad_enabled(), False, False)  # one layer with biases, T first
        weights = [torch.cat([ih, gates], dim=1), *others]
        if x.is_cuda:  # cuDNN warns of weights that are not in one block
            block = torch.cat([weight.flatten() for weight in weights])
            parts = block.split([weight.numel() for weight in weights])
            weights = [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]
        x, h_end, c_end = torch.lstm(inputs, (h[None], c[None]), weights, *settings)  # (eq. 1, 7)
        ends = lengths[None, :, None].expand_as(h_end)
        hs.append(torch.cat([h[None], x.to(h.dtype)]).gather(0, ends))
        cs.append(c_end.to(c.dtype))
    return x, (torch.cat(hs), torch.cat(cs))


def join_memories(memories: tuple[Memory, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Concatenate memories to slots [B, L, k], zero in the padding, and mark what `Masks.blocked` holds."""
    slots = torch.cat([memory.slots for memory in memories], dim=1).to(dtype)
    words = [
        make_mask(make_full_lengths(M_j) if lengths is None else lengths, M_j.shape[1])
        for M_j, lengths in memories
    ]
    owners = torch.cat([torch.full_like(mask[0], j, dtype=torch.long) for j, mask in enumerate(words)])
    is_word = torch.cat(words, dim=1)
    is_own = owners == torch.arange(len(memories), device=slots.device)[:, None]  # [1 + n, L]
    return slots.masked_fill(~is_word[..., None], 0), ~(is_word[:, None] & is_own)


def choose_product_dtype(weights: Weights) -> torch.dtype:
    """Return the dtype of matrix products: autocast's, or else the weights'."""
    device = weights.compose.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights.compose.dtype


def run_loop(masks: Masks, inputs: LoopInputs, keys: bool) -> tuple[Tensor, ...]:
    """Run all steps; return h of all steps, the last c and M, and with `keys` z of all steps."""
    flat = inputs.flatten()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in flat):
        results: tuple[Tensor, ...] = MemoryLoop.apply(masks, *flat)
        return results
    c, M, _, (h, *z) = forward(masks, inputs, fields=1 + keys)
    return h, c, M, *z


class MemoryLoop(torch.autograd.Function):
    """Autograd function of `forward` and `backward` below."""

    @staticmethod
    def forward(ctx: Any, masks: Masks, *flat: Tensor | None) -> tuple[Tensor, ...]:  # noqa: D102
        c, M, kept, steps = forward(masks, LoopInputs.unflatten(flat), fields=6)
        record = Record._make((*steps, kept))
        ctx.save_for_backward(*masks, *record, *flat)
        ctx.set_materialize_grads(False)
        return record.h, c, M, record.z

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:  # noqa: D102
        double_backward.refuse_double_backward(*grads)
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors
        inputs, record = LoopInputs.unflatten(saved[9:]), Record(*saved[2:9])
        return (None, *backward(Masks(*saved[:2]), inputs, record, *grads).flatten())


def forward(
    masks: Masks, inputs: LoopInputs, fields: int
) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    """Run all steps.

    Returns:
        The last c; the last M; `Record.kept`, if all fields are wanted; the first `fields` of the record.
    """
    hoisted, o, c_mask, W, h, c, M, stack = inputs
    M, interval, steps, kept = M.clone(), math.isqrt(len(o)), [], []
    for t in range(len(o)):
        if fields > 2 and t % interval == 0:
            kept.append(M.clone())
        Z = attend(o[t], M, masks.blocked, masks.finished[t])
        m, z = torch.bmm(Z, M).flatten(1), Z.sum(dim=1)  # (eq. 3, 9, 11)
        composed = hoisted[t] + multiply(m, W.t())  # (eq. 4, 12)
        composed = composed if c_mask is None else composed * c_mask[t]
        h_new, c_new, gates = write_lstm(composed, h, c, stack)  # (eq. 5, 13)
        h, c = reference.keep_where(~masks.finished[t], (h_new, c_new), (h, c))
        M.lerp_(h[-1][:, None], z[..., None])  # (eq. 6, 14, 15)
        steps.append((h, z, c, gates, m, composed)[:fields])
    record = [torch.stack(values) for values in zip(*steps, strict=True)]
    return c, M, torch.stack(kept) if kept else None, record


def attend(o: Tensor, M: Tensor, blocked: Tensor, finished: Tensor) -> Tensor:
    """Compute z [B, 1 + n, L] of each memory in M [B, L, k]; exactly 0 where blocked or finished."""
    scores = torch.bmm(o[:, None], M.transpose(1, 2))
    Z = scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(dim=-1)  # (eq. 2, 8, 10)
    return Z.masked_fill(blocked | finished[..., None], 0)  # an empty memory has nothing but blocked slots


def write_lstm(x: Tensor, h: Tensor, c: Tensor, stack: list[Layer]) -> tuple[Tensor, ...]:
    """Take a step of all layers on x [B, d]; return h, c and the activated gates of each layer."""
    hs, cs, gates = [], [], []
    for h_old, c_old, (ih, hh, bias) in zip(h, c, stack, strict=True):
        a = multiply(x, ih.t()) + multiply(h_old, hh.t()) + bias
        i, f, g, o = a.chunk(4, dim=1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        cs.append(f * c_old + i * g)
        x = o * cs[-1].tanh()
        hs.append(x)
        gates.append(torch.cat([i, f, g, o], dim=1))
    return torch.stack(hs), torch.stack(cs), torch.stack(gates)


def backward(
    masks: Masks,
    inputs: LoopInputs,
    record: Record,
    d_h: Tensor | None,
    d_c: Tensor | None,
    d_M: Tensor | None,
    d_z: Tensor | None,
) -> LoopInputs:
    """Compute the gradients of all inputs from those of h, the last c, the last M and z."""
    _, o, c_mask, W, _, _, _, stack = inputs
    G = torch.zeros_like(inputs.M) if d_M is None else d_M.clone()
    dh, dc = torch.zeros_like(inputs.h), torch.zeros_like(inputs.c) if d_c is None else d_c.clone()
    do, dx, da = torch.empty_like(o), torch.empty_like(inputs.hoisted), torch.empty_like(record.gates)
    slopes = compute_slopes(masks.finished, inputs, record)

    for t, M in replay(record):
        h, z = record.h[t, -1], record.z[t]
        if d_h is not None:
            dh += d_h[t]
        dh[-1] += torch.bmm(z[:, None], G)[:, 0]  # back through (eq. 6, 14, 15)
        dz = torch.bmm(h[:, None], G.transpose(1, 2)) - (G * M).sum(dim=-1)[:, None]  # [B, 1, L]

        for layer in reversed(range(len(stack))):  # back through (eq. 5, 13)
            ih, hh, _ = stack[layer]
            h_to_c, c_to_gates, h_to_gate, forget = (slope[t, layer] for slope in slopes)
            dc[layer] += dh[layer] * h_to_c
            da_t = torch.cat([(c_to_gates * dc[layer][:, None]).flatten(1), h_to_gate * dh[layer]], dim=1)
            da[t, layer] = da_t
            dc[layer] *= forget
            dh[layer] = torch.where(masks.finished[t], dh[layer], multiply(da_t, hh))
            below = multiply(da_t, ih)
            if layer:
                dh[layer - 1] += below
        dx[t] = below if c_mask is None else below * c_mask[t]
        dm = multiply(dx[t], W).unflatten(1, (-1, o.shape[2]))  # [B, 1 + n, k], back through (eq. 4, 12)

        dz = dz + torch.bmm(dm, M.transpose(1, 2))  # [B, 1 + n, L], back through (eq. 3, 9, 11)
        dz = dz if d_z is None else dz + d_z[t][:, None]
        Z = z[:, None].masked_fill(masks.blocked, 0)
        ds = (Z * (dz - (Z * dz).sum(dim=2, keepdim=True))).sum(dim=1)  # [B, L], back through (eq. 2, 8, 10)
        do[t] = torch.bmm(ds[:, None], M)[:, 0]
        # (1 - z) G of the write, z dm of the read, and ds o of the scores.
        slots, sizes = torch.cat([Z, ds[:, None]], dim=1), torch.cat([dm, o[t][:, None]], dim=1)
        G.mul_(1 - z[..., None]).baddbmm_(slots.transpose(1, 2), sizes)

    dW = compute_weight_gradient(dx, record.m, W)
    return LoopInputs(dx, do, None, dW, dh, dc, G, compute_stack_gradients(inputs, record, da))


def replay(record: Record) -> Iterator[tuple[int, Tensor]]:
    """Yield each step and the memory before it, from the last to the first, recomputed from z and h."""
    T, interval = len(record.h), math.isqrt(len(record.h))
    for start in reversed(range(0, T, interval)):
        end = min(T, start + interval)
        before = [record.kept[start // interval]]
        for t in range(start, end - 1):
            before.append(torch.lerp(before[-1], record.h[t, -1][:, None], record.z[t][..., None]))
        for t in reversed(range(start, end)):
            yield t, before.pop()


def compute_slopes(finished: Tensor, inputs: LoopInputs, record: Record) -> tuple[Tensor, ...]:
    """Compute the derivatives within the LSTM, for all steps and layers.

    Returns:
        dh/dc; dc/da of the input, forget and cell gate [T, layers, B, 3, k]; dh/da of the output gate; and
        the derivative of c by the previous c. a is a gate before its activation.
    """
    i, f, g, o = record.gates.chunk(4, dim=-1)
    c_before = torch.cat([inputs.c[None], record.c[:-1]])
    tanh_c, done = record.c.tanh(), finished[:, None]
    c_to_gates = torch.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)], dim=-2)
    return (
        (o * (1 - tanh_c * tanh_c)).masked_fill(done, 0),
        c_to_gates.masked_fill(done[..., None], 0),
        (tanh_c * o * (1 - o)).masked_fill(done, 0),
        f.masked_fill(done, 1),
    )


def compute_stack_gradients(inputs: LoopInputs, record: Record, da: Tensor) -> list[Layer]:
    """Compute the gradients of the write LSTM's weights: one product over all steps each."""
    h_before = torch.cat([inputs.h[None], record.h[:-1]])
    gradients, below = [], record.composed
    for layer, (ih, hh, bias) in enumerate(inputs.stack):
        d = da[:, layer]
        d_hh = compute_weight_gradient(d, h_before[:, layer], hh)
        gradients.append((compute_weight_gradient(d, below, ih), d_hh, d.sum(dim=(0, 1)).to(bias.dtype)))
        below = record.h[:, layer]
    return gradients


def multiply(v: Tensor, W: Tensor) -> Tensor:
    """Multiply v by W in W's dtype; return the product in v's."""
    return (v.to(W.dtype) @ W).to(v.dtype)


def compute_weight_gradient(d_out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Compute d_out^T x over all steps, the gradient of a weight, in the weight's dtype."""
    return d_out.flatten(0, 1).to(weight.dtype).t() @ x.flatten(0, 1).to(weight.dtype)
