"""The paper's tables from results that the program wrote: a row for each recipe, over its seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from nse.errors import RunError
from nse.tasks import nli

PAPER = nli.PAPER
"""The paper's figures by recipe, in percent, and in the order of its tables."""

SPLITS = ("test", "dev", "train")

FIELDS: dict[str, type | tuple[type, ...]] = {
    "recipe": str,
    "seed": int,
    "accuracy": dict,
    "parameters_without_embeddings": int,
    "seconds_per_epoch": (int, float),
    "examples": dict,
    "device": str,
    "data": dict,
    **{f"accuracy.{split}": (int, float) for split in SPLITS},
    "examples.train": int,
    "data.fingerprint": str,
}
"""What a result must tell, inner keys after their outer one, and as what."""

COLUMNS = {
    "recipe": "model",
    "paper": "paper",
    "test": "test",
    "dev": "dev",
    "train": "train",
    "seeds": "seeds",
    "parameters": "parameters",
    "seconds": "s / epoch",
    "device": "on",
    "pairs": "training pairs",
    "vectors": "vectors",
}
"""The columns of a table and their headings."""

LEFT = ("recipe", "device", "vectors")
BELOW = ("device", "pairs", "vectors")
"""Columns that a terminal has no room for."""


class Result(NamedTuple):
    """One run's figures."""

    file: Path
    told: dict[str, Any]

    @property
    def recipe(self) -> str:
        """The recipe that was run."""
        return str(self.told["recipe"])

    @property
    def shared(self) -> dict[str, Any]:
        """What must be equal in all runs of one row."""
        told = self.told
        return {
            "data.fingerprint": told["data"]["fingerprint"],
            "parameters_without_embeddings": told["parameters_without_embeddings"],
            "examples.train": told["examples"]["train"],
        }


def table(task: str, folder: Path, paper: Mapping[str, float] = PAPER) -> list[dict[str, Any]]:
    """A row for each recipe of a task, those of the paper first.

    Args:
        task: Such as "snli".
        folder: Where the results are: every JSON file below it; of a run's folder result.json alone, and of a
            model's none.
        paper: The paper's figures by recipe, in percent; its order is the rows'.

    Returns:
        Rows that JSON can hold: recipe, paper, seeds; for test, dev and train the mean and the sample
        standard deviation in percent; parameters (without embeddings), seconds (of an epoch, of the fastest
        run: others may have shared the device), device, examples (to train on), published (of them when
        whole), vectors.
    """
    results = sorted(read(task, folder), key=lambda result: (result.recipe, result.told["seed"]))
    rows = [row(list(runs), paper) for _, runs in groupby(results, key=lambda result: result.recipe)]
    order = {recipe: place for place, recipe in enumerate(paper)}
    return sorted(rows, key=lambda each: order.get(each["recipe"], len(order)))


def row(runs: list[Result], paper: Mapping[str, float]) -> dict[str, Any]:
    """The row of one recipe, from its runs with different seeds."""
    first = runs[0]
    for one, other in pairwise(runs):
        if one.told["seed"] == other.told["seed"]:
            what = f"both {one.recipe} with seed {one.told['seed']}"
            raise RunError(f"{one.file} and {other.file} are {what}: keep one of them")
        if odd := [key for key, value in first.shared.items() if other.shared[key] != value]:
            what = f"runs of {one.recipe}, but differ in {', '.join(odd)}"
            raise RunError(f"{first.file} and {other.file} are {what}: keep what belongs together")
    told = first.told
    published = told["data"].get("published")  # a generated corpus is whole, however large
    return {
        "recipe": first.recipe,
        "paper": paper.get(first.recipe),
        "seeds": [each.told["seed"] for each in runs],
        **{split: spread(each.told["accuracy"][split] for each in runs) for split in SPLITS},
        "parameters": told["parameters_without_embeddings"],
        "seconds": min(each.told["seconds_per_epoch"] for each in runs),
        "device": ", ".join(sorted({each.told["device"] for each in runs})),
        "examples": told["examples"]["train"],
        "published": published["train"] if published else told["examples"]["train"],
        "vectors": told["data"].get("vectors") or "",
    }


