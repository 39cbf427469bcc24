"""Fault 15: settings that contradict, mistyped keys, names that are paths, a kernel on the wrong machine."""

import os

import pytest

from faults.made_models import get_refusal, save_model, shell
from nse.errors import ConfigError
from nse.tasks import load_recipe

TINY = ["data.train=60", "data.dev=30", "data.test=30", "data.unseen=30", "train.epochs=1", "model.size=8"]
SETS = [word for assignment in TINY for word in ("--set", assignment)]


@pytest.mark.parametrize(
    ("assignments", "messages"),
    [
        (["model.sise=8"], ["override model.sise: no such key; did you mean model.size?"]),
        (["model.padding=paper"], ["model", "needs max_words"]),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_created(assignments, messages, tmp_path):
    words = [word for assignment in assignments for word in ("--set", assignment)]
    error_message = get_refusal(shell("train", "logic/nse", *SETS, *words, cwd=tmp_path))
    assert all(message in error_message for message in messages)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("task", ["{size = 8}", "[1]", "7", "'snly'"])
def test_an_unknown_task_is_refused(task, tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(f"task = {task}\n")
    with pytest.raises(ConfigError, match=rf"^{file}: task: expected one of pair, ranking, .*, got .*\Z"):
        load_recipe(str(file))


@pytest.mark.parametrize("name", ["../../x", "snly"])
def test_a_missing_model_is_named(name, tmp_path):
    error_message = get_refusal(shell("evaluate", name, cwd=tmp_path))
    assert f"nse: {name}: " in error_message
    assert "give a model folder, a run, or one of" in error_message or "did you mean" in error_message


def test_a_missing_split_is_named(tmp_path):
    save_model(tmp_path / "mine" / "model")
    sizes = [item.replace("data.", "") for item in TINY if item.startswith("data.")]
    (tmp_path / "mine" / "recipe.toml").write_text("\n".join(['task = "logic"', "[data]", *sizes]))
    error_message = get_refusal(shell("evaluate", "mine", "--split", "tset", cwd=tmp_path))
    assert "split: there is no 'tset'; did you mean test? there are dev, test, train, unseen" in error_message


def test_a_backend_that_cannot_run_here_is_refused(tmp_path):
    save_model(tmp_path / "mine")
    for words in (["train", "logic/nse", *SETS], ["evaluate", "mine"]):
        error_message = get_refusal(shell(*words, cwd=tmp_path, NSE_BACKEND="triton", TRITON_INTERPRET=""))
        assert "NSE_BACKEND='triton' cannot run here" in error_message
