"""The sequential part of the recurrence, with a backward pass that keeps no memory per step.

One step, for the sequences that are still running (see `packing`), in the letters of the paper:

    z = softmax(o M)          m = z M                per memory
    c = hoisted + m W         gates = c              if compose is folded into the gates
                              gates = (mask c) W_ih  otherwise
    h = LSTM(gates, h)        M = M + z (h - M)      per memory

ops/README.md derives the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nse.ops import double_backward
from nse.ops.packing import Packing

Stack = list[tuple[Tensor | None, Tensor, Tensor | None]]
"""Input matrix, recurrent matrix and bias of each layer of the write LSTM.

If compose is folded, the first layer's input matrix and bias are `None`."""


class LoopPlan(NamedTuple):
    """Arguments of the loop that are not differentiated."""

    pack: Packing
    padding: tuple[Tensor | None, ...]  # mask of padded slots [B, L] per memory
    empty: tuple[Tensor | None, ...]  # mask of sequences without slots [B, 1] per memory
    keys: bool  # whether to return z

    @property
    def interval(self) -> int:
        """Number of steps between two kept memories: sqrt(T), as many as are then replayed at a time."""
        return max(1, math.isqrt(len(self.pack.counts)))


class LoopInputs(NamedTuple):
    """Differentiable arguments of the loop, in the order that autograd sees; or their gradients."""

    hoisted: Tensor  # [rows, 4k] if folded, else [rows, d]: the part that needs no memory
    o: Tensor  # [rows, k]
    mask: Tensor | None  # [rows, d], dropout on c_t
    W: Tensor  # [4k or d, (1 + n) k], from m to the space of `hoisted`
    h: Tensor  # [layers, B, k], initial state of the write LSTM
    c: Tensor
    slots: list[Tensor]  # initial memories, each [B, L, k]
    stack: Stack

    def flatten(self) -> tuple[Tensor | None, ...]:
        """List all tensors, as inputs of an autograd function."""
        return (*self[:6], *self.slots, *(tensor for layer in self.stack for tensor in layer))

    @staticmethod
    def unflatten(flat: tuple[Any, ...], memories: int) -> LoopInputs:
        """Undo `flatten`."""
        hoisted, o, mask, W, h, c, *rest = flat
        slots, stack = rest[:memories], rest[memories:]
        layers = list(zip(stack[::3], stack[1::3], stack[2::3], strict=True))
        return LoopInputs(hoisted, o, mask, W, h, c, slots, layers)


class LoopOutputs(NamedTuple):
    """Results of the loop; or their gradients, each `None` if there is none."""

    rows: Any  # [rows, k], h of each row
    h: Any  # [layers, B, k], final state of the write LSTM
    c: Any
    slots: tuple[Any, ...]  # final memories
    keys: tuple[Any, ...]  # z per memory [rows, L]; () without `keys`


class Record(NamedTuple):
    """Values that the forward pass keeps for the backward pass; their size grows with T (L + k), not T L k.

    Each entry is a list of steps during the loop, and one packed tensor afterwards.
    """

    keys: list[Any]  # z, per memory [rows, L]
    hidden: list[Any]  # h, per layer [rows, k]
    cells: list[Any]  # per layer [rows, k]
    gates: list[Any]  # per layer [rows, 4k], activated
    read: list[Any]  # one entry: all m side by side [rows, (1 + n) k]
    composed: list[Any]  # one entry: input of the first layer [rows, d]; [rows, 0] if folded
    kept: list[Any]  # per memory: M before steps 0, interval, 2 interval, ...


def run_loop(plan: LoopPlan, inputs: LoopInputs) -> LoopOutputs:
    """Run all steps; there must be at least one."""
    n = len(inputs.slots)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs.flatten()):
        rows, h, c, *rest = MemoryLoop.apply(plan, *inputs.flatten())
        return LoopOutputs(rows, h, c, tuple(rest[:n]), tuple(rest[n:]))
    return forward(plan, inputs, keep=False)[0]


