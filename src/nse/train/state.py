"""State of a run: everything that a checkpoint holds, and the interface to where it is stored."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nse.errors import RunError
from nse.text.tensors import LabelledRows
from nse.train.distributed import Processes
from nse.train.optimizer import WeightEMA
from nse.train.signals import StopRequest
from nse.train.train_step import EpochSums

FORMAT = 3  # version of the checkpoint format
ADVICE = "remove it to start over"
PLAIN_FIELDS = ("epoch", "cursor", "step", "epoch_seconds", "metrics")  # stored as they are

Weights = dict[str, Tensor]


class RunStorage:
    """Storage of a run; this base class stores nothing, `nse.train.run.RunFolder` writes files in rank 0."""

    def __init__(self) -> None:
        self.stop_request = StopRequest()
        self.saved_step: int | None = None  # step of the last checkpoint

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the checkpoint to resume from, if any."""
        return None

    def is_save_due(self) -> bool:
        """Return whether to save a checkpoint in the middle of an epoch."""
        return False

    def save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save a checkpoint in place of the last one."""

    def save_epoch(self, row: dict[str, Any], best_model: nn.Module | None) -> None:
        """Save the metrics of an epoch, and its model if it is the best one so far."""

    def save_scores(self, scores: Mapping[str, Tensor], splits: Mapping[str, LabelledRows]) -> None:
        """Save the best model's scores [N, labels] by split."""


@dataclass
class TrainingResult:
    """Trained model and its figures."""

    model: nn.Module  # with the weights of the best epoch
    figures: dict[str, dict[str, float]]  # by measure and split; those of train with dropout, while training
    epoch: int  # the best one on dev, counted from 1
    seconds: float  # of training, including evaluation and saving
    metrics: list[dict[str, Any]]  # a row per epoch

    @property
    def accuracy(self) -> dict[str, float]:
        """Accuracy by split."""
        return self.figures["accuracy"]

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def parameters_without_embeddings(self) -> int:
        """Number of trainable parameters outside of embeddings."""
        embeddings = {id(m.weight) for m in self.model.modules() if isinstance(m, nn.Embedding)}
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad and id(p) not in embeddings)

    @property
    def seconds_per_epoch(self) -> float:
        """Median seconds of an epoch's training steps."""
        return float(statistics.median(row["seconds"] for row in self.metrics))


@dataclass
class BestEpoch:
    """Best epoch on dev so far."""

    dev: float = -1.0
    epoch: int = 0
    weights: Weights = field(default_factory=dict)
    scores: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # of dev [N, labels]


