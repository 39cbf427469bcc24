"""A run is a folder a person can read, and is never overwritten."""

import io
import json

import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from nse import RunError
from nse.inference import folder as hub
from nse.tasks import TASKS, load_recipe
from nse.train import distributed, run
from nse.train.progress import Progress

SMALL = [
    "data.train=60",
    "data.dev=30",
    "data.test=30",
    "data.unseen=30",
    "model.size=8",
    "model.hidden=16",
    "train.epochs=2",
]
TIMES = {"seconds", "seconds_per_epoch", "examples_per_second"}


def train(folder, recipe=None):
    with Progress(Console(file=io.StringIO())) as progress:
        return run.train("logic/nse", recipe or load_recipe("logic/nse", SMALL), folder, progress)


def test_a_run_folder_has_recipe_data_environment_metrics_and_result(tmp_path):
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)  # empty: nothing to lose
    result = train(folder)
    names = sorted(f.name for f in folder.iterdir())
    (events,) = (name for name in names if "tfevents" in name)
    assert names == sorted(
        [
            "checkpoint.previous.pt",
            "checkpoint.pt",
            "data.json",
            "environment.json",
            events,
            "metrics.jsonl",
            "model",
            "recipe.toml",
            "result.json",
        ]
    )
    assert json.loads((folder / "result.json").read_text()) == result
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert result["accuracy"]["dev"] == max(row["dev"] for row in rows)
    assert result["accuracy"]["train"] == rows[result["epoch"] - 1]["train"]
    assert set(result["accuracy"]) == set(result["examples"]) == {"train", "dev", "test", "unseen"}
    assert result["examples"]["train"] == 60
    assert (result["epochs"], result["processes"], result["seed"]) == (2, 1, 1)
    about = json.loads((folder / "data.json").read_text())
    assert result["data"] == about
    assert about["fingerprint"]
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["torch"] == result["torch"] == torch.__version__
    assert environment["device"] == result["device"]


def test_tensorboard_reads_the_events(tmp_path):
    train(tmp_path / "run")
    (file,) = (tmp_path / "run").glob("events.out.tfevents.*")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    events = [event for event in EventFileLoader(str(file)).Load() if event.HasField("summary")]
    for event, row in zip(events, rows, strict=True):
        assert event.step == row["step"]
        values = {value.tag: value.tensor.float_val[0] for value in event.summary.value}
        assert values == pytest.approx({name: row[name] for name in run.SCALARS}, rel=1e-6)


def test_the_recipe_of_a_run_reproduces_it_and_its_model_scores_the_same(tmp_path):
    result = train(tmp_path / "first")
    recipe = load_recipe(str(tmp_path / "first" / "recipe.toml"))
    assert recipe == load_recipe("logic/nse", SMALL)
    task = TASKS["pair"]
    examples = task.load_examples(recipe)
    loaded = hub.load(tmp_path / "first" / "model")
    assert loaded.vocabulary.words == examples.vocabulary.words
    for split in ("dev", "test", "unseen"):
        scores = distributed.compute_scores(loaded.module, examples.splits[split])
        assert task.compute_metrics(recipe, scores, examples, split) == {
            "accuracy": result["accuracy"][split]
        }
    again = train(tmp_path / "second", recipe)
    assert {k: v for k, v in again.items() if k not in TIMES} == {
        k: v for k, v in result.items() if k not in TIMES
    }


def test_the_best_model_is_saved_during_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(run.MetricsLog, "add", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path / "run")
    assert hub.load(tmp_path / "run" / "model").config.task == "logic"
    assert not (tmp_path / "run" / "result.json").exists()


def broken(*_args, **_kwargs):
    raise RuntimeError("power cut")


def test_a_folder_with_files_is_never_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "result.json").write_text("precious")
    with pytest.raises(RunError, match="mine is not empty: choose another folder, or remove it"):
        train(tmp_path / "mine")
    assert (tmp_path / "mine" / "result.json").read_text() == "precious"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file cannot be used: Not a directory"):
        train(tmp_path / "file")
    with pytest.raises(RunError, match="cannot be used: Not a directory"):
        train(tmp_path / "file" / "below")
    train(tmp_path / "run")
    with pytest.raises(RunError, match=r"run is not empty: choose another folder$") as refusal:
        train(tmp_path / "run")
    assert refusal.value.fix == ("resume",)


def test_missing_data_leaves_no_folder_behind(tmp_path, monkeypatch):
    recipe = load_recipe("logic/nse", SMALL)
    monkeypatch.setattr("nse.data.readers.logic.generate_pairs", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path / "run", recipe)
    monkeypatch.undo()
    train(tmp_path / "run", recipe)


def test_a_run_that_fails_has_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "fit", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path / "broken")
    assert not (tmp_path / "broken" / "result.json").exists()
    assert not (tmp_path / "broken" / "model").exists()


def test_an_error_names_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_args):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("nse.train.checkpoints.write_bytes", refuse)
    with pytest.raises(
        RunError, match="run cannot be written: Read-only file system; there is no checkpoint y"
    ):
        train(tmp_path / "run")
