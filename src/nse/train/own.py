"""The files that a model of a user's own data is scored on: those of its run, or another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nse import config
from nse.data.cache import Prepared
from nse.errors import InputError, ModelError
from nse.inference.model import Model
from nse.tasks import OWN, load_recipe
from nse.tasks import own as files
from nse.tasks.own import assignments

RECIPE = "recipe.toml"


def is_own(loaded: Model) -> bool:
    """Whether a model was trained on a user's own files."""
    return loaded.config.task in OWN


def obtained(loaded: Model, split: str | None, on: str | None, columns: str | None) -> tuple[Prepared, str]:
    """Rows to score such a model on, and the name of their split.

    Args:
        loaded: The model.
        split: Of its run; `None` is test, or dev where there is no test.
        on: Another file instead.
        columns: Which column of it is what, as in `text=review,label=stars`; as in the run by default.
    """
    if on and split:
        raise InputError("split: the file that --on names has none")
    if columns and not on:
        raise InputError("columns: those of the run are known; others go with a file that --on names")
    given = {"test": on, "name": Path(on).name} if on else {}
    data = recipe_of(loaded, assignments(given, columns), bare=on is not None).data
    chosen = split or ("test" if data.test else "dev")
    there = [each for each in files.SPLITS if getattr(data, each) or each == "dev"]
    if chosen not in there:
        raise InputError(f"split: there is no {chosen!r}; there are {', '.join(there)}")
    # As the model reads: by its tokenizer, every word, for it knows which it knows, and its labels.
    data.tokenizer, data.vectors, data.least = loaded.config.tokenizer, "", 0
    rows = files.read_splits(data, (chosen,), tuple(loaded.config.labels))
    return files.prepared(data, rows, translation=loaded.kind.translates), chosen


def recipe_of(loaded: Model, changes: list[str], bare: bool) -> Any:
    """The recipe of the run that a model belongs to; of a bare model the default one, if that will do."""
    file, task = loaded.folder.parent / RECIPE, loaded.config.task
    if file.is_file() and (found := load_recipe(str(file), changes)).task == task:
        return found
    if not bare or loaded.kind.translates:
        hint = "" if bare else "; name a file with --on FILE"
        raise ModelError(f"{loaded.folder}: no {RECIPE} of its run beside it tells what its data is{hint}")
    return config.build(OWN[task].recipe, config.override({}, changes), source="--columns")
