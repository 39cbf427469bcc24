"""The training loop, in sight: Adam, clipping, the best epoch on dev, and every other split read once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import astuple
from functools import partial
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor, nn

from nse.tasks.recipe import Training
from nse.tasks.task import Examples, Task, scores_of
from nse.text.sampler import draw_batches, draw_bounded_batches
from nse.text.tensors import LabelledRows, Shape
from nse.train.distributed import Team
from nse.train.progress import Progress
from nse.train.signals import Stopped
from nse.train.state import Best, Keeper, Outcome, State, compute_with, learned, take_threads
from nse.train.step import EVERY, Average, CapturedStep, NotFiniteError, Seen, Step, Watch, adam, set_rate

EVALUATION_BATCH = 512

STREAM = 1_000_003
"""How far apart the seeds of two processes are: each has its own dropout."""


def fit(
    task: Task,
    recipe: Any,
    examples: Examples,
    progress: Progress,
    keeper: Keeper | None = None,
    team: Team | None = None,
) -> Outcome:
    """Train a model by its recipe, in the processes of `torchrun` or in this one.

    A keeper is given what must not be lost; by default nothing is kept.
    """
    team = team or Team()
    with compute_with(recipe.train.tf32, team.device):
        return Loop(task, recipe, examples, progress, keeper or Keeper(), team).run()


class Loop:
    """A training run, its parts those of `fit`; `run` is the loop."""

    def __init__(
        self, task: Task, recipe: Any, examples: Examples, progress: Progress, keeper: Keeper, team: Team
    ):
        self.task, self.progress, self.keeper, self.team = task, progress, keeper, team
        self.recipe, self.seed = recipe, recipe.seed
        self.training: Training = recipe.train
        self.started = self.clock = time.perf_counter()
        self.examples, self.on_host = examples, examples.splits
        self.splits = {name: split.to(team.device) for name, split in examples.splits.items()}
        self.rows = {name: len(split.labels) for name, split in self.on_host.items()}
        self.steps = math.ceil(self.rows["train"] / self.training.batch)  # of an epoch
        self.total = self.steps * self.training.epochs
        torch.manual_seed(self.seed)
        model = task.model(recipe, examples)
        self.called = team.set_up(model)
        if team.rank:
            torch.manual_seed(self.seed + STREAM * team.rank)
        training, trained = self.training, [p for p in model.parameters() if p.requires_grad]
        optimizer = adam(trained, training.rate, training.l2, team.device)
        average = Average(trained, training.average) if training.average else None
        self.state = State(model, optimizer, torch.Generator().manual_seed(self.seed), average)
        captures = training.capture and team.device.type == "cuda" and team.size == 1
        kind = CapturedStep if captures else Step
        self.take_step, self.rate_now = kind(optimizer, self.loss, training.clip, average), training.rate

    def run(self) -> Outcome:
        """Train, epoch by epoch; then read every split but train and dev, once."""
        packed = self.team.lead(self.keeper.load)
        take_threads(self.recipe, packed, self.team)
        if packed:
            self.state.refuse_other_place(packed, self.training.epochs, self.steps, self.rows)
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
        self.progress.end()
        return self.outcome()

    def over(self) -> bool:
        """Say whether all epochs are done, or dev did not get better for too long."""
        done, patience = self.state.epoch - 1, self.training.patience
        return done >= self.training.epochs or 0 < patience <= done - self.state.best.epoch

    def take_steps(self) -> None:
        """Take the steps of the epoch that are not done yet."""
        state, training, rows = self.state, self.training, self.on_host["train"]
        lengths = rows.lengths if training.buckets else None
        groups = rows.groups if training.together else None
        todo = draw_batches(len(rows.labels), training.batch, state.order, lengths, groups)
        # For all steps at once: one by one, they would keep a fast device waiting.
        there = torch.cat(todo).to(self.team.device).split(list(map(len, todo)))
        padded = self.take_step.padded
        shapes: Iterable[Shape | None] = (
            rows.compute_shapes(todo, training.multiple) if padded else repeat(None)
        )
        self.watch = Watch(state.sums, EVERY if self.team.device.type == "cuda" else 1)
        self.called.train()
        self.clock = time.perf_counter()
        for index, shape in islice(zip(there, shapes, strict=False), state.cursor, None):
            if (rate := self.rate(state.step)) != self.rate_now:
                set_rate(state.optimizer, rate)
                self.rate_now = rate
            share = self.team.share(index)
            result = self.take_step(share.numbers, shape, share.weight)
            state.step, state.cursor = state.step + 1, state.cursor + 1
            where = f"step {state.step}, epoch {state.epoch}, batch {state.cursor} of {len(todo)}"
            self.watch.add(Seen(where, index, share.size, result))
            self.show()
            self.breathe()
        self.look()

    def loss(self, index: Tensor, shape: Shape | None) -> tuple[Tensor, Tensor]:
        """Compute the loss of some examples, and how many of them are right."""
        batch = self.splits["train"].select(index, shape)
        return self.task.loss(self.recipe, self.called(*batch.inputs), batch)

    def rate(self, step: int) -> float:
        """Return the learning rate after this many steps."""
        return rate_at(self.training.rate, self.training.schedule, step / self.total, self.training.warmup)

    def breathe(self) -> None:
        """Stop where any process was asked to, and save where it is time."""
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
        """End an epoch: dev decides whether it is the best one; then everything is saved."""
        state = self.state
        loss, right, examples = self.team.sum(*astuple(state.sums))
        with state.average.applied(state.step) if state.average else nullcontext():
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
            state.metrics.append(row)
            best = dev > state.best.dev
            if best:
                state.best = Best(dev, state.epoch, learned(state.model), scores)
            self.team.lead(lambda: self.keeper.epoch(row, state.model if best else None))
        self.progress.epoch(row)
        state.next_epoch()
        self.save()

    def scored(self, name: str) -> Tensor:
        """Compute the scores of a split [N, labels], on the host; every process reads a part."""
        answers = partial(self.task.answers, self.recipe, self.state.model)
        found = scored(self.state.model, self.splits[name], self.team, self.keeper, answers)
        if not found.isfinite().all():
            raise NotFiniteError(f"the scores of {name} are not finite after step {self.state.step}")
        return found

    def save(self) -> None:
        """Keep the state; every process takes part, the first one writes."""
        packed = self.state.pack(self.team, self.seconds())
        self.team.lead(lambda: self.keeper.save(packed))
        self.keeper.saved = self.state.step

    def seconds(self) -> float:
        """Return the seconds of the run, up to now."""
        return self.state.seconds + time.perf_counter() - self.started

    def show(self) -> None:
        """Show how far it is, by what is known without waiting."""
        state, sums = self.state, self.state.sums
        seconds = state.epoch_seconds + time.perf_counter() - self.clock
        if sums.examples:
            loss, right = sums.loss / sums.examples, sums.right / sums.examples
            self.progress.step(state.epoch, state.step, loss, right, self.team.size * sums.examples / seconds)

    def outcome(self) -> Outcome:
        """Take the model of the best epoch, and read every split but train and dev, once."""
        state, seconds = self.state, self.seconds()
        state.model.load_state_dict(state.best.weights, strict=False)
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
    """Return the learning rate when this part of the run is done, `warmup` of which it rises from zero."""
    if done < warmup:
        return rate * done / warmup
    falling = (done - warmup) / (1 - warmup)
    if schedule == "cosine":
        return rate * (1 + math.cos(math.pi * falling)) / 2
    return rate * (1 - falling) if schedule == "linear" else rate


@torch.no_grad()
def scored(
    model: nn.Module,
    split: LabelledRows,
    team: Team | None = None,
    keeper: Keeper | None = None,
    answers: Callable[[LabelledRows], Tensor] | None = None,
) -> Tensor:
    """Compute what a model says of a split: answers [N, n], on the host, in the order of the rows.

    Each process of a team reads a part, and all end with `Stopped` where one was asked to stop. `answers` is
    from some rows on the model's device to what it says of them [B, n]; by default its scores.
    """
    model.eval()
    answers = answers or partial(scores_of, None, model)
    device, found = split.labels.device, torch.zeros(len(split.labels), 1)
    for whole in draw_bounded_batches(split, EVALUATION_BATCH):
        index = whole[team.rank :: team.size] if team else whole
        # Of a small batch a process may have no part, and learns from another row how many scores there are.
        scores = answers(split.select((index if len(index) else whole[:1]).to(device))).float().cpu()
        if found.shape[1] != scores.shape[1]:
            found = torch.zeros(len(split.labels), scores.shape[1])
        found[index] = scores[: len(index)]
        if team and keeper and (code := team.most(keeper.stop.code)[0]):
            raise Stopped(code)
    return team.add(found) if team else found
