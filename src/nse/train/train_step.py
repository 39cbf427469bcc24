"""Training step: run operation by operation, or replayed as one CUDA graph; and the sum of step results.

Small models on a fast GPU spend most of a step launching kernels. A graph launches them all at once: picking
the batch, forward, loss, backward, clipping, Adam and the average of the weights. It always uses the same
addresses and shapes: there is one graph for each shape of batch, and everything that changes from step to
step (indices of the examples, learning rate, random state) is in GPU memory.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from nse.errors import RunError
from nse.text.tensors import Shape
from nse.train.optimizer import OptimizerUpdate, WeightEMA

LossFunction = Callable[[Tensor, Shape | None], tuple[Tensor, Tensor]]
"""Function from the indices of examples [B] and their padded shape to loss and number of correct ones.

To be captured, it must read from tensors that stay where they are on the device, and must not wait for the
device: no `.item()`, no `.cpu()`, no shape that depends on values.
"""

MAX_GRAPHS = 96
"""Number of shapes that are captured; a graph costs some memory and time."""

SYNC_ERROR = "called a synchronizing CUDA operation"  # part of PyTorch's message

MAX_SHOWN_EXAMPLES = 8  # of a batch, in an error
ADVICE = "try a smaller train.lr or train.clip_norm"


class TrainStep:
    """Training step, run operation by operation.

        loss, correct, norm = TrainStep(optimizer, compute_loss, clip=15.0)(index)

    All parameters are on one device, and hold no gradient between two steps. On a CPU, a step whose loss or
    gradient is not finite changes nothing; on a GPU the caller has to check the result.
    """

    needs_shapes = False  # whether to pass shapes, so that few of them are captured

    def __init__(
        self, optimizer: Optimizer, compute_loss: LossFunction, clip: float, ema: WeightEMA | None = None
    ):
        self.optimizer, self.compute_loss, self.clip, self.ema = optimizer, compute_loss, clip, ema
        self.update = OptimizerUpdate(optimizer, clip, ema)
        self.parameters = self.update.parameters
        self.device = self.parameters[0].device

    def __call__(self, index: Tensor, shape: Shape | None = None, loss_weight: float = 1.0) -> Tensor:
        """Take a step with the examples of an index [B], padded to a shape or as far as necessary.

        Return without waiting [3]: loss, number of correct examples, gradient norm before clipping. For a
        shard of a batch, `loss_weight` is the factor of its loss in the gradient.
        """
        return self.run_operations(index.to(self.device), shape, loss_weight)

    def run_operations(self, index: Tensor, shape: Shape | None, loss_weight: float = 1.0) -> Tensor:
        """Run the operations of a step, for an index on the device."""
        loss, correct = self.compute_loss(index, shape)
        (loss if loss_weight == 1 else loss * loss_weight).backward()
        loss = loss.detach()  # or the result would keep the autograd graph alive
        norm = self.update(loss)
        self.optimizer.zero_grad()
        return torch.stack([loss, correct.to(loss.dtype), norm.to(loss.dtype)])


@dataclass(frozen=True)
class StepGraph:
    """CUDA graph of a step at one shape."""

    graph: torch.cuda.CUDAGraph
    index: Tensor  # [B], input of the graph
    result: Tensor  # [3], its output

    def replay(self, index: Tensor) -> Tensor:
        """Take a step and return its result."""
        # The host need not wait for a copy from pinned memory, which PyTorch holds until the copy is done.
        self.index.copy_(index if index.is_cuda else index.pin_memory(), non_blocking=True)
        self.graph.replay()
        return self.result.clone()  # the next replay of any graph may overwrite it


class CapturedStep(TrainStep):
    """Training step on a CUDA device, replayed as one graph from the second batch of a shape on.

    The first step of a shape is run operation by operation, which is also the warm-up that a capture needs
    (libraries choose their kernels, Adam creates its state). The second is captured, which executes nothing,
    and replayed. The optimizer must come from `make_adam`.

    A step that waits for the device cannot be captured. The first attempt finds that out without harm and
    logs a warning; all steps are then run operation by operation.
    """

    needs_shapes = True

    def __init__(
        self,
        optimizer: Optimizer,
        compute_loss: LossFunction,
        clip: float,
        ema: WeightEMA | None = None,
        max_graphs: int = MAX_GRAPHS,
    ):
        super().__init__(optimizer, compute_loss, clip, ema)
        self.max_graphs = max_graphs
        self.warmed_up: set[tuple[int, Shape]] = set()
        self.graphs: dict[tuple[int, Shape], StepGraph] = {}
        # One stream for warm-up and capture, so that what libraries keep per stream exists before a capture.
        self.stream = torch.cuda.Stream(self.device)
        # One memory pool for all graphs: they run one after the other and share no values.
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, index: Tensor, shape: Shape | None = None, loss_weight: float = 1.0) -> Tensor:
        """Take a step like `TrainStep`; only one with a shape and `loss_weight` 1 can be replayed."""
        if shape is None or loss_weight != 1:
            return self.run_on_stream(index, shape, loss_weight)
        key = (len(index), shape)
        can_capture = self.needs_shapes and len(self.graphs) < self.max_graphs
        if key in self.warmed_up and key not in self.graphs and can_capture:
            self.capture(*key)
        if key in self.graphs:
            return self.graphs[key].replay(index)
        self.warmed_up.add(key)
        return self.run_on_stream(index, shape)

    def run_on_stream(self, index: Tensor, shape: Shape | None, loss_weight: float = 1.0) -> Tensor:
        """Run the operations on the stream of the captures, in order with the current stream."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            result = self.run_operations(index.to(self.device), shape, loss_weight)
        current.wait_stream(self.stream)
        return result

    def capture(self, batch_size: int, shape: Shape) -> None:
        """Capture the step for batches of this size and shape, if possible."""
        graph, index = torch.cuda.CUDAGraph(), torch.zeros(batch_size, dtype=torch.long, device=self.device)
        # No parameter holds a gradient here or at the end of a step: the gradients of a graph stay in its
        # pool, are written before they are read, and never meet those of other steps.
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream), forbid_synchronization():
                result = self.run_operations(index, shape)
        except RuntimeError as error:
            self.optimizer.zero_grad()
            if SYNC_ERROR not in str(error):
                reason = str(error).split("\n")[0]
                raise RunError(
                    f"the step cannot be captured as a CUDA graph ({reason}): set train.cuda_graphs=false"
                ) from error
            self.needs_shapes = False
            logging.getLogger(__name__).warning(
                "the training step runs without a CUDA graph: the model waits for the device in each step"
            )
        else:
            self.graphs[batch_size, shape] = StepGraph(graph, index, result)


