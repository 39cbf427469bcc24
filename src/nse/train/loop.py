"""The training loop, in sight: Adam, clipping, the best epoch on dev, and every other split read once."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor, nn

from nse.errors import RunError
from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Task, scores_of
from nse.text.sampler import batches, shares
from nse.text.tensors import Labelled, Shape
from nse.train import watch
from nse.train.captured import Average, CapturedStep, Step, adam, set_rate
from nse.train.distributed import Team
from nse.train.keeper import Keeper
from nse.train.progress import Progress
from nse.train.signals import Stopped
from nse.train.state import TO_START_OVER, Best, State, learned, put
from nse.train.threads import same_threads_after, take_threads

EVALUATION_BATCH = 512

STREAM = 1_000_003
"""How far apart the seeds of two processes are: each has its own dropout."""


@dataclass
class Outcome:
    """What a training run gives.

    Attributes:
        model: The trained model, with the weights of the best epoch.
        figures: At that epoch, by measure and split; accuracy of train while training, so with dropout on.
        epoch: The best one on dev, counted from 1.
        seconds: Of training, evaluation on dev and saving included.
        metrics: One row per epoch.
    """

    model: nn.Module
    figures: dict[str, dict[str, float]]
    epoch: int
    seconds: float
    metrics: list[dict[str, Any]]

    @property
    def accuracy(self) -> dict[str, float]:
        """Of each split."""
        return self.figures["accuracy"]

    @property
    def parameters(self) -> int:
        """How many numbers the model learned."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def parameters_without_embeddings(self) -> int:
        """The same, less the words' vectors."""
        tables = {id(m.weight) for m in self.model.modules() if isinstance(m, nn.Embedding)}
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad and id(p) not in tables)

    @property
    def seconds_per_epoch(self) -> float:
        """Of pure training, as the median over the epochs."""
        return float(statistics.median(row["seconds"] for row in self.metrics))


def fit(
    task: Task,
    recipe: Any,
    examples: Examples,
    progress: Progress,
    keeper: Keeper | None = None,
    team: Team | None = None,
) -> Outcome:
    """Train a model by its recipe.

    Args:
        task: The task.
        recipe: Of the task's own type.
        examples: The data.
        progress: Where to show how far it is.
        keeper: Where to leave what must not be lost; by default nowhere.
        team: The processes that train together; by default those of `torchrun`, or this one.
    """
    team = team or Team()
    with products(recipe.train.tf32, team.device), same_threads_after():
        return Loop(task, recipe, examples, progress, keeper or Keeper(), team).run()


