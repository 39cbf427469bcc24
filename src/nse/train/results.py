"""The paper's tables from results that the program wrote: a row for each recipe, over its seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from nse.errors import RunError, explain_errors
from nse.files import parse_json
from nse.metrics.bleu import signature
from nse.tasks import TABLES, load_recipe
from nse.tasks.recipe import recipes
from nse.tasks.source import OwnFiles
from nse.tasks.task import Figure, Task
from nse.train.fields import NUMBER, Shape, find_field, list_misfits

SHARED: dict[str, Shape] = {
    "data.fingerprint": str,
    "parameters_without_embeddings": int,
    "examples.train": int,
}
"""What must be equal in all runs of one row."""

FIELDS = {
    "recipe": str,
    "seed": int,
    "device": str,
    "seconds_per_epoch": NUMBER,
    "examples": dict,
    "data": dict,
}
"""What else a result must tell, beside its figures."""

Run = dict[str, Any]
"""What a run's result tells, and its file."""

WIDTH = 80  # of a terminal
LEFT = ("model", "on", "vectors")  # columns of text
BELOW = ("on", "trained on", "vectors")  # columns that a terminal has no room for
CROWDED = ("parameters", "s / epoch", "seeds")  # those that go next, where the others do not fit


def table(task: str, folder: Path, tell: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """Compute a row for each recipe of a task's table, those of the paper first.

    Results are every JSON file below the folder; of a run's folder result.json alone, and of a model's none.
    A run without a test file is told and left out. A row has the mean and the sample standard deviation of
    each of the task's figures by its heading (accuracy in percent), the paper's figures, parameters without
    embeddings, and seconds of an epoch of the fastest run: others may have shared the device.
    """
    runs: dict[str, list[Run]] = {}
    for run in sorted(read(task, folder, tell), key=lambda run: run["seed"]):
        runs.setdefault(run["recipe"], []).append(run)
    order = [*known(task).paper, *sorted(runs)]
    return [row(known(task), runs[name]) for name in sorted(runs, key=order.index)]


def known(task: str) -> Task:
    """Return a task by the name of its table."""
    if task not in TABLES:
        raise RunError(f"there is no task {task}; there are {', '.join(TABLES)}")
    return TABLES[task][0]


def row(task: Task, runs: list[Run]) -> dict[str, Any]:
    """Compute the row of one recipe, from its runs with different seeds."""
    first, recipe = runs[0], runs[0]["recipe"]
    for one, other in pairwise(runs):
        if one["seed"] == other["seed"]:
            what = f"both {recipe} with seed {one['seed']}"
            raise RunError(f"{one['file']} and {other['file']} are {what}: keep one of them")
        if odd := [key for key in SHARED if find_field(other, key) != find_field(first, key)]:
            what = f"runs of {recipe}, but differ in {', '.join(odd)}"
            raise RunError(f"{first['file']} and {other['file']} are {what}: keep what belongs together")
    paper = task.paper.get(recipe, {})
    in_paper = [figure for figure in task.shown if figure.split == "test" and figure.measure in paper]
    examples, data = first["examples"]["train"], first["data"]
    return {
        "recipe": recipe,
        "paper": {figure.heading: figure.scale * paper[figure.measure] for figure in in_paper} or None,
        "seeds": [run["seed"] for run in runs],
        **{figure.heading: spread(figure, runs) for figure in task.shown},
        "parameters": first["parameters_without_embeddings"],
        "seconds": min(run["seconds_per_epoch"] for run in runs),
        "device": ", ".join(sorted({run["device"] for run in runs})),
        "examples": examples,
        "published": data["published"]["train"] if data.get("published") else examples,
        "vectors": data.get("vectors") or "",
    }


def spread(figure: Figure, runs: Sequence[Run]) -> dict[str, float | None]:
    """Compute the mean and the sample standard deviation of a figure; of a single run there is none."""
    values = [float(figure.scale * run[figure.measure][figure.split]) for run in runs]
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}


