"""Many processes train one model: `torchrun` starts them, Lightning Fabric joins them, and here they agree.

Every process takes its share of every batch, and the losses are weighted so that the gradient is that of the
whole batch. A process that dies ends the others with a clear error, not with a wait.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor, nn

from nse.errors import RunError
from nse.train.signals import ignore_termination

T = TypeVar("T")

LOST = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "broken pipe", "tcpstore")
"""What the messages of communication that failed have in common; their types differ from one to the next."""


class Share(NamedTuple):
    """One process's part of a batch."""

    numbers: Tensor  # of the examples; never none, because every process takes part in every step
    size: int  # how many of them count
    weight: float  # what their mean loss counts for in this process


def leads() -> bool:
    """Say whether this is the process that writes: the only one, or the first of `torchrun`'s."""
    return int(os.environ.get("RANK", "0")) == 0


def part() -> None:
    """Leave the other processes, and end the threads that talk to them, while Python is whole.

    A thread of gloo lets go of its last tensor a little after the step that used it, and needs Python for
    that. Python on its way out ends such a thread, which aborts a process whose work was done.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
        gc.collect()  # a wrapped model is part of a cycle, and keeps the threads as long as it is there


class Team:
    """The processes of a run, as `torchrun` tells them in the environment, or one alone; rank 0 writes."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.size > 1 else 0
        if self.size == 1:
            self.fabric = Fabric(accelerator="auto", devices=1)
            return
        for name in ("lightning.fabric", "lightning.pytorch"):  # which greet from every process
            logging.getLogger(name).setLevel(logging.WARNING)
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        try:
            nodes = self.size // here
            self.fabric = Fabric(accelerator="auto", devices=here, num_nodes=nodes, strategy="ddp")
            self.fabric.launch()
        except (RuntimeError, ValueError) as error:
            reason = str(error).split("\n")[0]
            raise RunError(f"{self.size} processes cannot be joined: {reason}") from error
        atexit.register(part)
        # What processes agree on travels apart from the gradients: on a GPU those go another way (NCCL), and
        # agreeing must not wait for the device.
        self.group = dist.new_group(backend="gloo")

    @property
    def device(self) -> torch.device:
        """The device on which this process computes."""
        return self.fabric.device

    def set_up(self, model: nn.Module) -> nn.Module:
        """Put a model on its device, and return it as steps must call it."""
        wrapped = self.fabric.setup_module(model)
        # Alone, a wrapper would only pass calls on, in ways that a CUDA graph cannot hold.
        return wrapped if self.size > 1 else wrapped.module

    def share(self, index: Tensor) -> Share:
        """Return this process's part of a batch."""
        mine = index[self.rank :: self.size]
        # Gradients are averaged over the processes, so a share counts by its part of an even one.
        weight = self.size * len(mine) / len(index) if self.size > 1 else 1.0
        return Share(mine if len(mine) else index[:1], len(mine), weight)

    def most(self, *values: int) -> list[int]:
        """Return the largest of each value over the processes."""
        together = torch.tensor(values)
        if self.size > 1:
            dist.all_reduce(together, op=dist.ReduceOp.MAX, group=self.group)
        return together.tolist()

    def sum(self, *values: float) -> list[float]:
        """Return the sum of each value over the processes."""
        return self.add(torch.tensor(values, dtype=torch.float64)).tolist()

    def add(self, values: Tensor) -> Tensor:
        """Sum a tensor on the host over the processes; the same bits in each."""
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def gather(self, thing: T) -> list[T]:
        """Return what each process has, in their order."""
        if self.size == 1:
            return [thing]
        things = [thing] * self.size
        dist.all_gather_object(things, thing, group=self.group)
        return things

    def lead(self, act: Callable[[], T]) -> T:
        """Return what an act gives that the first process does alone; if it fails, the others just end."""
        if self.size == 1:
            return act()
        result: list[Any] = [None, True]  # what came of it, and whether anything did
        failed: Exception | None = None
        if self.rank == 0:
            try:
                result[0] = act()
            except Exception as error:
                failed, result[1] = error, False
        dist.broadcast_object_list(result, src=0, group=self.group)
        if failed:
            raise failed
        if not result[1]:
            raise SystemExit(2)
        return cast(T, result[0])

    def in_turn(self, act: Callable[[], T]) -> T:
        """Let every process act, the first of each machine first: the others find what it left in caches."""
        first = self.size == 1 or self.fabric.local_rank == 0
        found = [act()] if first else []
        self.most(0)
        return found[0] if first else act()

    @contextmanager
    def together(self, left: Callable[[], str]) -> Iterator[None]:
        """End this process with an error where another dies in the block; `left` says what is left."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not any(word in str(error).lower() for word in LOST):
                raise
            ignore_termination()  # which `torchrun` is sending to all that are left
            raise RunError(f"another process of this run died; {left()}", ("resume",)) from error
