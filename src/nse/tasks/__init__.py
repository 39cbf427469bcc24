"""The tasks: one file = one subsection of the paper, and the built-in corpus `logic`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from nse import config
from nse.errors import ConfigError, shorten
from nse.files import read_toml
from nse.tasks import (
    answers,
    documents,
    logic,
    nli,
    own_labels,
    own_ranking,
    own_translation,
    sentences,
    translation,
)
from nse.tasks.recipe import recipe_file
from nse.tasks.task import Task

OWN: dict[str, Task] = {
    "own-pair": own_labels.PAIRS,
    "own-sentence": own_labels.SENTENCES,
    "own-ranking": own_ranking.TASK,
    "own-translation": own_translation.TASK,
}
"""On a user's own files, which the recipe of a run names."""

TASKS: dict[str, Task] = {
    "logic": logic.TASK,
    "snli": nli.TASK,
    "wikiqa": answers.TASK,
    "sst": sentences.TASK,
    "documents": documents.TASK,
    "translation": translation.TASK,
    **OWN,
}


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Any:
    """A recipe by name (logic/nse) or by the path of a TOML file, with `--set` assignments applied."""
    file: Traversable = Path(name) if name.endswith(".toml") else recipe_file(name)
    data = read_toml(file)
    return config.build(task_of(file, data).recipe, data, overrides, source=str(file))


def task_of(file: Traversable, data: dict[str, object] | None = None) -> Task:
    """The task that a recipe file names, whose data may be there already."""
    name = (read_toml(file) if data is None else data).get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError(f"{file}: task: expected one of {', '.join(TASKS)}, got {shorten(repr(name))}")
    return TASKS[name]
