"""Second derivatives through backends whose backward pass is written by hand, and so has no derivative.

Where they are asked for (`create_graph=True`), the reference makes the gradients of the whole call: its plain
operations can be differentiated again and again. An ordinary backward pass does not run it.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from nse.errors import BackendError
from nse.ops import reference
from nse.ops.types import LSTMLayer, LSTMState, Memory, Result, Weights


class Arguments(NamedTuple):
    """The arguments of a backend; see `nse.ops.types.Backend`."""

    x: Tensor
    lengths: Tensor | None
    memories: tuple[Memory, ...]
    read: LSTMState | None
    write: LSTMState | None
    weights: Weights
    c_mask: Tensor | None
    keys: bool

    def flat(self) -> list[Tensor | None]:
        """List all tensors, as an autograd function wants them."""
        nothing = None, None
        weights = self.weights
        return [
            *(self.x, self.lengths, self.c_mask, *(self.read or nothing), *(self.write or nothing)),
            *(weights.compose, weights.compose_bias),
            *(weight for layer in (*weights.read, *weights.write) for weight in layer),
            *(tensor for memory in self.memories for tensor in memory),
        ]

    @staticmethod
    def of(flat: list[Any], layers: int, keys: bool) -> Arguments:
        """Undo `flat`, for LSTMs of so many layers."""
        x, lengths, c_mask, read_h, read_c, write_h, write_c, compose, compose_bias, *rest = flat
        read = None if read_h is None else (read_h, read_c)
        write = None if write_h is None else (write_h, write_c)
        stack = [LSTMLayer(*rest[i : i + 4]) for i in range(0, 8 * layers, 4)]
        weights = Weights(tuple(stack[:layers]), compose, compose_bias, tuple(stack[layers:]))
        memories = tuple(Memory(*pair) for pair in zip(*[iter(rest[8 * layers :])] * 2, strict=True))
        return Arguments(x, lengths, memories, read, write, weights, c_mask, keys)


def cannot_take_part() -> bool:
    """Tell whether a transform of `torch.func` or forward mode is at work: they call no `backward` here."""
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._are_functorch_transforms_active()) or forward_ad._current_level >= 0


def allow(result: Result, arguments: Arguments) -> Result:
    """Make the result of a backend differentiable as often as the reference's.

    Not in compiled functions: PyTorch's compiler has no second derivatives, and says so.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return result
    given = arguments.flat()
    if not any(tensor is not None and tensor.requires_grad for tensor in given):
        return result
    layers, n = len(arguments.weights.read), len(arguments.memories)
    outputs, *rest = _EitherWay.apply(layers, arguments.keys, len(given), *given, *flat(result))
    memories, (read_h, read_c, write_h, write_c, *keys) = rest[:n], rest[n:]
    return Result(outputs, tuple(memories), (read_h, read_c), (write_h, write_c), tuple(keys))


def refuse(*gradients: Tensor | None) -> None:
    """Refuse, in a backward pass written by hand, to make gradients that will be differentiated again."""
    if torch.is_grad_enabled() and any(gradient is not None for gradient in gradients):
        raise BackendError(
            'create_graph=True: no second derivatives here; build the encoder with backend="reference" '
            "(or set NSE_BACKEND=reference), and do not compile it"
        )


class _EitherWay(torch.autograd.Function):
    """Hands a backend's results on, and an ordinary backward pass to the backend.

    In one that will be differentiated again, or is one of a batch, the reference makes the gradients instead.
    """

    @staticmethod
    def forward(ctx: Any, layers: int, keys: bool, count: int, *tensors: Any) -> tuple[Tensor, ...]:
        ctx.layers, ctx.keys, ctx.count = layers, keys, count
        ctx.save_for_backward(*tensors[:count])
        ctx.set_materialize_grads(False)
        # Not the results themselves: PyTorch takes those for views, which cannot be changed in place.
        return tuple(result.detach() for result in tensors[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        is_batch = torch._C._functorch.is_legacy_batchedtensor  # of gradients, as for `vectorize=True`
        if not again and not any(is_batch(gradient) for gradient in gradients if gradient is not None):
            return *repeat(None, 3 + ctx.count), *gradients
        saved = ctx.saved_tensors
        # Autocast is off, as in every backward pass.
        with torch.enable_grad(), torch.autocast(saved[0].device.type, enabled=False):
            # Aliases, since one argument may be another, or made of it, and each has a gradient of its own.
            given = [
                tensor.view_as(tensor) if need else tensor
                for tensor, need in zip(saved, ctx.needs_input_grad[3:], strict=False)
            ]
            results = flat(reference.recurrence(*Arguments.of(given, ctx.layers, ctx.keys)))
        came = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None]
        needed = [i for i in range(ctx.count) if ctx.needs_input_grad[3 + i]]
        found: list[Tensor | None] = [None] * ctx.count
        if came:
            outs, grads = zip(*came, strict=True)
            ins = [given[i] for i in needed]
            made = torch.autograd.grad(outs, ins, grads, create_graph=again, allow_unused=True)
            for i, gradient in zip(needed, made, strict=True):
                found[i] = gradient
        return None, None, None, *found, *repeat(None, len(gradients))


def flat(result: Result) -> list[Tensor]:
    """List all tensors of a result."""
    return [result.outputs, *result.memories, *result.read, *result.write, *result.keys]
