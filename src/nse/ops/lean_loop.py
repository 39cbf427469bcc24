"""The part of the recurrence that is sequential, with a backward pass that keeps no memory per step.

One step, for the rows still running (see `packing`), in the letters of the paper:

    z = softmax(o M)          m = z M                per memory
    c = hoisted + m W         gates = c              folded: `hoisted` and W lead to the gates at once
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

Folded, the first layer's input matrix and bias are `None`: compose has taken them in."""


class Plan(NamedTuple):
    """What the loop needs to know that is not differentiated."""

    pack: Packing
    blocked: tuple[Tensor | None, ...]  # per memory [B, L]: its padded slots
    empty: tuple[Tensor | None, ...]  # per memory [B, 1]: those without a single slot
    keys: bool  # whether z is asked for

    @property
    def interval(self) -> int:
        """Steps between two kept memories: then as many are kept as are replayed at a time."""
        return max(1, math.isqrt(len(self.pack.counts)))


class Inputs(NamedTuple):
    """What the loop computes with, in the order in which autograd sees it; also: their gradients."""

    hoisted: Tensor  # [rows, 4k] when folded, else [rows, d]: the part of c_t that needs no memory
    o: Tensor  # [rows, k]
    mask: Tensor | None  # [rows, d], dropout on c_t
    W: Tensor  # [4k or d, (1 + n) k], from what was read to the space of `hoisted`
    h: Tensor  # [layers, B, k], the write LSTM's state at the start
    c: Tensor
    slots: list[Tensor]  # the memories at the start, each [B, L, k]
    stack: Stack

    def flat(self) -> tuple[Tensor | None, ...]:
        """All tensors, as an autograd function wants them."""
        return (*self[:6], *self.slots, *(tensor for layer in self.stack for tensor in layer))

    @staticmethod
    def of(flat: tuple[Any, ...], memories: int) -> Inputs:
        """Undo `flat`."""
        hoisted, o, mask, W, h, c, *rest = flat
        slots, stack = rest[:memories], rest[memories:]
        layers = list(zip(stack[::3], stack[1::3], stack[2::3], strict=True))
        return Inputs(hoisted, o, mask, W, h, c, slots, layers)


class Outputs(NamedTuple):
    """What the loop returns; also: the gradients that came back for it, each `None` where none did."""

    rows: Any  # [rows, k], h of each row
    h: Any  # [layers, B, k], the write LSTM's state at each sequence's end
    c: Any
    slots: tuple[Any, ...]  # the memories at the end
    keys: tuple[Any, ...]  # z per memory [rows, L]; none unless asked for


class Record(NamedTuple):
    """What the forward pass leaves for the backward pass: it grows with T (L + k), never with T L k.

    Each entry is a list of steps while they run, and one packed tensor afterwards.
    """

    keys: list[Any]  # z, per memory [rows, L]
    hidden: list[Any]  # h, per layer [rows, k]
    cells: list[Any]  # per layer [rows, k]
    gates: list[Any]  # per layer [rows, 4k], activated
    read: list[Any]  # one: all m side by side [rows, (1 + n) k]
    composed: list[Any]  # one: what the first layer reads [rows, d]; [rows, 0] when folded
    kept: list[Any]  # per memory: M before steps 0, interval, 2 interval, ...


def run(plan: Plan, inputs: Inputs) -> Outputs:
    """Run all steps, of which there is one at least."""
    n = len(inputs.slots)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs.flat()):
        rows, h, c, *rest = MemoryLoop.apply(plan, *inputs.flat())
        return Outputs(rows, h, c, tuple(rest[:n]), tuple(rest[n:]))
    return forward(plan, inputs, keep=False)[0]


