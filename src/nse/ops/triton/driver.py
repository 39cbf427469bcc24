"""The sequential part as operators of PyTorch: `loop` and its backward pass, run by Triton kernels.

The same two operators run a plain LSTM of one layer (no memory, X = 0) and the memory's loop; PyTorch's
compiler sees them as one operation each. Letters as in `triton_buffers`, where every buffer is described.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nse.ops import double_backward
from nse.ops.triton import kernels, plan
from nse.ops.triton.buffers import Backward, Forward, Sizes
from nse.ops.triton.plan import Division, MatrixProduct, Work, divide, interval, sizes, warps

# Spelled out, since PyTorch reads the operators' types.
Seven = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Eight = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

CLEARED = 2048  # numbers that a program fills with zeros


def launch(
    direction: str,
    arguments: Any,
    work: Work,
    division: Division,
    T: int,
    phases: list[str],
    S: Sizes,
    counters: Tensor,
) -> None:
    """Run all steps of the forward or the backward pass, each with these phases."""
    rows, groups, teams, programs, *_ = division
    if plan.DRIVER == "persistent":
        kernel = kernels.forward if direction == "forward" else kernels.backward
        kernel[(teams * programs,)](
            arguments,
            counters,
            rows,
            groups,
            programs,
            S,
            num_warps=warps(work),
            launch_cooperative_grid=True,
        )
        return
    kernel = kernels.forward_phase if direction == "forward" else kernels.backward_phase
    steps = range(T) if direction == "forward" else reversed(range(T))
    schedule = [
        (name, t, layer) for t in steps for name in phases for layer in layers_of(name, direction, work)
    ]
    if "attend" in phases:  # the last write
        schedule.append(("attend", T, 0))
    if "recall" in phases:  # the first read
        schedule += [(name, -1, 0) for name in phases if name in ("recall", "cell")]
    for name, t, layer in schedule:
        kernel[(groups * programs,)](arguments, t, rows, programs, name, layer, S, num_warps=warps(work))


def cleared(tensors: Sequence[Tensor], division: Division, device: torch.device) -> Tensor:
    """Fill tensors with zeros, and new counters of the teams and of groups taken, all in one launch."""
    counters = torch.empty((division.teams + 1) * 32, dtype=torch.int32, device=device)
    some = [tensor for tensor in (counters, *tensors) if tensor.numel()]
    sizes = tuple(tensor.numel() for tensor in some)
    blocks = sum(math.ceil(size / CLEARED) for size in sizes)
    kernels.clear[(blocks,)](tuple(some), sizes, CLEARED)
    return counters


def layers_of(phase: str, direction: str, work: Work) -> Sequence[int]:
    """For which layers a phase is run, counted from the top, in this order."""
    if phase != "upper":
        return [0]
    upper = range(work.layers - 1)
    return upper[::-1] if direction == "forward" else upper


@torch.library.custom_op("nse::loop", mutates_args=())
def loop(
    ahead: Tensor,
    o: Tensor,
    mask: Tensor | None,
    W_m: Tensor | None,
    W_x: Tensor | None,
    W_h: Tensor,
    bias: Tensor | None,
    W_up_x: Tensor | None,
    W_up_h: Tensor | None,
    bias_up: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    slots: Tensor,
    slot_sizes: list[int],
    slot_lengths: Tensor,
    lengths: Tensor,
    order: Tensor,
    full: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run all steps.

    Args:
        ahead: [B, T, 4k] when folded (no W_m), else [B, T, d].
        o: [B, T, k].
        mask: [B, T, d], dropout on c, or `None`.
        W_m: [d, (1 + n) k], or `None` when compose is folded into W_x.
        W_x: [4k, d], or [4k, (1 + n) k] when folded, or `None` for a plain LSTM.
        W_h: [4k, k].
        bias: [4k], or `None` when folded.
        W_up_x: [layers - 1, 4k, k], of layers above the first, from the top down; `None` if there is none.
        W_up_h: [layers - 1, 4k, k], likewise.
        bias_up: [layers - 1, 4k], likewise.
        h: [R, k], at the start, of all layers, from the top down; `None` for zeros.
        c: [R, k], likewise the cell state.
        slots: [B, L, k], all memories one after the other.
        slot_sizes: How many slots each memory has, padding included.
        slot_lengths: [1 + n, B] int32, how many are real.
        lengths: [B] int32, steps.
        order: [B] int32, sequences from the longest to the shortest.
        full: Whether all steps and all slots of all sequences are real.
        keep: Whether a backward pass will follow.

    Returns:
        H and C [R, T + 1, k] with the states at the start in front, the memories at the end, z [B, T, L], and
        for the backward pass m, c, the gates and the kept memories; empty where not needed.
    """
    layers = 1 if W_up_h is None else 1 + len(W_up_h)
    results = buffers(ahead, W_x, W_h, slots, slot_sizes, W_m is None, layers, keep)
    H, C, M, z, m, composed, gates, kept = results
    B, T, _ = ahead.shape
    k, n = W_h.shape[1], len(slot_sizes)
    M.copy_(slots)
    X = 0 if W_x is None else W_x.shape[1]
    L = M.shape[1]
    of_compose = MatrixProduct() if W_m is None else MatrixProduct(X, n * k)
    products = [MatrixProduct(4 * k, X, together=4), of_compose, MatrixProduct(4 * k, k, together=4)]
    products += [MatrixProduct(4 * k, k, together=4, times=layers - 1)] * 2 if layers > 1 else []
    # With more rows than 32, the compiler runs out of registers for weights that are held.
    held_rows = 32
    work = Work(B, k, tuple(slot_sizes), tuple(products), W_h.element_size(), held_rows, not full, layers)
    division = divide(work, ahead.device)
    # What is never written is zero: the states at the start, and whatever is past a sequence's end.
    counters = cleared([] if full else [H, C, z, m, composed], division, H.device)
    if h is not None and c is not None:
        H[:, 0], C[:, 0] = h, c
    elif full:
        H[:, 0], C[:, 0] = 0, 0
    flags = {"FOLDED": W_m is None, "MASKED": mask is not None, "KEEP": keep}
    S = sizes(work, division, X, UNITS=division.widths[0] // 4, COLUMNS=division.widths[1], **flags)
    none = H  # a pointer that is never followed
    L_0, L_1 = (*slot_sizes, 0, 0)[:2]
    tops, totals = H.new_empty(2, 2, B, n, division.parts)
    part_m = H.new_empty(B, n, division.parts if division.parts > 1 else 0, k)
    arguments = Forward(
        order, lengths, slot_lengths, ahead, o, or_else(mask, none), or_else(W_m, none), or_else(W_x, none),
        W_h, or_else(bias, none), or_else(W_up_x, none), or_else(W_up_h, none), or_else(bias_up, none), M, H,
        C, z, m, composed, gates, kept, H.new_empty(2, B, L), tops, totals, part_m, B, T, L, L_0, L_1,
        interval(T),
    )  # fmt: skip
    phases = ["attend"] if n else []
    phases += ["join"] if division.parts > 1 else []
    phases += ["compose"] if n and W_m is not None else []
    phases += ["write", "upper"] if layers > 1 else ["write"]
    launch("forward", arguments, work, division, T, phases, S, counters)
    return results


def or_else(tensor: Tensor | None, other: Tensor) -> Tensor:
    """The tensor, or what stands in for one that is not there."""
    return other if tensor is None else tensor


def buffers(
    ahead: Tensor,
    W_x: Tensor | None,
    W_h: Tensor,
    slots: Tensor,
    slot_sizes: list[int],
    folded: bool,
    layers: int,
    keep: bool,
) -> Eight:
    """Room for what `loop` returns."""
    B, T, _ = ahead.shape
    k, n, L = W_h.shape[1], len(slot_sizes), slots.shape[1]
    new = ahead.new_empty
    d = 0 if folded or W_x is None else W_x.shape[1]
    pieces = -(-T // interval(T)) if keep and n else 0
    R = layers * B
    return (
        new(R, T + 1, k),
        new(R, T + 1, k),
        new(B, L, k),
        new(B, T, L),
        new(B, T, n * k),
        new(B, T, d),
        new(R, T if keep else 0, 4 * k),
        new(pieces, B, L, k),
    )


@loop.register_fake
def _(*arguments: Any) -> Eight:
    ahead, _, _, W_m, W_x, W_h, _, _, W_up_h, _, _, _, slots, slot_sizes, _, _, _, _, keep = arguments
    layers = 1 if W_up_h is None else 1 + W_up_h.shape[0]
    return buffers(ahead, W_x, W_h, slots, slot_sizes, W_m is None, layers, keep)


@torch.library.custom_op("nse::loop_backward", mutates_args=())
def loop_backward(
    o: Tensor,
    mask: Tensor | None,
    W_m: Tensor | None,
    W_x: Tensor | None,
    W_h: Tensor,
    W_up_x: Tensor | None,
    W_up_h: Tensor | None,
    slot_sizes: list[int],
    slot_lengths: Tensor,
    lengths: Tensor,
    order: Tensor,
    H: Tensor,
    C: Tensor,
    z: Tensor,
    m: Tensor,
    gates: Tensor,
    kept: Tensor,
    d_H: Tensor,
    d_C: Tensor | None,
    d_M: Tensor | None,
    d_z: Tensor | None,
    full: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Back through all steps.

    Returns:
        The gradients of the gates before their activation [R, T, 4k], of what the LSTM read [B, T, X], of m,
        of o, of h at the start, of the cell state there (its first half), and of the memories at the start.
    """
    results = gradient_buffers(W_m, W_x, H, z, slot_sizes)
    da, dx, dm, do, dh, dc, G = results
    B, T = dx.shape[:2]
    layers = 1 if W_up_h is None else 1 + len(W_up_h)
    k, n, L = H.shape[2], len(slot_sizes), z.shape[2]
    X = 0 if W_x is None else W_x.shape[1]
    into = W_h.t().contiguous() if W_x is None else torch.cat([W_x.t(), W_h.t()])
    of_compose = MatrixProduct() if W_m is None else MatrixProduct(n * k, X)
    products = [MatrixProduct(X + k, 4 * k), of_compose, MatrixProduct()]
    up = None
    if W_up_x is not None and W_up_h is not None:
        up = torch.cat([W_up_x.mT, W_up_h.mT], dim=1)
        products.append(MatrixProduct(2 * k, 4 * k, times=layers - 1))
    # Beside a memory, with more rows than 16, streaming the weights is faster than holding them.
    held_rows = 16 if n else 32
    work = Work(B, k, tuple(slot_sizes), tuple(products), W_h.element_size(), held_rows, not full, layers)
    division = divide(work, H.device)
    zero = [dh, dc] if full else [da, dx, dm, do, dh, dc]  # as in the forward pass
    counters = cleared([*zero, G] if d_M is None else zero, division, H.device)
    if d_M is not None:
        G.copy_(d_M)
    flags = {"MASKED": mask is not None, "CELLS": d_C is not None, "KEYS": d_z is not None}
    flags |= {"FOLDED": W_m is None, "KEEP": True}
    columns, columns_m, _, columns_up = (*division.widths, 16)[:4]
    S = sizes(work, division, X, COLUMNS=columns, COLUMNS_M=columns_m, COLUMNS_UP=columns_up, **flags)
    L_0, L_1 = (*slot_sizes, 0, 0)[:2]
    part_dh, part_do = H.new_empty(2, B, division.parts if division.parts > 1 else 0, k)
    arguments = Backward(
        order, lengths, slot_lengths, o, or_else(mask, H), H if W_m is None else W_m.t().contiguous(),
        into, or_else(up, H), H, C, z, m, gates, kept, d_H, or_else(d_C, H), or_else(d_z, H),
        dh, dc, G, H.new_empty(2, B, L), H.new_empty(2, B, max(n, 1), division.parts), part_dh, part_do,
        da, dx, dx if W_m is None else dm, do, B, T, L, L_0, L_1, interval(T),
    )  # fmt: skip
    phases = ["recall"]
    phases += ["cell"] if division.parts > 1 else []
    phases += ["upper", "write"] if layers > 1 else ["write"]
    phases += ["compose"] if n and W_m is not None else []
    launch("backward", arguments, work, division, T, phases, S, counters)
    return results


def gradient_buffers(
    W_m: Tensor | None, W_x: Tensor | None, H: Tensor, z: Tensor, slot_sizes: list[int]
) -> Seven:
    """Room for what `loop_backward` returns."""
    R, T, k = H.shape[0], H.shape[1] - 1, H.shape[2]
    B, n = z.shape[0], len(slot_sizes)
    new = H.new_empty
    return (
        new(R, T, 4 * k),
        new(B, T, 0 if W_x is None else W_x.shape[1]),
        new(B, T, 0 if W_m is None else n * k),
        new(B, T, k if n else 0),
        new(R, k),
        new(2, R, k),
        new(B, z.shape[2], k),
    )


@loop_backward.register_fake
def _(*arguments: Any) -> Seven:
    _, _, W_m, W_x, _, _, _, slot_sizes, _, _, _, H, _, z, *_ = arguments
    return gradient_buffers(W_m, W_x, H, z, slot_sizes)


def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    _, o, mask, *weights, _, _, _, slot_sizes, slot_lengths, lengths, order, full, _ = inputs
    H, C, _, z, m, composed, gates, kept = output
    ctx.save_for_backward(o, mask, *weights, slot_lengths, lengths, order, H, C, z, m, composed, gates, kept)
    ctx.slot_sizes, ctx.full = slot_sizes, full
    ctx.set_materialize_grads(False)


def gradients(ctx: Any, d_H: Any, d_C: Any, d_M: Any, d_z: Any, *_: Any) -> tuple[Any, ...]:
    """The gradients of the inputs of `loop`: the kernels' and, of weights, one product over all rows each."""
    double_backward.refuse_double_backward(d_H, d_C, d_M, d_z)
    if all(d is None for d in (d_H, d_C, d_M, d_z)):
        return (None,) * len(ctx.needs_input_grad)
    o, mask, *weights, slot_lengths, lengths, order, H, C, z, m, composed, gates, kept = ctx.saved_tensors
    W_m, W_x, W_h, bias, W_up_x, W_up_h, bias_up = weights
    d_H, d_C, d_M, d_z = (None if d is None else d.contiguous() for d in (d_H, d_C, d_M, d_z))
    if d_H is None:
        d_H = torch.zeros_like(H)
    da, dx, _, do, dh, dc, G = loop_backward(
        o, mask, W_m, W_x, W_h, W_up_x, W_up_h, ctx.slot_sizes, slot_lengths, lengths, order, H, C, z, m,
        gates, kept, d_H, d_C, d_M, d_z, ctx.full,
    )  # fmt: skip
    of_h, of_c = ctx.needs_input_grad[10:12]  # usually they are zeros, which nobody learns
    d_start = dh + d_H[:, 0] if of_h else None
    dc_start = (dc[0] if d_C is None else dc[0] + d_C[:, 0]) if of_c else None
    folded = W_m is None
    dW_up: tuple[Tensor | None, ...] = (None, None, None)
    if W_up_x is not None:
        dW_up = upper_gradients(da, H, W_up_x, bias_up)
        da, H = da[-len(o) :], H[-len(o) :]  # the first layer's
    return (
        da if folded else dx,
        do if ctx.slot_sizes else None,
        None,
        None if folded else outer(dx, m, W_m),
        None if W_x is None else outer(da, m if folded else composed, W_x),
        outer(da, H[:, :-1], W_h),
        None if bias is None else da.sum(dim=(0, 1)).to(bias.dtype),
        *dW_up,
        d_start,
        dc_start,
        G,
        *[None] * 6,
    )


def outer(rows: Tensor, inputs: Tensor, like: Tensor) -> Tensor:
    """The gradient of a weight, from the gradients of its results and its inputs, in its type."""
    return rows.flatten(0, 1).to(like.dtype).t() @ inputs.flatten(0, 1).to(like.dtype)


def upper_gradients(da: Tensor, H: Tensor, W: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Of the upper layers, the gradients of W_up_x (like W), W_up_h and bias_up."""
    upper = len(W)
    of_gates, h = da.unflatten(0, (upper + 1, -1))[:-1], H.unflatten(0, (upper + 1, -1))
    rows_T = of_gates.flatten(1, 2).to(W.dtype).mT
    below, before = (inputs.flatten(1, 2).to(W.dtype) for inputs in (h[1:, :, 1:], h[:-1, :, :-1]))
    return rows_T @ below, rows_T @ before, of_gates.sum(dim=(1, 2)).to(bias.dtype)


loop.register_autograd(gradients, setup_context=remember)