def spread(shares: Iterable[float]) -> dict[str, float | None]:
    """Mean and sample standard deviation, in percent; of a single one there is no deviation."""
    values = [100 * share for share in shares]
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}


def read(task: str, folder: Path) -> list[Result]:
    """Every result of a task below a folder."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: name the one that holds results or runs with --results")
    runs = {file.parent for file in folder.rglob("recipe.toml")}
    found = []
    for file in sorted(folder.rglob("*.json")):
        run = next((parent for parent in file.parents if parent in runs), None)
        of_model = (file.parent / "model.safetensors").exists()
        if file == run / "result.json" if run else not of_model:
            told = parsed(file)
            check(file, told, {"task": str})
            if told["task"] == task:
                check(file, told, FIELDS)
                found.append(Result(file, told))
    if not found:
        raise RunError(f"no result of {task} in {folder}: `nse train {task}/...` makes one")
    return found


def parsed(file: Path) -> Any:
    """What a JSON file holds."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number in JSON")

    try:
        return json.loads(file.read_text("utf-8"), parse_constant=refuse)
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file} is not JSON: {error}") from None


def check(file: Path, told: Any, fields: Mapping[str, type | tuple[type, ...]]) -> None:
    """Refuse a file that does not tell every field."""
    for key, kind in fields.items():
        value = told
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits:
            raise RunError(f"{file} is no result: {key} is missing, or not as `nse train` writes it")
        if key.startswith("accuracy.") and not 0 <= value <= 1:
            raise RunError(f"{file} is no result: {key} is {value}, not from 0 to 1")


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row as text, a cell for each of `COLUMNS`."""

    def percent(figure: Mapping[str, float | None]) -> str:
        return f"{figure['mean']:.1f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.1f}")

    whole = row["published"] == row["examples"]
    texts = {
        "recipe": row["recipe"],
        "paper": "" if row["paper"] is None else f"{row['paper']:.1f}",
        **{split: percent(row[split]) for split in SPLITS},
        "seeds": str(len(row["seeds"])),
        "parameters": f"{row['parameters']:,}",
        "seconds": f"{row['seconds']:.2f}",
        "device": row["device"],
        "pairs": f"{row['examples']:,}" + ("" if whole else f" of {row['published']:,}"),
        "vectors": row["vectors"],
    }
    return [texts[column] for column in COLUMNS]


def shown(task: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows for a terminal of 80 columns: what runs stand on is told below, with the rows that differ."""
    columns = dict(zip(COLUMNS, zip(*map(cells, rows), strict=True), strict=True))
    names = [recipe.removeprefix(f"{task}/") for recipe in columns.pop("recipe")]
    below = [sentence for column in BELOW if (sentence := told_below(column, names, columns.pop(column)))]
    result = Table(
        title=f"{task}: accuracy in percent, mean ± standard deviation over seeds",
        caption="\n".join(below),
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    result.add_column(COLUMNS["recipe"], no_wrap=True)
    for column in columns:
        result.add_column(COLUMNS[column].replace(" / ", "/"), justify="right", no_wrap=True)
    for name, *line in zip(names, *columns.values(), strict=True):
        result.add_row(name, *(cell.replace(" ± ", "±") for cell in line))
    return result


def told_below(column: str, names: Iterable[str], texts: Iterable[str]) -> str:
    """A column as a sentence: what most rows have, then the others by name."""
    by_text: dict[str, list[str]] = {}
    for name, text in zip(names, texts, strict=True):
        by_text.setdefault(text, []).append(name)
    common, *others = sorted(by_text, key=lambda text: -len(by_text[text]))
    exceptions = [f"{', '.join(by_text[text])}: {text}" for text in others]
    return f"{COLUMNS[column]}: {'; '.join([common, *exceptions])}" if common or others else ""


def markdown(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows for a document."""
    rules = ["---" if column in LEFT else "---:" for column in COLUMNS]
    lines = [list(COLUMNS.values()), rules, *map(cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
