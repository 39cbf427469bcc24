"""Write the model card: the README.md of a model folder, with front matter for the Hugging Face Hub."""

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

- Task: {config.task}
{labels}- Training data: {facts[data]}

{figures}## Usage

```python
import nse

model = nse.load("FOLDER")  # path of this folder
print(model.{verb}({example[0]})[0]["{example[1]}"])
```

```text
nse {verb} FOLDER {example[2]}
nse evaluate FOLDER --split test
```

## Licence

Weights: {facts[license]}. {data_license}{facts[notes]}
"""

DEFAULTS = {
    "about": "Trained with nse, Neural Semantic Encoders in PyTorch.",
    "license": "mit",  # that of the package
    "notes": "The data and the word vectors keep their own licences.",
}

NOT_IN_TABLE = {*DEFAULTS, "title", "data", "data license"}  # facts with a place of their own
EXAMPLES = {  # of each kind: Python arguments, field of the answer to print, shell arguments
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
    """Write the card of a model.

    Args:
        config: Configuration of the model.
        facts: "title", "about" (a paragraph), "license" (the Hub's identifier), "notes" (on licences), "data"
            (a line), "data license", "accuracy" and "bleu" (a number from 0 to 1 for each split); any other
            fact becomes a row of the table of figures.
    """
    rows = [f"| {name.replace('_', ' ')} | {cell} |" for name, cell in list_figures(facts)]
    title = f"A model for {config.task}, made with nse"
    facts = {**DEFAULTS, "title": title, "data": config.data or "unknown", **facts}
    return CARD.format(
        config=config,
        facts=facts,
        front=write_front_matter(config, facts),
        labels=f"- Labels: {', '.join(config.labels)}\n" if config.labels else "",
        figures="\n".join(["## Figures\n", "| | |", "| --- | ---: |", *rows, "\n"]) if rows else "",
        verb=KINDS[config.kind].verb,
        example=EXAMPLES[config.kind],
        data_license=f"Data: {facts['data license']}. " if "data license" in facts else "",
    ).encode()


def write_front_matter(config: ModelConfig, facts: Mapping[str, Any]) -> str:
    """Write the card's metadata for the Hub as YAML; its values are JSON, which needs no escaping."""
    kind, measure, scale = "text-classification", "accuracy", 1
    if not config.labels:
        kind, measure, scale = "translation", "bleu", 100  # the Hub's scale of BLEU
    tags = ["neural-semantic-encoders", "pytorch", config.task]
    fields: dict[str, Any] = {"license": facts["license"], "library_name": "nse", "tags": tags}
    fields |= {"pipeline_tag": kind, "metrics": [measure]}
    if config.data:
        fields["datasets"] = [config.data]
    if config.data and isinstance(scores := facts.get(measure), Mapping):
        metrics = [
            {"type": measure, "name": f"{measure} ({split})", "value": scale * value}
            for split, value in scores.items()
        ]
        data = {"name": config.data, "type": config.data}
        result = {"task": {"type": kind}, "dataset": data, "metrics": metrics}
        fields["model-index"] = [{"name": facts["title"], "results": [result]}]
    return "\n".join(f"{key}: {json.dumps(value, allow_nan=False)}" for key, value in fields.items())


def list_figures(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """List names and values for the table of figures; the keys of nested mappings are joined."""
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from list_figures(value, f"{name} ")
        elif value is not None and name not in NOT_IN_TABLE:
            yield name, format_figure(name, value)


def format_figure(name: str, value: object) -> str:
    """Format a value for a cell of the table."""
    if isinstance(value, float):
        percent = {"accuracy": f"{100 * value:.1f}%", "bleu": f"{100 * value:.2f}"}
        return percent.get(name.split(" ")[0], f"{value:,.6g}")
    if type(value) is int and name != "seed":
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split()).replace("|", "\\|")