class MemoryLoop(torch.autograd.Function):
    """Autograd function of `forward` and `backward` below."""

    @staticmethod
    def forward(ctx: Any, plan: LoopPlan, *flat: Tensor | None) -> tuple[Tensor, ...]:  # noqa: D102
        outputs, record = forward(plan, LoopInputs.unflatten(flat, len(plan.padding)), keep=True)
        ctx.plan, ctx.sizes = plan, [len(part) for part in record]
        ctx.save_for_backward(*flat, *(tensor for part in record for tensor in part))
        ctx.set_materialize_grads(False)
        return (*outputs[:3], *outputs.slots, *outputs.keys)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:  # noqa: D102
        double_backward.refuse_double_backward(*grads)
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        n, recorded, saved = len(ctx.plan.padding), sum(ctx.sizes), ctx.saved_tensors
        inputs, rest = LoopInputs.unflatten(saved[:-recorded], n), iter(saved[-recorded:])
        record = Record._make([next(rest) for _ in range(size)] for size in ctx.sizes)
        rows, h, c, *others = grads
        d_keys = tuple(others[n:]) if ctx.plan.keys else (None,) * n
        gradients = LoopOutputs(rows, h, c, tuple(others[:n]), d_keys)
        return (None, *backward(ctx.plan, inputs, record, gradients).flatten())


def forward(plan: LoopPlan, inputs: LoopInputs, keep: bool) -> tuple[LoopOutputs, Record]:
    """Run all steps; with `keep`, record them for the backward pass."""
    hoisted, o, mask, W, h0, c0, slots, stack = inputs
    M = [slots_j.clone() for slots_j in slots]
    h, c = list(h0), list(c0)
    sizes = (len(M), len(stack), len(stack), len(stack), 1, 1, len(M))
    record = Record._make([[] for _ in range(size)] for size in sizes)
    transposed = [(None if ih is None else ih.t(), hh.t(), bias) for ih, hh, bias in stack]
    counts, W_T = plan.pack.counts, W.t()
    steps = zip(counts, o[:, None].split(counts), hoisted.split(counts), strict=True)
    masks = repeat(None) if mask is None else mask.split(counts)
    for t, ((n, o_t, hoisted_t), mask_t) in enumerate(zip(steps, masks, strict=False)):
        running = [take_first(M_j, n) for M_j in M]
        if keep and t % plan.interval == 0:
            append_step(record.kept, [M_j.clone() for M_j in running])
        z = [attend(plan, j, o_t, M_j) for j, M_j in enumerate(running)]
        m = [torch.bmm(z_j, M_j)[:, 0] for z_j, M_j in zip(z, running, strict=True)]  # (eq. 3, 9, 11)
        m_all = m[0] if len(m) == 1 else torch.cat(m, dim=1)
        x = add_product(hoisted_t, m_all, W_T)  # (eq. 4, 12)
        if mask_t is not None:
            x *= mask_t
        h, c, gates = write_lstm(x, h, c, transposed)  # (eq. 5, 13)
        for z_j, M_j in zip(z, running, strict=True):
            M_j.lerp_(h[-1][:, None], z_j.transpose(1, 2))  # (eq. 6, 14, 15)

        append_step(record.hidden, h)
        append_step(record.cells, c)
        if keep or plan.keys:
            append_step(record.keys, [z_j[:, 0] for z_j in z])
        if keep:
            append_step(record.gates, gates)
            append_step(record.read, [m_all])
            append_step(record.composed, [x if stack[0][0] is not None else x[:, :0]])
    kept = [M_s for steps in record.kept for M_s in steps]
    record = Record._make([torch.cat(steps) if steps else o[:0] for steps in part] for part in record)
    record = record._replace(kept=kept)
    h_end, c_end = (
        torch.stack([plan.pack.take_last(rows, start) for rows, start in zip(part, starts, strict=True)])
        for part, starts in ((record.hidden, h0), (record.cells, c0))
    )
    keys = tuple(record.keys) if plan.keys else ()
    return LoopOutputs(record.hidden[-1], h_end, c_end, tuple(M), keys), record


def append_step(part: list[Any], step: list[Tensor]) -> None:
    """Append a step's tensors to the lists of an entry of the record."""
    for steps, tensor in zip(part, step, strict=True):
        steps.append(tensor)


def attend(plan: LoopPlan, j: int, o: Tensor, M: Tensor) -> Tensor:
    """Compute z [n, 1, L] of o [n, 1, k] over memory j, M [n, L, k]; exactly 0 for padded slots."""
    n, padding, empty = M.shape[0], plan.padding[j], plan.empty[j]
    scores = torch.bmm(o, M.transpose(1, 2))  # on a CPU ten times faster than bmm(M, o as a column)
    if padding is not None:
        scores.masked_fill_(padding[:n, None], torch.finfo(scores.dtype).min)
    z = torch.softmax(scores, dim=-1)  # (eq. 2, 8, 10)
    return z if empty is None else z.masked_fill_(empty[:n, None], 0)


