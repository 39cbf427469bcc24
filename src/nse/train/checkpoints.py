"""The last two checkpoints of a run, each verified before it is saved and before it is used.

checkpoint.pt           the newest
checkpoint.previous.pt  the one before it, for the day on which the newest cannot be read
checkpoint.bad.pt       a file that could not be read, kept aside for whoever wants to know why

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
from nse.files import open_regular, settle, write_bytes
from nse.nn.text_model import rename_old_keys
from nse.tasks.recipe import MOST_THREADS
from nse.train.fields import Shape, fits, is_count, is_dict_of, is_number, list_misfits
from nse.train.state import FORMAT
from nse.train.step import NotFiniteError

CURRENT, PREVIOUS, BAD = "checkpoint.pt", "checkpoint.previous.pt", "checkpoint.bad.pt"
NEW = "checkpoint.new.pt"  # before the others move on
MARK = b"SHA-256\n"  # at the end of the file, before the SHA-256 of everything in front of it


class CheckpointError(RunError):
    """A file is no checkpoint, has changed since it was saved, or holds what no run saves."""

    def __init__(self, file: Path, reason: str):
        super().__init__(f"{file} cannot be read as a checkpoint ({reason})")


class Loaded(NamedTuple):
    """A checkpoint that was verified."""

    packed: dict[str, Any]
    file: Path  # where it lies
    wrong: str  # what is wrong with the newer one; "" where nothing is


def save(folder: Path, packed: dict[str, Any]) -> None:
    """Write a checkpoint, and keep the one before it; whatever interrupts it, one of the two is good."""
    if bad := find_not_finite(packed):
        raise NotFiniteError(f"NaN or infinity in {bad} after step {packed['step']}, which is not saved")
    write_file(folder / NEW, packed)
    if (folder / CURRENT).exists():
        (folder / CURRENT).replace(folder / PREVIOUS)
    (folder / NEW).replace(folder / CURRENT)
    settle(folder)


def load(folder: Path) -> Loaded | None:
    """Return the newest good checkpoint of a run; `None` where there is none at all."""
    wrong: list[str] = []
    for file in (folder / CURRENT, folder / PREVIOUS):
        if not file.exists():
            continue
        try:
            return Loaded(read_checked(file), file, "".join(wrong))
        except CheckpointError as error:
            wrong.append(str(error))
    if wrong:
        both = "one of them back, or remove both" if len(wrong) > 1 else "it back, or remove it"
        raise RunError(f"{'; '.join(wrong)}: get {both} to start over")
    return None


def write_file(file: Path, packed: dict[str, Any]) -> None:
    """Write one checkpoint file; whatever interrupts it, the file is the old one or the new one."""
    content = io.BytesIO()  # and not into the file, where PyTorch hides what the system said
    torch.save(packed, content)
    checksum = hashlib.sha256(content.getbuffer()).digest()
    content.seek(0, io.SEEK_END)
    content.write(MARK + checksum)
    write_bytes(file, content.getbuffer())


def read_file(file: Path) -> dict[str, Any]:
    """Read one checkpoint file, once its checksum shows that not a bit of it has changed."""
    try:
        with open_regular(file) as handle:
            content = handle.read()
    except OSError as error:
        raise CheckpointError(file, error.strerror or str(error)) from None
    body, mark, checksum = content[:-40], content[-40:-32], content[-32:]
    if mark != MARK:
        raise CheckpointError(file, "it does not end in a checksum: it is cut off, or of another version")
    if hashlib.sha256(body).digest() != checksum:
        raise CheckpointError(file, "its checksum is wrong: it has changed since it was saved")
    try:
        packed = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch raises whatever the bytes lead it to
        raise CheckpointError(file, str(error).split("\n")[0][:200]) from None
    number = packed.get("format") if isinstance(packed, dict) else None
    if type(number) is not int or not 0 < number < 2**31:
        raise CheckpointError(file, "it holds no format number")
    if number != FORMAT:
        raise RunError(f"{file}: format {number}, this version reads {FORMAT}: use the version that wrote it")
    return dict(packed)


def read_checked(file: Path) -> dict[str, Any]:
    """Read one checkpoint file, and check every field and number of it."""
    packed = read_file(file)
    if wrong := list_misfits(packed, FIELDS):
        raise CheckpointError(file, f"{', '.join(wrong)}: missing, or not as a run saves it")
    if bad := find_not_finite(packed):
        raise CheckpointError(file, f"NaN or infinity in {bad}")
    for holder, key in ((packed, "model"), (packed["best"], "weights")):
        holder[key] = rename_old_keys(holder[key])
    return packed


def find_not_finite(packed: dict[str, Any]) -> str | None:
    """Return the name of a tensor that a run computes and that holds NaN or infinity, if there is one."""
    best = packed["best"]["weights"] | {"scores": packed["best"]["scores"]}
    tensors: dict[str, Tensor] = {
        **packed["model"],
        **{f"the average of weight {number}": value for number, value in enumerate(packed["average"])},
        **{
            f"the optimizer's {name} of weight {number}": value
            for number, moments in packed["optimizer"].items()
            for name, value in moments.items()
        },
        **{f"the best epoch's {name}": value for name, value in best.items()},
    }
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)


def is_random_state(value: Any) -> bool:
    """Say whether a value is the state of a random generator."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def is_step(value: Any) -> bool:
    """Say whether a value is how often an optimizer has changed a weight."""
    real = isinstance(value, Tensor) and value.is_floating_point() and value.numel() == 1
    return real and bool((value >= 0).all())


def is_moments(value: Any) -> bool:
    """Say whether a value is what an optimizer remembers, by the number of the weight."""
    numbered = isinstance(value, dict) and all(map(is_count, value))
    return numbered and all(fits(each, WEIGHTS) and is_step(each.get("step")) for each in value.values())


WEIGHTS = is_dict_of(Tensor)
PROCESS = {
    "random": lambda value: fits(value, is_dict_of(is_random_state)) and "cpu" in value,
    "sums": [is_number, is_number, is_count],
    "threads": lambda value: is_count(value) and 1 <= value <= MOST_THREADS,
}
ROW = dict.fromkeys(("loss", "train", "dev", "rate", "seconds", "examples_per_second"), is_number)

FIELDS: dict[str, Shape] = {
    "name": str,
    "recipe": str,
    "data": str,
    "epoch": lambda value: is_count(value) and value >= 1,
    "cursor": is_count,
    "step": is_count,
    "order": is_random_state,
    "processes": lambda value: fits(value, [PROCESS]) and value,
    "model": WEIGHTS,
    "average": [Tensor],
    "optimizer": is_moments,
    "best": {
        "dev": is_number,
        "epoch": is_count,
        "weights": WEIGHTS,
        "scores": lambda value: fits(value, Tensor) and value.is_floating_point() and value.dim() == 2,
    },
    **dict.fromkeys(("epoch_seconds", "seconds"), lambda value: is_number(value) and value >= 0),
    "metrics": [{"epoch": is_count, "step": is_count} | ROW],
}
"""What a checkpoint must hold."""
