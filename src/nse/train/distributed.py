"""Data-parallel training and scoring: `torchrun` starts the processes, Lightning Fabric connects them.

Every process takes its shard of every batch. The losses are weighted so that the averaged gradient is that of
the whole batch. If a process dies, the others end with an error instead of waiting.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nse.errors import RunError
from nse.tasks.task import compute_batch_scores
from nse.text.sampler import draw_bounded_batches
from nse.text.tensors import LabelledRows
from nse.train.signals import StopRequest, TrainingInterrupted, ignore_sigterm

T = TypeVar("T")

EVAL_BATCH_SIZE = 512

CONNECTION_ERROR = re.compile(r"gloo|nccl|connection (closed|reset) by peer|broken pipe|tcpstore", re.I)
"""Messages of failed communication, whose exception types differ."""


class BatchShard(NamedTuple):
    """Part of a batch that one process computes."""

    indices: Tensor  # of the examples; never empty, because every process takes part in every step
    size: int  # how many of them count; 0 if the index only fills up
    loss_weight: float  # factor of this process's mean loss


def is_rank_zero() -> bool:
    """Return whether this process writes files and results: the only one, or rank 0 of `torchrun`."""
    return int(os.environ.get("RANK", "0")) == 0


def leave_process_group() -> None:
    """Leave the process group and end its threads before Python shuts down.

    A gloo thread releases its last tensor a little after the step that used it, and needs Python for that.
    Python would end such a thread at shutdown, which aborts a process that has finished its work.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
        gc.collect()  # a wrapped model is part of a reference cycle that keeps the threads alive


def find_fastest_device() -> torch.device:
    """Return the first GPU if there is one, otherwise the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps", 0) if torch.backends.mps.is_available() else torch.device("cpu")


class Processes:
    """Processes that train one model: those that `torchrun` describes in the environment, or this one."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.size > 1 else 0
        if self.size == 1:
            self.device = find_fastest_device()
            return
        from lightning.fabric import Fabric  # takes seconds, and one process does not need it

        for name in ("lightning.fabric", "lightning.pytorch"):  # they print a greeting in every process
            logging.getLogger(name).setLevel(logging.WARNING)
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        try:
            nodes = self.size // local_size
            self.fabric = Fabric(accelerator="auto", devices=local_size, num_nodes=nodes, strategy="ddp")
            self.fabric.launch()
            self.device = self.fabric.device
        except (RuntimeError, ValueError) as error:
            reason = str(error).split("\n")[0]
            raise RunError(f"{self.size} processes cannot be connected: {reason}") from error
        atexit.register(leave_process_group)
        # Gradients on a GPU use NCCL; agreeing on a signal or a save must not wait for the device.
        self.gloo = dist.new_group(backend="gloo")

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Move a model to its device and return the module to call in training steps."""
        # A single process needs no wrapper, and a CUDA graph cannot capture Fabric's.
        return self.fabric.setup_module(model) if self.size > 1 else model.to(self.device)

    def shard_batch(self, index: Tensor) -> BatchShard:
        """Return this process's part of a batch."""
        shard = index[self.rank :: self.size]
        # Gradients are averaged over processes, so a shard is weighted by its size relative to an even split.
        weight = self.size * len(shard) / len(index) if self.size > 1 else 1.0
        return BatchShard(shard if len(shard) else index[:1], len(shard), weight)

    def all_max(self, *values: int) -> list[int]:
        """Return the maximum of each value over the processes."""
        maxima = torch.tensor(values)
        if self.size > 1:
            dist.all_reduce(maxima, op=dist.ReduceOp.MAX, group=self.gloo)
        return maxima.tolist()

    def all_sum(self, *values: float) -> list[float]:
        """Return the sum of each value over the processes."""
        return self.all_reduce(torch.tensor(values, dtype=torch.float64)).tolist()

    def all_reduce(self, values: Tensor) -> Tensor:
        """Sum a CPU tensor over the processes, in place; all get the same bits."""
        if self.size > 1:
            dist.all_reduce(values, group=self.gloo)
        return values

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values = [value] * self.size
        dist.all_gather_object(values, value, group=self.gloo)
        return values

    def on_rank_zero(self, function: Callable[[], T]) -> T:
        """Call a function in rank 0 alone and return its result everywhere; if it fails, the others exit."""
        if self.size == 1:
            return function()
        message: list[Any] = [None, True]  # its result, and whether it succeeded
        failure: Exception | None = None
        if self.rank == 0:
            try:
                message[0] = function()
            except Exception as error:
                failure, message[1] = error, False
        dist.broadcast_object_list(message, src=0, group=self.gloo)
        if failure:
            raise failure
        if not message[1]:
            raise SystemExit(2)
        return cast(T, message[0])

    def rank_zero_first(self, function: Callable[[], T]) -> T:
        """Call a function in every process, on each machine first in local rank 0, which fills the caches."""
        is_first = self.size == 1 or self.fabric.local_rank == 0
        results = [function()] if is_first else []
        self.all_max(0)  # as a barrier
        return results[0] if is_first else function()

    @contextmanager
    def explain_lost_process(self, describe_checkpoint: Callable[[], str]) -> Iterator[None]:
        """Raise a RunError if another process dies in the block."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not CONNECTION_ERROR.search(str(error)):
                raise
            ignore_sigterm()  # `torchrun` sends it to the remaining processes
            message = f"another process of this run died; {describe_checkpoint()}"
            raise RunError(message, ("resume",)) from error


@torch.no_grad()
def compute_scores(
    model: nn.Module,
    split: LabelledRows,
    processes: Processes | None = None,
    stop_request: StopRequest | None = None,
    score_batch: Callable[[LabelledRows], Tensor] | None = None,
) -> Tensor:
    """Compute a model's scores of a split [N, labels] on the host, in the order of its rows.

    Processes share each batch, and all raise `TrainingInterrupted` if one has a stop request. `score_batch`
    computes the scores of some rows [B, labels]; by default it calls the model.
    """
    model.eval()
    score_batch = score_batch or partial(compute_batch_scores, None, model)
    device, scores = split.labels.device, torch.zeros(len(split.labels), 1)
    for batch_index in draw_bounded_batches(split, EVAL_BATCH_SIZE):
        index = batch_index[processes.rank :: processes.size] if processes else batch_index
        # A process without a row of this batch still scores one, to know the number of labels.
        row_scores = score_batch(split.select((index if len(index) else batch_index[:1]).to(device)))
        row_scores = row_scores.float().cpu()
        if scores.shape[1] != row_scores.shape[1]:
            scores = torch.zeros(len(split.labels), row_scores.shape[1])
        scores[index] = row_scores[: len(index)]
        if processes and stop_request and (code := processes.all_max(stop_request.exit_code)[0]):
            raise TrainingInterrupted(code)
    return processes.all_reduce(scores) if processes else scores