@contextmanager
def products(tf32: bool, device: torch.device) -> Iterator[None]:
    """Inside, a GPU multiplies in TF32, or in float32."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


class Loop:
    """A training run, its parts those of `fit`; `run` is the loop."""

    def __init__(
        self,
        task: Task,
        recipe: Any,
        examples: Examples,
        progress: Progress,
        keeper: Keeper,
        team: Team,
    ):
        self.task, self.progress, self.keeper, self.team = task, progress, keeper, team
        self.recipe, self.seed = recipe, recipe.seed
        self.training: Training = recipe.train
        self.started = self.clock = time.perf_counter()
        self.examples, self.on_host = examples, examples.splits
        self.splits = {name: split.to(team.device) for name, split in examples.splits.items()}
        rows = len(self.on_host["train"].labels)
        self.total = math.ceil(rows / self.training.batch) * self.training.epochs
        torch.manual_seed(self.seed)
        self.called = team.set_up(task.model(recipe, examples))
        if team.rank:
            torch.manual_seed(self.seed + STREAM * team.rank)
        self.state, self.take_step = self.prepared(team.unwrapped(self.called))
        self.watch = watch.Watch(self.state.sums, 1)
        self.rate_now = self.training.rate

    def prepared(self, model: nn.Module) -> tuple[State, Step]:
        """Whatever trains the model, before the first step."""
        training, device = self.training, self.team.device
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = adam(trained, training.rate, training.l2, device)
        average = Average(trained, training.average) if training.average else None
        state = State(model, optimizer, torch.Generator().manual_seed(self.seed), average)
        captures = training.capture and device.type == "cuda" and self.team.size == 1
        kind = CapturedStep if captures else Step
        return state, kind(optimizer, self.loss, training.clip, average)

    def run(self) -> Outcome:
        """Train, epoch by epoch; then read every split but train and dev, once."""
        packed = self.team.lead(self.keeper.load)
        take_threads(self.recipe, packed, self.team)
        if packed:
            self.refuse_other_place(packed)
            self.state.unpack(packed, self.team, self.seed + STREAM * self.team.rank)
            self.keeper.saved = self.state.step
        self.progress.begin(self.total, self.state.step)
        try:
            while not self.over():
                self.take_steps()
                self.judge()
        except Stopped:
            self.save()
            raise
        except watch.NotFiniteError as error:
            raise RunError(f"{error}; {self.keeper.left()}") from None
        self.progress.end()
        return self.outcome()

    def refuse_other_place(self, packed: dict[str, Any]) -> None:
        """Refuse a packed state whose counts do not fit this run, or each other."""
        epoch, cursor, best = packed["epoch"], packed["cursor"], packed["best"]
        steps = self.total // self.training.epochs
        done = epoch - 1
        examples = sum(process["sums"][2] for process in packed["processes"])
        fits = {
            "epoch": done <= self.training.epochs and done == len(packed["metrics"]),
            "cursor": cursor <= steps,
            "step": packed["step"] == done * steps + cursor,
            "sums": (cursor <= examples <= len(self.on_host["train"].labels)) if cursor else examples == 0,
            "epoch_seconds": (packed["epoch_seconds"] > 1e-9) == (cursor > 0),
            "best.epoch": (0 < best["epoch"] <= done) if done else best["epoch"] == 0,
            "best.scores": not best["epoch"] or len(best["scores"]) == len(self.on_host["dev"].labels),
        }
        if wrong := [name for name, fit in fits.items() if not fit]:
            raise RunError(f"the checkpoint does not fit this run: {', '.join(wrong)}; {TO_START_OVER}")

    def over(self) -> bool:
        """Whether all epochs are done, or dev did not get better for too long."""
        waited = self.state.epoch - 1 - self.state.best.epoch
        out_of_patience = 0 < self.training.patience <= waited
        return self.state.epoch > self.training.epochs or out_of_patience

    def take_steps(self) -> None:
        """Take the steps of the epoch that are not done yet."""
        state, training, rows = self.state, self.training, self.on_host["train"]
        lengths = rows.lengths if training.buckets else None
        groups = rows.groups if training.together else None
        todo = batches(len(rows.labels), training.batch, state.order, lengths, groups)
        # For all steps at once: one by one, they would keep a fast device waiting.
        there = torch.cat(todo).to(self.team.device).split(list(map(len, todo)))
        shapes: Iterable[Shape | None] = repeat(None)
        if self.take_step.padded:
            shapes = rows.shapes(todo, training.multiple)
        self.watch = watch.Watch(state.sums, watch.EVERY if self.team.device.type == "cuda" else 1)
        self.called.train()
        self.clock = time.perf_counter()
        for index, shape in islice(zip(there, shapes, strict=False), state.cursor, None):
            self.set_rate(self.rate(state.step))
            share = self.team.share(index)
            result = self.take_step(share.numbers, shape, share.weight)
            state.step, state.cursor = state.step + 1, state.cursor + 1
            where = f"step {state.step}, epoch {state.epoch}, batch {state.cursor} of {len(todo)}"
            self.watch.add(watch.Seen(where, index, share.size, result))
            self.show()
            self.breathe()
        self.look()

    def loss(self, index: Tensor, shape: Shape | None) -> tuple[Tensor, Tensor]:
        """The loss of some examples, and how many of them are right."""
        batch = self.splits["train"].select(index, shape)
        return self.task.loss(self.recipe, self.called(*batch.inputs), batch)

    def set_rate(self, rate: float) -> None:
        """Let the optimizer take steps at this rate, if it does not yet."""
        if rate != self.rate_now:
            set_rate(self.state.optimizer, rate)
            self.rate_now = rate

    def rate(self, step: int) -> float:
        """The learning rate after this many steps."""
        return rate_at(self.training.rate, self.training.schedule, step / self.total, self.training.warmup)

    def breathe(self) -> None:
        """Between two steps: stop where any process was asked to, save where it is time."""
        due = self.team.rank == 0 and self.keeper.due()
        stop, save = self.team.most(self.keeper.stop.code, due)
        if stop or save:
            self.look()
        if stop:
            raise Stopped(stop)
        if save:
            self.save()
            self.clock = time.perf_counter()

    def look(self) -> None:
        """Wait for all steps so far, and count their time."""
        self.watch.look()
        now = time.perf_counter()
        self.state.epoch_seconds += now - self.clock
        self.clock = now

    def judge(self) -> None:
        """The end of an epoch: dev decides whether it is the best one; then everything is saved."""
        state = self.state
        loss, right, examples = self.team.sum(*state.sums.values())
        with self.averaged():
            scores = self.scored("dev")
            dev = self.task.choose(self.recipe, scores, self.examples, "dev")
            row = {
                "epoch": state.epoch,
                "step": state.step,
                "loss": loss / examples,
                "train": right / examples,
                "dev": dev,
                "rate": self.rate(state.step - 1),
                "seconds": state.epoch_seconds,
                "examples_per_second": examples / state.epoch_seconds,
            }
            if dev > state.best.dev:
                state.best = Best(dev, state.epoch, learned(state.model), scores)
                self.team.lead(lambda: self.keeper.best(state.model, row))
        state.metrics.append(row)
        self.team.lead(lambda: self.keeper.epoch(row))
        self.progress.epoch(row)
        state.next_epoch()
        self.save()

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the model has the weights that are evaluated and kept."""
        average = self.state.average
        return average.applied(self.state.step) if average else nullcontext()

    def scored(self, name: str) -> Tensor:
        """The scores of a split [N, labels], on the host; every process reads a part."""
        answers = partial(self.task.answers, self.recipe, self.state.model)
        found = scored(self.state.model, self.splits[name], self.team, self.keeper, answers)
        if not found.isfinite().all():
            raise watch.NotFiniteError(f"the scores of {name} are not finite after step {self.state.step}")
        return found

    def save(self) -> None:
        """Keep the state; every process takes part, the first one writes."""
        packed = self.state.pack(self.team, self.seconds())
        self.team.lead(lambda: self.keeper.save(packed))
        self.keeper.saved = self.state.step

    def seconds(self) -> float:
        """Of the run, up to now."""
        return self.state.seconds + time.perf_counter() - self.started

    def show(self) -> None:
        """Show how far it is, by what is known without waiting."""
        state, sums = self.state, self.state.sums
        seconds = state.epoch_seconds + time.perf_counter() - self.clock
        if sums.examples:
            loss, right = sums.loss / sums.examples, sums.right / sums.examples
            self.progress.step(state.epoch, state.step, loss, right, self.team.size * sums.examples / seconds)

    def outcome(self) -> Outcome:
        """The model of the best epoch, and its figures."""
        state, seconds = self.state, self.seconds()
        put(state.model, state.best.weights)
        figures = {"accuracy": {"train": state.metrics[state.best.epoch - 1]["train"]}}
        scores = {"dev": state.best.scores}
        scores |= {name: self.scored(name) for name in self.splits if name not in ("train", "dev")}
        for name, found in scores.items():
            split = self.on_host[name]
            self.team.lead(lambda: self.keeper.scored(name, found, split))  # noqa: B023  # called at once
            for measure, value in self.task.figures(self.recipe, found, self.examples, name).items():
                figures.setdefault(measure, {})[name] = value
        return Outcome(state.model, figures, state.best.epoch, seconds, state.metrics)


