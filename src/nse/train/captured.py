"""A training step, run operation by operation or replayed as one CUDA graph.

Small models on a fast card spend most of a step launching kernels. A CUDA graph launches them all at once:
picking the batch out of the data, forward, loss, backward, clipping and Adam. It computes what was captured,
with the same addresses and shapes, so there is one graph for each shape of batch, and whatever changes from
step to step (which examples, the learning rate, the state of the random generator) lies in the card's memory.
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

from nse.errors import RunError

Shape = tuple[int, ...]
"""How far each text of a batch is padded."""

Loss = Callable[[Tensor, Shape | None], Tensor]
"""From the numbers of examples [B], on the device, and how far to pad them, to their loss.

For a graph, whatever else it reads (data, weights) must stay where it is on the device, and it must not wait
for the device: no `.item()`, no `.cpu()`, no shape that depends on values.
"""

MOST_GRAPHS = 64
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


class Step:
    """A training step, run operation by operation.

        step = Step(optimizer, loss, clip=15.0)
        loss = step(index)

    Between two steps no parameter holds a gradient.

    Args:
        optimizer: Of the parameters to train, all on one device.
        loss: From the numbers of examples to their loss.
        clip: The largest global norm of the gradient.

    Attributes:
        padded: Whether batches should come padded to few shapes, because each is captured.
    """

    padded = False

    def __init__(self, optimizer: Optimizer, loss: Loss, clip: float):
        self.optimizer, self.loss, self.clip = optimizer, loss, clip
        self.parameters: list[nn.Parameter] = [p for g in optimizer.param_groups for p in g["params"]]
        self.device = self.parameters[0].device

    def __call__(self, index: Tensor, shape: Shape | None = None) -> Tensor:
        """Take a step.

        Args:
            index: [B], the numbers of the examples, on any device.
            shape: How far to pad them; `None` means as far as they need.

        Returns:
            Their loss before the step, on the device, which is not waited for.
        """
        return self.run(index.to(self.device), shape)

    def run(self, index: Tensor, shape: Shape | None) -> Tensor:
        """The operations of a step, for an index on the device."""
        loss = self.loss(index, shape)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.clip, error_if_nonfinite=False)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()  # whoever keeps it must not keep the step's autograd graph with it


@dataclass(frozen=True)
class Captured:
    """A step at one shape as a graph.

    Attributes:
        graph: What to replay.
        index: [B], where the graph reads which examples to take.
        loss: Where it leaves their loss.
    """

    graph: torch.cuda.CUDAGraph
    index: Tensor
    loss: Tensor

    def replay(self, index: Tensor) -> Tensor:
        """Take a step; returns the loss."""
        # From pinned memory the host need not wait for the copy; PyTorch holds that memory until it is done.
        self.index.copy_(index if index.is_cuda else index.pin_memory(), non_blocking=True)
        self.graph.replay()
        return self.loss.clone()  # the next replay, of any graph, may write there


class CapturedStep(Step):
    """A training step on a CUDA device, replayed as one graph wherever a shape returns.

    The first step of a shape is run operation by operation: a real step, and the warm-up that capturing
    needs (libraries choose their kernels, Adam makes its state). At the second the step is captured, which
    executes nothing, and replayed, and so it is at every later one.

    A step that waits for the device cannot be captured. That is found out at the first attempt, before
    anything is harmed, and told in one line of the log; from there on steps run operation by operation.

    Args:
        optimizer: As `adam` makes it: capturable, with the learning rate on the device.
        loss: From the numbers of examples to their loss; see `Loss` for what it may do.
        clip: The largest global norm of the gradient.
        most: The largest number of graphs.
    """

    padded = True

    def __init__(self, optimizer: Optimizer, loss: Loss, clip: float, most: int = MOST_GRAPHS):
        super().__init__(optimizer, loss, clip)
        self.most = most
        self.met: set[tuple[int, Shape]] = set()
        self.graphs: dict[tuple[int, Shape], Captured] = {}
        # One stream for warm-up and capture, so that what libraries keep per stream exists before a capture.
        self.stream = torch.cuda.Stream(self.device)
        # One pool of memory for all graphs: they run one after the other, and none reads what another left.
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, index: Tensor, shape: Shape | None = None) -> Tensor:
        """Take a step, as `Step` does; only where `shape` is given can it be replayed."""
        if shape is None:
            return self.aside(index, shape)
        key = (len(index), shape)
        if key in self.met and key not in self.graphs and self.padded and len(self.graphs) < self.most:
            self.capture(*key)
        if key in self.graphs:
            return self.graphs[key].replay(index)
        self.met.add(key)
        return self.aside(index, shape)

    def aside(self, index: Tensor, shape: Shape | None) -> Tensor:
        """Run the operations one by one on the stream of the captures, in order with the current one."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            loss = self.run(index.to(self.device), shape)
        current.wait_stream(self.stream)
        return loss

    def capture(self, size: int, shape: Shape) -> None:
        """Capture the step for batches of this size and shape, if it can be captured."""
        graph, index = torch.cuda.CUDAGraph(), torch.zeros(size, dtype=torch.long, device=self.device)
        # No parameter holds a gradient here or at the end of `run`: the graph's own live and die inside the
        # pool, written before they are read, and a step outside of the graph never meets them.
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream), waiting_refused():
                loss = self.run(index, shape)
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
            self.graphs[size, shape] = Captured(graph, index, loss)


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
