"""Fault 8: one process of a distributed run dies: no hang, a clear error, and the checkpoint loads."""

import io
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from faults.made_runs import checkpoint, start_run, stop, wait_for_file


def process_of(launcher, rank):
    """The number of one of the processes that torchrun started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
            return int(child)
    raise AssertionError(children)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the processes in /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_the_others_end_with_an_error_and_the_run_can_be_resumed(tmp_path, rank):
    folder = tmp_path / "run"
    process = start_run(folder, "train.epochs=300", recipe="logic/bow", processes=2)
    wait_for_file(process, folder / "checkpoint.pt")
    time.sleep(0.3)  # so that all processes know of a checkpoint
    began = time.monotonic()
    os.kill(process_of(process.pid, rank), signal.SIGKILL)
    message = process.communicate(timeout=60)[1]
    assert time.monotonic() - began < 25
    assert process.returncode != 0
    lines = [line for line in message.split("\n") if line.startswith("nse: ")]
    assert len(lines) == 1, message
    died = re.fullmatch(
        r"nse: another process of this run died; "
        r"the last checkpoint is from step (\d+); --resume continues the run",
        lines[0],
    )
    assert died, message
    step, log = checkpoint(folder)["step"], io.StringIO()
    assert step >= int(died[1])  # the first process may have died before it told of its last save
    stop(folder, "train.epochs=300", after=step + 5, recipe="logic/bow", resume=True, log=log)
    assert f"resumed after step {step} (epoch" in log.getvalue()
    assert "; there were 2 processes, now 1" in log.getvalue()
