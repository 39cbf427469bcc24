"""Where a run stands: everything it needs to go on after any interruption."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nse.errors import RunError
from nse.inference.kinds import KINDS
from nse.text.tensors import LabelledRows
from nse.train.distributed import Team
from nse.train.signals import Stop
from nse.train.step import Average, Sums

FORMAT = 3  # of a packed state
TO_START_OVER = "remove it to start over"  # where a checkpoint does not fit
PLAIN = ("epoch", "cursor", "step", "epoch_seconds", "metrics")  # what is packed as it is

SMALL = 128
"""Below so many numbers a vector, products are so small that threads mostly wait for each other: one is
a quarter to a third slower than two on an idle machine, and more than twice as fast beside a busy neighbour.
Products of documents, many sentences at a time, are large. docs/training.md has the figures."""

Weights = dict[str, Tensor]


class Keeper:
    """Keeps nothing, for a training without a folder; that of a run writes, in the first process alone."""

    def __init__(self) -> None:
        self.stop = Stop()  # whether this process was asked to stop
        self.saved: int | None = None  # the step of the last state that was saved

    def load(self) -> dict[str, Any] | None:
        """Return the packed state to go on from; `None` starts from the beginning."""
        return None

    def due(self) -> bool:
        """Say whether it is time to save, though no epoch is over."""
        return False

    def save(self, packed: dict[str, Any]) -> None:
        """Keep a packed state instead of the last one."""

    def epoch(self, row: dict[str, Any], best: nn.Module | None) -> None:
        """Take note of the figures of an epoch, and keep its model if it is the best one so far."""

    def scored(self, name: str, scores: Tensor, split: LabelledRows) -> None:
        """Take note of what the best model says of a split: scores [N, labels]."""


@dataclass
class Outcome:
    """What a training run gives."""

    model: nn.Module  # with the weights of the best epoch
    figures: dict[str, dict[str, float]]  # of it by measure and split; of train while training, with dropout
    epoch: int  # the best one on dev, counted from 1
    seconds: float  # of training, evaluation on dev and saving included
    metrics: list[dict[str, Any]]  # a row per epoch

    @property
    def accuracy(self) -> dict[str, float]:
        """The accuracy of each split."""
        return self.figures["accuracy"]

    @property
    def parameters(self) -> int:
        """The number of numbers that the model learned."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def parameters_without_embeddings(self) -> int:
        """The number of numbers that the model learned, less the words' vectors."""
        tables = {id(m.weight) for m in self.model.modules() if isinstance(m, nn.Embedding)}
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad and id(p) not in tables)

    @property
    def seconds_per_epoch(self) -> float:
        """The median seconds of pure training over the epochs."""
        return float(statistics.median(row["seconds"] for row in self.metrics))


@dataclass
class Best:
    """The best epoch on dev so far."""

    dev: float = -1.0
    epoch: int = 0
    weights: Weights = field(default_factory=dict)
    scores: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # of dev [N, labels]


