"""What a run needs to go on after any interruption: in memory while it runs, in one file between two parts.

The file holds tensors, numbers, strings, lists and dictionaries only, and is read with `weights_only=True`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nse.errors import RunError
from nse.files import write_bytes
from nse.train.captured import Average
from nse.train.distributed import Team

FORMAT = 3
"""Of the file; one of another format is refused by its number."""

MARK = b"SHA-256\n"
"""At the end of the file, before the SHA-256 of everything in front of it."""

MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
"""What Adam remembers of each weight."""

TO_START_OVER = "remove it to start over"
"""What helps where a checkpoint does not fit."""

Weights = dict[str, Tensor]


@dataclass
class Sums:
    """Over the examples of an epoch that this process has seen, before each step and with dropout on."""

    loss: float = 0.0
    right: float = 0.0
    examples: int = 0

    def values(self) -> list[float]:
        """As plain numbers."""
        return [self.loss, self.right, self.examples]


@dataclass
class Best:
    """The best epoch on dev so far."""

    dev: float = -1.0
    epoch: int = 0
    weights: Weights = field(default_factory=dict)
    scores: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # of dev [N, labels]


@dataclass
class State:
    """Where a run stands.

    Attributes:
        model: With its weights.
        optimizer: With its state.
        order: Draws the order of the examples.
        average: Of the weights, if one is kept.
        epoch: The one under way, counted from 1.
        cursor: How many batches of it are done.
        step: How many steps are done in all.
        drawn: The state of `order` before the epoch's batches were drawn.
        sums: Of the epoch.
        epoch_seconds: Of pure training in the epoch.
        seconds: Of the run, in parts that are over.
        best: The best epoch on dev.
        metrics: One row per epoch that is over.
    """

    model: nn.Module
    optimizer: Optimizer
    order: torch.Generator
    average: Average | None = None
    epoch: int = 1
    cursor: int = 0
    step: int = 0
    drawn: Tensor = field(init=False)
    sums: Sums = field(default_factory=Sums)
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    best: Best = field(default_factory=Best)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Before the first epoch."""
        self.drawn = self.order.get_state()

    def next_epoch(self) -> None:
        """The epoch under way is over."""
        self.epoch, self.cursor, self.drawn = self.epoch + 1, 0, self.order.get_state()
        self.sums, self.epoch_seconds = Sums(), 0.0

    def pack(self, team: Team, seconds: float) -> dict[str, Any]:
        """Everything as plain values; every process takes part.

        Args:
            team: The processes.
            seconds: Of the run, up to now.
        """
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "cursor": self.cursor,
            "step": self.step,
            "order": self.drawn,
            "processes": team.gather(
                {
                    "random": random_state(team.device),
                    "sums": self.sums.values(),
                    "threads": torch.get_num_threads(),
                }
            ),
            "model": learned(self.model),
            "average": on_host(self.average.values) if self.average else [],
            # Without what it is set to, which the recipe says, and on a GPU lies on the device.
            "optimizer": on_host(self.optimizer.state_dict()["state"]),
            "best": dict(vars(self.best)),
            "epoch_seconds": self.epoch_seconds,
            "seconds": seconds,
            "metrics": self.metrics,
        }

    def unpack(self, packed: dict[str, Any], team: Team, seed: int) -> None:
        """Go back to where a packed state was.

        With another number of processes than then, the processes that are new draw from `seed`.

        Raises:
            RunError: It is the state of another model, or holds what no run saves.
        """
        self.refuse_other_shapes(packed)
        try:
            self.take(packed, team, seed)
        except (RuntimeError, TypeError, ValueError) as error:  # as PyTorch refuses a random state
            reason = str(error).split("\n")[0]
            raise RunError(f"the checkpoint does not fit this run: {reason}; {TO_START_OVER}") from None

    def take(self, packed: dict[str, Any], team: Team, seed: int) -> None:
        """Take over a packed state, of which the shapes fit."""
        self.epoch, self.cursor, self.step = packed["epoch"], packed["cursor"], packed["step"]
        self.epoch_seconds, self.seconds = packed["epoch_seconds"], packed["seconds"]
        self.metrics, self.best = packed["metrics"], Best(**packed["best"])
        self.drawn = packed["order"]
        self.order.set_state(self.drawn)
        put(self.model, packed["model"])
        if self.average:
            for value, saved in zip(self.average.values, packed["average"], strict=True):
                value.copy_(saved)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": packed["optimizer"], "param_groups": groups})
        parts = packed["processes"]
        if team.rank < len(parts):
            set_random_state(parts[team.rank]["random"], team.device)
        else:
            torch.manual_seed(seed + self.step)
        if len(parts) == team.size:
            loss, right, examples = parts[team.rank]["sums"]
            self.sums = Sums(loss, right, int(examples))
        elif team.rank == 0:
            loss, right, examples = (sum(each) for each in zip(*(p["sums"] for p in parts), strict=True))
            self.sums = Sums(loss, right, int(examples))

    def refuse_other_shapes(self, packed: dict[str, Any]) -> None:
        """Refuse a packed state whose tensors are not those of this model and its optimizer."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        average = self.average.values if self.average else []
        if differ := other_tensors(learned(self.model), packed["model"]):
            raise RunError(f"the checkpoint is of another model: {', '.join(differ[:5])}")
        if len(packed["average"]) != len(average) or not all(map(alike, packed["average"], average)):
            raise RunError("the checkpoint is of another model: its average of the weights has other shapes")
        for number, moments in packed["optimizer"].items():
            fits = number < len(parameters) and moments.keys() == MOMENTS
            if not fits or not all(alike(moments[name], parameters[number]) for name in MOMENTS - {"step"}):
                raise RunError("the checkpoint is of another model: its optimizer has other shapes")
        best = packed["best"]
        if best["epoch"] and other_tensors(packed["model"], best["weights"]):
            raise RunError("the checkpoint is of another model: its best weights have other shapes")


def other_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that two sets of weights do not both have, in one shape and type."""
    same = {name for name in one.keys() & other.keys() if alike(one[name], other[name])}
    return sorted((one.keys() | other.keys()) - same)


