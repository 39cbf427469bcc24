"""Fault 23: beside a busy neighbour a run loses its share; benchmarks/train_threads.py has the speeds.

What is tested here does not depend on time: how threads wait, how many there are, and that the bits of a run
never depend on how busy the machine is.
"""

import io
import json
import os
import subprocess
import sys

import pytest
import torch

from faults.made_runs import SMALL, assert_same_end, stop, train
from nse import ConfigError
from nse.tasks import load_recipe
from nse.train.distributed import Processes
from nse.train.environment import SMALL_MODEL_SIZE, set_precision, set_thread_count

LARGE = [*SMALL, "model.size=128", "data.train=41", "data.dev=6", "data.test=6", "data.unseen=6"]
LARGE += ["train.epochs=1"]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch):
    """As on a machine with two cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with set_precision(tf32=True, device=torch.device("cpu")):
        torch.set_num_threads(2)
        yield


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PyTorch has GNU OpenMP on Linux")
@pytest.mark.parametrize(
    ("settings", "spins"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "30000000000"),
    ],
)
def test_waiting_threads_release_the_core_soon(settings, spins):
    """As OpenMP itself says, once PyTorch has loaded it; what the user sets goes first."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    answer = subprocess.run(
        [sys.executable, "-c", "import nse; nse.NSE"],
        env=kept | settings | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in answer.stderr


@pytest.mark.parametrize(
    ("overrides", "environment", "packed", "threads"),
    [
        (["model.size=64"], {}, None, 1),
        (["model.size=127"], {}, None, 1),
        (["model.size=128"], {}, None, 2),
        (["model.size=64", "train.threads=3"], {}, None, 3),
        (["model.size=300", "train.threads=1"], {}, None, 1),
        (["model.size=64"], {"OMP_NUM_THREADS": "2"}, None, 2),
        (["model.size=64"], {}, [{"threads": 4}], 4),
        (["model.size=300"], {}, [{"threads": 1}], 1),
        (["model.size=300", "train.threads=2"], {}, [{"threads": 1}], 2),
        (["model.size=300"], {}, [{"threads": 1}, {"threads": 1}], 2),  # there were two processes
    ],
)
def test_a_run_uses_the_configured_number_of_threads(overrides, environment, packed, threads, monkeypatch):
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    checkpoint = {"processes": packed} if packed else None
    set_thread_count(load_recipe("logic/nse", overrides), checkpoint, Processes())
    assert torch.get_num_threads() == threads


def test_document_models_use_all_threads():
    """Their products are large, also where their vectors are small: they are many sentences."""
    recipe = load_recipe("aclimdb/nse-lstm")
    assert recipe.model.size < SMALL_MODEL_SIZE
    set_thread_count(recipe, None, Processes())
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("overrides", "line", "threads"),
    [
        ([], "uses 2 CPU threads (train.threads changes it)", 2),
        (["train.threads=1"], "uses 1 CPU thread (train.threads changes it)", 1),
    ],
)
def test_log_and_environment_name_the_number_of_threads(tmp_path, overrides, line, threads):
    log = io.StringIO()
    stop(tmp_path / "run", *overrides, small=LARGE, recipe="logic/bow", after=3, log=log)
    assert line in log.getvalue()
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["threads"] == threads
    assert torch.get_num_threads() == 2  # as before the run


def test_one_thread_on_one_core_is_not_logged(tmp_path):
    torch.set_num_threads(1)
    log = io.StringIO()
    stop(tmp_path / "run", small=LARGE, recipe="logic/bow", after=3, log=log)
    assert "CPU thread" not in log.getvalue()


def test_a_resumed_run_keeps_its_threads_and_ends_with_the_same_bits(tmp_path):
    """Wherever it goes on: here on a machine with one core."""
    train(tmp_path / "whole", small=LARGE)
    stop(tmp_path / "stopped", small=LARGE, after=4)
    torch.set_num_threads(1)
    train(tmp_path / "stopped", small=LARGE, resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    environment = json.loads((tmp_path / "stopped" / "environment.json").read_text())
    assert environment["threads"] == 2


def test_the_number_of_threads_may_change_on_resume(tmp_path):
    stop(tmp_path / "run", small=LARGE, recipe="logic/bow", after=4)
    train(tmp_path / "run", "train.threads=1", small=LARGE, recipe="logic/bow", resume=True)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["threads"] == 1


@pytest.mark.parametrize("threads", [-1, 1025, 10**30])
def test_too_many_threads_are_refused(threads):
    with pytest.raises(ConfigError, match="threads must be from 0 to 1024, got"):
        load_recipe("logic/nse", [f"train.threads={threads}"])
