"""What the server tells of its model: what it does, what it takes, and examples to click."""

from __future__ import annotations

from typing import Any

from nse.inference.model import Model
from nse.inference.tracing import describe_model
from nse.serve.limits import Limits

EXAMPLES: dict[str, list[list[str]]] = {
    "snli": [
        ["A little child sits quietly on a hand built rock wall in autumn.", "A child is sitting outdoors."],
        ["Three puppies are in the tub being sprayed with water by the vet.", "The dogs are being washed."],
        ["Two dogs play in the snow.", "Cats sleep inside a house."],
    ],
    "sst": [
        ["A film that makes you think."],
        ["Two hours too long, and not funny for a minute."],
        ["It isn't bad at all."],
    ],
    "translation": [
        ["A dog runs across the snow."],
        ["A woman in a red dress plays the guitar."],
        ["Three children build a castle in the sand."],
    ],
    "wikiqa": [
        [
            "why does bread rise ?",
            "Yeast turns sugar into gas , and its bubbles lift the dough .",
            "Most people eat bread in the morning .",
        ],
    ],
    "logic": [["all dogs bark", "some dogs bark"], ["no dogs dance", "some dogs dance"]],
    "documents": [
        ["I did not expect much. The story is thin, but the actors are wonderful. I laughed a lot."]
    ],
}
"""Texts to begin with, by task."""

LABELS = {"source": "English sentence", "candidate": "Candidates, one a line"}
"""What a field is called where the name of its text would not do."""


def about(model: Model, limits: Limits | None = None) -> dict[str, Any]:
    """What `/v1/model` answers."""
    bounds = ("max_texts", "max_chars", "max_body", "timeout")
    return {
        **describe_model(model),
        "command": model.task,
        "does": model.does,
        "fields": fields(model),
        "examples": EXAMPLES.get(model.config.task, []),
        **({"limits": {name: getattr(limits, name) for name in bounds}} if limits else {}),
    }


def fields(model: Model) -> list[dict[str, Any]]:
    """The fields of a form, in the order in which texts are given to `nse.Model.trace`."""
    if model.kind.ranks:
        return [{"label": "Question", "many": False}, {"label": LABELS["candidate"], "many": True}]
    if model.kind.translates:
        return [{"label": LABELS["source"], "many": False, "language": "en"}]
    return [{"label": name.capitalize(), "many": False} for name in model.inputs]
