"""Fault 19, run folders: one process holds the lock of a run, and every other is told who that is."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import torch

from faults.made_runs import assert_same_end, stop, train
from nse import RunError
from nse.cli import train as cli
from nse.text.tensors import LabelledRows
from nse.train import run, scores
from nse.train.evaluate import compute_ranking
from nse.train.lock import LOCK, find_run_folder, lock_run

BOW = {"recipe": "logic/bow"}

HOLD = """
import sys
from pathlib import Path
from nse.train.lock import lock_run

with lock_run(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""

FORK = """
import os, signal, sys, time
from pathlib import Path
from nse.train.lock import lock_run

with lock_run(Path(sys.argv[1])):
    child = os.fork()
    os.write(1, b"forked\\n" if child == 0 else b"%d\\n" % child)  # whole lines, whoever is first
    time.sleep(60)
"""


def program(text, folder):
    """A process that holds the lock of a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.first = process.stdout.readline()
    return process


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was stopped."""
    folder = tmp_path_factory.mktemp("made") / "run"
    stop(folder, after=11, **BOW)
    return folder


@pytest.fixture(scope="module")
def held(tmp_path_factory, made):
    """A run folder that another process holds, and its number."""
    folder = shutil.copytree(made, tmp_path_factory.mktemp("held") / "run")
    (folder / "result.json").write_text("{}")
    (folder / "scores").mkdir()
    process = program(HOLD, folder)
    yield folder, process.pid
    process.communicate("\n", timeout=60)


def write_scores(folder):
    rows = LabelledRows((), torch.tensor([1, 0]), torch.tensor([0, 0]))
    compute_ranking(torch.tensor([[0.5], [0.25]]), rows, folder / "scores" / "test")


WRITERS = {
    "a new run": partial(train, **BOW),
    "--resume": partial(train, resume=True, **BOW),
    "--resume alone": lambda folder: cli.train(out=folder, resume=True),
    "another seed": lambda folder: train(folder, "seed=9", resume=True, **BOW),
    "evaluate --trec": write_scores,
    "evaluate --scores": scores.evaluate_scores,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_second_writer_is_refused_with_the_process_of_the_first(held, writer, monkeypatch):
    folder, holder = held
    monkeypatch.setattr(scores, "find_score_files", lambda *_: [])
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    message = (
        rf"{folder} is in use by process {holder}, since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d: "
        "wait for it to end, stop it, or choose another folder"
    )
    with pytest.raises(RunError, match=message):
        WRITERS[writer](folder)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_the_lock_of_a_killed_run_is_released(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "run")
    process = program(HOLD, folder)
    process.kill()
    process.communicate()
    assert f"process {process.pid}" in (folder / LOCK).read_text()  # nobody could remove it
    train(folder, resume=True, **BOW)
    train(tmp_path / "whole", **BOW)
    assert_same_end(folder, tmp_path / "whole")
    assert not (folder / LOCK).exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_hold_the_lock_of_its_dead_parent(tmp_path):
    process = program(FORK, tmp_path)
    lines = {process.first.strip(), process.stdout.readline().strip()}
    assert "forked" in lines
    (child,) = map(int, lines - {"forked"})
    try:
        with pytest.raises(RunError, match=f"in use by process {process.pid}"), lock_run(tmp_path):
            pass
        process.kill()
        process.wait()
        with lock_run(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_started_program_does_not_inherit_the_lock(tmp_path):
    with lock_run(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with lock_run(tmp_path):
        pass
    child.communicate(b"\n")


def test_one_of_two_runs_started_together_is_refused(tmp_path, monkeypatch):
    """The first one is still reading its data."""
    folder, reading, over = tmp_path / "run", threading.Event(), threading.Event()
    original = run.fit

    def fit(*args):
        reading.set()
        over.wait()
        return original(*args)

    monkeypatch.setattr(run, "fit", fit)
    first = threading.Thread(target=partial(train, folder, **BOW))
    first.start()
    reading.wait()
    with pytest.raises(RunError, match=f"is in use by process {os.getpid()}"):
        train(folder, "seed=2", **BOW)
    over.set()
    first.join()
    assert json.loads((folder / "result.json").read_text())["seed"] == 1


def test_locking_leaves_no_files_behind(tmp_path):
    folder = tmp_path / "new" / "run"
    with lock_run(folder):
        assert folder.is_dir()
    assert not (tmp_path / "new").exists()
    with lock_run(folder):
        (folder / "mine").touch()
    assert [file.name for file in folder.iterdir()] == ["mine"]


def test_a_folder_with_an_old_lock_counts_as_empty(tmp_path):
    (tmp_path / LOCK).write_text("process 1, since yesterday\n")
    assert train(tmp_path, **BOW)["seed"] == 1


def test_a_link_named_like_the_lock_is_not_followed(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "run")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / LOCK).symlink_to(victim)
    with pytest.raises(RunError, match=re.escape(f"{folder} cannot be used: {folder / LOCK}: ")):
        train(folder, resume=True, **BOW)
    assert victim.read_text() == "precious"


def test_the_run_folder_of_a_file_is_found(made, tmp_path):
    assert find_run_folder(made / "scores" / "test") == made
    assert find_run_folder(made / "test") == made
    assert find_run_folder(tmp_path / "test") is None
    assert find_run_folder(Path("test")) is None


def test_a_run_works_on_systems_without_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    assert train(tmp_path / "run", **BOW)["seed"] == 1
    assert not (tmp_path / "run" / LOCK).exists()
