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
from nse.errors import ConfigError, shorten, suggest
from nse.files import read_toml
from nse.tasks import answers, documents, nli, sentences, translation
from nse.tasks.recipe import Recipe, recipe_file
from nse.tasks.source import DataSource, OwnFiles
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
    """Load a recipe by name (logic/nse) or by the path of a TOML file, with `--set` assignments applied."""
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
    sources = TASKS[named].sources
    name, known = given.get("name"), {name: source for source in sources for name in source.names()}
    own = next((source for source in sources if issubclass(source, OwnFiles)), None)
    if isinstance(name, str) and name in known:
        return known[name].table
    if own and isinstance(given.get("train"), str):
        return own.table
    if name is None:
        return sources[0].table
    hint = f"did you mean {near}? " if (near := suggest(str(name), known)) else ""
    names = ", ".join(each for each in known if known[each] is not own)
    files = ", or name the file to train on (data.train)" if own else ""
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