@contextmanager
def forbid_synchronization() -> Iterator[None]:
    """Raise a RuntimeError in the block before an operation waits for a CUDA device.

    Such an operation would break a capture, and PyTorch does not recover from that: the stream, the allocator
    and the random generator would stay in capture mode.
    """
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


class NotFiniteError(RunError):
    """Raised when a loss, a gradient, a score or a number to be saved is NaN or infinite."""


@dataclass
class EpochSums:
    """Sums over this process's examples of an epoch, before each step and with dropout."""

    loss: float = 0.0
    correct: float = 0.0
    examples: int = 0


class StepRecord(NamedTuple):
    """Result of a step."""

    name: str  # of the step, for messages
    indices: Tensor  # of the examples of the whole batch
    size: int  # number of examples of this process
    result: Tensor  # [3], as `TrainStep` returns it

    def describe(self) -> str:
        """Name the step and the first of its examples."""
        first = ", ".join(map(str, self.indices[:MAX_SHOWN_EXAMPLES].tolist()))
        return f"{self.name} (examples {first}{', ...' if len(self.indices) > MAX_SHOWN_EXAMPLES else ''})"


class StepAccumulator:
    """Sum of step results, checked to be finite every `interval` steps.

    On a GPU, each check adds the steps up to the check before, so that it does not wait for the device.
    """

    def __init__(self, sums: EpochSums, interval: int):
        self.sums, self.interval = sums, interval
        self.records: list[StepRecord] = []
        self.copying: tuple[list[StepRecord], Tensor, torch.cuda.Event | None] | None = None

    def add(self, name: str, indices: Tensor, size: int, result: Tensor) -> None:
        """Record one more step, and check earlier ones if due."""
        self.records.append(StepRecord(name, indices, size, result))
        if len(self.records) >= self.interval:
            self.copy_results() if result.is_cuda else self.synchronize()

    def synchronize(self) -> None:
        """Wait for all results and add them up; raise NotFiniteError if one is not finite."""
        self.copy_results()
        self.copy_results()  # adds up what the first call copies

    def copy_results(self) -> None:
        """Start to copy new results to the host, and add up those of the copy before."""
        previous, self.copying = self.copying, None
        if self.records:
            results, copied = torch.stack([record.result for record in self.records]), None
            if results.is_cuda:
                on_device, results = results, torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
                results.copy_(on_device, non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()
            self.copying, self.records = (self.records, results, copied), []
        if previous:
            self.add_up(*previous)

    def add_up(self, records: list[StepRecord], results: Tensor, copied: torch.cuda.Event | None) -> None:
        """Add up results [N, 3] after waiting for their copy."""
        if copied is not None:
            copied.synchronize()
        for record, (loss, correct, norm) in zip(records, results.tolist(), strict=True):
            for name, value in (("loss", loss), ("gradient norm", norm)):
                if not math.isfinite(value):
                    raise NotFiniteError(f"the {name} is {value} at {record.describe()}: {ADVICE}")
            self.sums.loss += loss * record.size
            self.sums.correct += correct if record.size else 0
            self.sums.examples += record.size
