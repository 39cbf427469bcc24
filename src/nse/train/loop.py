"""The training loop, in sight: Adam, clipping, the best epoch on dev, and every other split read once."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

from nse.errors import RunError
from nse.tasks.task import Examples, Task
from nse.text.batching import Pairs, batches
from nse.train.captured import CapturedStep, Shape, Step, adam, set_rate
from nse.train.progress import Progress

EVALUATION_BATCH = 512


@dataclass
class Outcome:
    """What a training run gives.

    Attributes:
        model: The trained model, with the weights of the best epoch.
        accuracy: Of each split but train, at that epoch.
        epoch: The best one on dev, counted from 1.
        seconds: Of training, evaluation on dev included.
    """

    model: nn.Module
    accuracy: dict[str, float]
    epoch: int
    seconds: float

    @property
    def parameters(self) -> int:
        """How many numbers the model learned."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)


def fit(
    task: Task,
    recipe: Any,
    examples: Examples,
    progress: Progress,
    on_epoch: Callable[[dict[str, float]], None] = lambda metrics: None,
) -> Outcome:
    """Train a model by its recipe.

    Args:
        task: The task.
        recipe: Of the task's own type.
        examples: The data.
        progress: Where to show how far it is.
        on_epoch: Called after each epoch with its metrics.
    """
    training = recipe.train
    fabric = Fabric(accelerator="auto", devices=1)
    torch.manual_seed(recipe.seed)
    order = torch.Generator().manual_seed(recipe.seed)
    # Fabric brings the model to its device. On one device its wrappers would only pass calls on, in ways
    # that a CUDA graph cannot hold, so what they wrap is trained.
    model = fabric.setup_module(task.model(recipe, examples)).module
    optimizer = adam(model.parameters(), training.rate, training.l2, fabric.device)
    splits = {name: split.to(fabric.device) for name, split in examples.splits.items()}
    train, on_host = splits["train"], examples.splits["train"]

    def loss_of(index: Tensor, shape: Shape | None) -> Tensor:
        batch = train.select(index, shape)
        return F.cross_entropy(task.scores(model, batch), batch.labels)

    captures = training.capture and fabric.device.type == "cuda"
    take_step = (CapturedStep if captures else Step)(optimizer, loss_of, training.clip)
    lengths = on_host.lengths if training.buckets else None
    steps_per_epoch = math.ceil(len(train.labels) / training.batch)
    total = training.epochs * steps_per_epoch
    started, best, best_epoch, step = time.perf_counter(), -1.0, 0, 0
    best_weights: dict[str, Any] = {}

    progress.begin(total)
    for epoch in range(1, training.epochs + 1):
        model.train()
        for index in batches(len(train.labels), training.batch, order, lengths):
            set_rate(optimizer, rate_at(training.rate, training.schedule, step / total))
            loss = take_step(index, on_host.shape(index) if take_step.padded else None)
            step += 1
            progress.step(epoch, step, loss)
        if not loss.isfinite():
            raise RunError(
                f"the loss is {loss.item()} at step {step}, epoch {epoch}: try a smaller train.rate"
            )
        dev = accuracy(task, model, splits["dev"])
        on_epoch({"epoch": epoch, "step": step, "loss": loss.item(), "dev": dev})
        progress.epoch(epoch, dev)
        if dev > best:
            best, best_epoch, best_weights = dev, epoch, copy.deepcopy(model.state_dict())
    seconds = time.perf_counter() - started
    progress.end()

    model.load_state_dict(best_weights)
    others = {name: split for name, split in splits.items() if name not in ("train", "dev")}
    reported = {name: accuracy(task, model, split) for name, split in others.items()}
    return Outcome(model, {"dev": best, **reported}, best_epoch, seconds)


def rate_at(rate: float, schedule: str, done: float) -> float:
    """The learning rate when this part of the run is done."""
    return rate * (1 - done) if schedule == "linear" else rate


@torch.no_grad()
def accuracy(task: Task, model: nn.Module, split: Pairs) -> float:
    """The part of a split's labels that the model gets right."""
    model.eval()
    right = 0
    for index in batches(len(split.labels), EVALUATION_BATCH):
        batch = split.select(index.to(split.labels.device))
        right += int((task.scores(model, batch).argmax(dim=-1) == batch.labels).sum())
    return right / max(len(split.labels), 1)
