"""A training step, run operation by operation or replayed as one CUDA graph; and a look at what steps gave.

Small models on a fast card spend most of a step launching kernels. A graph launches them all at once: picking
the batch, forward, loss, backward, clipping, Adam and the average of the weights. It computes what was
captured, with the same addresses and shapes: there is one for each shape of batch, and what changes from step
to step (which examples, the learning rate, the random generator's state) lies in the card's memory.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from nse.errors import RunError
from nse.ops.dispatch import choose_backend
from nse.text.tensors import Shape

Loss = Callable[[Tensor, Shape | None], tuple[Tensor, Tensor]]
"""From the numbers of examples [B] and how far to pad them to their loss and how many are right.

For a graph, whatever it reads must stay where it is on the device, and it must not wait for the device: no
`.item()`, no `.cpu()`, no shape that depends on values.
"""

MOST_GRAPHS = 96
"""Shapes beyond so many are run operation by operation: a graph costs some memory and time to capture."""

WAITS = "called a synchronizing CUDA operation"  # what PyTorch says when it was asked to refuse them

EVERY = 50  # steps between two looks at their results on a GPU
SHOWN = 8  # so many examples of a batch are named
TRY = "try a smaller train.rate or train.clip"


def adam(parameters: Iterable[nn.Parameter], rate: float, l2: float, device: torch.device) -> Adam:
    """Return Adam with coupled weight decay; on CUDA as one kernel that a graph can hold."""
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
    """The exponential moving average of the weights, of which each step keeps `decay`.

    It starts from zero, as Adam's means do, and is corrected where it is used: the random weights of the
    start have no part in it.
    """

    def __init__(self, parameters: list[nn.Parameter], decay: float):
        self.parameters, self.decay = parameters, decay
        # Not yet corrected, each where it stays: a captured step writes there.
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


class Update:
    """What a step does with its gradients: clip them, let Adam change the weights, and average those.

    The two kernels of `nse.ops.triton.adam` do it all where they can: on a CUDA device that can run them
    (NSE_BACKEND=lean does without), with float32 weights and an optimizer as `adam` makes it. Elsewhere, and
    in a step in which some weights have no gradient, PyTorch does it.
    """

    def __init__(self, optimizer: Optimizer, clip: float, average: Average | None):
        self.optimizer, self.clip, self.average = optimizer, clip, average
        self.parameters: list[nn.Parameter] = [p for g in optimizer.param_groups for p in g["params"]]
        self.kernels = self.parameters[0].is_cuda and self.covered()

    def covered(self) -> bool:
        """Say whether the kernels compute what these weights, this optimizer and this average ask for."""
        first, *others = self.optimizer.param_groups
        return (
            type(self.optimizer) is Adam
            and not others
            and bool(first["capturable"] and first["fused"] and isinstance(first["lr"], Tensor))
            and not (first["amsgrad"] or first["maximize"] or first.get("decoupled_weight_decay", False))
            and all(p.dtype == torch.float32 and p.is_contiguous() for p in self.parameters)
            and (self.average is None or [*map(id, self.average.parameters)] == [*map(id, self.parameters)])
            and choose_backend("auto", self.parameters[0].device) == "triton"
        )

    def __call__(self, loss: Tensor) -> Tensor:
        """Change the weights by their gradients, which are used up; return the norm before clipping, [].

        On a CPU, where the loss or a gradient is not finite, nothing changes.
        """
        if self.kernels and all(p.grad is not None for p in self.parameters):
            return self.by_kernels()
        return self.by_pytorch(loss)

    def by_pytorch(self, loss: Tensor) -> Tensor:
        """Clip, step and average, one after the other."""
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip, error_if_nonfinite=False)
        if norm.is_cuda or (norm.isfinite() and loss.isfinite()):
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
        return norm

    def by_kernels(self) -> Tensor:
        """Clip, step and average in two kernels."""
        from nse.ops.triton import adam as triton_adam  # only machines with a GPU have triton

        group, states = self.optimizer.param_groups[0], [self.remembered(p) for p in self.parameters]
        return triton_adam.update(
            parameters=self.parameters,
            gradients=[p.grad for p in self.parameters if p.grad is not None],
            means=[state["exp_avg"] for state in states],
            squares=[state["exp_avg_sq"] for state in states],
            steps=[state["step"] for state in states],
            averages=self.average.values if self.average else None,
            rate=group["lr"],
            l2=group["weight_decay"],
            clip=self.clip,
            decay=self.average.decay if self.average else 0.0,
            betas=group["betas"],
            eps=group["eps"],
        )

    def remembered(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return what Adam remembers of a parameter, made as Adam makes it where there is nothing yet.

        Adam would make it in its first step, and the second, the kernels' first, may be captured already:
        they have to be compiled and loaded before.
        """
        state: dict[str, Tensor] = self.optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class Step:
    """A training step, run operation by operation.

        loss, right, norm = Step(optimizer, loss, clip=15.0)(index)

    All parameters are on one device, and between two steps none holds a gradient. On a CPU a step whose loss
    or gradient is not finite changes nothing; on a GPU it is not waited for, and for the caller to look at.
    """

    padded = False  # whether batches should come padded to few shapes, because each is captured

    def __init__(self, optimizer: Optimizer, loss: Loss, clip: float, average: Average | None = None):
        self.optimizer, self.loss, self.clip, self.average = optimizer, loss, clip, average
        self.update = Update(optimizer, clip, average)
        self.parameters = self.update.parameters
        self.device = self.parameters[0].device

    def __call__(self, index: Tensor, shape: Shape | None = None, weight: float = 1.0) -> Tensor:
        """Take a step with the examples of these numbers [B], padded to a shape or as far as they need.

        The result [3] is not waited for: their loss before the step, how many were right, and the gradient's
        norm before it was clipped. Where these are not all examples of the step, the loss counts by `weight`.
        """
        return self.run(index.to(self.device), shape, weight)

    def run(self, index: Tensor, shape: Shape | None, weight: float = 1.0) -> Tensor:
        """Run the operations of a step, for an index on the device."""
        loss, right = self.loss(index, shape)
        (loss if weight == 1 else loss * weight).backward()
        # Detached: whoever keeps the result must not keep the step's autograd graph with it.
        loss = loss.detach()
        norm = self.update(loss)
        self.optimizer.zero_grad()
        return torch.stack([loss, right.to(loss.dtype), norm.to(loss.dtype)])


