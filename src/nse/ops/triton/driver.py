"""The sequential part as PyTorch operators, `loop` and its backward pass, run by Triton kernels.

The same operators run a plain LSTM of one layer (no memory, X = 0) and the memory's loop; PyTorch's compiler
sees each as one operation. `nse.ops.triton.buffers` describes every buffer.
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
from nse.ops.triton.plan import (
    Division,
    MatrixProduct,
    Work,
    choose_interval,
    choose_warps,
    divide,
    make_sizes,
)

# Spelled out, because PyTorch reads the operators' annotations.
Seven = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Eight = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

ZEROS = 2048  # elements per program of `fill_with_zeros`


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
    """Run all steps of the forward or backward pass, each with these phases."""
    rows, groups, teams, programs, *_ = division
    if plan.DRIVER == "persistent":
        kernel = kernels.forward if direction == "forward" else kernels.backward
        options = {"num_warps": choose_warps(work), "launch_cooperative_grid": True}
        kernel[(teams * programs,)](arguments, counters, rows, groups, programs, S, **options)
        return
    kernel = kernels.forward_phase if direction == "forward" else kernels.backward_phase
    steps = range(T) if direction == "forward" else reversed(range(T))
    schedule = [
        (name, t, layer) for t in steps for name in phases for layer in list_layers(name, direction, work)
    ]
    if "attend" in phases:  # the last write
        schedule.append(("attend", T, 0))
    if "recall" in phases:  # the first read
        schedule += [(name, -1, 0) for name in phases if name in ("recall", "cell")]
    for name, t, layer in schedule:
        kernel[(groups * programs,)](
            arguments, t, rows, programs, name, layer, S, num_warps=choose_warps(work)
        )


def fill_with_zeros(tensors: Sequence[Tensor], division: Division, device: torch.device) -> Tensor:
    """Fill tensors with zeros in one launch; also return new counters, for the teams and for taken groups."""
    counters = torch.empty((division.teams + 1) * 32, dtype=torch.int32, device=device)
    filled = tuple(tensor for tensor in (counters, *tensors) if tensor.numel())
    sizes = tuple(tensor.numel() for tensor in filled)
    blocks = sum(math.ceil(size / ZEROS) for size in sizes)
    kernels.fill_zeros[(blocks,)](filled, sizes, ZEROS)
    return counters


def list_layers(phase: str, direction: str, work: Work) -> Sequence[int]:
    """List the layers that a phase is run for, counted from the top, in the order of the direction."""
    if phase != "upper":
        return [0]
    upper = range(work.layers - 1)
    return upper[::-1] if direction == "forward" else upper


@torch.library.custom_op("nse::loop", mutates_args=())
def loop(
    hoisted: Tensor,
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
        hoisted: [B, T, 4k] if folded (no W_m), else [B, T, d].
        o: [B, T, k].
        mask: [B, T, d], dropout on c, or `None`.
        W_m: [d, (1 + n) k], or `None` if compose is folded into W_x.
        W_x: [4k, d], or [4k, (1 + n) k] if folded, or `None` for a plain LSTM.
        W_h: [4k, k].
        bias: [4k], or `None` if folded.
        W_up_x: [layers - 1, 4k, k], of the layers above the first, from the top down, or `None`.
        W_up_h: [layers - 1, 4k, k], of the same layers.
        bias_up: [layers - 1, 4k], of the same layers.
        h: [R, k], initial states of all layers, from the top down; `None` for zeros.
        c: [R, k], initial cell states.
        slots: [B, L, k], all memories.
        slot_sizes: Number of slots of each memory, including padding.
        slot_lengths: [1 + n, B] int32, number of slots without padding.
        lengths: [B] int32, number of steps.
        order: [B] int32, indices of the sequences from longest to shortest.
        full: Whether no sequence has padding, in steps or slots.
        keep: Whether a backward pass will follow.

    Returns:
        H and C [R, T + 1, k] with the initial states in front, the final memories, z [B, T, L], and for the
        backward pass m, c, the gates and the kept memories, which are empty if not needed.
    """
    layers = 1 if W_up_h is None else 1 + len(W_up_h)
    results = make_buffers(hoisted, W_x, W_h, slots, slot_sizes, W_m is None, layers, keep)
    H, C, M, z, m, composed, gates, kept = results
    B, T, _ = hoisted.shape
    k, n = W_h.shape[1], len(slot_sizes)
    M.copy_(slots)
    X = 0 if W_x is None else W_x.shape[1]
    L = M.shape[1]
    compose = MatrixProduct() if W_m is None else MatrixProduct(X, n * k)
    products = [MatrixProduct(4 * k, X, together=4), compose, MatrixProduct(4 * k, k, together=4)]
    products += [MatrixProduct(4 * k, k, together=4, times=layers - 1)] * 2 if layers > 1 else []
    max_held_rows = 32  # with more, the compiler runs out of registers for held weights
    work = Work(B, k, tuple(slot_sizes), tuple(products), W_h.element_size(), max_held_rows, not full, layers)
    division = divide(work, hoisted.device)
    # Zero where nothing is written: the initial states, and the padding.
    counters = fill_with_zeros([] if full else [H, C, z, m, composed], division, H.device)
    if h is not None and c is not None:
        H[:, 0], C[:, 0] = h, c
    elif full:
        H[:, 0], C[:, 0] = 0, 0
    flags = {"FOLDED": W_m is None, "MASKED": mask is not None, "KEEP": keep}
    S = make_sizes(work, division, X, UNITS=division.widths[0] // 4, COLUMNS=division.widths[1], **flags)
    L_0, L_1 = (*slot_sizes, 0, 0)[:2]
    tops, totals = H.new_empty(2, 2, B, n, division.parts)
    part_m = H.new_empty(B, n, division.parts if division.parts > 1 else 0, k)
    # In place of `None`, H is a pointer that is never used.
    arguments = Forward(
        order, lengths, slot_lengths, hoisted, o, get_or(mask, H), get_or(W_m, H), get_or(W_x, H), W_h,
        get_or(bias, H), get_or(W_up_x, H), get_or(W_up_h, H), get_or(bias_up, H), M, H, C, z, m, composed,
        gates, kept, H.new_empty(2, B, L), tops, totals, part_m, B, T, L, L_0, L_1, choose_interval(T),
    )  # fmt: skip
    phases = ["attend"] if n else []
    phases += ["join"] if division.parts > 1 else []
    phases += ["compose"] if n and W_m is not None else []
    phases += ["write", "upper"] if layers > 1 else ["write"]
    launch("forward", arguments, work, division, T, phases, S, counters)
    return results


def get_or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Return the tensor, or the other one if it is `None`."""
    return other if tensor is None else tensor


def make_buffers(
    hoisted: Tensor,
    W_x: Tensor | None,
    W_h: Tensor,
    slots: Tensor,
    slot_sizes: list[int],
    folded: bool,
    layers: int,
    keep: bool,
) -> Eight:
    """Allocate the results of `loop`."""
    B, T, _ = hoisted.shape
    k, n, L = W_h.shape[1], len(slot_sizes), slots.shape[1]
    new = hoisted.new_empty
    d = 0 if folded or W_x is None else W_x.shape[1]
    pieces = -(-T // choose_interval(T)) if keep and n else 0
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
    hoisted, _, _, W_m, W_x, W_h, _, _, W_up_h, _, _, _, slots, slot_sizes, _, _, _, _, keep = arguments
    layers = 1 if W_up_h is None else 1 + W_up_h.shape[0]
    return make_buffers(hoisted, W_x, W_h, slots, slot_sizes, W_m is None, layers, keep)


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
    """Run the backward pass of all steps.

    Returns:
        The gradients of the gates before their activation [R, T, 4k], of the LSTM's input [B, T, X], of m,
        of o, of the initial h, of the initial cell state (the first half), and of the initial memories.
    """
    results = make_gradient_buffers(W_m, W_x, H, z, slot_sizes)
    da, dx, dm, do, dh, dc, G = results
    B, T = dx.shape[:2]
    layers = 1 if W_up_h is None else 1 + len(W_up_h)
    k, n, L = H.shape[2], len(slot_sizes), z.shape[2]
    X = 0 if W_x is None else W_x.shape[1]
    W_T = W_h.t().contiguous() if W_x is None else torch.cat([W_x.t(), W_h.t()])
    compose = MatrixProduct() if W_m is None else MatrixProduct(n * k, X)
    products = [MatrixProduct(X + k, 4 * k), compose, MatrixProduct()]
    W_upT = None
    if W_up_x is not None and W_up_h is not None:
        W_upT = torch.cat([W_up_x.mT, W_up_h.mT], dim=1)
        products.append(MatrixProduct(2 * k, 4 * k, times=layers - 1))
    # Beside a memory and with more rows, streaming the weights is faster than holding them.
    max_held_rows = 16 if n else 32
    work = Work(B, k, tuple(slot_sizes), tuple(products), W_h.element_size(), max_held_rows, not full, layers)
    division = divide(work, H.device)
    zeros = [dh, dc] if full else [da, dx, dm, do, dh, dc]  # as in the forward pass
    counters = fill_with_zeros([*zeros, G] if d_M is None else zeros, division, H.device)
    if d_M is not None:
        G.copy_(d_M)
    flags = {"MASKED": mask is not None, "CELLS": d_C is not None, "KEYS": d_z is not None}
    flags |= {"FOLDED": W_m is None, "KEEP": True}
    columns, columns_m, _, columns_up = (*division.widths, 16)[:4]
    S = make_sizes(work, division, X, COLUMNS=columns, COLUMNS_M=columns_m, COLUMNS_UP=columns_up, **flags)
    L_0, L_1 = (*slot_sizes, 0, 0)[:2]
    part_dh, part_do = H.new_empty(2, B, division.parts if division.parts > 1 else 0, k)
    arguments = Backward(
        order, lengths, slot_lengths, o, get_or(mask, H), H if W_m is None else W_m.t().contiguous(),
        W_T, get_or(W_upT, H), H, C, z, m, gates, kept, d_H, get_or(d_C, H), get_or(d_z, H),
        dh, dc, G, H.new_empty(2, B, L), H.new_empty(2, B, max(n, 1), division.parts), part_dh, part_do,
        da, dx, dx if W_m is None else dm, do, B, T, L, L_0, L_1, choose_interval(T),
    )  # fmt: skip
    phases = ["recall"]
    phases += ["cell"] if division.parts > 1 else []
    phases += ["upper", "write"] if layers > 1 else ["write"]
    phases += ["compose"] if n and W_m is not None else []
    launch("backward", arguments, work, division, T, phases, S, counters)
    return results


def make_gradient_buffers(
    W_m: Tensor | None, W_x: Tensor | None, H: Tensor, z: Tensor, slot_sizes: list[int]
) -> Seven:
    """Allocate the results of `loop_backward`."""
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
    return make_gradient_buffers(W_m, W_x, H, z, slot_sizes)


def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward pass needs."""
    _, o, mask, *weights, _, _, _, slot_sizes, slot_lengths, lengths, order, full, _ = inputs
    H, C, _, z, m, composed, gates, kept = output
    ctx.save_for_backward(o, mask, *weights, slot_lengths, lengths, order, H, C, z, m, composed, gates, kept)
    ctx.slot_sizes, ctx.full = slot_sizes, full
    ctx.set_materialize_grads(False)


def compute_gradients(ctx: Any, d_H: Any, d_C: Any, d_M: Any, d_z: Any, *_: Any) -> tuple[Any, ...]:
    """Compute the gradients of the inputs of `loop`; those of weights are one product over all rows each."""
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
    needs_h, needs_c = ctx.needs_input_grad[10:12]
    dh_start = dh + d_H[:, 0] if needs_h else None
    dc_start = (dc[0] if d_C is None else dc[0] + d_C[:, 0]) if needs_c else None
    folded = W_m is None
    dW_up: tuple[Tensor | None, ...] = (None, None, None)
    if W_up_x is not None:
        dW_up = compute_upper_gradients(da, H, W_up_x, bias_up)
        da, H = da[-len(o) :], H[-len(o) :]  # the first layer's
    return (
        da if folded else dx,
        do if ctx.slot_sizes else None,
        None,
        None if folded else compute_weight_gradient(dx, m, W_m),
        None if W_x is None else compute_weight_gradient(da, m if folded else composed, W_x),
        compute_weight_gradient(da, H[:, :-1], W_h),
        None if bias is None else da.sum(dim=(0, 1)).to(bias.dtype),
        *dW_up,
        dh_start,
        dc_start,
        G,
        *[None] * 6,
    )


def compute_weight_gradient(d_out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Compute the gradient of a weight from those of its outputs [B, T, m] and its inputs [B, T, n]."""
    return d_out.flatten(0, 1).to(weight.dtype).t() @ x.flatten(0, 1).to(weight.dtype)


def compute_upper_gradients(da: Tensor, H: Tensor, W: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Compute the gradients of W_up_x (W), W_up_h and bias_up."""
    upper = len(W)
    d_gates, h = da.unflatten(0, (upper + 1, -1))[:-1], H.unflatten(0, (upper + 1, -1))
    rows_T = d_gates.flatten(1, 2).to(W.dtype).mT
    below, before = (inputs.flatten(1, 2).to(W.dtype) for inputs in (h[1:, :, 1:], h[:-1, :, :-1]))
    return rows_T @ below, rows_T @ before, d_gates.sum(dim=(1, 2)).to(bias.dtype)


loop.register_autograd(compute_gradients, setup_context=save_for_backward)
