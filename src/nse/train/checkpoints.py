"""The last two checkpoints of a run, each verified before it is saved and before it is used.

checkpoint.pt           the newest
checkpoint.previous.pt  the one before it, for the day on which the newest cannot be read
checkpoint.bad.pt       a file that could not be read, kept aside for whoever wants to know why
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nse.errors import RunError
from nse.files import settle
from nse.tasks.recipe import MOST_THREADS
from nse.train import state
from nse.train.state import CheckpointError

CURRENT, PREVIOUS, BAD = "checkpoint.pt", "checkpoint.previous.pt", "checkpoint.bad.pt"

NEW = "checkpoint.new.pt"
"""Where a checkpoint is written before the others move on."""

LARGEST = 2**63
"""No number of a run comes near."""

ROW = {"epoch", "step", "loss", "train", "dev", "rate", "seconds", "examples_per_second"}
"""The figures of an epoch."""


class NotFiniteError(RunError):
    """A number that is to be saved is NaN or infinite."""


class Loaded(NamedTuple):
    """A checkpoint that was verified.

    Attributes:
        packed: What it holds.
        file: Where it lies.
        wrong: What is wrong with the newer one; "" where nothing is.
    """

    packed: dict[str, Any]
    file: Path
    wrong: str


def save(folder: Path, packed: dict[str, Any]) -> None:
    """Write a checkpoint, and keep the one before it; whatever interrupts it, one of the two is good.

    Raises:
        NotFiniteError: A number in it is NaN or infinite; nothing was written.
        OSError: It cannot be written; the old ones are as they were.
    """
    if bad := not_finite(packed):
        raise NotFiniteError(f"NaN or infinity in {bad} after step {packed['step']}, which is not saved")
    state.save(folder / NEW, packed)
    if (folder / CURRENT).exists():
        (folder / CURRENT).replace(folder / PREVIOUS)
    (folder / NEW).replace(folder / CURRENT)
    settle(folder)


def load(folder: Path) -> Loaded | None:
    """Return the newest good checkpoint of a run; `None` where there is none at all.

    Raises:
        RunError: There are only bad ones, or one of another version.
    """
    wrong: list[str] = []
    for file in (folder / CURRENT, folder / PREVIOUS):
        if not file.exists():
            continue
        try:
            return Loaded(read(file), file, "".join(wrong))
        except CheckpointError as error:
            wrong.append(str(error))
    if wrong:
        both = "one of them back, or remove both" if len(wrong) > 1 else "it back, or remove it"
        raise RunError(f"{'; '.join(wrong)}: get {both} to start over")
    return None


def put_bad_aside(folder: Path) -> None:
    """Rename the newest checkpoint, which cannot be read, so that it does not replace the one before it."""
    with suppress(FileNotFoundError):
        (folder / CURRENT).replace(folder / BAD)


def read(file: Path) -> dict[str, Any]:
    """Read a checkpoint and check every field of it.

    Raises:
        CheckpointError: It cannot be read, or holds what no run saves.
        RunError: It is of another format.
    """
    packed = state.load(file)
    if wrong := [name for name, fits in FIELDS.items() if not fits(packed.get(name))]:
        raise CheckpointError(file, f"{', '.join(wrong)}: missing, or not as a run saves it")
    if bad := not_finite(packed):
        raise CheckpointError(file, f"NaN or infinity in {bad}")
    return packed


def not_finite(packed: dict[str, Any]) -> str | None:
    """Return the name of a tensor that holds NaN or infinity, if there is one."""
    return next((name for name, tensor in numbers(packed) if not bool(tensor.isfinite().all())), None)


def numbers(packed: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a run computes, with a name for each."""
    yield from packed["model"].items()
    for number, value in enumerate(packed["average"]):
        yield f"the average of weight {number}", value
    for number, moments in packed["optimizer"].items():
        for name, value in moments.items():
            yield f"the optimizer's {name} of weight {number}", value
    for name, value in packed["best"]["weights"].items():
        yield f"the best epoch's {name}", value
    yield "the best epoch's scores", packed["best"]["scores"]


def is_count(value: Any) -> bool:
    """Say whether a value counts something."""
    return type(value) is int and 0 <= value < LARGEST


def is_number(value: Any) -> bool:
    """Say whether a value is a finite number, with which a run can go on computing."""
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def is_time(value: Any) -> bool:
    """Say whether a value is a number of seconds."""
    return is_number(value) and value >= 0


def is_text(value: Any) -> bool:
    """Say whether a value is a string."""
    return isinstance(value, str)


def is_random_state(value: Any) -> bool:
    """Say whether a value is the state of a random generator."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def is_weights(value: Any) -> bool:
    """Say whether a value is tensors by name."""
    return isinstance(value, dict) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items()
    )


def is_list_of(fits: Callable[[Any], bool], value: Any) -> bool:
    """Say whether a value is a list whose items all fit."""
    return isinstance(value, list) and all(map(fits, value))


def is_process(value: Any) -> bool:
    """Say whether a value is what one process of a run saves."""
    return (
        isinstance(value, dict)
        and value.keys() == {"random", "sums", "threads"}
        and is_weights(value["random"])
        and "cpu" in value["random"]
        and all(map(is_random_state, value["random"].values()))
        and is_list_of(is_number, value["sums"])
        and len(value["sums"]) == 3
        and is_count(value["sums"][2])
        and is_count(value["threads"])
        and 1 <= value["threads"] <= MOST_THREADS
    )


def is_moments(value: Any) -> bool:
    """Say whether a value is what an optimizer remembers, by the number of the weight."""
    return (
        isinstance(value, dict)
        and all(map(is_count, value))
        and all(is_weights(moments) and is_step(moments.get("step")) for moments in value.values())
    )


def is_step(value: Any) -> bool:
    """Say whether a value is how often an optimizer has changed a weight."""
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.numel() == 1
        and bool((value >= 0).all())
    )


def is_best(value: Any) -> bool:
    """Say whether a value is the best epoch so far."""
    return (
        isinstance(value, dict)
        and value.keys() == {"dev", "epoch", "weights", "scores"}
        and is_number(value["dev"])
        and is_count(value["epoch"])
        and is_weights(value["weights"])
        and isinstance(value["scores"], Tensor)
        and value["scores"].is_floating_point()
        and value["scores"].dim() == 2
    )


def is_row(value: Any) -> bool:
    """Say whether a value is the figures of an epoch."""
    return (
        isinstance(value, dict)
        and value.keys() == ROW
        and all(map(is_number, value.values()))
        and is_count(value["epoch"])
        and is_count(value["step"])
    )


FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": is_text,
    "recipe": is_text,
    "data": is_text,
    "epoch": lambda value: is_count(value) and value >= 1,
    "cursor": is_count,
    "step": is_count,
    "order": is_random_state,
    "processes": lambda value: is_list_of(is_process, value) and len(value) > 0,
    "model": is_weights,
    "average": lambda value: is_list_of(lambda each: isinstance(each, Tensor), value),
    "optimizer": is_moments,
    "best": is_best,
    "epoch_seconds": is_time,
    "seconds": is_time,
    "metrics": lambda value: is_list_of(is_row, value),
}
"""What a checkpoint must hold, and how each is known."""
