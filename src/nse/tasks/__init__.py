"""The tasks: one file = one subsection of the paper, with the sources of its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, make_dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from nse import config
from nse.data.catalogue import DATA
from nse.errors import ConfigError, ModelError, shorten, suggest
from nse.files import read_toml
from nse.inference.model import Model
from nse.tasks import answers, documents, nli, sentences, translation
from nse.tasks.recipe import Recipe, recipe_file
from nse.tasks.source import DataSource, OwnFiles, PublishedData, list_assignments
from nse.tasks.task import Task

TASKS: dict[str, Task] = {
    task.kind.name: task
    for task in (nli.TASK, answers.TASK, sentences.TASK, documents.TASK, translation.TASK)
}
"""By the name of the kind of model."""

TABLES: dict[str, tuple[Task, type[DataSource]]] = {
    source.table: (task, source) for task in TASKS.values() for source in task.sources
}
"""By the name of a table of results: its task and its source of data. Recipes once called it their task."""


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Any:
    """Load a recipe by name (logic/nse) or path, and apply overrides such as `model.size=300`."""
    file: Traversable = Path(name) if name.endswith(".toml") else recipe_file(name)
    return read_recipe(read_toml(file), overrides, source=str(file))


def read_recipe(data: dict[str, object], overrides: Sequence[str] = (), *, source: str) -> Any:
    """Make a recipe of what its file, the `source` of mistakes, holds."""
    changed = data
    with suppress(ConfigError):  # of assignments; `build` tells them with all others
        changed = config.override(data, overrides)
    try:
        table = choose_table(changed)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    named = {**data, "task": TABLES[table][0].kind.name}
    return config.build(recipe_class(table), named, overrides, source=source)


def choose_table(data: Mapping[str, Any]) -> str:
    """Choose where the results of a recipe go, by its task and the name of its data."""
    named, given = data.get("task"), data.get("data")
    if not isinstance(named, str) or named not in {*TASKS, *TABLES}:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}, got {shorten(repr(named))}")
    given = given if isinstance(given, Mapping) else {}
    if named in TABLES and not (named in TASKS and given.keys() & {"name", "train"}):
        return named
    name, sources, own = given.get("name"), TASKS[named].sources, f"own-{named}"
    known = {name: source.table for source in sources for name in source.names()}
    if isinstance(name, str) and name in known:
        return known[name]
    if own in TABLES and isinstance(given.get("train"), str):
        return own
    if name is None:
        return sources[0].table
    hint = f"did you mean {near}? " if (near := suggest(str(name), known)) else ""
    names = ", ".join(each for each in known if known[each] != own)
    files = ", or name the file to train on (data.train)" if own in TABLES else ""
    raise ConfigError(
        f"data.name: this task has no data {shorten(repr(name))}; {hint}there are {names}{files}"
    )


@cache
def recipe_class(table: str) -> type[Recipe]:
    """Make the class of the recipes whose results go to a table."""
    task, source = TABLES[table]
    sections, kind = {"data": source, "model": task.kind.config, "train": task.training}, task.kind.name
    fields = [(name, cls, field(default_factory=cls)) for name, cls in sections.items()]
    return make_dataclass("Recipe", [("task", Literal[kind], kind), *fields], bases=(Recipe,))


def find_source(model: Model, on: str | None, columns: str | None) -> DataSource:
    """Find the data to score a model on: that of its run, or another data set or file `on`."""
    data, kind, file = model.config.data, model.kind, model.folder.parent / "recipe.toml"
    if not data:
        raise ModelError(f"{model.folder}: config.json names no data set, so there is nothing to score it on")
    if data in DATA:
        return PublishedData(on or data, vectors="")
    wanted = nli.LogicPairs if data in nli.LogicPairs.names() else OwnFiles
    changes = list_assignments({"test": on, "name": Path(on).name} if on else {}, columns)
    if file.is_file():
        recipe = load_recipe(str(file), changes if wanted is OwnFiles else ())
        if recipe.task == kind.name and isinstance(recipe.data, wanted):
            return recipe.data
    if wanted is nli.LogicPairs:
        return nli.LogicPairs()
    own = f"own-{kind.name}"
    if on is None or own not in TABLES or kind.translates:  # whose language is not known
        why = f"{data} is not published, and no recipe.toml of its run beside it tells what its data is"
        raise ModelError(f"{model.folder}: {why}", () if on else ("on",))
    bare = config.build(recipe_class(own), {}, changes, source="columns").data
    assert isinstance(bare, OwnFiles)
    return bare