@dataclass
class TrainingState:
    """State of a run between two steps."""

    model: nn.Module
    optimizer: Optimizer
    shuffler: torch.Generator  # draws the order of the examples
    ema: WeightEMA | None = None
    epoch: int = 1  # current one, counted from 1
    cursor: int = 0  # number of its batches that are done
    step: int = 0  # number of steps of all epochs that are done
    shuffler_state: Tensor = field(init=False)  # before the order of this epoch was drawn
    sums: EpochSums = field(default_factory=EpochSums)
    epoch_seconds: float = 0.0  # of this epoch's training steps
    best: BestEpoch = field(default_factory=BestEpoch)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # a row per finished epoch

    def __post_init__(self) -> None:
        """Keep the random state before the first epoch."""
        self.shuffler_state = self.shuffler.get_state()

    def start_next_epoch(self) -> None:
        """Reset the counts for the next epoch."""
        self.epoch, self.cursor, self.shuffler_state = self.epoch + 1, 0, self.shuffler.get_state()
        self.sums, self.epoch_seconds = EpochSums(), 0.0

    def to_checkpoint(self, processes: Processes, seconds: float) -> dict[str, Any]:
        """Return a checkpoint after some seconds of the run; every process has to call this."""
        random = {"cpu": torch.get_rng_state()}
        if processes.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(processes.device)
        process = {"random": random, "sums": list(astuple(self.sums)), "threads": torch.get_num_threads()}
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in PLAIN_FIELDS},
            "seconds": seconds,
            "order": self.shuffler_state,
            "processes": processes.all_gather(process),
            "model": copy_weights(self.model),
            "average": [value.cpu() for value in self.ema.values] if self.ema else [],
            # Without the hyperparameters, which are in the recipe.
            "optimizer": {
                number: {name: value.cpu() for name, value in moments.items()}
                for number, moments in self.optimizer.state_dict()["state"].items()
            },
            "best": dict(vars(self.best)),
        }

    def load_checkpoint(self, checkpoint: dict[str, Any], processes: Processes, seed: int) -> None:
        """Restore a checkpoint; processes that it does not have draw random numbers from `seed`."""
        self.check_shapes(checkpoint)
        try:
            self._restore(checkpoint, processes, seed)
        except (RuntimeError, TypeError, ValueError) as error:  # PyTorch's of a wrong random state
            reason = str(error).split("\n")[0]
            raise RunError(f"the checkpoint does not fit this run: {reason}; {ADVICE}") from None

    def _restore(self, checkpoint: dict[str, Any], processes: Processes, seed: int) -> None:
        """Restore a checkpoint whose shapes fit."""
        for name in PLAIN_FIELDS:
            setattr(self, name, checkpoint[name])
        self.best, self.shuffler_state = BestEpoch(**checkpoint["best"]), checkpoint["order"]
        self.shuffler.set_state(self.shuffler_state)
        self.model.load_state_dict(checkpoint["model"], strict=False)
        if self.ema:
            for value, saved in zip(self.ema.values, checkpoint["average"], strict=True):
                value.copy_(saved)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": checkpoint["optimizer"], "param_groups": groups})
        saved_processes = checkpoint["processes"]
        if processes.rank < len(saved_processes):
            random = saved_processes[processes.rank]["random"]
            torch.set_rng_state(random["cpu"])
            if processes.device.type == "cuda" and "cuda" in random:
                torch.cuda.set_rng_state(random["cuda"], processes.device)
        else:
            torch.manual_seed(seed + self.step)
        sums = [process["sums"] for process in saved_processes]
        if len(saved_processes) == processes.size:
            sums = [sums[processes.rank]]
        elif processes.rank:  # rank 0 takes the sums of all
            return
        loss, correct, examples = map(sum, zip(*sums, strict=True))
        self.sums = EpochSums(loss, correct, int(examples))

    @staticmethod
    def check_progress(
        checkpoint: dict[str, Any], epochs: int, steps_per_epoch: int, splits: Mapping[str, LabelledRows]
    ) -> None:
        """Raise RunError if the counts of a checkpoint do not fit each other or those of the run."""
        cursor, best, done = checkpoint["cursor"], checkpoint["best"], checkpoint["epoch"] - 1
        examples = sum(process["sums"][2] for process in checkpoint["processes"])
        is_valid = {
            "epoch": done <= epochs and done == len(checkpoint["metrics"]),
            "cursor": cursor <= steps_per_epoch,
            "step": checkpoint["step"] == done * steps_per_epoch + cursor,
            "sums": (cursor <= examples <= len(splits["train"].labels)) if cursor else examples == 0,
            "epoch_seconds": (checkpoint["epoch_seconds"] > 1e-9) == (cursor > 0),
            "best.epoch": (0 < best["epoch"] <= done) if done else best["epoch"] == 0,
            "best.scores": not best["epoch"] or len(best["scores"]) == len(splits["dev"].labels),
        }
        if invalid := [name for name, valid in is_valid.items() if not valid]:
            raise RunError(f"the checkpoint does not fit this run: {', '.join(invalid)}; {ADVICE}")

    def check_shapes(self, checkpoint: dict[str, Any]) -> None:
        """Raise RunError if the tensors of a checkpoint are not those of this model and optimizer."""
        model, saved = get_shapes(copy_weights(self.model)), get_shapes(checkpoint["model"])
        best = checkpoint["best"]
        weights = [get_shapes(p) for group in self.optimizer.param_groups for p in group["params"]]
        moments = {number: {"exp_avg": weight, "exp_avg_sq": weight} for number, weight in enumerate(weights)}
        saved_moments = {
            number: {name: get_shapes(value) for name, value in values.items() if name != "step"}
            for number, values in checkpoint["optimizer"].items()
        }
        mistake = ""
        if model != saved:
            names = sorted(name for name in model | saved if model.get(name) != saved.get(name))
            mistake = ", ".join(names[:5])
        elif get_shapes(checkpoint["average"]) != get_shapes(self.ema.values if self.ema else []):
            mistake = "its average of the weights has other shapes"
        elif moments | saved_moments != moments:
            mistake = "its optimizer has other shapes"
        elif best["epoch"] and get_shapes(best["weights"]) != saved:
            mistake = "its best weights have other shapes"
        if mistake:
            raise RunError(f"the checkpoint is of another model: {mistake}")


def get_shapes(value: Any) -> Any:
    """Replace each tensor in a value by its shape and dtype."""
    if isinstance(value, dict):
        return {key: get_shapes(inner) for key, inner in value.items()}
    return list(map(get_shapes, value)) if isinstance(value, list) else (value.shape, value.dtype)


def copy_weights(model: nn.Module) -> Weights:
    """Copy the weights to the host, without embeddings that are not trained."""
    embeddings = ((name, m) for name, m in model.named_modules() if isinstance(m, nn.Embedding))
    fixed = {f"{name}.weight" for name, embedding in embeddings if not embedding.weight.requires_grad}
    return {name: t.detach().cpu().clone() for name, t in model.state_dict().items() if name not in fixed}
