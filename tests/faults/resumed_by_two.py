"""Run in two processes: a run, the same one stopped by a signal to one process, and resumed.

torchrun --nproc-per-node 2 resumed_by_two.py FOLDER
"""

import atexit
import os
import sys
from pathlib import Path

import torch.distributed as dist
from made_runs import SMALL, StopsAfter
from rich.console import Console

from nse.tasks import load_recipe
from nse.train import run
from nse.train.progress import Progress
from nse.train.signals import TrainingInterrupted

folder = Path(sys.argv[1])
recipe = load_recipe("logic/nse", SMALL)


@atexit.register  # before anything else is, so that it runs last
def tell_whether_the_processes_parted():
    threads = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    if not dist.is_initialized() and not any("gloo" in name for name in threads):
        (folder / f"parted-{os.environ['RANK']}").touch()


class OnTheLast(Progress):
    """In place of the silent progress of other processes: asks its own process alone to stop."""

    @classmethod
    def silent(cls):
        return StopsAfter(Console(quiet=True), after=13)


with Progress(Console(stderr=True)) as progress:
    run.train("whole", recipe, folder / "whole", progress)
    run.Progress = OnTheLast
    try:
        run.train("stopped", recipe, folder / "stopped", progress)
    except TrainingInterrupted as stopped:
        (folder / f"told-{stopped.code}").touch()
    except SystemExit as silent:
        (folder / f"silent-{silent.code}").touch()
    run.Progress = Progress
    run.train("stopped", recipe, folder / "stopped", progress, resume=True)
