"""Fault 5: kill -9 or a full disk during a save: the previous checkpoint always loads."""

import io
import signal
import subprocess
import sys
import time

from faults.made_runs import (
    ENVIRONMENT,
    assert_same_end,
    checkpoint,
    end,
    started,
    stop,
    train,
    wait_for,
    words,
)

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from nse.train import state

torch.set_num_threads(1)
file = Path(sys.argv[1]) / "checkpoint.pt"
generator, steps, left_over = random.Random(0), [], 0
state.save(file, {"format": state.FORMAT, "step": 0})
for _ in range(40):
    child = os.fork()
    if child == 0:
        step = steps[-1] if steps else 0
        while True:
            step += 1
            state.save(file, {"format": state.FORMAT, "step": step, "model": torch.full((50_000,), step)})
    time.sleep(0.005 + 0.03 * generator.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    packed = state.load(file)
    assert packed["step"] == 0 or (packed["model"] == packed["step"]).all()
    steps.append(packed["step"])
    left_over += any(file.parent.glob(".*.part"))
assert steps == sorted(steps) and steps[-1] > 3, steps
print(left_over)
"""


def test_whenever_a_save_is_killed_the_checkpoint_loads(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) > 3  # kills that hit a save half way, or the test would show nothing


def test_a_run_that_saves_all_the_time_may_be_killed_at_any_time(tmp_path):
    folder, settings = tmp_path / "run", ["train.minutes=0", "train.epochs=400"]
    process = started(folder, *settings, recipe="logic/bow")
    wait_for(process, folder / "checkpoint.pt")
    time.sleep(0.2)
    code, told = end(process, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "Traceback" not in told
    step, told = checkpoint(folder)["step"], io.StringIO()
    stop(folder, *settings, after=step + 3, recipe="logic/bow", resume=True, told=told)
    assert f"goes on after step {step} in epoch" in told.getvalue()
    assert checkpoint(folder)["step"] == step + 3


def test_a_file_system_that_takes_no_more_is_told_and_costs_nothing(tmp_path):
    folder = tmp_path / "run"
    stop(folder, after=5)
    before = (folder / "checkpoint.pt").read_bytes()
    limit = str(len(before) // 2048)  # half of a checkpoint, in kilobytes: the next save finds no room
    answer = subprocess.run(
        ["bash", "-c", 'ulimit -f "$0"; exec "$@"', limit, *words(folder)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stderr.strip().split("\n")[-1] == (
        f"nse: {folder} cannot be written: File too large; the checkpoint at step 5 is good; "
        "make room and run again with --resume"
    )
    assert "Traceback" not in answer.stderr
    assert (folder / "checkpoint.pt").read_bytes() == before
    assert not list(folder.glob(".*.part"))
    train(folder, resume=True)
    train(tmp_path / "whole")
    assert_same_end(folder, tmp_path / "whole")
