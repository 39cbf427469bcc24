"""A recipe's task and the name of its data say what it is read as; those from before say the same."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from faults.made_runs import SMALL, assert_same_end, stop, train
from nse.config import OLD_KEYS
from nse.errors import ConfigError
from nse.inference.folder import list_shipped, load
from nse.tasks import TABLES, TASKS, load_recipe, read_recipe
from nse.tasks.recipe import list_recipes
from nse.train import checkpoints

BEFORE = {
    "logic": ("pair", {}),
    "snli": ("pair", {"train": 9}),
    "wikiqa": ("ranking", {"answerable": True}),
    "sst": ("sentence", {"labels": "fine"}),
    "documents": ("document", {"name": "imdb"}),
    "translation": ("translation", {"name": "europarl"}),
    "own-pair": ("pair", {"name": "hotel", "train": "a.tsv", "columns": {"first": "a"}}),
    "own-ranking": ("ranking", {"train": "a.tsv", "columns": {"group": "a"}}),
    "own-sentence": ("sentence", {"name": "hotel", "dev_fraction": 0.2}),
    "own-translation": ("translation", {"language": "fr"}),
}
"""What a recipe once called its task, with some of its data; and the task now."""


@pytest.mark.parametrize("table", TABLES)
def test_recipes_with_old_names_of_tasks_are_read(table):
    kind, data = BEFORE[table]
    result = read_recipe({"task": table, "data": data}, source="recipe.toml")
    assert (result.task, result.data.table) == (kind, table)
    report = {"name": TABLES[table][1].list_names()[0], **data}
    for key, value in report.items():
        if key == "columns":
            assert vars(result.data.columns) == vars(result.data.columns) | value
        elif key != "train" or isinstance(value, int):
            assert getattr(result.data, key) == value
    if "train" in data or table not in ("own-sentence",):
        assert read_recipe({"task": kind, "data": report}, source="recipe.toml") == result


def test_every_source_has_a_recipe_that_names_it():
    result = {load_recipe(name).data.table for name in list_recipes()}
    assert result == set(TABLES)
    assert set(TASKS) == {kind for kind, _ in BEFORE.values()}


def test_an_unknown_data_set_with_a_file_is_your_own():
    given = {"name": "hotel", "train": "a.tsv"}
    for kind in ("pair", "ranking", "sentence", "translation"):
        result = read_recipe({"task": kind, "data": given}, source="x")
        assert (result.data.table, result.data.name) == (f"own-{kind}", "hotel")
        assert read_recipe({"task": kind, "data": {"train": "a.tsv"}}, source="x").data.name == "own"
    assert read_recipe({"task": "pair"}, source="x").data.table == "own-pair"
    assert read_recipe({"task": "document"}, source="x").data.name == "aclimdb"
    assert read_recipe({"task": "translation"}, source="x").data.name == "multi30k"


@pytest.mark.parametrize(
    ("recipe", "assignment", "message"),
    [
        (
            "snli/nse",
            "data.name=snlii",
            r"this task has no data 'snlii'; did you mean snli\? there are snli, ",
        ),
        (
            "snli/nse",
            "data.name=wikiqa",
            "no data 'wikiqa'; there are snli, logic, or name the file to train on",
        ),
        (
            "own/pair",
            "data.name=hotel",
            "no data 'hotel'; there are snli, logic, or name the file to train on",
        ),
        ("imdb/nse-nse", "data.name=imbd", r"did you mean imdb\? there are yelp13, imdb, aclimdb$"),
        ("snli/nse", "data.name=5", "no data 5; there are snli, logic"),
        ("snli/nse", "data.train=a.tsv", "override data.train: expected integer, got string"),
        ("own/pair", "data=5", "override data: expected section, got integer 5"),
        ("own/pair", "task=chess", "task: expected one of pair, ranking, sentence, document, translation, "),
    ],
)
def test_an_unknown_data_set_raises_an_error(recipe, assignment, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe(recipe, [assignment])


def test_a_run_with_the_old_name_of_its_task_resumes_to_the_same_result(tmp_path):
    """Its recipe, and that in its checkpoint, name the task as it was called, and no data."""
    train(tmp_path / "whole", small=SMALL)
    stop(tmp_path / "stopped", small=SMALL, after=5)
    file = tmp_path / "stopped" / "recipe.toml"
    now, before = file.read_text(), ""
    for line in now.splitlines(keepends=True):
        before += "" if line == 'name = "logic"\n' else line.replace('task = "pair"', 'task = "logic"')
    assert before != now
    file.write_text(before)
    train(tmp_path / "stopped", small=SMALL, resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    assert file.read_text() == now
    assert json.loads((tmp_path / "stopped" / "result.json").read_text())["task"] == "logic"


OLD_NAMES = {new: old for old, new in OLD_KEYS.items()}


def with_old_names(text):
    """Give every key of a configuration, TOML or JSON, the name that it had before."""
    return re.sub(
        r'^(\s*"?)(\w+)("?(?: =|:))', lambda m: m[1] + OLD_NAMES.get(m[2], m[2]) + m[3], text, flags=re.M
    )


@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_with_old_keys_gives_one_warning(name, tmp_path):
    text = list_recipes()[name].read_text("utf-8")
    (tmp_path / "old.toml").write_text(with_old_names(text))
    with pytest.warns(FutureWarning, match=r"old\.toml: .*train\.rate -> train\.lr") as caught:
        old = load_recipe(str(tmp_path / "old.toml"))
    assert len(caught) == 1
    assert old == load_recipe(name)


@pytest.mark.parametrize("name", list_shipped())
def test_a_model_folder_with_old_keys_gives_one_warning(name, tmp_path):
    copy = shutil.copytree(list_shipped()[name], tmp_path / "mine")
    (copy / "config.json").write_text(with_old_names((copy / "config.json").read_text()))
    (copy / "SHA256SUMS").unlink()
    with pytest.warns(FutureWarning, match=r"config\.json: .*model\.trained -> model\.trainable") as caught:
        old = load(copy)
    assert len(caught) == 1
    assert old.config == load(name).config


def test_a_run_with_old_keys_resumes_to_the_same_result(tmp_path):
    train(tmp_path / "whole", "train.ema_decay=0.9", small=SMALL)
    folder = tmp_path / "stopped"
    stop(folder, "train.ema_decay=0.9", small=SMALL, after=5)
    new = (folder / "recipe.toml").read_text()
    checkpoint = checkpoints.load(folder).content
    assert checkpoint["recipe"] == new != with_old_names(new)
    (folder / "recipe.toml").write_text(with_old_names(new))
    checkpoints.save(folder, checkpoint | {"recipe": with_old_names(new)})
    train(folder, "train.ema_decay=0.9", small=SMALL, resume=True)
    assert_same_end(tmp_path / "whole", folder)
    assert (folder / "recipe.toml").read_text() == new


def test_the_command_line_warns_of_old_keys_in_one_line(tmp_path):
    (tmp_path / "old.toml").write_text('task = "pair"\n[train]\nrate = 1e-3\nbatch = 8\n')
    program = [sys.executable, "-m", "nse", "train", "old.toml", "--set", "model.longest=long"]
    answer = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.splitlines() == [
        "nse: warning: old.toml: these keys have new names: train.rate -> train.lr, "
        "train.batch -> train.batch_size, model.longest -> model.max_words",
        'nse: old.toml: override model.max_words: expected integer, got string "long"',
    ]