def read(task: str, folder: Path, tell: Callable[[str], None]) -> list[Run]:
    """Read every result of a task below a folder; runs without a test file are told and left out."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: name the one that holds results or runs")
    runs = {file.parent for file in folder.rglob("recipe.toml")}
    found, untested = [], 0
    for file in sorted(folder.rglob("*.json")):
        run = next((parent for parent in file.parents if parent in runs), None)
        of_model = (file.parent / "model.safetensors").exists()
        if not (file == run / "result.json" if run else not of_model):
            continue
        told = read_json(file)
        refuse_misfits(file, told, {"task": str})
        if told["task"] != task:
            continue
        refuse_misfits(file, told, FIELDS | SHARED)
        if "test" not in told["examples"] and issubclass(TABLES[task][1], OwnFiles):
            tell(f"{file} is left out: the run had no test file")
            untested += 1
            continue
        refuse_other_figures(file, told, known(task).shown)
        found.append(told | {"file": file})
    if not found and untested:
        raise RunError(f"no result of {task} in {folder} has a test file", ("test",))
    if not found:
        own = (name for name in recipes() if load_recipe(name).data.table == task)
        first, *others = dict.fromkeys(f"{name.split('/')[0]}/..." for name in own)
        more = f" (or {', '.join(others)})" if others else ""
        raise RunError(f"no result of {task} in {folder}; train {first}{more}")
    return found


def read_json(file: Path) -> Any:
    """Return what a JSON file holds."""
    try:
        with explain_errors(f"{file} cannot be read"):
            return parse_json(file.read_bytes())
    except ValueError as error:
        raise RunError(f"{file} is not JSON: {error}") from None


def refuse_misfits(file: Path, told: Any, shapes: Mapping[str, Shape]) -> None:
    """Refuse a file that does not tell every field."""
    if wrong := list_misfits(told, shapes):
        raise RunError(f"{file} is no result: {wrong[0]} is missing, or not as training writes it")


def refuse_other_figures(file: Path, told: Any, shown: Sequence[Figure]) -> None:
    """Refuse a file that does not tell every figure of its task."""
    if (file.parent / "scores").is_dir() and any(figure.measure not in told for figure in shown):
        raise RunError(f"{file} has scores and no figures yet", ("scores", str(file.parent)))
    for figure in shown:
        key = f"{figure.measure}.{figure.split}"
        refuse_misfits(file, told, {figure.measure: dict, key: NUMBER})
        value = find_field(told, key)
        if not 0 <= value <= figure.most:
            raise RunError(f"{file} is no result: {key} is {value}, not from 0 to {figure.most:g}")


def cells(task: str, row: Mapping[str, Any]) -> dict[str, str]:
    """Write a row: the text of each column of the task's table."""
    shown, paper, whole = known(task).shown, row["paper"] or {}, row["published"] == row["examples"]
    figures = {}
    for figure in shown:
        mean, sd = row[figure.heading]["mean"], row[figure.heading]["sd"]
        deviation = "" if sd is None else f" ± {sd:.{figure.digits}f}"
        figures[figure.heading] = f"{mean:.{figure.digits}f}{deviation}"
    return {
        "model": row["recipe"],
        "paper": " / ".join(f"{paper[f.heading]:.{f.digits}f}" for f in shown if f.heading in paper),
        **figures,
        "seeds": str(len(row["seeds"])),
        "parameters": f"{row['parameters']:,}",
        "s / epoch": f"{row['seconds']:.2f}",
        "on": row["device"],
        "trained on": f"{row['examples']:,}" + ("" if whole else f" of {row['published']:,}"),
        "vectors": row["vectors"] or "learned",
    }


def notes(task: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say how BLEU is computed, and what keeps rows from being compared with the paper's figures."""
    lines, vectors = [], known(task).vectors
    if any(figure.measure == "bleu" for figure in known(task).shown):
        # without the version of sacrebleu that is here: the figures may be from another machine
        lines.append(f"BLEU is sacrebleu's, {signature().split('|version:')[0]}.")
    if any(row["paper"] and row["vectors"] != vectors for row in rows):
        lines.append(f"The paper's figures are with the vectors {vectors}.")
    return lines


def markdown(task: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows for a document."""
    texts = [cells(task, row) for row in rows]
    rules = ["---" if heading in LEFT else "---:" for heading in texts[0]]
    lines = [list(texts[0]), rules, *(list(line.values()) for line in texts)]
    below = "".join(f"\n{note}\n" for note in notes(task, rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + below


def shown(task: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Draw rows for a terminal of 80 columns: what runs stand on is told below, with the rows that differ."""
    texts = [cells(task, row) for row in rows]
    columns = {heading: [line[heading] for line in texts] for heading in texts[0]}
    names = [recipe.removeprefix(f"{task}/") for recipe in columns.pop("model")]
    last = {heading: columns.pop(heading) for heading in BELOW}
    moved = {}
    for heading in CROWDED:
        tight = [names, *([tighten(name), *map(tighten, column)] for name, column in columns.items())]
        if sum(max(map(len, column)) + 1 for column in tight) > WIDTH + 1:
            moved[heading] = columns.pop(heading)
    below = [tell_below(heading, names, column) for heading, column in (moved | last).items()]
    unit = "accuracy in percent, " if known(task).shown[0].measure == "accuracy" else ""
    drawn = Table(
        title=f"{task}: {unit}mean ± standard deviation over seeds",
        caption="\n".join([*below, *notes(task, rows)]),
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    drawn.add_column("model", no_wrap=True)
    for heading in columns:
        drawn.add_column(tighten(heading), justify="right", no_wrap=True)
    for name, *line in zip(names, *columns.values(), strict=True):
        drawn.add_row(name, *map(tighten, line))
    return drawn


def tighten(cell: str) -> str:
    """Take from a cell what a terminal has no room for: spaces, and the zero in front of figures below 1."""
    closer = cell.replace(" ± ", "±").replace(" / ", "/")
    return re.sub(r"\b0\.", ".", closer) if closer != cell and cell.startswith("0.") else closer


def tell_below(heading: str, names: Iterable[str], column: Iterable[str]) -> str:
    """Tell a column as a sentence: what most rows have, then the others by name."""
    by_text: dict[str, list[str]] = {}
    for name, text in zip(names, column, strict=True):
        by_text.setdefault(text, []).append(name)
    common, *others = sorted(by_text, key=lambda text: -len(by_text[text]))
    exceptions = [f"{', '.join(by_text[text])}: {text}" for text in others]
    return f"{heading}: {'; '.join([common, *exceptions])}"
