"""The card of a model folder: a README.md for people, with front matter for the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LICENCE = "mit"
"""Of the weights, where the card says nothing else: that of the package."""

USE = """\
import nse

model = nse.load("FOLDER")  # this folder
{python}
"""

EXAMPLES = {
    "pair": (
        'print(model.predict([("A dog runs.", "An animal moves.")])[0]["label"])',
        'nse predict FOLDER "A dog runs." "An animal moves."',
    ),
    "ranking": (
        'print(model.rank("Who runs?", ["A cat sleeps.", "A dog runs."])[0]["text"])',
        'nse rank FOLDER --question "Who runs?" "A cat sleeps." "A dog runs."',
    ),
    "sentence": ('print(model.predict(["A dog runs."])[0]["label"])', 'nse predict FOLDER "A dog runs."'),
    "document": (
        'print(model.predict(["I liked it. See it twice."])[0]["label"])',
        'nse predict FOLDER "I liked it. See it twice."',
    ),
    "translation": (
        'print(model.translate(["A dog runs."])[0]["translation"])',
        'nse translate FOLDER "A dog runs."',
    ),
}
"""What to ask a model of each kind, in Python and by its command."""

PERCENT = {"accuracy": "{:.1f}%", "bleu": "{:.2f}"}
"""Measures from 0 to 1 that are shown from 0 to 100, and how."""


PLACES = ("title", "about", "license", "notes", "data", "data license")
"""What a card tells elsewhere than in its table of figures."""


def card_text(kind: str, task: str, data: str, labels: Sequence[str], told: Mapping[str, Any]) -> str:
    """Write the card of a model.

    Args:
        kind: What the model takes.
        task: What it was trained for.
        data: The data set it was trained on, or nothing.
        labels: What its scores stand for; none for a translator.
        told: What else to tell. "title", "about" (a paragraph), "license" (the Hub's identifier), "notes" (on
            licences of data and vectors), "data" (what it is, in a line), "data license", "accuracy" and a
            translator's "bleu" (a number for each split, from 0 to 1) have their places; whatever else is
            there goes into the table of figures, inner keys after outer ones.
    """
    title = str(told.get("title") or f"A model for {task}, made with nse")
    meanings = f"Labels: {', '.join(labels)}. " if labels else ""
    figures = [
        f"| {key.replace('_', ' ')} | {shown(key, value)} |" for key, value in flat(told) if key not in PLACES
    ]
    parts = [
        front_matter(task, data, title, told, "text-classification" if labels else "translation"),
        f"# {title}\n",
        f"{told.get('about') or 'Trained with nse, Neural Semantic Encoders in PyTorch.'}\n",
        f"Task: {task}. {meanings}Data: {told.get('data') or data or 'not told'}.\n",
    ]
    if figures:
        parts.append("\n".join(["## Figures\n", "| | |", "| --- | ---: |", *figures, ""]))
    parts += [use(kind), f"## Licence\n\n{licence(told)}\n"]
    return "\n".join(parts)


def use(kind: str) -> str:
    """Say how to use a model."""
    python, command = EXAMPLES[kind]
    code = USE.format(python=python)
    commands = f"{command}\nnse evaluate FOLDER --split test\n"
    return f"## How to use it\n\n```python\n{code}```\n\n```text\n{commands}```\n"


def front_matter(task: str, data: str, title: str, told: Mapping[str, Any], kind: str) -> str:
    """What the Hub reads. Each value is written as JSON, which YAML reads too, so that nothing breaks out."""
    measure = "bleu" if kind == "translation" else "accuracy"
    given = told.get(measure)
    scores = given if isinstance(given, Mapping) else {}
    scale = 100 if measure == "bleu" else 1  # as the Hub shows them
    fields: dict[str, Any] = {
        "license": told.get("license") or LICENCE,
        "library_name": "nse",
        "tags": ["neural-semantic-encoders", "pytorch", task],
        "pipeline_tag": kind,
        "metrics": [measure],
    }
    if data:
        fields["datasets"] = [data]
    if data and scores:
        metrics = [
            {"type": measure, "name": f"{measure} ({split})", "value": scale * value}
            for split, value in scores.items()
        ]
        result = {"task": {"type": kind}, "dataset": {"name": data, "type": data}}
        fields["model-index"] = [{"name": title, "results": [{**result, "metrics": metrics}]}]
    lines = [f"{key}: {json.dumps(value, allow_nan=False)}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def licence(told: Mapping[str, Any]) -> str:
    """What to know before using the model elsewhere."""
    weights = f"The weights: {told.get('license') or LICENCE}."
    published = f" The data: {told['data license']}." if "data license" in told else ""
    notes = told.get("notes") or "Data and word vectors keep the licences of their authors."
    return f"{weights}{published} {notes}"


def flat(told: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Keys and values, those of inner mappings after their outer key."""
    for key, value in told.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key} ")
        elif value is not None:
            yield f"{prefix}{key}", value


def shown(key: str, value: object) -> str:
    """A value as a table's cell shows it."""
    if isinstance(value, float) and (measure := key.split(" ")[0]) in PERCENT:
        return PERCENT[measure].format(100 * value)
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool) and key != "seed":
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(str(text).split()).replace("|", "\\|")