def write_lstm(x: Tensor, h: list[Tensor], c: list[Tensor], stack: Stack) -> tuple[list[Tensor], ...]:
    """Take a step of all layers, with transposed matrices; return h, c and activated gates per layer."""
    n, k = x.shape[0], c[0].shape[-1]
    hs, cs, gates = [], [], []
    for h_old, c_old, (ih, hh, bias) in zip(h, c, stack, strict=True):
        a = x if ih is None or bias is None else add_product(bias, x, ih)
        a = add_product(a, take_first(h_old, n), hh)
        i_f, g, o = torch.split_with_sizes(a, (2 * k, k, k), dim=1)
        i, f = i_f.sigmoid_().chunk(2, dim=1)
        c_new = torch.addcmul(f * take_first(c_old, n), i, g.tanh_())
        x = o.sigmoid_() * c_new.tanh()
        hs.append(x)
        cs.append(c_new)
        gates.append(a)
    return hs, cs, gates


def take_first(tensor: Tensor, n: int) -> Tensor:
    """Return the first n rows."""
    return tensor if tensor.shape[0] == n else tensor[:n]


def backward(plan: LoopPlan, inputs: LoopInputs, record: Record, gradients: LoopOutputs) -> LoopInputs:
    """Compute the gradients of all inputs from those of the outputs."""
    o, mask, W, stack, layers = inputs.o, inputs.mask, inputs.W, inputs.stack, range(len(inputs.stack))
    k, into_first = o.shape[1], stack[0][0]
    dM = [copy_gradient(g, s) for g, s in zip(gradients.slots, inputs.slots, strict=True)]
    # Updated in place from step to step.
    dh, dc = copy_gradient(gradients.h, inputs.h), copy_gradient(gradients.c, inputs.c)
    do = torch.zeros_like(o)
    da = [torch.empty_like(gates) for gates in record.gates]
    dx = da[0] if into_first is None else torch.empty_like(inputs.hoisted)
    spare = [torch.empty_like(dM_j) for dM_j in dM]  # large temporaries are slow to allocate at every step
    slopes = [compute_local_derivatives(plan, inputs, record, layer) for layer in layers]

    for t, M in replay(plan, record):
        step, n = plan.pack.steps[t], plan.pack.counts[t]
        h, z = record.hidden[-1][step], [keys[step] for keys in record.keys]
        G = [dM_j[:n] for dM_j in dM]
        dh_t, dc_t = list(dh[:, :n]), list(dc[:, :n])
        if gradients.rows is not None:
            dh_t[-1] += gradients.rows[step]
        dz = []
        for G_j, M_j, z_j, scratch in zip(G, M, z, spare, strict=True):  # back through (eq. 6, 14, 15)
            dh_t[-1] += torch.bmm(z_j[:, None], G_j)[:, 0]
            overlap = torch.mul(G_j, M_j, out=scratch[:n]).sum(dim=-1)
            dz.append(torch.bmm(h[:, None], G_j.transpose(1, 2))[:, 0] - overlap)

        for layer in reversed(layers):  # back through (eq. 5, 13)
            ih, hh, _ = stack[layer]
            h_to_c, c_to_gates, h_to_gate, forget = (slope[step] for slope in slopes[layer])
            dc_t[layer].addcmul_(dh_t[layer], h_to_c)
            da_t = da[layer][step]
            torch.mul(c_to_gates, dc_t[layer][:, None], out=da_t[:, : 3 * k].unflatten(1, (3, k)))
            torch.mul(h_to_gate, dh_t[layer], out=da_t[:, 3 * k :])
            dc_t[layer] *= forget
            dh_t[layer].copy_(multiply(da_t, hh))
            if layer and ih is not None:
                dh_t[layer - 1] += multiply(da_t, ih)
        if into_first is not None:
            dx[step] = multiply(da_t, into_first)
            if mask is not None:
                dx[step] *= mask[step]
        dm = multiply(dx[step], W).split(k, dim=1)  # back through (eq. 4, 12)

        for j, (G_j, M_j, z_j) in enumerate(zip(G, M, z, strict=True)):
            dz_j = dz[j] + torch.bmm(dm[j][:, None], M_j.transpose(1, 2))[:, 0]  # back through (eq. 3, 9, 11)
            if (d_keys := gradients.keys[j]) is not None:
                dz_j += d_keys[step]
            ds = z_j * (dz_j - torch.linalg.vecdot(z_j, dz_j)[:, None])  # back through (eq. 2, 8, 10)
            do[step] += torch.bmm(ds[:, None], M_j)[:, 0]
            G_j.lerp_(dm[j][:, None], z_j[..., None])  # (1 - z) G of the write, z dm of the read
            G_j.addcmul_(ds[..., None], o[step][:, None])

    dW = compute_weight_gradient(dx, record.read[0], W)
    return LoopInputs(dx, do, None, dW, dh, dc, dM, compute_stack_gradients(plan, inputs, record, da))


