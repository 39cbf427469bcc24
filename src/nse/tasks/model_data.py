"""The data that a model is scored on: what it was trained on, another data set, or another file."""

from __future__ import annotations

from pathlib import Path

from nse import config
from nse.data.catalogue import DATA
from nse.errors import ModelError
from nse.inference.model import Model
from nse.tasks import TASKS, load_recipe, recipe_class
from nse.tasks.nli import LogicPairs
from nse.tasks.source import DataSource, OwnFiles, PublishedData, list_assignments

RECIPE = "recipe.toml"


def find_source(model: Model, on: str | None, columns: str | None) -> DataSource:
    """Find the data to score a model on: that of its run, or another data set or file `on`."""
    data, kind, file = model.config.data, model.kind, model.folder.parent / RECIPE
    if not data:
        raise ModelError(f"{model.folder}: config.json names no data set, so there is nothing to score it on")
    if data in DATA:
        return PublishedData(on or data, vectors="")
    wanted = LogicPairs if data == "logic" else OwnFiles
    changes = list_assignments({"test": on, "name": Path(on).name} if on else {}, columns)
    if file.is_file():
        recipe = load_recipe(str(file), changes if wanted is OwnFiles else ())
        if recipe.task == kind.name and isinstance(recipe.data, wanted):
            return recipe.data
    if wanted is LogicPairs:
        return LogicPairs()
    own = next((source for source in TASKS[kind.name].sources if issubclass(source, OwnFiles)), None)
    if on is None or own is None or kind.translates:  # whose language is not known
        why = f"{data} is no published data set, and no {RECIPE} of its run beside it tells what its data is"
        raise ModelError(f"{model.folder}: {why}{'' if on else '; name a file with --on FILE'}")
    bare = config.build(recipe_class(own.table), {}, changes, source="--columns").data
    assert isinstance(bare, OwnFiles)
    return bare