def rate_at(rate: float, schedule: str, done: float, warmup: float = 0.0) -> float:
    """The learning rate when this part of the run is done, `warmup` of which it rises from zero."""
    if done < warmup:
        return rate * done / warmup
    falling = (done - warmup) / (1 - warmup)
    if schedule == "cosine":
        return rate * (1 + math.cos(math.pi * falling)) / 2
    return rate * (1 - falling) if schedule == "linear" else rate


@torch.no_grad()
def scored(
    model: nn.Module,
    split: Labelled,
    team: Team | None = None,
    keeper: Keeper | None = None,
    answers: Callable[[Labelled], Tensor] | None = None,
) -> Tensor:
    """What a model says of a split: answers [N, n], on the host, in the order of the rows.

    Args:
        model: The model.
        split: The examples, on the model's device.
        team: The processes, each of which reads a part; `None` means this one reads all.
        keeper: Knows whether to stop.
        answers: From some of them to what the model says [B, n]; its scores by default.

    Raises:
        Stopped: A process was asked to.
    """
    model.eval()
    answers = answers or partial(scores_of, None, model)
    device, found = split.labels.device, torch.zeros(len(split.labels), 1)
    for whole in shares(split, EVALUATION_BATCH):
        index = whole[team.rank :: team.size] if team else whole
        # Of a small batch a process may have no part, and learns from another row how many scores there are.
        scores = answers(split.select((index if len(index) else whole[:1]).to(device))).float().cpu()
        if found.shape[1] != scores.shape[1]:
            found = torch.zeros(len(split.labels), scores.shape[1])
        found[index] = scores[: len(index)]
        if team and keeper and (code := team.most(keeper.stop.code)[0]):
            raise Stopped(code)
    return team.add(found) if team else found
