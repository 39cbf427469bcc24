"""Calls to time on a CUDA device: one side at one shape, run eagerly or replayed as a CUDA graph.

A call is a forward pass, or a training pass: forward, and the gradients of the words and of every weight of
a randomly weighted sum of the outputs. `torch.autograd.grad` computes the gradients of `backward` without
storing them in the parameters.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from nse.nn.encoder import NSE, Encoding

Results = dict[str, Tensor]
"""Tensors of a call by name: outputs, memory and, in training, all gradients."""

WARM_UP = 2  # calls before a capture: libraries choose and compile their kernels


class Problem(NamedTuple):
    """Inputs of every side: words, weights of an NSE and weights of the outputs in the loss."""

    x: Tensor  # [B, T, k]
    weighting: Tensor  # [B, T, k], the gradient of the outputs
    weights: dict[str, Tensor]  # by the names of NSE's parameters

    @staticmethod
    def draw(B: int, T: int, k: int, dtype: torch.dtype, device: str) -> Problem:
        """Draw a problem that depends on the shape only."""
        torch.manual_seed(1000 * B + T)
        x, weighting = torch.randn(2, B, T, k)
        weights = NSE(k, backend="reference").state_dict()
        return Problem(x, weighting, weights).to(dtype, device)

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Problem:
        """Convert to another dtype or device."""
        weights = {name: weight.to(device=device, dtype=dtype) for name, weight in self.weights.items()}
        x, weighting = (tensor.to(device=device, dtype=dtype) for tensor in (self.x, self.weighting))
        return Problem(x, weighting, weights)

    def make_encoder(self, backend: str) -> NSE:
        """Make an NSE with these weights."""
        model = NSE(self.x.shape[-1], backend=backend, device=self.x.device, dtype=self.x.dtype)
        model.load_state_dict(self.weights)
        return model


class Call(Protocol):
    """One side at one shape."""

    def compute_results(self) -> Results:
        """Call once and return what came out."""
        ...

    def measure_memory(self) -> dict[str, float | None]:
        """Measure the memory of a call in MiB: `peak_mb` and, in training, `kept_mb`."""
        ...

    def measure_times(self, calls: int) -> list[float]:
        """Call this many times; return milliseconds per call, one or more numbers."""
        ...


class Eager:
    """Module run eagerly, kernel by kernel."""

    def __init__(self, model: nn.Module, problem: Problem, mode: str):
        self.training = mode == "train"
        self.model = model.train(self.training)
        self.x = problem.x.detach().clone().requires_grad_(self.training)
        self.weighting = problem.weighting
        self.inputs = {"x": self.x, **dict(model.named_parameters())}

    def __call__(self) -> Results:
        """Run the pass to be timed."""
        if not self.training:
            with torch.no_grad():
                return self.forward()
        results = self.forward()
        gradients = self.gradients(results)
        # Detached, so that no node of this call's graph lives on into a capture on another stream.
        return {**{name: tensor.detach() for name, tensor in results.items()}, **gradients}

    def forward(self) -> Results:
        """Compute the outputs and, for an NSE, the memory."""
        output: Any = self.model(self.x)
        if isinstance(output, Encoding):
            return {"outputs": output.outputs, "memory": output.memory.slots}
        return {"outputs": output[0]}

    def gradients(self, results: Results) -> Results:
        """Compute the gradients of the words and all weights."""
        loss = (results["outputs"] * self.weighting).sum()
        gradients = torch.autograd.grad(loss, list(self.inputs.values()))
        return {f"gradient of {name}": each for name, each in zip(self.inputs, gradients, strict=True)}

    def compute_results(self) -> Results:
        """Call once and return what came out."""
        return self()

    def measure_memory(self) -> dict[str, float | None]:
        """Measure the memory of one call, without words and weights, in MiB.

        Returns:
            `peak_mb`, the most at any time; `kept_mb`, the activation memory: what the forward pass leaves
            for the backward pass, its outputs included. That is `None` where there is no backward pass.
        """
        self()  # what libraries keep for good, such as workspaces, is taken at the first call
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, kept = torch.cuda.memory_allocated(), None
        if self.training:
            results = self.forward()
            kept = to_mebibytes(torch.cuda.memory_allocated() - before)
            self.gradients(results)
        else:
            self()
        return {"peak_mb": to_mebibytes(torch.cuda.max_memory_allocated() - before), "kept_mb": kept}

    def measure_times(self, calls: int) -> list[float]:
        """Measure milliseconds of each call with CUDA events."""
        return measure_event_times(self, calls)


class Graph:
    """Call captured once as a CUDA graph and replayed with a single launch.

    Its memory is that of the eager call; a graph holds it as long as it lives.
    """

    def __init__(self, call: Eager):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                call()
        torch.cuda.current_stream().wait_stream(aside)
        self.figures = call.measure_memory()
        self.call = call  # holds the words and weights that the graph reads
        self.graph = torch.cuda.CUDAGraph()
        # Of this thread alone: JAX's threads may talk to the device at any time.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.captured = call()

    def compute_results(self) -> Results:
        """Replay once and return what came out; the next replay overwrites it."""
        self.graph.replay()
        torch.cuda.synchronize()
        return self.captured

    def measure_memory(self) -> dict[str, float | None]:
        """Return the memory of the eager call."""
        return self.figures

    def measure_times(self, calls: int) -> list[float]:
        """Measure milliseconds of each replay with CUDA events."""
        return measure_event_times(self.graph.replay, calls)


def measure_event_times(call: Callable[[], object], calls: int) -> list[float]:
    """Measure milliseconds of each call between two events on the device's stream.

    The host runs ahead as far as it can: a call bound by launches counts what the host takes, one bound by
    the device what the device takes.
    """
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    torch.cuda.synchronize()
    for start, end in marks:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [float(start.elapsed_time(end)) for start, end in marks]


def to_mebibytes(count: int) -> float:
    """Convert bytes to MiB, rounded to three places."""
    return round(count / 2**20, 3)
