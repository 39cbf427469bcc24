"""What a loaded model is for: what it takes, and which command lets it."""

from __future__ import annotations

from nse.errors import InputError, ModelError
from nse.inference import folder as hub
from nse.tasks import TASKS, documents, translation

NOTHING = {"predict": "tells no labels apart", "rank": "ranks nothing", "translate": "translates nothing"}
"""What a model does not do that another command is for."""


def columns(loaded: hub.Model) -> tuple[str, ...]:
    """What a model takes, in its order, by the columns of its task's data."""
    config = loaded.config
    if config.task not in TASKS:
        raise ModelError(f"{loaded.folder}: expected a task of {', '.join(TASKS)}, got {config.task!r}")
    found = TASKS[config.task].columns
    own = {"document": documents.COLUMNS, "translation": translation.COLUMNS}
    if config.kind in own:
        fits = found == own[config.kind]
    else:
        fits = found not in own.values() and len(found) == (1 if config.kind == "sentence" else 2)
    if not fits:
        raise ModelError(
            f"{loaded.folder}: config.json disagrees with itself: a model of kind {config.kind!r} cannot "
            f"take {' and '.join(found)}, as its task {config.task} does"
        )
    return found


def classified(loaded: hub.Model) -> tuple[str, ...]:
    """What a classifier takes; a model that ranks or translates is refused."""
    refuse_other(loaded, "predict")
    return columns(loaded)


def ranked(loaded: hub.Model) -> tuple[str, ...]:
    """What a model that ranks takes; any other is refused."""
    refuse_other(loaded, "rank")
    found = columns(loaded)
    if "question" not in found:
        raise ModelError(
            f"{loaded.folder}: config.json disagrees with itself: it has one label, as a model that ranks, "
            f"and its task {loaded.config.task} asks no question"
        )
    return found


def translator(loaded: hub.Model) -> tuple[str, ...]:
    """What a model that translates takes and gives; any other is refused."""
    refuse_other(loaded, "translate")
    return columns(loaded)


def refuse_other(loaded: hub.Model, command: str) -> None:
    """Refuse a model that another command is for."""
    does, own = purpose(loaded)
    if own != command:
        raise InputError(
            f"model: {loaded.folder} {does} and {NOTHING[command]}; use `nse {own}`, in Python model.{own}"
        )


def purpose(loaded: hub.Model) -> tuple[str, str]:
    """What a model does, and the command that lets it."""
    if loaded.config.kind == "translation":
        return "translates sentences", "translate"
    if ranks(loaded):
        return "ranks candidate answers to a question", "rank"
    what = "a pair of sentences" if loaded.config.kind == "pair" else f"a {loaded.config.kind}"
    return f"gives {what} a label ({', '.join(loaded.config.labels)})", "predict"


def ranks(loaded: hub.Model) -> bool:
    """Whether a model gives a pair one score to rank by, instead of one for each label."""
    return loaded.config.kind == "pair" and len(loaded.config.labels) == 1