@dataclass
class State:
    """Where a run stands."""

    model: nn.Module
    optimizer: Optimizer
    order: torch.Generator  # draws the order of the examples
    average: Average | None = None  # of the weights
    epoch: int = 1  # the one under way, counted from 1
    cursor: int = 0  # batches of it that are done
    step: int = 0  # steps that are done in all
    drawn: Tensor = field(init=False)  # the state of `order` before the epoch's batches were drawn
    sums: Sums = field(default_factory=Sums)
    epoch_seconds: float = 0.0  # of pure training
    seconds: float = 0.0  # of the run, in parts that are over
    best: Best = field(default_factory=Best)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # a row per epoch that is over

    def __post_init__(self) -> None:
        """Remember how the order is drawn before the first epoch."""
        self.drawn = self.order.get_state()

    def next_epoch(self) -> None:
        """Begin the epoch after the one under way."""
        self.epoch, self.cursor, self.drawn = self.epoch + 1, 0, self.order.get_state()
        self.sums, self.epoch_seconds = Sums(), 0.0

    def pack(self, team: Team, seconds: float) -> dict[str, Any]:
        """Return everything as plain values, after these seconds of the run; every process takes part."""
        random = {"cpu": torch.get_rng_state()}
        if team.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(team.device)
        own = {"random": random, "sums": list(astuple(self.sums)), "threads": torch.get_num_threads()}
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in PLAIN},
            "seconds": seconds,
            "order": self.drawn,
            "processes": team.gather(own),
            "model": learned(self.model),
            "average": [value.cpu() for value in self.average.values] if self.average else [],
            # Without what it is set to, which the recipe says, and on a GPU lies on the device.
            "optimizer": {
                number: {name: value.cpu() for name, value in moments.items()}
                for number, moments in self.optimizer.state_dict()["state"].items()
            },
            "best": dict(vars(self.best)),
        }

    def unpack(self, packed: dict[str, Any], team: Team, seed: int) -> None:
        """Go back to where a packed state was; processes that are new since then draw from `seed`."""
        self.refuse_other_shapes(packed)
        try:
            self.take(packed, team, seed)
        except (RuntimeError, TypeError, ValueError) as error:  # as PyTorch refuses a random state
            reason = str(error).split("\n")[0]
            raise RunError(f"the checkpoint does not fit this run: {reason}; {TO_START_OVER}") from None

    def take(self, packed: dict[str, Any], team: Team, seed: int) -> None:
        """Take over a packed state, of which the shapes fit."""
        for name in (*PLAIN, "seconds"):
            setattr(self, name, packed[name])
        self.best, self.drawn = Best(**packed["best"]), packed["order"]
        self.order.set_state(self.drawn)
        self.model.load_state_dict(packed["model"], strict=False)
        if self.average:
            for value, saved in zip(self.average.values, packed["average"], strict=True):
                value.copy_(saved)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": packed["optimizer"], "param_groups": groups})
        processes = packed["processes"]
        if team.rank < len(processes):
            random = processes[team.rank]["random"]
            torch.set_rng_state(random["cpu"])
            if team.device.type == "cuda" and "cuda" in random:
                torch.cuda.set_rng_state(random["cuda"], team.device)
        else:
            torch.manual_seed(seed + self.step)
        sums = [process["sums"] for process in processes]
        if len(processes) == team.size:
            sums = [sums[team.rank]]
        elif team.rank:
            return
        loss, right, examples = map(sum, zip(*sums, strict=True))
        self.sums = Sums(loss, right, int(examples))

    @staticmethod
    def refuse_other_place(packed: dict[str, Any], epochs: int, steps: int, rows: Mapping[str, int]) -> None:
        """Refuse a packed state whose counts fit neither each other nor these epochs, steps and rows."""
        cursor, best, done = packed["cursor"], packed["best"], packed["epoch"] - 1
        examples = sum(process["sums"][2] for process in packed["processes"])
        fits = {
            "epoch": done <= epochs and done == len(packed["metrics"]),
            "cursor": cursor <= steps,
            "step": packed["step"] == done * steps + cursor,
            "sums": (cursor <= examples <= rows["train"]) if cursor else examples == 0,
            "epoch_seconds": (packed["epoch_seconds"] > 1e-9) == (cursor > 0),
            "best.epoch": (0 < best["epoch"] <= done) if done else best["epoch"] == 0,
            "best.scores": not best["epoch"] or len(best["scores"]) == rows["dev"],
        }
        if wrong := [name for name, fit in fits.items() if not fit]:
            raise RunError(f"the checkpoint does not fit this run: {', '.join(wrong)}; {TO_START_OVER}")

    def refuse_other_shapes(self, packed: dict[str, Any]) -> None:
        """Refuse a packed state whose tensors are not those of this model and its optimizer."""
        own, given, best = outline(learned(self.model)), outline(packed["model"]), packed["best"]
        weights = [outline(p) for group in self.optimizer.param_groups for p in group["params"]]
        wanted = {number: {"exp_avg": weight, "exp_avg_sq": weight} for number, weight in enumerate(weights)}
        moments = {
            number: {name: outline(value) for name, value in saved.items() if name != "step"}
            for number, saved in packed["optimizer"].items()
        }
        wrong = ""
        if own != given:
            wrong = ", ".join(sorted(name for name in own | given if own.get(name) != given.get(name))[:5])
        elif outline(packed["average"]) != outline(self.average.values if self.average else []):
            wrong = "its average of the weights has other shapes"
        elif wanted | moments != wanted:
            wrong = "its optimizer has other shapes"
        elif best["epoch"] and outline(best["weights"]) != given:
            wrong = "its best weights have other shapes"
        if wrong:
            raise RunError(f"the checkpoint is of another model: {wrong}")


def outline(value: Any) -> Any:
    """Replace each tensor in a value by its shape and type."""
    if isinstance(value, dict):
        return {key: outline(inner) for key, inner in value.items()}
    return list(map(outline, value)) if isinstance(value, list) else (value.shape, value.dtype)


def learned(model: nn.Module) -> Weights:
    """Copy the weights to the host, less word vectors that stay as the data give them."""
    tables = ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding))
    fixed = {f"{name}.weight" for name, table in tables if not table.weight.requires_grad}
    return {name: t.detach().cpu().clone() for name, t in model.state_dict().items() if name not in fixed}


def take_threads(recipe: Any, packed: dict[str, Any] | None, team: Team) -> None:
    """Set the number of threads of this process: by the recipe, never by how busy the machine is.

    In this order: `train.threads`; as many as the run began with, if it had as many processes;
    OMP_NUM_THREADS; one for a small model, unless it reads documents; as many as there are cores.
    """
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    elif packed and len(packed["processes"]) == team.size:
        torch.set_num_threads(packed["processes"][team.rank]["threads"])
    elif "OMP_NUM_THREADS" in os.environ or KINDS[recipe.task].has_sentences:
        return
    elif recipe.model.size < SMALL:
        torch.set_num_threads(1)


@contextmanager
def compute_with(tf32: bool, device: torch.device) -> Iterator[None]:
    """Let a GPU multiply in TF32, or in float32; in the end that and the number of threads are as before."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    of_cudnn = torch.backends.cudnn.allow_tf32
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = of_cudnn
