"""Tasks and recipes. Each task is a file: a subsection of section 4 of the paper."""

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
from nse.tasks.logic_pairs import LogicPairs
from nse.tasks.recipe import Recipe, find_recipe_file
from nse.tasks.source import DataSource, OwnFiles, PublishedData, list_assignments
from nse.tasks.task import Task

TASKS: dict[str, Task] = {
    task.kind.name: task
    for task in (nli.TASK, answers.TASK, sentences.TASK, documents.TASK, translation.TASK)
}
"""By the name of the kind of model, which is `task` in a recipe."""

TABLES: dict[str, tuple[Task, type[DataSource]]] = {
    source.table: (task, source) for task in TASKS.values() for source in task.sources
}
"""Task and data source by name of the table of results. Old recipes have this name as `task`."""


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Any:
    """Load a recipe by name (logic/nse) or path, and apply overrides such as `model.size=300`."""
    file: Traversable = Path(name) if name.endswith(".toml") else find_recipe_file(name)
    return read_recipe(read_toml(file), overrides, source=str(file))


def read_recipe(data: dict[str, object], overrides: Sequence[str] = (), *, source: str) -> Any:
    """Make a recipe from the content of its file; errors start with `source`."""
    changed = data
    with suppress(ConfigError):  # `build` reports wrong overrides together with other mistakes
        changed = config.apply_overrides(data, overrides)
    try:
        table = choose_table(changed)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    data = {**data, "task": TABLES[table][0].kind.name}
    return config.build(make_recipe_class(table), data, overrides, source=source)


def choose_table(data: Mapping[str, Any]) -> str:
    """Choose the table of results of a recipe from its task and `data.name`."""
    task, section = data.get("task"), data.get("data")
    if not isinstance(task, str) or task not in {*TASKS, *TABLES}:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}, got {shorten(repr(task))}")
    section = section if isinstance(section, Mapping) else {}
    if task in TABLES and not (task in TASKS and section.keys() & {"name", "train"}):
        return task
    name, sources, own_table = section.get("name"), TASKS[task].sources, f"own-{task}"
    tables = {name: source.table for source in sources for name in source.list_names()}
    if isinstance(name, str) and name in tables:
        return tables[name]
    if own_table in TABLES and isinstance(section.get("train"), str):
        return own_table
    if name is None:
        return sources[0].table
    hint = f"did you mean {near}? " if (near := suggest(str(name), tables)) else ""
    names = ", ".join(name for name, table in tables.items() if table != own_table)
    files = ", or name the file to train on (data.train)" if own_table in TABLES else ""
    raise ConfigError(
        f"data.name: this task has no data {shorten(repr(name))}; {hint}there are {names}{files}"
    )


@cache
def make_recipe_class(table: str) -> type[Recipe]:
    """Make the recipe class of a table: the types of its sections depend on task and data source."""
    task, source = TABLES[table]
    sections, kind = {"data": source, "model": task.kind.config, "train": task.training}, task.kind.name
    fields = [(name, cls, field(default_factory=cls)) for name, cls in sections.items()]
    return make_dataclass("Recipe", [("task", Literal[kind], kind), *fields], bases=(Recipe,))


def find_source(model: Model, on: str | None, columns: str | None) -> DataSource:
    """Find the data to score a model on: the data of its run, or another data set or file `on`."""
    data, kind, file = model.config.data, model.kind, model.folder.parent / "recipe.toml"
    if not data:
        raise ModelError(f"{model.folder}: config.json names no data set, so there is nothing to score it on")
    if data in DATA:
        return PublishedData(on or data, vectors="")
    source_class = LogicPairs if data in LogicPairs.list_names() else OwnFiles
    overrides = list_assignments({"test": on, "name": Path(on).name} if on else {}, columns)
    if file.is_file():
        recipe = load_recipe(str(file), overrides if source_class is OwnFiles else ())
        if recipe.task == kind.name and isinstance(recipe.data, source_class):
            return recipe.data
    if source_class is LogicPairs:
        return LogicPairs()
    table = f"own-{kind.name}"
    if on is None or table not in TABLES or kind.translates:  # the language is not known
        message = f"{data} is not published, and there is no recipe.toml of its run with the files"
        raise ModelError(f"{model.folder}: {message}", () if on else ("on",))
    source = config.build(make_recipe_class(table), {}, overrides, source="columns").data
    assert isinstance(source, OwnFiles)
    return source
