"""Small runs of the real program, for tests that harm them."""

import io
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

import forking
from nse.tasks import load_recipe
from nse.train import checkpoints, run
from nse.train.progress import Progress
from nse.train.signals import TrainingInterrupted

SMALL = [
    "data.train=81",
    "data.dev=30",
    "data.test=30",
    "data.unseen=30",
    "model.size=8",
    "model.hidden=16",
    "model.dropout=0.2",
    "train.batch_size=10",
    "train.epochs=3",
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def words(folder, *overrides, recipe="logic/nse", processes=1):
    """The words after `python` of a run; with `--resume`, which a new folder ignores."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    sets = [word for item in [*SMALL, *overrides] for word in ("--set", item)]
    program = ["-m", "nse", "train", recipe, "--out", str(folder), "--resume", *sets]
    return [*(launcher if processes > 1 else []), *program]


def run_to_end(folder, *overrides, seconds=120, **settings):
    """Run to the end; return the completed process."""
    return forking.run(words(folder, *overrides, **settings), timeout=seconds)


def start_run(folder, *overrides, **settings):
    """Start a run in the background."""
    return forking.Popen(words(folder, *overrides, **settings), stderr=subprocess.PIPE, text=True)


def wait_for_file(process, there, seconds=60):
    """Wait until a file is there; the process must live as long."""
    end = time.monotonic() + seconds
    while not there.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, f"no {there}"
        time.sleep(0.01)


def end(process, number, seconds=60):
    """Send a signal; return the exit code and standard error."""
    process.send_signal(number)
    message = process.communicate(timeout=seconds)[1]
    return process.returncode, message


def checkpoint(folder):
    return checkpoints.read_file(Path(folder) / "checkpoint.pt")


def assert_same_end(one, other):
    """Two runs ended with the same weights, to the last bit, and the same figures."""
    a, b = checkpoint(one), checkpoint(other)
    for name in ("step", "epoch"):
        assert a[name] == b[name]
    for weights, others in ((a["model"], b["model"]), (a["best"]["weights"], b["best"]["weights"])):
        assert weights.keys() == others.keys()
        assert all(torch.equal(weights[name], others[name]) for name in weights)
    figures = ("epoch", "step", "loss", "train", "dev", "rate")
    assert [[row[k] for k in figures] for row in a["metrics"]] == [
        [row[k] for k in figures] for row in b["metrics"]
    ]
    model = "model/model.safetensors"
    assert (Path(one) / model).read_bytes() == (Path(other) / model).read_bytes()


def train(folder, *overrides, recipe="logic/nse", small=SMALL, data=None, after=None, resume=False, log=None):
    """A run in this process, which a signal stops after some step."""
    console = Console(file=log or io.StringIO(), width=200)
    with StopsAfter(console, after) as progress:
        return run.train(recipe, load_recipe(recipe, [*small, *overrides]), folder, progress, resume, data)


def stop(folder, *overrides, after, **settings):
    """A run in this process that must stop after some step."""
    expected = f"stopped; the last checkpoint is from step {after}$"
    with pytest.raises(TrainingInterrupted, match=expected) as stopped:
        train(folder, *overrides, after=after, **settings)
    assert (stopped.value.code, stopped.value.fix) == (143, ("resume",))


class StopsAfter(Progress):
    """Sends this process a signal after some step."""

    def __init__(self, console, after, number=signal.SIGTERM):
        super().__init__(console)
        self.after, self.number = after, number

    def show_step(self, epoch, step, *figures):
        super().show_step(epoch, step, *figures)
        if step == self.after:
            signal.raise_signal(self.number)
