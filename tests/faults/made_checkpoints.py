"""Broken checkpoints, drawn by hypothesis, in a small run that goes on from them in this process."""

import copy
import io
import json
import shutil
from typing import NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from rich.console import Console

from faults.fuzzing import JSON, damaged, flipped
from faults.made_runs import StopsAfter
from nse.errors import RunError
from nse.tasks import load_recipe
from nse.train import run
from nse.train.checkpoints import write_file
from nse.train.progress import Progress
from nse.train.signals import TrainingInterrupted

RECIPE = "logic/bow"
TINY = ["data.train=41", "data.dev=30", "data.test=30", "data.unseen=30", "model.size=8", "model.hidden=8"]
TINY += ["train.batch_size=10", "train.epochs=2", "train.ema_decay=0.9"]
STEPS = 10

TENSORS = st.sampled_from(
    [
        torch.zeros(0),
        torch.zeros(3),
        torch.zeros(2, 5),
        torch.full((1,), float("nan")),
        torch.tensor(7),
        torch.zeros(3, dtype=torch.uint8),
        torch.zeros(1, dtype=torch.complex64),
    ]
)
NUMBERS = st.integers(-(1 << 40), 1 << 40) | st.sampled_from(
    [-1, 0, 1, 2, 9, 0.5, 1e-300, 1e300, 1 << 1500, float("nan"), float("inf")]
)


class Bounded(Progress):
    """Ends a run that takes more steps than it should."""

    left = 10 * STEPS

    def step(self, *figures):
        super().step(*figures)
        self.left -= 1
        assert self.left, "this run does not end"


def stopped_run(folder):
    """Make a run that was stopped a step before its end; gives the file of its only checkpoint."""
    console = Console(file=io.StringIO())
    with pytest.raises(TrainingInterrupted), StopsAfter(console, STEPS - 1) as progress:
        run.train(RECIPE, load_recipe(RECIPE, TINY), folder, progress)
    for older in folder.glob("checkpoint.*.pt"):  # or the run would go on from that one
        older.unlink()
    return folder / "checkpoint.pt"


def end_of(folder):
    """Go on with a run to its end; gives what it ended with, times left out."""
    console = Console(file=io.StringIO())
    with Bounded(console) as progress:
        result = run.train(RECIPE, load_recipe(RECIPE, TINY), folder, progress, resume=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    figures = [[row[key] for key in ("epoch", "step", "loss", "train", "dev")] for row in rows]
    model = (folder / "model" / "model.safetensors").read_bytes()
    return model, figures, result["epoch"], result["accuracy"]


class Broken(NamedTuple):
    """A broken checkpoint.

    Attributes:
        how: What was done to it, for whoever reads that a test failed.
        content: Bytes, or a packed state that is to be saved.
    """

    how: str
    content: object

    def __repr__(self):
        return self.how


def damaged_bytes(content):
    """A checkpoint's bytes with one bit flipped, or with more damage."""

    def describe(broken):
        same = next((at for at, pair in enumerate(zip(content, broken, strict=False)) if len({*pair}) > 1), 0)
        return Broken(f"{len(broken)} bytes of {len(content)}, the first wrong one {same}", broken)

    return (flipped(content) | damaged(content)).map(describe)


@st.composite
def changed(draw, packed):
    """A packed state with one value, at any depth, replaced, of another shape, or missing."""
    packed = copy.deepcopy(packed)
    parent, path = packed, []
    while True:
        key = draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))))
        value = parent[key]
        path.append(key)
        if isinstance(value, dict | list) and value and draw(st.integers(0, 3)):
            parent = value
            continue
        how = draw(st.sampled_from(["replace", "replace", "remove", "reshape"]))
        if how == "remove":
            del parent[key]
        elif how == "reshape" and isinstance(value, torch.Tensor) and value.numel():
            parent[key] = draw(st.sampled_from([value.flatten()[1:], value[None], value.double(), -value]))
        else:
            parent[key] = draw(NUMBERS | TENSORS | JSON)
        new_value = "" if how == "remove" else f": {parent[key]!r}"
        return Broken(f"{how} {path}{new_value}"[:500], packed)


def checkpoints(file):
    """What a checkpoint may become: damaged bytes, or a changed packed state."""
    return damaged_bytes(file.read_bytes()) | changed(torch.load(file, weights_only=True))


def try_checkpoint(good, folder):
    """Gives a function from a broken checkpoint to what came of it: "refused" or "went on".

    Damaged bytes are refused, or make no difference to where the run ends. A changed state, as a bug would
    save it, is refused or gone on with.

    Args:
        good: The run's folder.
        folder: Where to go on with a copy of it.
    """

    def copied():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        return folder / "checkpoint.pt"

    copied()
    same_end = end_of(folder)

    def attempt(broken):
        file, content = copied(), broken.content
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            write_file(file, content)
        try:
            end = end_of(folder)
        except RunError as error:
            if not str(error) or "\n" in str(error):
                raise
            return "refused"
        assert not isinstance(content, bytes) or end == same_end, "damage was not noticed"
        return "went on"

    return attempt
