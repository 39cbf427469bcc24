"""Second derivatives for backends whose hand-written backward pass autograd cannot differentiate.

With `create_graph=True` the reference computes the gradients of the whole call: its plain operations can be
differentiated any number of times. An ordinary backward pass does not run it.
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

    def flatten(self) -> list[Tensor | None]:
        """List all tensors, as inputs of an autograd function."""
        no_state = None, None
        weights = self.weights
        return [
            *(self.x, self.lengths, self.c_mask, *(self.read or no_state), *(self.write or no_state)),
            *(weights.compose, weights.compose_bias),
            *(weight for layer in (*weights.read, *weights.write) for weight in layer),
            *(tensor for memory in self.memories for tensor in memory),
        ]

    @staticmethod
    def unflatten(flat: list[Any], layers: int, keys: bool) -> Arguments:
        """Undo `flatten`, given the number of layers of the LSTMs."""
        x, lengths, c_mask, read_h, read_c, write_h, write_c, compose, compose_bias, *rest = flat
        read = None if read_h is None else (read_h, read_c)
        write = None if write_h is None else (write_h, write_c)
        stack = [LSTMLayer(*rest[i : i + 4]) for i in range(0, 8 * layers, 4)]
        weights = Weights(tuple(stack[:layers]), compose, compose_bias, tuple(stack[layers:]))
        memories = tuple(Memory(*pair) for pair in zip(*[iter(rest[8 * layers :])] * 2, strict=True))
        return Arguments(x, lengths, memories, read, write, weights, c_mask, keys)


def is_transformed() -> bool:
    """Return whether a `torch.func` transform or forward mode is active: they do not call `backward`."""
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._are_functorch_transforms_active()) or forward_ad._current_level >= 0


def add_double_backward(result: Result, arguments: Arguments) -> Result:
    """Make a backend's result differentiable more than once, as the reference's is.

    Compiled functions are left alone: PyTorch's compiler has no second derivatives, and raises an error.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return result
    inputs = arguments.flatten()
    if not any(tensor is not None and tensor.requires_grad for tensor in inputs):
        return result
    layers, n = len(arguments.weights.read), len(arguments.memories)
    outputs, *rest = _DoubleBackward.apply(
        layers, arguments.keys, len(inputs), *inputs, *flatten_result(result)
    )
    memories, (read_h, read_c, write_h, write_c, *keys) = rest[:n], rest[n:]
    return Result(outputs, tuple(memories), (read_h, read_c), (write_h, write_c), tuple(keys))


def refuse_double_backward(*gradients: Tensor | None) -> None:
    """Raise a `BackendError` if gradients of a hand-written backward pass would be differentiated again."""
    if torch.is_grad_enabled() and any(gradient is not None for gradient in gradients):
        raise BackendError(
            'create_graph=True: no second derivatives here; build the encoder with backend="reference" '
            "(or set NSE_BACKEND=reference), and do not compile it"
        )


class _DoubleBackward(torch.autograd.Function):
    """Identity on a backend's results, whose inputs are the arguments of the call as well.

    An ordinary backward pass goes on to the backend. If the gradients will be differentiated again, or are a
    batch of gradients, the reference computes those of the arguments instead.
    """

    @staticmethod
    def forward(ctx: Any, layers: int, keys: bool, count: int, *tensors: Any) -> tuple[Tensor, ...]:
        ctx.layers, ctx.keys, ctx.count = layers, keys, count
        ctx.save_for_backward(*tensors[:count])
        ctx.set_materialize_grads(False)
        # Detached: PyTorch would take the results themselves for views, which cannot be changed in place.
        return tuple(result.detach() for result in tensors[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        create_graph = torch.is_grad_enabled()
        is_batch = torch._C._functorch.is_legacy_batchedtensor  # of gradients, with `vectorize=True`
        if not create_graph and not any(is_batch(g) for g in gradients if g is not None):
            return *repeat(None, 3 + ctx.count), *gradients
        saved = ctx.saved_tensors
        # Autocast is off, as in every backward pass.
        with torch.enable_grad(), torch.autocast(saved[0].device.type, enabled=False):
            # Aliases: one argument may be another, or computed from it, and each has a gradient of its own.
            inputs = [
                tensor.view_as(tensor) if need else tensor
                for tensor, need in zip(saved, ctx.needs_input_grad[3:], strict=False)
            ]
            results = flatten_result(reference.recurrence(*Arguments.unflatten(inputs, ctx.layers, ctx.keys)))
        used = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None]
        needed = [i for i in range(ctx.count) if ctx.needs_input_grad[3 + i]]
        input_gradients: list[Tensor | None] = [None] * ctx.count
        if used:
            outputs, output_gradients = zip(*used, strict=True)
            computed = torch.autograd.grad(
                outputs,
                [inputs[i] for i in needed],
                output_gradients,
                create_graph=create_graph,
                allow_unused=True,
            )
            for i, gradient in zip(needed, computed, strict=True):
                input_gradients[i] = gradient
        return None, None, None, *input_gradients, *repeat(None, len(gradients))


def flatten_result(result: Result) -> list[Tensor]:
    """List all tensors of a result."""
    return [result.outputs, *result.memories, *result.read, *result.write, *result.keys]
