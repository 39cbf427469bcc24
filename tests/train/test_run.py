"""A run is a folder a person can read, and is never overwritten."""

import io
import json

import pytest
from rich.console import Console
from safetensors.torch import load_file

from nse import RunError
from nse.tasks import TASKS, load_recipe
from nse.train import loop, run
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


def train(folder, recipe=None):
    with Progress(Console(file=io.StringIO())) as progress:
        return run.train("logic/nse", recipe or load_recipe("logic/nse", SMALL), folder, progress)


def test_a_run_holds_what_was_run_and_what_came_out(tmp_path):
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)  # empty: nothing to lose
    result = train(folder)
    assert sorted(f.name for f in folder.iterdir()) == [
        "metrics.jsonl",
        "recipe.toml",
        "result.json",
        "vocabulary.txt",
        "weights.safetensors",
    ]
    assert json.loads((folder / "result.json").read_text()) == result
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [e["epoch"] for e in epochs] == [1, 2]
    assert result["accuracy_dev"] == max(e["dev"] for e in epochs)


def test_the_recipe_of_a_run_runs_again_and_its_weights_score_the_same(tmp_path):
    result = train(tmp_path / "first")
    recipe = load_recipe(str(tmp_path / "first" / "recipe.toml"))
    assert recipe == load_recipe("logic/nse", SMALL)
    task = TASKS["logic"]
    examples = task.examples(recipe)
    words = (tmp_path / "first" / "vocabulary.txt").read_text().split("\n")[:-1]
    assert tuple(words) == examples.vocabulary.words
    model = task.model(recipe, examples)
    model.load_state_dict(load_file(tmp_path / "first" / "weights.safetensors"))
    assert loop.accuracy(task, model, examples.splits["test"]) == result["accuracy"]
    again = train(tmp_path / "second", recipe)
    assert {k: v for k, v in again.items() if k != "seconds"} == {
        k: v for k, v in result.items() if k != "seconds"
    }


def test_a_folder_that_holds_anything_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "result.json").write_text("precious")
    with pytest.raises(RunError, match="mine is not empty: choose another --out"):
        train(tmp_path / "mine")
    assert (tmp_path / "mine" / "result.json").read_text() == "precious"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file cannot be made: File exists"):
        train(tmp_path / "file")
    with pytest.raises(RunError, match="cannot be made: Not a directory"):
        train(tmp_path / "file" / "below")


def test_a_run_that_breaks_off_has_no_result(tmp_path, monkeypatch):
    def broken(*_args, **_kwargs):
        raise RuntimeError("power cut")

    monkeypatch.setattr(run, "fit", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path / "broken")
    assert not (tmp_path / "broken" / "result.json").exists()
    assert not (tmp_path / "broken" / "weights.safetensors").exists()