def replay(plan: LoopPlan, record: Record) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield each step and the memories before it, from the last to the first, recomputed from z and h."""
    steps, counts = plan.pack.steps, plan.pack.counts
    pieces = len(record.kept) // len(record.keys)
    buffers = [[torch.empty_like(M_j) for M_j in record.kept[::pieces]] for _ in range(plan.interval - 1)]
    for piece in reversed(range(pieces)):
        start, end = piece * plan.interval, min(len(steps), (piece + 1) * plan.interval)
        before = [record.kept[piece::pieces]]
        for t, buffer in zip(range(start, end - 1), buffers, strict=False):
            n = counts[t + 1]  # sequences with a step after t
            rows = slice(steps[t].start, steps[t].start + n)
            h = record.hidden[-1][rows, None]
            parts = zip(before[-1], record.keys, buffer, strict=True)
            before.append([torch.lerp(M_j[:n], h, z[rows, :, None], out=out[:n]) for M_j, z, out in parts])
        for t in reversed(range(start, end)):
            yield t, before.pop()


def compute_local_derivatives(
    plan: LoopPlan, inputs: LoopInputs, record: Record, layer: int
) -> tuple[Tensor, ...]:
    """Compute the derivatives within one LSTM layer, for all rows.

    Returns:
        dh/dc; dc/da of the input, forget and cell gate [rows, 3, k]; dh/da of the output gate; and the
        derivative of c by the previous c. a is a gate before its activation.
    """
    i, f, g, o = record.gates[layer].chunk(4, dim=1)
    c_before = plan.pack.shift(record.cells[layer], inputs.c[layer])
    tanh_c = record.cells[layer].tanh()
    c_to_gates = torch.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)], dim=1)
    return o * (1 - tanh_c * tanh_c), c_to_gates, tanh_c * o * (1 - o), f


def compute_stack_gradients(plan: LoopPlan, inputs: LoopInputs, record: Record, da: list[Tensor]) -> Stack:
    """Compute the gradients of the write LSTM's weights: one product over all rows each."""
    below = [record.composed[0], *record.hidden[:-1]]
    gradients: Stack = []
    for layer, (ih, hh, bias) in enumerate(inputs.stack):
        h_before = plan.pack.shift(record.hidden[layer], inputs.h[layer])
        d_ih = None if ih is None else compute_weight_gradient(da[layer], below[layer], ih)
        d_bias = None if bias is None else da[layer].sum(dim=0).to(bias.dtype)
        gradients.append((d_ih, compute_weight_gradient(da[layer], h_before, hh), d_bias))
    return gradients


def copy_gradient(gradient: Tensor | None, like: Tensor) -> Tensor:
    """Return a copy of the gradient, or zeros if it is `None`."""
    return torch.zeros_like(like) if gradient is None else gradient.clone()


def add_product(total: Tensor, v: Tensor, W: Tensor) -> Tensor:
    """Compute total + v W: the product in W's dtype, the sum in that of `total`."""
    return torch.addmm(total, v, W) if v.dtype == W.dtype else total + v.to(W.dtype) @ W


def multiply(v: Tensor, W: Tensor) -> Tensor:
    """Multiply v by W in W's dtype; return the product in v's."""
    return (v.to(W.dtype) @ W).to(v.dtype)


def compute_weight_gradient(d_out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Compute d_out^T x, the gradient of a weight, in the weight's dtype."""
    return d_out.to(weight.dtype).t() @ x.to(weight.dtype)
