"""Many processes train as one: shares add up to the batch, and the curve is the same to rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nse import RunError
from nse.tasks import TASKS, load_recipe
from nse.train.distributed import Share, Team, leads
from nse.train.loop import fit
from nse.train.progress import Progress


def member(rank, size):
    """A process of a team, without the others."""
    team = Team.__new__(Team)
    team.rank, team.size = rank, size
    return team


@pytest.mark.parametrize(("size", "examples"), [(2, 8), (2, 7), (3, 7), (4, 2), (2, 1)])
def test_shares_add_up(size, examples):
    index, values = torch.randperm(50)[:examples], torch.rand(50, dtype=torch.float64)
    shares = [member(rank, size).share(index) for rank in range(size)]
    counted = [number for share in shares for number in share.numbers[: share.size].tolist()]
    assert sorted(counted) == sorted(index.tolist())
    assert all(len(share.numbers) for share in shares)  # each process takes part, if only for nothing
    mean = sum(share.weight * values[share.numbers].mean() for share in shares) / size
    assert mean.item() == pytest.approx(values[index].mean().item())


def test_alone_a_share_is_the_batch():
    numbers, size, weight = member(0, 1).share(torch.arange(5))
    assert (numbers.tolist(), size, weight) == ([0, 1, 2, 3, 4], 5, 1.0)
    assert Share(torch.arange(1), 0, 0.0).weight == 0


def test_alone_everything_is_as_it_was():
    team = member(0, 1)
    assert team.most(3, 0) == [3, 0]
    assert team.sum(1.5) == [1.5]
    assert team.gather("x") == ["x"]
    assert team.lead(lambda: 7) == 7
    assert team.in_turn(lambda: 8) == 8
    with pytest.raises(RuntimeError, match="a bug"), team.together(str):
        raise RuntimeError("a bug, though gloo is named")


def test_only_lost_processes_are_told_as_such():
    team = member(1, 2)
    with pytest.raises(RuntimeError, match="shapes differ"), team.together(str):
        raise RuntimeError("shapes differ")


def test_the_first_process_leads(monkeypatch):
    assert leads()
    monkeypatch.setenv("RANK", "1")
    assert not leads()


def test_processes_that_cannot_be_joined_are_told(monkeypatch):
    def refuse(*_args, **_settings):
        raise RuntimeError("no such device\nand more")

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("nse.train.distributed.Fabric", refuse)
    with pytest.raises(RunError, match=r"2 processes cannot be joined: no such device$"):
        Team()


def test_two_processes_have_the_curve_of_one():
    # 82 = 9 * 9 + 1: shares of 5 and 4, and once an epoch a process without an example.
    settings = ["data.train=82", "data.dev=31", "data.test=30", "data.unseen=30", "model.size=8"]
    settings += [
        "train.batch=9",
        "train.epochs=3",
        "train.buckets=true",
        "train.average=0.5",
        "train.l2=1e-3",
    ]
    script = Path(__file__).with_name("curve_of_two.py")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    answer = subprocess.run(
        [sys.executable, *launcher, str(script), *settings],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    accuracy, metrics = json.loads(answer.stdout)
    recipe, task = load_recipe("logic/nse", settings), TASKS["logic"]
    with Progress.silent() as progress:
        alone = fit(task, recipe, task.examples(recipe), progress)
    for name in ("loss", "train", "dev", "rate", "step"):
        assert [row[name] for row in metrics] == pytest.approx(
            [row[name] for row in alone.metrics], rel=1e-4, abs=1e-6
        )
    assert accuracy == pytest.approx(alone.accuracy)
