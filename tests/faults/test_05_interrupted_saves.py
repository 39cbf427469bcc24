"""Fault 5: kill -9 or a full disk during a save: the previous checkpoint always loads."""

import io
import os
import signal
import time

import pytest

import forking
from faults.made_runs import (
    assert_same_end,
    checkpoint,
    end,
    start_run,
    stop,
    train,
    wait_for_file,
    words,
)

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from nse.train import checkpoints

torch.set_num_threads(1)
file = Path(sys.argv[1]) / "checkpoint.pt"
generator, steps, left_over = random.Random(0), [], 0
checkpoints.write_file(file, {"format": checkpoints.FORMAT, "step": 0})
for _ in range(40):
    child = os.fork()
    if child == 0:
        step = steps[-1] if steps else 0
        while True:
            step += 1
            weights = torch.full((50_000,), step)
            checkpoints.write_file(file, {"format": checkpoints.FORMAT, "step": step, "model": weights})
    time.sleep(0.005 + 0.03 * generator.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    packed = checkpoints.read_file(file)
    assert packed["step"] == 0 or (packed["model"] == packed["step"]).all()
    steps.append(packed["step"])
    left_over += any(file.parent.glob(".*.part"))
assert steps == sorted(steps) and steps[-1] > 3, steps
print(left_over)
"""


KILLS_OF_TWO = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from nse.train import checkpoints

torch.set_num_threads(1)
folder, generator, steps, between = Path(sys.argv[1]), random.Random(0), [0], 0
packed = checkpoints.load(folder).content
checkpoints.save(folder, packed | {"step": 0})
rename = Path.replace

def linger(old, new):  # where only the older one has its name
    rename(old, new)
    if new.name == checkpoints.PREVIOUS:
        os.write(told, b"!")
        time.sleep(60)

for number in range(30):
    listen, told = os.pipe()
    child = os.fork()
    if child == 0:
        Path.replace = linger if number % 3 == 0 else rename
        step = steps[-1]
        while True:
            step += 1
            weights = {"all": torch.full((20_000,), float(step))}
            checkpoints.save(folder, packed | {"step": step, "model": weights})
            os.write(told, b".")
    os.read(listen, 1)  # it has saved once, or lingers
    time.sleep(0.02 * generator.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    between += not (folder / checkpoints.CURRENT).exists()
    loaded = checkpoints.load(folder)
    assert not loaded.newer_error
    assert loaded.content["step"] == 0 or (loaded.content["model"]["all"] == loaded.content["step"]).all()
    steps.append(loaded.content["step"])
assert steps == sorted(steps) and steps[-1] > 3, steps
print(between)
"""


def test_after_a_killed_save_one_of_two_checkpoints_is_valid(tmp_path):
    stop(tmp_path / "run", after=12, recipe="logic/bow")
    answer = forking.run(["-c", KILLS_OF_TWO, tmp_path / "run"])
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) >= 10  # kills between the two renames, or the test would show nothing


def test_after_a_killed_write_the_checkpoint_file_is_valid(tmp_path):
    answer = forking.run(["-c", KILLS, tmp_path])
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) > 3  # kills that hit a save half way, or the test would show nothing


def test_a_killed_run_resumes_from_its_last_step(tmp_path):
    folder, settings = tmp_path / "run", ["train.checkpoint_minutes=0", "train.epochs=400"]
    process = start_run(folder, *settings, recipe="logic/bow")
    wait_for_file(process, folder / "checkpoint.pt")
    time.sleep(0.2)
    code, message = end(process, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "Traceback" not in message
    step, log = checkpoint(folder)["step"], io.StringIO()
    stop(folder, *settings, after=step + 3, recipe="logic/bow", resume=True, log=log)
    assert f"resumed after step {step} (epoch" in log.getvalue()
    assert checkpoint(folder)["step"] == step + 3


@pytest.mark.skipif(os.name == "nt", reason="limits the size of files")
def test_a_full_disk_is_reported_and_the_run_resumes(tmp_path):
    folder = tmp_path / "run"
    stop(folder, after=5)
    before = (folder / "checkpoint.pt").read_bytes()
    room = len(before)  # and the next one also holds the best epoch's weights
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))"
    answer = forking.run(words(folder), first=limit)
    assert answer.returncode == 2
    assert answer.stderr.strip().split("\n")[-1] == (
        f"nse: {folder} cannot be written: File too large; the last checkpoint is from step 5; "
        "free disk space; --resume continues the run"
    )
    assert "Traceback" not in answer.stderr
    assert (folder / "checkpoint.pt").read_bytes() == before
    assert not list(folder.glob("*.new.pt"))
    assert not list(folder.glob(".*"))
    train(folder, resume=True)
    train(tmp_path / "whole")
    assert_same_end(folder, tmp_path / "whole")
