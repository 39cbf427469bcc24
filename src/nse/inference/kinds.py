"""What a loaded model is for: what it takes, and which command lets it."""

from __future__ import annotations

from nse.errors import InputError
from nse.inference import folder as hub

NOTHING = {"predict": "tells no labels apart", "rank": "ranks nothing", "translate": "translates nothing"}
"""What a model does not do that another command is for."""


INPUTS = {
    "pair": ("premise", "hypothesis"),
    "ranking": ("answer", "question"),
    "sentence": ("sentence",),
    "document": ("document",),
    "translation": ("source",),
}
"""What the texts of each kind are called, in the order in which a model takes them."""

OWN_INPUTS = {"own-pair": ("first", "second"), "own-sentence": ("text",)}
"""What they are called where the data was a user's own."""


def columns(loaded: hub.Model) -> tuple[str, ...]:
    """What a model takes, in its order."""
    kind = "ranking" if ranks(loaded) else loaded.config.kind
    return OWN_INPUTS.get(loaded.config.task, INPUTS[kind])


def classified(loaded: hub.Model) -> tuple[str, ...]:
    """What a classifier takes; a model that ranks or translates is refused."""
    refuse_other(loaded, "predict")
    return columns(loaded)


def ranked(loaded: hub.Model) -> tuple[str, ...]:
    """What a model that ranks takes; any other is refused."""
    refuse_other(loaded, "rank")
    return columns(loaded)


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
