"""The card of a model folder: a README.md for people, with front matter for the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nse.inference.kinds import KINDS

if TYPE_CHECKING:
    from nse.inference.folder import ModelConfig

CARD = """\
---
{front}
---

# {facts[title]}

{facts[about]}

Task: {config.task}. {labels}Data: {facts[data]}.

{figures}## How to use it

```python
import nse

model = nse.load("FOLDER")  # this folder
print(model.{verb}({example[0]})[0]["{example[1]}"])
```

```text
nse {verb} FOLDER {example[2]}
nse evaluate FOLDER --split test
```

## Licence

The weights: {facts[license]}. {data_license}{facts[notes]}
"""

DEFAULTS = {
    "about": "Trained with nse, Neural Semantic Encoders in PyTorch.",
    "license": "mit",  # that of the package
    "notes": "Data and word vectors keep the licences of their authors.",
}

PLACES = {*DEFAULTS, "title", "data", "data license"}  # told elsewhere than in the table of figures
EXAMPLES = {  # what to ask in Python, what to show of the answer, and what to type
    "pair": ('[("A dog runs.", "An animal moves.")]', "label", '"A dog runs." "An animal moves."'),
    "ranking": (
        *('"Who runs?", ["A cat sleeps.", "A dog runs."]', "text"),
        '--question "Who runs?" "A cat sleeps." "A dog runs."',
    ),
    "sentence": ('["A dog runs."]', "label", '"A dog runs."'),
    "document": ('["I liked it. See it twice."]', "label", '"I liked it. See it twice."'),
    "translation": ('["A dog runs."]', "translation", '"A dog runs."'),
}


def write_card(config: ModelConfig, facts: Mapping[str, Any]) -> bytes:
    """Write the card of a model with these facts.

    "title", "about" (a paragraph), "license" (the Hub's identifier), "notes" (on licences of data and
    vectors), "data" (what it is, in a line), "data license", "accuracy" and a translator's "bleu" (a number
    for each split, from 0 to 1) have their places; whatever else is there goes into the table of figures.
    """
    rows = [f"| {name.replace('_', ' ')} | {cell} |" for name, cell in list_figures(facts)]
    title = f"A model for {config.task}, made with nse"
    known = {**DEFAULTS, "title": title, "data": config.data or "not told", **facts}
    return CARD.format(
        config=config,
        facts=known,
        front=write_front(config, known),
        labels=f"Labels: {', '.join(config.labels)}. " if config.labels else "",
        figures="\n".join(["## Figures\n", "| | |", "| --- | ---: |", *rows, "\n"]) if rows else "",
        verb=KINDS[config.kind].verb,
        example=EXAMPLES[config.kind],
        data_license=f"The data: {facts['data license']}. " if "data license" in facts else "",
    ).encode()


def write_front(config: ModelConfig, facts: Mapping[str, Any]) -> str:
    """Write what the Hub reads, each value as JSON, which YAML reads too, so that nothing breaks out."""
    kind, measure, scale = "text-classification", "accuracy", 1
    if not config.labels:
        kind, measure, scale = "translation", "bleu", 100  # as the Hub shows it
    tags = ["neural-semantic-encoders", "pytorch", config.task]
    fields: dict[str, Any] = {"license": facts["license"], "library_name": "nse", "tags": tags}
    fields |= {"pipeline_tag": kind, "metrics": [measure]}
    if config.data:
        fields["datasets"] = [config.data]
    if config.data and isinstance(scores := facts.get(measure), Mapping):
        named = [(f"{measure} ({split})", scale * value) for split, value in scores.items()]
        metrics = [{"type": measure, "name": name, "value": value} for name, value in named]
        data = {"name": config.data, "type": config.data}
        result = {"task": {"type": kind}, "dataset": data, "metrics": metrics}
        fields["model-index"] = [{"name": facts["title"], "results": [result]}]
    return "\n".join(f"{key}: {json.dumps(value, allow_nan=False)}" for key, value in fields.items())


def list_figures(facts: Mapping[str, Any], outer: str = "") -> Iterator[tuple[str, str]]:
    """List names and values for the table of figures, those of inner mappings after their outer key."""
    for key, value in facts.items():
        name = f"{outer}{key}"
        if isinstance(value, Mapping):
            yield from list_figures(value, f"{name} ")
        elif value is not None and name not in PLACES:
            yield name, format_figure(name, value)


def format_figure(name: str, value: object) -> str:
    """Write a value as a table's cell shows it."""
    if isinstance(value, float):
        percent = {"accuracy": f"{100 * value:.1f}%", "bleu": f"{100 * value:.2f}"}
        return percent.get(name.split(" ")[0], f"{value:,.6g}")
    if type(value) is int and name != "seed":
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split()).replace("|", "\\|")
