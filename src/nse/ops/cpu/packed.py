"""Weights in the layout of the compiled kernel; those for answers are folded, and kept until they change."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from nse.ops.cpu.call import Call, allocate, count_numbers, make_pointers, run_kernel, set_pointers
from nse.ops.cpu.library import load_kernel


class Packed(NamedTuple):
    """Weights packed for answers.

    Attributes:
        weights: Packed weights.
        origin: Addresses, versions, instruction set and a checksum, which tell whether they are up to date.
    """

    weights: Tensor
    origin: tuple[Any, ...]


ANSWER_WEIGHTS = WeakIdKeyDictionary()
"""Packed weights by the tensor of compose's weights, as long as that lives; in float32 and in bfloat16."""


def get_answer_weights(weights: list[Tensor], call: Call) -> Tensor:
    """Return the folded and packed weights, made anew if a weight has changed."""
    origin = describe_weights(weights)
    compose = weights[4 * call.layers]
    entries: dict[int, Packed] = ANSWER_WEIGHTS.setdefault(compose, {})
    entry = entries.get(call.half)
    if entry is None or entry.origin != origin:
        entry = entries[call.half] = Packed(pack_weights(fold_compose(weights, call.layers), call), origin)
    return entry.weights


def describe_weights(weights: list[Tensor]) -> tuple[Any, ...]:
    """Describe weights so that a change shows: also one that PyTorch's version counter does not see."""
    kernel = load_kernel()
    sample = kernel.get("sample")
    sample.restype = ctypes.c_int64
    sizes = (ctypes.c_int64 * len(weights))(*(weight.numel() for weight in weights))
    versions = tuple(0 if weight.is_inference() else weight._version for weight in weights)
    addresses = tuple(weight.data_ptr() for weight in weights)
    return (
        kernel.isa,
        addresses,
        versions,
        sample(make_pointers(weights), sizes, ctypes.c_int64(len(weights))),
    )


def pack_weights(weights: list[Tensor], call: Call) -> Tensor:
    """Pack weights for the forward pass in the layout of the kernel."""
    packed = allocate(count_numbers("count_packed", call))
    pointers = make_pointers(weights)
    call.weights = ctypes.addressof(pointers)
    set_pointers(call, packed=packed)
    run_kernel("pack", call)
    call.weights = None
    return packed


def fold_compose(weights: list[Tensor], layers: int) -> list[Tensor]:
    """Fold compose into the input matrix of the write LSTM: W_ih (W c + b) = (W_ih W) c + W_ih b."""
    compose, bias = weights[4 * layers : 4 * layers + 2]
    ih, _, bias_ih, bias_hh = weights[4 * layers + 2 : 4 * layers + 6]
    folded = multiply(ih, torch.cat([compose, bias[:, None]], dim=1))
    to_gates, gate_bias = folded[:, :-1].contiguous(), folded[:, -1] + bias_ih + bias_hh
    return [*weights[: 4 * layers], to_gates, gate_bias, *weights[4 * layers + 2 :]]


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices; the result does not depend on the number of threads, as PyTorch's does."""
    out = a.new_empty(a.shape[0], b.shape[1])
    arguments = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (out, a, b))
    sizes = (*a.shape, b.shape[1], torch.get_num_threads())
    load_kernel().get("multiply")(*arguments, *map(ctypes.c_int64, sizes))
    return out
