"""A training step, run operation by operation or replayed as one CUDA graph.

Small models on a fast card spend most of a step launching kernels. A CUDA graph launches them all at once:
picking the batch out of the data, forward, loss, backward, clipping, Adam and the average of the weights. It
computes what was captured, with the same addresses and shapes, so there is one graph for each shape of batch,
and whatever changes from step to step (which examples, the learning rate, the state of the random generator)
lies in the card's memory.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from nse.errors import RunError

Shape = tuple[int, ...]
"""How far each text of a batch is padded."""

Loss = Callable[[Tensor, Shape | None], tuple[Tensor, Tensor]]
"""From the numbers of examples [B], on the device, and how far to pad them, to their loss and how many are
right.

For a graph, whatever else it reads (data, weights) must stay where it is on the device, and it must not wait
for the device: no `.item()`, no `.cpu()`, no shape that depends on values.
"""

MOST_GRAPHS = 96
"""Shapes beyond so many are run operation by operation: a graph costs some memory and time to capture."""

WAITS = "called a synchronizing CUDA operation"  # what PyTorch says when it was asked to refuse them


def adam(parameters: Iterable[nn.Parameter], rate: float, l2: float, device: torch.device) -> Adam:
    """Adam with coupled weight decay; on CUDA as one kernel that a graph can hold."""
    if device.type != "cuda":
        return Adam(parameters, lr=rate, weight_decay=l2)
    # A number would be part of a captured graph for good; a tensor on the device is read at every replay.
    on_device = torch.tensor(rate, device=device)
    return Adam(parameters, lr=on_device, weight_decay=l2, fused=True, capturable=True)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Change the learning rate, in graphs that are already captured as well."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Average:
    """The exponential moving average of the weights, step by step.

    It starts from zero and is corrected for that where it is used, as Adam corrects its means: so it is an
    average of the weights that there were, and the random ones of the start have no part in it.

    Args:
        parameters: The weights.
        decay: How much of the average each step keeps.

    Attributes:
        values: The average, not yet corrected, each where it stays: a captured step writes there.
    """

    def __init__(self, parameters: list[nn.Parameter], decay: float):
        self.parameters, self.decay = parameters, decay
        self.values: list[Tensor] = [torch.zeros_like(p) for p in parameters]
        self._update = get_ema_multi_avg_fn(decay)

    def update(self) -> None:
        """Take in the weights after one more step."""
        self._update(self.values, self.parameters, 0)

    @contextmanager
    def applied(self, steps: int) -> Iterator[None]:
        """Inside, the weights are the average after this many steps; in place, as graphs need it."""
        weights = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.values, strict=True):
                parameter.copy_(value / (1 - self.decay**steps))
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, weight in zip(self.parameters, weights, strict=True):
                    parameter.copy_(weight)


class Step:
    """A training step, run operation by operation.

        step = Step(optimizer, loss, clip=15.0)
        loss, right, norm = step(index)

    Between two steps no parameter holds a gradient. On a CPU a step whose loss or gradient is not finite
    changes nothing; on a GPU it would have to be waited for, so there it is for the caller to look at.

    Args:
        optimizer: Of the parameters to train, all on one device.
        loss: From the numbers of examples to their loss and how many are right.
        clip: The largest global norm of the gradient.
        average: What takes in the weights after each step, if anything.

    Attributes:
        padded: Whether batches should come padded to few shapes, because each is captured.
    """

    padded = False

    def __init__(self, optimizer: Optimizer, loss: Loss, clip: float, average: Average | None = None):
        self.optimizer, self.loss, self.clip, self.average = optimizer, loss, clip, average
        self.parameters: list[nn.Parameter] = [p for g in optimizer.param_groups for p in g["params"]]
        self.device = self.parameters[0].device

    def __call__(self, index: Tensor, shape: Shape | None = None, weight: float = 1.0) -> Tensor:
        """Take a step.

        Args:
            index: [B], the numbers of the examples, on any device.
            shape: How far to pad them; `None` means as far as they need.
            weight: What the loss counts for, where these are not all examples of the step.

        Returns:
            [3], on the device, which is not waited for: their loss before the step, how many were right, and
            the gradient's norm before it was clipped.
        """
        return self.run(index.to(self.device), shape, weight)

    def run(self, index: Tensor, shape: Shape | None, weight: float = 1.0) -> Tensor:
        """The operations of a step, for an index on the device."""
        loss, right = self.loss(index, shape)
        (loss if weight == 1 else loss * weight).backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip, error_if_nonfinite=False)
        # Detached: whoever keeps the result must not keep the step's autograd graph with it.
        result = torch.stack([loss.detach(), right.to(loss.dtype), norm.to(loss.dtype)])
        if result.is_cuda or result.isfinite().all():
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
        self.optimizer.zero_grad()
        return result


@dataclass(frozen=True)
class Captured:
    """A step at one shape as a graph.

    Attributes:
        graph: What to replay.
        index: [B], where the graph reads which examples to take.
        result: [3], where it leaves what `Step` returns.
    """

    graph: torch.cuda.CUDAGraph
    index: Tensor
    result: Tensor

    def replay(self, index: Tensor) -> Tensor:
        """Take a step; returns its result."""
        # From pinned memory the host need not wait for the copy; PyTorch holds that memory until it is done.
        self.index.copy_(index if index.is_cuda else index.pin_memory(), non_blocking=True)
        self.graph.replay()
        return self.result.clone()  # the next replay, of any graph, may write there


class CapturedStep(Step):
    """A training step on a CUDA device, replayed as one graph wherever a shape returns.

    The first step of a shape is run operation by operation: a real step, and the warm-up that capturing
    needs (libraries choose their kernels, Adam makes its state). At the second the step is captured, which
    executes nothing, and replayed, and so it is at every later one.

    A step that waits for the device cannot be captured. That is found out at the first attempt, before
    anything is harmed, and told in one line of the log; from there on steps run operation by operation.

    Args:
        optimizer: As `adam` makes it: capturable, with the learning rate on the device.
        loss: From the numbers of examples to their loss and how many are right; see `Loss`.
        clip: The largest global norm of the gradient.
        average: What takes in the weights after each step, if anything.
        most: The largest number of graphs.
    """

    padded = True

    def __init__(
        self,
        optimizer: Optimizer,
        loss: Loss,
        clip: float,
        average: Average | None = None,
        most: int = MOST_GRAPHS,
    ):
        super().__init__(optimizer, loss, clip, average)
        self.most = most
        self.met: set[tuple[int, Shape]] = set()
        self.graphs: dict[tuple[int, Shape], Captured] = {}
        # One stream for warm-up and capture, so that what libraries keep per stream exists before a capture.
        self.stream = torch.cuda.Stream(self.device)
        # One pool of memory for all graphs: they run one after the other, and none reads what another left.
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, index: Tensor, shape: Shape | None = None, weight: float = 1.0) -> Tensor:
        """Take a step, as `Step` does; only where `shape` is given and `weight` is 1 can it be replayed."""
        if shape is None or weight != 1:
            return self.aside(index, shape, weight)
        key = (len(index), shape)
        if key in self.met and key not in self.graphs and self.padded and len(self.graphs) < self.most:
            self.capture(*key)
        if key in self.graphs:
            return self.graphs[key].replay(index)
        self.met.add(key)
        return self.aside(index, shape)

    def aside(self, index: Tensor, shape: Shape | None, weight: float = 1.0) -> Tensor:
        """Run the operations one by one on the stream of the captures, in order with the current one."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            result = self.run(index.to(self.device), shape, weight)
        current.wait_stream(self.stream)
        return result

    def capture(self, size: int, shape: Shape) -> None:
        """Capture the step for batches of this size and shape, if it can be captured."""
        graph, index = torch.cuda.CUDAGraph(), torch.zeros(size, dtype=torch.long, device=self.device)
        # No parameter holds a gradient here or at the end of `run`: the graph's own live and die inside the
        # pool, written before they are read, and a step outside of the graph never meets them.
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream), waiting_refused():
                result = self.run(index, shape)
        except RuntimeError as error:
            self.optimizer.zero_grad()
            if WAITS not in str(error):
                reason = str(error).split("\n")[0]
                raise RunError(
                    f"the step cannot be captured as a CUDA graph ({reason}): set train.capture=false"
                ) from error
            self.padded = False
            logging.getLogger(__name__).warning(
                "the training step runs without a CUDA graph: the model waits for the device in each step, "
                "as an NSE does on the backend lean, which reads the lengths"
            )
        else:
            self.graphs[size, shape] = Captured(graph, index, result)


@contextmanager
def waiting_refused() -> Iterator[None]:
    """Inside, operations that wait for a CUDA device raise a RuntimeError instead, before they touch it.

    Left to CUDA, such an operation breaks a capture that is under way, and PyTorch does not recover from
    that: the stream, the allocator and the random generator go on believing in it.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
