"""Checkpoint files of a run: the last two, each checked before it is saved and before it is used.

checkpoint.pt           the newest
checkpoint.previous.pt  the one before it, used if the newest cannot be read
checkpoint.bad.pt       a file that could not be read, kept for inspection

A file holds tensors, numbers, strings, lists and dictionaries only, and is read with `weights_only=True`.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nse.errors import RunError
from nse.files import open_regular, sync_folder, write_bytes
from nse.nn.text_model import rename_old_keys
from nse.tasks.recipe import MAX_THREADS
from nse.train.fields import Schema, is_count, is_dict_of, is_number, list_invalid_fields, matches
from nse.train.state import FORMAT
from nse.train.train_step import NotFiniteError

CURRENT, PREVIOUS, BAD = "checkpoint.pt", "checkpoint.previous.pt", "checkpoint.bad.pt"
NEW = "checkpoint.new.pt"  # until the current one is renamed
MARK = b"SHA-256\n"  # followed by the checksum of all bytes before the mark


class CheckpointError(RunError):
    """Raised for a file that is not a checkpoint, is damaged, or holds invalid fields."""

    def __init__(self, file: Path, reason: str):
        super().__init__(f"{file} cannot be read as a checkpoint ({reason})")


class LoadedCheckpoint(NamedTuple):
    """Valid checkpoint and its file."""

    content: dict[str, Any]
    file: Path
    newer_error: str  # why the newer file could not be used; "" if it was


def save(folder: Path, checkpoint: dict[str, Any]) -> None:
    """Save a checkpoint and keep the one before it; one of the two is valid at any time."""
    if name := find_not_finite(checkpoint):
        raise NotFiniteError(f"NaN or infinity in {name} after step {checkpoint['step']}, which is not saved")
    write_file(folder / NEW, checkpoint)
    if (folder / CURRENT).exists():
        (folder / CURRENT).replace(folder / PREVIOUS)
    (folder / NEW).replace(folder / CURRENT)
    sync_folder(folder)


def load(folder: Path) -> LoadedCheckpoint | None:
    """Return the newest valid checkpoint of a run; `None` if it has no checkpoint."""
    errors: list[str] = []
    for file in (folder / CURRENT, folder / PREVIOUS):
        if not file.exists():
            continue
        try:
            return LoadedCheckpoint(read_valid_file(file), file, "".join(errors))
        except CheckpointError as error:
            errors.append(str(error))
    if errors:
        advice = "restore one of them, or remove both" if len(errors) > 1 else "restore it, or remove it"
        raise RunError(f"{'; '.join(errors)}: {advice} to start over")
    return None


def write_file(file: Path, checkpoint: dict[str, Any]) -> None:
    """Write a checkpoint file atomically."""
    content = io.BytesIO()  # not directly to the file, where PyTorch hides the system's error message
    torch.save(checkpoint, content)
    checksum = hashlib.sha256(content.getbuffer()).digest()
    content.seek(0, io.SEEK_END)
    content.write(MARK + checksum)
    write_bytes(file, content.getbuffer())


def read_file(file: Path) -> dict[str, Any]:
    """Read a checkpoint file whose checksum and format are right."""
    try:
        with open_regular(file) as handle:
            content = handle.read()
    except OSError as error:
        raise CheckpointError(file, error.strerror or str(error)) from None
    body, mark, checksum = content[:-40], content[-40:-32], content[-32:]
    if mark != MARK:
        raise CheckpointError(file, "it does not end in a checksum: it is truncated or of another version")
    if hashlib.sha256(body).digest() != checksum:
        raise CheckpointError(file, "wrong checksum: it has changed since it was saved")
    try:
        checkpoint = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # corrupt bytes can raise any exception in PyTorch
        raise CheckpointError(file, str(error).split("\n")[0][:200]) from None
    version = checkpoint.get("format") if isinstance(checkpoint, dict) else None
    if type(version) is not int or not 0 < version < 2**31:
        raise CheckpointError(file, "it has no format number")
    if version != FORMAT:
        advice = f"this version reads format {FORMAT}: use the version that wrote it"
        raise RunError(f"{file} has format {version}; {advice}")
    return dict(checkpoint)


def read_valid_file(file: Path) -> dict[str, Any]:
    """Read a checkpoint file, and check all fields and numbers."""
    checkpoint = read_file(file)
    if names := list_invalid_fields(checkpoint, FIELDS):
        raise CheckpointError(file, f"{', '.join(names)}: missing or invalid")
    if name := find_not_finite(checkpoint):
        raise CheckpointError(file, f"NaN or infinity in {name}")
    for parent, key in ((checkpoint, "model"), (checkpoint["best"], "weights")):
        parent[key] = rename_old_keys(parent[key])
    return checkpoint


def find_not_finite(checkpoint: dict[str, Any]) -> str | None:
    """Return the name of a tensor with NaN or infinity, if there is one."""
    best = checkpoint["best"]["weights"] | {"scores": checkpoint["best"]["scores"]}
    tensors: dict[str, Tensor] = {
        **checkpoint["model"],
        **{f"the average of weight {number}": value for number, value in enumerate(checkpoint["average"])},
        **{
            f"the optimizer's {name} of weight {number}": value
            for number, moments in checkpoint["optimizer"].items()
            for name, value in moments.items()
        },
        **{f"the best epoch's {name}": value for name, value in best.items()},
    }
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)


def is_random_state(value: Any) -> bool:
    """Return whether a value is the state of a random generator."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def is_step(value: Any) -> bool:
    """Return whether a value is Adam's number of steps."""
    is_float = isinstance(value, Tensor) and value.is_floating_point() and value.numel() == 1
    return is_float and bool((value >= 0).all())


def is_optimizer_state(value: Any) -> bool:
    """Return whether a value is Adam's state by the number of the weight."""
    is_numbered = isinstance(value, dict) and all(map(is_count, value))
    return is_numbered and all(matches(v, WEIGHTS) and is_step(v.get("step")) for v in value.values())


WEIGHTS = is_dict_of(Tensor)
PROCESS = {
    "random": lambda value: matches(value, is_dict_of(is_random_state)) and "cpu" in value,
    "sums": [is_number, is_number, is_count],
    "threads": lambda value: is_count(value) and 1 <= value <= MAX_THREADS,
}
ROW = dict.fromkeys(("loss", "train", "dev", "rate", "seconds", "examples_per_second"), is_number)

FIELDS: dict[str, Schema] = {
    "name": str,
    "recipe": str,
    "data": str,
    "epoch": lambda value: is_count(value) and value >= 1,
    "cursor": is_count,
    "step": is_count,
    "order": is_random_state,
    "processes": lambda value: matches(value, [PROCESS]) and value,
    "model": WEIGHTS,
    "average": [Tensor],
    "optimizer": is_optimizer_state,
    "best": {
        "dev": is_number,
        "epoch": is_count,
        "weights": WEIGHTS,
        "scores": lambda value: matches(value, Tensor) and value.is_floating_point() and value.dim() == 2,
    },
    **dict.fromkeys(("epoch_seconds", "seconds"), lambda value: is_number(value) and value >= 0),
    "metrics": [{"epoch": is_count, "step": is_count} | ROW],
}
"""Fields of a checkpoint."""