class MemoryLoop(torch.autograd.Function):
    """`forward` and `backward` of this file, tied together for autograd."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *flat: Tensor | None) -> tuple[Tensor, ...]:  # noqa: D102
        outputs, record = forward(plan, Inputs.of(flat, len(plan.blocked)), keep=True)
        ctx.plan, ctx.sizes = plan, [len(part) for part in record]
        ctx.save_for_backward(*flat, *(tensor for part in record for tensor in part))
        ctx.set_materialize_grads(False)
        return (*outputs[:3], *outputs.slots, *outputs.keys)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:  # noqa: D102
        double_backward.refuse_double_backward(*grads)
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        n, recorded, saved = len(ctx.plan.blocked), sum(ctx.sizes), ctx.saved_tensors
        inputs, rest = Inputs.of(saved[:-recorded], n), iter(saved[-recorded:])
        record = Record._make([next(rest) for _ in range(size)] for size in ctx.sizes)
        rows, h, c, *others = grads
        wanted = Outputs(rows, h, c, tuple(others[:n]), tuple(others[n:]) if ctx.plan.keys else (None,) * n)
        return (None, *backward(ctx.plan, inputs, record, wanted).flat())


def forward(plan: Plan, inputs: Inputs, keep: bool) -> tuple[Outputs, Record]:
    """Take all steps, and with `keep` the record of them."""
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
        now = [first(M_j, n) for M_j in M]
        if keep and t % plan.interval == 0:
            append(record.kept, [M_j.clone() for M_j in now])
        z = [attend(plan, j, o_t, M_j) for j, M_j in enumerate(now)]
        m = [torch.bmm(z_j, M_j)[:, 0] for z_j, M_j in zip(z, now, strict=True)]  # (eq. 3, 9, 11)
        m_all = m[0] if len(m) == 1 else torch.cat(m, dim=1)
        x = add_product(hoisted_t, m_all, W_T)  # (eq. 4, 12)
        if mask_t is not None:
            x *= mask_t
        h, c, gates = write_lstm(x, h, c, transposed)  # (eq. 5, 13)
        for z_j, M_j in zip(z, now, strict=True):
            M_j.lerp_(h[-1][:, None], z_j.transpose(1, 2))  # (eq. 6, 14, 15)

        append(record.hidden, h)
        append(record.cells, c)
        if keep or plan.keys:
            append(record.keys, [z_j[:, 0] for z_j in z])
        if keep:
            append(record.gates, gates)
            append(record.read, [m_all])
            append(record.composed, [x if stack[0][0] is not None else x[:, :0]])
    kept = [M_s for steps in record.kept for M_s in steps]
    record = Record._make([torch.cat(steps) if steps else o[:0] for steps in part] for part in record)
    record = record._replace(kept=kept)
    last = plan.pack.last
    h_end = torch.stack([last(rows, start) for rows, start in zip(record.hidden, h0, strict=True)])
    c_end = torch.stack([last(rows, start) for rows, start in zip(record.cells, c0, strict=True)])
    return Outputs(record.hidden[-1], h_end, c_end, tuple(M), tuple(record.keys) if plan.keys else ()), record


def append(part: list[Any], step: list[Tensor]) -> None:
    """Add one step to each list of a part of the record."""
    for steps, tensor in zip(part, step, strict=True):
        steps.append(tensor)


def attend(plan: Plan, j: int, o: Tensor, M: Tensor) -> Tensor:
    """Make the key z [n, 1, L] of memory j, for o [n, 1, k] over M [n, L, k]; exactly 0 for padded slots."""
    n, blocked, empty = M.shape[0], plan.blocked[j], plan.empty[j]
    scores = torch.bmm(o, M.transpose(1, 2))  # on the CPU ten times faster than M times o as a column
    if blocked is not None:
        scores.masked_fill_(blocked[:n, None], torch.finfo(scores.dtype).min)
    z = torch.softmax(scores, dim=-1)  # (eq. 2, 8, 10)
    return z if empty is None else z.masked_fill_(empty[:n, None], 0)


def write_lstm(x: Tensor, h: list[Tensor], c: list[Tensor], stack: Stack) -> tuple[list[Tensor], ...]:
    """Take a step of all layers, matrices transposed: new h, new c, activated gates. The last h is h_t."""
    n, k = x.shape[0], c[0].shape[-1]
    hs, cs, gates = [], [], []
    for h_old, c_old, (ih, hh, bias) in zip(h, c, stack, strict=True):
        a = x if ih is None or bias is None else add_product(bias, x, ih)
        a = add_product(a, first(h_old, n), hh)
        i_f, g, o = torch.split_with_sizes(a, (2 * k, k, k), dim=1)
        i, f = i_f.sigmoid_().chunk(2, dim=1)
        c_new = torch.addcmul(f * first(c_old, n), i, g.tanh_())
        x = o.sigmoid_() * c_new.tanh()
        hs.append(x)
        cs.append(c_new)
        gates.append(a)
    return hs, cs, gates


def first(tensor: Tensor, n: int) -> Tensor:
    """Return the first n rows."""
    return tensor if tensor.shape[0] == n else tensor[:n]


def backward(plan: Plan, inputs: Inputs, record: Record, wanted: Outputs) -> Inputs:
    """Make the gradients of all inputs, from those of the outputs."""
    o, mask, W, stack, layers = inputs.o, inputs.mask, inputs.W, inputs.stack, range(len(inputs.stack))
    k, into_first = o.shape[1], stack[0][0]
    dM = [gradient(g, s) for g, s in zip(wanted.slots, inputs.slots, strict=True)]
    dh, dc = gradient(wanted.h, inputs.h), gradient(wanted.c, inputs.c)  # rolled back in place
    do = torch.zeros_like(o)
    da = [torch.empty_like(gates) for gates in record.gates]
    dx = da[0] if into_first is None else torch.empty_like(inputs.hoisted)
    spare = [torch.empty_like(dM_j) for dM_j in dM]  # large temporaries are slow to allocate at every step
    slopes = [local_slopes(plan, inputs, record, layer) for layer in layers]

    for t, M in replay(plan, record):
        step, n = plan.pack.steps[t], plan.pack.counts[t]
        h, z = record.hidden[-1][step], [keys[step] for keys in record.keys]
        G = [dM_j[:n] for dM_j in dM]
        dh_now, dc_now = list(dh[:, :n]), list(dc[:, :n])
        if wanted.rows is not None:
            dh_now[-1] += wanted.rows[step]
        dz = []
        for G_j, M_j, z_j, scratch in zip(G, M, z, spare, strict=True):  # back through (eq. 6, 14, 15)
            dh_now[-1] += torch.bmm(z_j[:, None], G_j)[:, 0]
            overlap = torch.mul(G_j, M_j, out=scratch[:n]).sum(dim=-1)
            dz.append(torch.bmm(h[:, None], G_j.transpose(1, 2))[:, 0] - overlap)

        for layer in reversed(layers):  # back through (eq. 5, 13)
            ih, hh, _ = stack[layer]
            h_to_c, c_to_gates, h_to_gate, forget = (slope[step] for slope in slopes[layer])
            dc_now[layer].addcmul_(dh_now[layer], h_to_c)
            da_now = da[layer][step]
            torch.mul(c_to_gates, dc_now[layer][:, None], out=da_now[:, : 3 * k].unflatten(1, (3, k)))
            torch.mul(h_to_gate, dh_now[layer], out=da_now[:, 3 * k :])
            dc_now[layer] *= forget
            dh_now[layer].copy_(product(da_now, hh))
            if layer and ih is not None:
                dh_now[layer - 1] += product(da_now, ih)
        if into_first is not None:
            dx[step] = product(da_now, into_first)
            if mask is not None:
                dx[step] *= mask[step]
        dm = product(dx[step], W).split(k, dim=1)  # back through (eq. 4, 12)

        for j, (G_j, M_j, z_j) in enumerate(zip(G, M, z, strict=True)):
            dz_j = dz[j] + torch.bmm(dm[j][:, None], M_j.transpose(1, 2))[:, 0]  # back through (eq. 3, 9, 11)
            if (from_keys := wanted.keys[j]) is not None:
                dz_j += from_keys[step]
            ds = z_j * (dz_j - torch.linalg.vecdot(z_j, dz_j)[:, None])  # back through (eq. 2, 8, 10)
            do[step] += torch.bmm(ds[:, None], M_j)[:, 0]
            G_j.lerp_(dm[j][:, None], z_j[..., None])  # (1 - z) G of the write, z dm of the read
            G_j.addcmul_(ds[..., None], o[step][:, None])

    dW = outer(dx, record.read[0], W)
    return Inputs(dx, do, None, dW, dh, dc, dM, stack_gradients(plan, inputs, record, da))


def replay(plan: Plan, record: Record) -> Iterator[tuple[int, list[Tensor]]]:
    """Rebuild the memories before each step, from the last to the first, by the write rule from z and h."""
    steps, counts = plan.pack.steps, plan.pack.counts
    pieces = len(record.kept) // len(record.keys)
    rooms = [[torch.empty_like(M_j) for M_j in record.kept[::pieces]] for _ in range(plan.interval - 1)]
    for piece in reversed(range(pieces)):
        start, end = piece * plan.interval, min(len(steps), (piece + 1) * plan.interval)
        before = [record.kept[piece::pieces]]
        for t, room in zip(range(start, end - 1), rooms, strict=False):
            n = counts[t + 1]  # those that run on after t
            rows = slice(steps[t].start, steps[t].start + n)
            h = record.hidden[-1][rows, None]
            parts = zip(before[-1], record.keys, room, strict=True)
            before.append([torch.lerp(M_j[:n], h, z[rows, :, None], out=into[:n]) for M_j, z, into in parts])
        for t in reversed(range(start, end)):
            yield t, before.pop()


def local_slopes(plan: Plan, inputs: Inputs, record: Record, layer: int) -> tuple[Tensor, ...]:
    """Compute the derivatives within one LSTM layer, for all rows at once.

    They are c by h, the three gates to c by c [rows, 3, k], the output gate by h, and c by the next step's c.
    """
    i, f, g, o = record.gates[layer].chunk(4, dim=1)
    c_before = plan.pack.previous(record.cells[layer], inputs.c[layer])
    tanh_c = record.cells[layer].tanh()
    c_to_gates = torch.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)], dim=1)
    return o * (1 - tanh_c * tanh_c), c_to_gates, tanh_c * o * (1 - o), f


def stack_gradients(plan: Plan, inputs: Inputs, record: Record, da: list[Tensor]) -> Stack:
    """Make the gradients of the write LSTM's weights: one product over all rows each."""
    below = [record.composed[0], *record.hidden[:-1]]
    gradients: Stack = []
    for layer, (ih, hh, bias) in enumerate(inputs.stack):
        h_before = plan.pack.previous(record.hidden[layer], inputs.h[layer])
        d_ih = None if ih is None else outer(da[layer], below[layer], ih)
        d_bias = None if bias is None else da[layer].sum(dim=0).to(bias.dtype)
        gradients.append((d_ih, outer(da[layer], h_before, hh), d_bias))
    return gradients


def gradient(came: Tensor | None, like: Tensor) -> Tensor:
    """Make a gradient to add to: a copy of what came, or zeros."""
    return torch.zeros_like(like) if came is None else came.clone()


def add_product(total: Tensor, v: Tensor, W: Tensor) -> Tensor:
    """Compute total + v W, the product in W's type, the sum in the total's."""
    return torch.addmm(total, v, W) if v.dtype == W.dtype else total + v.to(W.dtype) @ W


def product(v: Tensor, W: Tensor) -> Tensor:
    """Multiply v by W in W's type; the product is in v's."""
    return (v.to(W.dtype) @ W).to(v.dtype)


def outer(v: Tensor, u: Tensor, like: Tensor) -> Tensor:
    """Multiply v^T by u, for the gradient of a weight, in that weight's type."""
    return v.to(like.dtype).t() @ u.to(like.dtype)