def alike(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors have the same shape and type."""
    return one.shape == other.shape and one.dtype == other.dtype


def learned(model: nn.Module) -> Weights:
    """A copy of the weights on the host, less word vectors that stay as the data give them."""
    tables = ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding))
    fixed = {f"{name}.weight" for name, table in tables if not table.weight.requires_grad}
    return {name: t.detach().cpu().clone() for name, t in model.state_dict().items() if name not in fixed}


def put(model: nn.Module, weights: Weights) -> None:
    """Give a model weights that it, or one like it, had learned."""
    if differ := other_tensors(learned(model), weights):
        raise RunError(f"the checkpoint is of another model: {', '.join(differ[:5])}")
    model.load_state_dict(weights, strict=False)


def on_host(value: Any) -> Any:
    """A value with all tensors in it brought to the host."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    return [on_host(each) for each in value] if isinstance(value, list) else value


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Of the generators that dropout draws from in this process."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return found


def set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Go on drawing where `random_state` was asked."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


class CheckpointError(RunError):
    """A file is no checkpoint, has changed since it was saved, or holds what no run saves."""

    def __init__(self, file: Path, reason: str):
        super().__init__(f"{file} cannot be read as a checkpoint ({reason})")


def save(file: Path, packed: dict[str, Any]) -> None:
    """Write a checkpoint; whatever interrupts it, the file is the old one or the new one.

    Raises:
        OSError: It cannot be written; the old one is as it was.
    """
    content = io.BytesIO()  # and not into the file, where PyTorch hides what the system said
    torch.save(packed, content)
    checksum = hashlib.sha256(content.getbuffer()).digest()
    content.seek(0, io.SEEK_END)
    content.write(MARK + checksum)
    write_bytes(file, content.getbuffer())


def load(file: Path) -> dict[str, Any]:
    """Read a checkpoint, once its checksum shows that not a bit of it has changed.

    Raises:
        CheckpointError: It is not one, or has changed.
        RunError: It is of another format.
    """
    content = read_verified(file)
    try:
        packed = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch raises whatever the bytes lead it to
        raise CheckpointError(file, str(error).split("\n")[0][:200]) from None
    number = packed.get("format") if isinstance(packed, dict) else None
    if type(number) is not int or not 0 < number < 2**31:
        raise CheckpointError(file, "it holds no format number")
    if number != FORMAT:
        raise RunError(f"{file}: format {number}, this version reads {FORMAT}: use the version that wrote it")
    return dict(packed)


def read_verified(file: Path) -> bytes:
    """Return what `torch.save` wrote into a checkpoint file."""
    if file.exists() and not file.is_file():  # a FIFO would be waited for
        raise CheckpointError(file, "it is no regular file")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CheckpointError(file, error.strerror or str(error)) from None
    body, mark, checksum = content[:-40], content[-40:-32], content[-32:]
    if mark != MARK:
        raise CheckpointError(file, "it does not end in a checksum: it is cut off, or of another version")
    if hashlib.sha256(body).digest() != checksum:
        raise CheckpointError(file, "its checksum is wrong: it has changed since it was saved")
    return body
