"""Training loop: Adam, gradient clipping, evaluation on dev after each epoch, test splits once at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from nse.tasks.task import Examples, Task
from nse.text.sampler import draw_batches
from nse.text.tensors import Shape
from nse.train.distributed import Processes, compute_scores
from nse.train.environment import set_precision, set_thread_count
from nse.train.optimizer import WeightEMA, compute_lr, make_adam, set_lr
from nse.train.progress import Progress
from nse.train.signals import TrainingInterrupted
from nse.train.state import BestEpoch, RunStorage, TrainingResult, TrainingState, copy_weights
from nse.train.train_step import CapturedStep, NotFiniteError, StepAccumulator, TrainStep


def fit(
    task: Task,
    recipe: Any,
    examples: Examples,
    progress: Progress,
    storage: RunStorage | None = None,
    processes: Processes | None = None,
) -> TrainingResult:
    """Train a model by its recipe; by default save nothing, and use the processes of `torchrun` if any."""
    processes = processes or Processes()
    with set_precision(recipe.train.tf32, processes.device):
        return TrainingLoop(task, recipe, examples, progress, storage or RunStorage(), processes).run()


@dataclass
class TrainingLoop:
    """Training of one model; `run` is the loop."""

    task: Task  # model, loss and measures
    recipe: Any
    examples: Examples
    progress: Progress
    storage: RunStorage  # of checkpoints, metrics and the best model
    processes: Processes  # this one, or all that `torchrun` started

    def __post_init__(self) -> None:
        """Build model, optimizer and training step."""
        self.start_time = time.perf_counter()
        settings = self.settings = self.recipe.train
        seed, device = self.recipe.seed, self.processes.device
        self.splits = {name: split.to(device) for name, split in self.examples.splits.items()}
        self.steps_per_epoch = math.ceil(len(self.splits["train"].labels) / settings.batch_size)
        self.total_steps = self.steps_per_epoch * settings.epochs
        torch.manual_seed(seed)
        model = self.task.build_model(self.recipe, self.examples)
        self.wrapped_model = self.processes.wrap_model(model)  # in DistributedDataParallel
        self.process_seed = seed + 1_000_003 * self.processes.rank
        if self.processes.rank:
            torch.manual_seed(self.process_seed)  # for other dropout masks in each process
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = make_adam(parameters, settings.lr, settings.weight_decay, device)
        ema = WeightEMA(parameters, settings.ema_decay) if settings.ema_decay else None
        self.state = TrainingState(model, optimizer, torch.Generator().manual_seed(seed), ema)
        use_graphs = settings.cuda_graphs and device.type == "cuda" and self.processes.size == 1
        step_class = CapturedStep if use_graphs else TrainStep
        self.train_step = step_class(optimizer, self.compute_loss, settings.clip_norm, ema)
        self.current_lr = settings.lr
        self.compute_lr = partial(compute_lr, settings.lr, settings.schedule, warmup=settings.warmup)

    def run(self) -> TrainingResult:
        """Resume from the checkpoint, if there is one; train; score the test splits."""
        checkpoint = self.processes.on_rank_zero(self.storage.load_checkpoint)
        set_thread_count(self.recipe, checkpoint, self.processes)
        if checkpoint:
            self.state.check_progress(checkpoint, self.settings.epochs, self.steps_per_epoch, self.splits)
            self.state.load_checkpoint(checkpoint, self.processes, self.process_seed)
            self.storage.saved_step = self.state.step
            self.start_time -= checkpoint["seconds"]
        self.progress.start_run(self.total_steps, self.state.step)
        try:
            while not self.is_finished():
                self.train_epoch()
                self.evaluate_epoch()
        except TrainingInterrupted:
            self.save_checkpoint()
            raise
        self.progress.finish_run()
        return self.evaluate_best_epoch()

    def is_finished(self) -> bool:
        """Return whether all epochs are done, or dev has not improved for `patience` epochs."""
        done, patience = self.state.epoch - 1, int(self.settings.patience)
        return done >= int(self.settings.epochs) or 0 < patience <= done - self.state.best.epoch

    def train_epoch(self) -> None:
        """Take all steps of the epoch, or the remaining ones after a resume."""
        state, processes = self.state, self.processes
        # Checking the result of every step would make a GPU wait.
        self.results = StepAccumulator(state.sums, interval=50 if processes.device.type == "cuda" else 1)
        epoch_batches = self.shuffle_batches()
        self.wrapped_model.train()
        self.clock = time.perf_counter()
        for index, shape in islice(epoch_batches, state.cursor, None):
            if (lr := self.compute_lr(state.step / self.total_steps)) != self.current_lr:
                set_lr(state.optimizer, lr)
                self.current_lr = lr
            shard = processes.shard_batch(index)
            result = self.train_step(shard.indices, shape, shard.loss_weight)
            state.step, state.cursor = state.step + 1, state.cursor + 1
            name = f"step {state.step}, epoch {state.epoch}, batch {state.cursor} of {self.steps_per_epoch}"
            self.results.add(name, index, shard.size, result)
            self.show_progress()
            self.check_signals()
        self.synchronize()

    def shuffle_batches(self) -> Iterable[tuple[Tensor, Shape | None]]:
        """Draw the indices of the epoch's batches, with the shapes to pad them to if steps need them."""
        settings, rows = self.settings, self.examples.splits["train"]
        lengths = rows.lengths if settings.bucket_by_length else None
        groups = rows.groups if settings.group_by_question else None
        indices = draw_batches(len(rows.labels), settings.batch_size, self.state.shuffler, lengths, groups)
        shapes: Sequence[Shape | None] = [None] * len(indices)
        if self.train_step.needs_shapes:
            shapes = rows.compute_shapes(indices, settings.pad_to_multiple)
        # One copy for all batches: a copy per step would keep a fast device waiting.
        on_device = torch.cat(indices).to(self.processes.device).split(list(map(len, indices)))
        return zip(on_device, shapes, strict=True)

    def compute_loss(self, index: Tensor, shape: Shape | None) -> tuple[Tensor, Tensor]:
        """Compute the loss of some training examples, and how many of them the model gets right."""
        batch = self.splits["train"].select(index, shape)
        return self.task.compute_loss(self.recipe, self.wrapped_model(*batch.inputs), batch)

    def check_signals(self) -> None:
        """Stop if any process received a signal; save a checkpoint if one is due."""
        save_due = self.processes.rank == 0 and self.storage.is_save_due()
        exit_code, save = self.processes.all_max(self.storage.stop_request.exit_code, save_due)
        if exit_code or save:
            self.synchronize()
        if exit_code:
            raise TrainingInterrupted(exit_code)
        if save:
            self.save_checkpoint()
            self.clock = time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the results of all steps so far, and add their time to that of the epoch."""
        self.results.synchronize()
        self.state.epoch_seconds += time.perf_counter() - self.clock
        self.clock = time.perf_counter()

    def show_progress(self) -> None:
        """Show the mean of the results so far, without waiting for those still on the device."""
        state, seconds = self.state, self.state.epoch_seconds + time.perf_counter() - self.clock
        speed = self.processes.size * state.sums.examples / seconds
        self.progress.show_step(state.epoch, state.step, state.sums, speed)

    def evaluate_epoch(self) -> None:
        """Score dev, keep the weights if it is the best epoch, and save a checkpoint."""
        state = self.state
        loss, correct, examples = self.processes.all_sum(*astuple(state.sums))
        with state.ema.swap_weights(state.step) if state.ema else nullcontext():
            scores = self.score_split("dev")
            dev = self.task.compute_main_metric(self.recipe, scores, self.examples, "dev")
            row = {
                "epoch": state.epoch,
                "step": state.step,
                "loss": loss / examples,
                "train": correct / examples,
                "dev": dev,
                "rate": self.compute_lr((state.step - 1) / self.total_steps),
                "seconds": state.epoch_seconds,
                "examples_per_second": examples / state.epoch_seconds,
            }
            state.metrics.append(row)
            best_model = state.model if dev > state.best.dev else None
            if best_model:
                state.best = BestEpoch(dev, state.epoch, copy_weights(best_model), scores)
            self.processes.on_rank_zero(lambda: self.storage.save_epoch(row, best_model))
        self.progress.show_epoch(row)
        state.start_next_epoch()
        self.save_checkpoint()

    def score_split(self, name: str) -> Tensor:
        """Compute the scores of a split [N, labels] on the host, with all processes."""
        model, stop_request = self.state.model, self.storage.stop_request
        score_batch = partial(self.task.compute_outputs, self.recipe, model)
        scores = compute_scores(model, self.splits[name], self.processes, stop_request, score_batch)
        if not scores.isfinite().all():
            raise NotFiniteError(f"the scores of {name} are not finite after step {self.state.step}")
        return scores

    def save_checkpoint(self) -> None:
        """Save a checkpoint; all processes take part, rank 0 writes."""
        checkpoint = self.state.to_checkpoint(self.processes, time.perf_counter() - self.start_time)
        self.processes.on_rank_zero(lambda: self.storage.save_checkpoint(checkpoint))
        self.storage.saved_step = self.state.step

    def evaluate_best_epoch(self) -> TrainingResult:
        """Load the weights of the best epoch, and score the test splits."""
        state, seconds = self.state, time.perf_counter() - self.start_time
        state.model.load_state_dict(state.best.weights, strict=False)
        figures = {"accuracy": {"train": state.metrics[state.best.epoch - 1]["train"]}}
        scores = {"dev": state.best.scores}
        scores |= {name: self.score_split(name) for name in self.splits if name not in ("train", "dev")}
        self.processes.on_rank_zero(lambda: self.storage.save_scores(scores, self.examples.splits))
        for name, values in scores.items():
            for measure, figure in self.task.compute_metrics(
                self.recipe, values, self.examples, name
            ).items():
                figures.setdefault(measure, {})[name] = figure
        return TrainingResult(state.model, figures, state.best.epoch, seconds, state.metrics)
