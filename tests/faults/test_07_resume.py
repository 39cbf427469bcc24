"""Fault 7: a run that was stopped anywhere ends as if it never was; another recipe or data is refused."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import forking
from faults.made_runs import ENVIRONMENT, SMALL, assert_same_end, checkpoint, stop, train
from nse import InputError, RunError
from nse.cli import train as cli
from nse.config import to_toml
from nse.tasks import TASKS, load_recipe
from nse.tasks.source import list_assignments
from nse.train import checkpoints
from nse.train.progress import Progress

KINDS = {
    "plain": [],
    "everything": [
        "train.bucket_by_length=true",
        "train.ema_decay=0.9",
        "train.warmup=0.2",
        "train.schedule=cosine",
        "train.label_smoothing=0.1",
        "train.checkpoint_minutes=0",
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, kind):
    whole = train(tmp_path / "whole", *KINDS[kind])
    stop(tmp_path / "stopped", *KINDS[kind], after=4)
    assert checkpoint(tmp_path / "stopped")["cursor"] == 4
    stop(tmp_path / "stopped", *KINDS[kind], after=9, resume=True)  # the last batch of an epoch
    stop(tmp_path / "stopped", *KINDS[kind], after=20, resume=True)
    resumed = train(tmp_path / "stopped", *KINDS[kind], resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    assert resumed["accuracy"] == whole["accuracy"]
    assert resumed["epoch"] == whole["epoch"]


def test_a_resumed_run_of_two_processes_ends_with_the_same_bits(tmp_path):
    script = Path(__file__).with_name("resumed_by_two.py")
    first = f"import sys; sys.path.append({str(script.parents[1])!r})"
    answer = forking.run_side_by_side([script, tmp_path], env=ENVIRONMENT, first=first)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "told-143").exists()
    assert (tmp_path / "silent-143").exists()
    assert "resumed after step 13 (epoch 2)" in answer.stderr
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    assert len(checkpoint(tmp_path / "stopped")["processes"]) == 2
    assert all((tmp_path / f"parted-{rank}").exists() for rank in range(2))


def test_no_epoch_is_logged_twice(tmp_path):
    stop(tmp_path / "run", after=11)
    stop(tmp_path / "run", after=20, resume=True)
    train(tmp_path / "run", resume=True)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    (events,) = (tmp_path / "run").glob("events.out.tfevents.*")
    steps = [event.step for event in EventFileLoader(str(events)).Load() if event.HasField("summary")]
    assert steps == [9, 18, 27]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.lr=1e-3"], "train.lr was 0.004 and is now 0.001"),
        (["seed=8"], "seed was 1 and is now 8"),
        (["train.epochs=9", "data.seed=5"], "data.seed was 0 and is now 5, train.epochs was 3 and is now 9"),
    ],
)
def test_another_recipe_is_refused(tmp_path, overrides, message):
    stop(tmp_path / "run", after=5)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with pytest.raises(RunError, match=f"has a run of another recipe .{message}.: use the same recipe"):
        train(tmp_path / "run", *overrides, resume=True)
    assert all(file.read_bytes() == content for file, content in before.items())
    changed = to_toml(load_recipe("logic/nse", [*SMALL, *overrides]))
    (tmp_path / "run" / "recipe.toml").write_text(changed)
    with pytest.raises(RunError, match="has a run of another recipe"):  # the checkpoint knows as well
        train(tmp_path / "run", *overrides, resume=True)


def test_other_data_is_refused(tmp_path, monkeypatch):
    stop(tmp_path / "run", after=5)
    data = (tmp_path / "run" / "data.json").read_bytes()
    task = TASKS["pair"]

    def examples(recipe, data=None):
        other = task.load_examples(recipe, data)
        return other._replace(about={**other.about, "fingerprint": "other"})

    monkeypatch.setitem(TASKS, "pair", replace(task, load_examples=examples))
    with pytest.raises(RunError, match=r"has a run on other data .see its data.json.: use the same"):
        train(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "data.json").read_bytes() == data


def test_a_finished_run_is_reported_and_not_changed(tmp_path):
    result = train(tmp_path / "run")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*")}
    log = io.StringIO()
    assert train(tmp_path / "run", resume=True, log=log) == result
    assert "run: this run is finished" in log.getvalue()
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*")} == before


def test_a_run_without_a_checkpoint_starts_from_the_beginning(tmp_path):
    whole = train(tmp_path / "whole")
    stop(tmp_path / "run", after=3)
    (tmp_path / "run" / "checkpoint.pt").unlink()
    assert train(tmp_path / "run", resume=True)["accuracy"] == whole["accuracy"]
    assert_same_end(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("content", [b"", b"garbage", "truncated", "other"])
def test_a_broken_checkpoint_is_named(tmp_path, content):
    stop(tmp_path / "run", after=3)
    file = tmp_path / "run" / "checkpoint.pt"
    if content == "truncated":
        content = file.read_bytes()[:-100]
    if content == "other":
        checkpoints.write_file(file, {"format": 99})
        message = "checkpoint.pt has format 99; this version reads format 3"
    else:
        file.write_bytes(content)
        message = "checkpoint.pt cannot be read as a.*: restore it, or remove it to start over"
    with pytest.raises(RunError, match=message):
        train(tmp_path / "run", resume=True)


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_can_be_resumed_by_its_folder_alone(tmp_path, killed):
    """With the recipe, the overrides, and the name that the run began with."""
    whole = train(tmp_path / "whole", "train.ema_decay=0.9", recipe="logic/bow")
    stop(tmp_path / "run", "train.ema_decay=0.9", after=11, recipe="logic/bow")
    if killed:  # and the newest checkpoint gone with it
        (tmp_path / "run" / "checkpoint.pt").unlink()
    cli.train(out=tmp_path / "run", resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["recipe"], result["accuracy"]) == ("logic/bow", whole["accuracy"])


WHICH_RECIPE = "train: name a recipe (`nse recipes` lists them), or continue a run with --resume --out RUN"
NOT_A_RUN = "is not a run, because it has no recipe.toml: name a recipe to start one"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"resume": True}, WHICH_RECIPE),
        ({}, WHICH_RECIPE),
        ({"out": "."}, WHICH_RECIPE),
        ({"out": ".", "resume": True}, NOT_A_RUN),
        ({"out": "no", "resume": True}, NOT_A_RUN),
    ],
)
def test_without_recipe_and_run_the_error_says_what_to_type(tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    if "out" in args:
        args = {**args, "out": tmp_path / args["out"]}
    with pytest.raises(InputError, match=re.escape(message)):
        cli.train(**args)
    assert not list(tmp_path.iterdir())


def test_a_run_on_own_data_is_resumed_without_its_file_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [{"text": f"{word} {number}", "label": word} for number in range(40) for word in ("good", "bad")]
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, texts)))
    settings = ["train.batch_size=10", "train.epochs=2", "model.size=8", "model.hidden=8"]
    args = list_assignments({"train": "mine.jsonl", "name": "mine.jsonl"}, None)
    stop(tmp_path / "run", *args, small=settings, recipe="own/sentence", after=9)
    with pytest.raises(RunError, match="run of another recipe") as refusal:
        train(tmp_path / "run", small=settings, recipe="own/sentence", resume=True)
    assert refusal.value.fix == ("continue", str(tmp_path / "run"))
    cli.train(out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "result.json").exists()


def test_a_folder_that_is_not_a_run_is_not_changed(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(RunError, match=r"is not a run folder, it has no recipe.toml: choose another folder"):
        train(tmp_path, resume=True)
    assert (tmp_path / "mine").read_text() == "precious"


def test_progress_starts_at_the_step_of_the_checkpoint():
    log = io.StringIO()
    with Progress(Console(file=log, width=200)) as progress:
        progress.start_run(100, 60)
        progress.show_epoch(
            {"epoch": 4, "step": 80, "loss": 1.0, "train": 0.5, "dev": 0.4, "examples_per_second": 10.0}
        )
    line = "epoch 4, loss 1.000, train 50.0%, dev 40.0%, 10 examples/s, 0:00:00 left"
    assert log.getvalue().strip() == line
