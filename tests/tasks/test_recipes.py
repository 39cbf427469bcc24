"""A recipe's task and the name of its data say what it is read as; those from before say the same."""

import json

import pytest

from faults.made_runs import SMALL, assert_same_end, stop, train
from nse.errors import ConfigError
from nse.tasks import TABLES, TASKS, load_recipe, read_recipe
from nse.tasks.recipe import recipes

BEFORE = {
    "logic": ("pair", {}),
    "snli": ("pair", {"train": 9}),
    "wikiqa": ("ranking", {"answerable": True}),
    "sst": ("sentence", {"labels": "fine"}),
    "documents": ("document", {"name": "imdb"}),
    "translation": ("translation", {"name": "europarl"}),
    "own-pair": ("pair", {"name": "hotel", "train": "a.tsv", "columns": {"first": "a"}}),
    "own-ranking": ("ranking", {"train": "a.tsv", "columns": {"group": "a"}}),
    "own-sentence": ("sentence", {"name": "hotel", "share": 0.2}),
    "own-translation": ("translation", {"language": "fr"}),
}
"""What a recipe once called its task, with some of its data; and the task now."""


@pytest.mark.parametrize("table", TABLES)
def test_recipes_from_before_are_read_as_they_were_meant(table):
    kind, data = BEFORE[table]
    found = read_recipe({"task": table, "data": data}, source="recipe.toml")
    assert (found.task, found.data.table) == (kind, table)
    told = {"name": TABLES[table][1].names()[0], **data}
    for key, value in told.items():
        if key == "columns":
            assert vars(found.data.columns) == vars(found.data.columns) | value
        elif key != "train" or isinstance(value, int):
            assert getattr(found.data, key) == value
    if "train" in data or table not in ("own-sentence",):
        assert read_recipe({"task": kind, "data": told}, source="recipe.toml") == found


def test_every_source_has_a_recipe_that_names_it():
    found = {load_recipe(name).data.table for name in recipes()}
    assert found == set(TABLES)
    assert set(TASKS) == {kind for kind, _ in BEFORE.values()}


def test_data_is_a_users_own_where_it_is_not_known_and_has_a_file():
    given = {"name": "hotel", "train": "a.tsv"}
    for kind in ("pair", "ranking", "sentence", "translation"):
        found = read_recipe({"task": kind, "data": given}, source="x")
        assert (found.data.table, found.data.name) == (f"own-{kind}", "hotel")
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
def test_what_names_no_data_is_refused(recipe, assignment, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe(recipe, [assignment])


def test_a_run_from_before_goes_on_to_the_same_end(tmp_path):
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