@dataclass(frozen=True)
class Captured:
    """A step at one shape as a graph."""

    graph: torch.cuda.CUDAGraph
    index: Tensor  # [B], where the graph reads which examples to take
    result: Tensor  # [3], where it leaves what `Step` returns

    def replay(self, index: Tensor) -> Tensor:
        """Take a step; returns its result."""
        # From pinned memory the host need not wait for the copy; PyTorch holds that memory until it is done.
        self.index.copy_(index if index.is_cuda else index.pin_memory(), non_blocking=True)
        self.graph.replay()
        return self.result.clone()  # the next replay, of any graph, may write there


class CapturedStep(Step):
    """A training step on a CUDA device, replayed as one graph wherever a shape returns.

    The first step of a shape is run operation by operation: a real step, and the warm-up that capturing
    needs (libraries choose their kernels, Adam makes its state). The second is captured, which executes
    nothing, and replayed, as is every later one. The optimizer must be as `adam` makes it.

    A step that waits for the device cannot be captured. That is found out at the first attempt, before
    anything is harmed, and told in one line of the log; from there on steps run operation by operation.
    """

    padded = True

    def __init__(
        self, optimizer: Optimizer, loss: Loss, clip: float, average: Average | None = None, most: int = 0
    ):
        super().__init__(optimizer, loss, clip, average)
        self.most = most or MOST_GRAPHS
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
    """Let operations that wait for a CUDA device raise a RuntimeError in the block, before they touch it.

    Such an operation would break a capture that is under way, and PyTorch does not recover from that: the
    stream, the allocator and the random generator go on believing in it.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


class NotFiniteError(RunError):
    """A loss, a gradient, a score or a number that is to be saved is NaN or infinite."""


@dataclass
class Sums:
    """Over the examples of an epoch that this process has seen, before each step and with dropout on."""

    loss: float = 0.0
    right: float = 0.0
    examples: int = 0


class Seen(NamedTuple):
    """A step that was taken."""

    where: str  # which one, for people
    batch: Tensor  # the numbers of its examples
    size: int  # how many of them this process had
    result: Tensor  # [3], as `Step` returns it

    def describe(self) -> str:
        """Name the step, and the first of its examples."""
        first = ", ".join(map(str, self.batch[:SHOWN].tolist()))
        return f"{self.where} (examples {first}{', ...' if len(self.batch) > SHOWN else ''})"


class Watch:
    """Adds up the results of steps every so often, on a GPU those of the period before: it is not to wait."""

    def __init__(self, sums: Sums, every: int):
        self.sums, self.every = sums, every
        self.unseen: list[Seen] = []
        self.coming: tuple[list[Seen], Tensor, torch.cuda.Event | None] | None = None

    def add(self, seen: Seen) -> None:
        """Take one more step's result, and look at earlier ones if it is time."""
        self.unseen.append(seen)
        if len(self.unseen) >= self.every:
            self.turn() if seen.result.is_cuda else self.look()

    def look(self) -> None:
        """Wait for all results and add them up; one that is not finite is an error."""
        self.turn()
        self.turn()  # at what the first one sent for

    def turn(self) -> None:
        """Send for results that are unseen without waiting for them, and add up those sent for before."""
        before, self.coming = self.coming, None
        if self.unseen:
            results, there = torch.stack([seen.result for seen in self.unseen]), None
            if results.is_cuda:
                on_device, results = results, torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
                results.copy_(on_device, non_blocking=True)
                there = torch.cuda.Event()
                there.record()
            self.coming, self.unseen = (self.unseen, results, there), []
        if before:
            self.add_up(*before)

    def add_up(self, steps: list[Seen], results: Tensor, there: torch.cuda.Event | None) -> None:
        """Add up results [N, 3] once they are there."""
        if there is not None:
            there.synchronize()
        for seen, (loss, right, norm) in zip(steps, results.tolist(), strict=True):
            for what, value in (("loss", loss), ("gradient's norm", norm)):
                if not math.isfinite(value):
                    raise NotFiniteError(f"the {what} is {value} at {seen.describe()}: {TRY}")
            self.sums.loss += loss * seen.size
            self.sums.right += right if seen.size else 0
            self.sums.examples += seen.size
