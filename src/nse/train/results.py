"""Tables of the paper's tasks, computed from results of runs: a row per recipe, over its seeds."""

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
from nse.metrics.bleu import get_signature
from nse.tasks import TABLES, load_recipe
from nse.tasks.recipe import list_recipes
from nse.tasks.source import OwnFiles
from nse.tasks.task import ResultColumn, Task
from nse.train.fields import NUMBER, Schema, get_field, list_invalid_fields

EQUAL_FIELDS: dict[str, Schema] = {
    "data.fingerprint": str,
    "parameters_without_embeddings": int,
    "examples.train": int,
}
"""Fields that must be equal in all runs of a row."""

FIELDS = {
    "recipe": str,
    "seed": int,
    "device": str,
    "seconds_per_epoch": NUMBER,
    "examples": dict,
    "data": dict,
}
"""Other fields of a result, besides its figures."""

Run = dict[str, Any]
"""Result of a run, and its file."""

WIDTH = 80  # of a terminal
LEFT_ALIGNED = ("model", "on", "vectors")
CAPTION_COLUMNS = ("on", "trained on", "vectors")  # in a terminal they are in the caption
OPTIONAL_COLUMNS = ("parameters", "s / epoch", "seeds")  # in the caption if the table is too wide


def compute_table(
    task: str, folder: Path, warn: Callable[[str], None] = lambda message: None
) -> list[dict[str, Any]]:
    """Compute a row for each recipe of a task's table, those of the paper first.

    Results are all JSON files below the folder: of a run result.json, of a model none. A row has mean and
    sample standard deviation of each figure (accuracy in percent), the paper's figures, parameters without
    embeddings, and the seconds per epoch of the fastest run, because others may have shared their device.
    `warn` gets a message about each run that is left out because it had no test file.
    """
    runs: dict[str, list[Run]] = {}
    for run in sorted(read_results(task, folder, warn), key=lambda run: run["seed"]):
        runs.setdefault(run["recipe"], []).append(run)
    order = [*find_task(task).paper_results, *sorted(runs)]
    return [compute_row(find_task(task), runs[name]) for name in sorted(runs, key=order.index)]


def find_task(name: str) -> Task:
    """Return a task by the name of its table."""
    if name not in TABLES:
        raise RunError(f"there is no task {name}; there are {', '.join(TABLES)}")
    return TABLES[name][0]


def compute_row(task: Task, runs: list[Run]) -> dict[str, Any]:
    """Compute the row of a recipe from its runs with different seeds."""
    first, recipe = runs[0], runs[0]["recipe"]
    for run, next_run in pairwise(runs):
        if run["seed"] == next_run["seed"]:
            reason = f"both {recipe} with seed {run['seed']}"
            raise RunError(f"{run['file']} and {next_run['file']} are {reason}: keep one of them")
        if keys := [key for key in EQUAL_FIELDS if get_field(next_run, key) != get_field(first, key)]:
            reason = f"runs of {recipe}, but differ in {', '.join(keys)}"
            raise RunError(f"{first['file']} and {next_run['file']} are {reason}: keep only equal ones")
    paper = task.paper_results.get(recipe, {})
    in_paper = [figure for figure in task.columns if figure.split == "test" and figure.measure in paper]
    examples, data = first["examples"]["train"], first["data"]
    return {
        "recipe": recipe,
        "paper": {figure.heading: figure.scale * paper[figure.measure] for figure in in_paper} or None,
        "seeds": [run["seed"] for run in runs],
        **{figure.heading: compute_mean(figure, runs) for figure in task.columns},
        "parameters": first["parameters_without_embeddings"],
        "seconds": min(run["seconds_per_epoch"] for run in runs),
        "device": ", ".join(sorted({run["device"] for run in runs})),
        "examples": examples,
        "published": data["published"]["train"] if data.get("published") else examples,
        "vectors": data.get("vectors") or "",
    }


def compute_mean(figure: ResultColumn, runs: Sequence[Run]) -> dict[str, float | None]:
    """Compute the mean of a figure and its sample standard deviation, `None` for a single run."""
    values = [float(figure.scale * run[figure.measure][figure.split]) for run in runs]
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}


def read_results(task: str, folder: Path, warn: Callable[[str], None]) -> list[Run]:
    """Read all results of a task below a folder, except runs without a test file."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder} with results or runs")
    run_folders = {file.parent for file in folder.rglob("recipe.toml")}
    results, has_untested = [], False
    for file in sorted(folder.rglob("*.json")):
        run_folder = next((parent for parent in file.parents if parent in run_folders), None)
        is_in_model = (file.parent / "model.safetensors").exists()
        if not (file == run_folder / "result.json" if run_folder else not is_in_model):
            continue
        result = read_json(file)
        check_fields(file, result, {"task": str})
        if result["task"] != task:
            continue
        check_fields(file, result, FIELDS | EQUAL_FIELDS)
        if "test" not in result["examples"] and issubclass(TABLES[task][1], OwnFiles):
            warn(f"{file} is left out: its run had no test file")
            has_untested = True
            continue
        check_figures(file, result, find_task(task).columns)
        results.append(result | {"file": file})
    if not results and has_untested:
        raise RunError(f"no run of {task} in {folder} had a test file", ("test",))
    if not results:
        names = (name for name in list_recipes() if load_recipe(name).data.table == task)
        examples = " or ".join(dict.fromkeys(f"{name.split('/')[0]}/..." for name in names))
        raise RunError(f"no result of {task} in {folder}: train one of its recipes ({examples})")
    return results


def read_json(file: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        with explain_errors(f"{file} cannot be read"):
            return parse_json(file.read_bytes())
    except ValueError as error:
        raise RunError(f"{file} is not JSON: {error}") from None


def check_fields(file: Path, result: Any, schemas: Mapping[str, Schema]) -> None:
    """Raise RunError if a field is missing or invalid."""
    if names := list_invalid_fields(result, schemas):
        raise RunError(f"{file} is not a result: {names[0]} is missing or invalid")


def check_figures(file: Path, result: Any, figures: Sequence[ResultColumn]) -> None:
    """Raise RunError if a figure of the task is missing or out of its range."""
    if (file.parent / "scores").is_dir() and any(figure.measure not in result for figure in figures):
        raise RunError(f"{file} has scores, but no figures yet", ("scores", str(file.parent)))
    for figure in figures:
        key = f"{figure.measure}.{figure.split}"
        check_fields(file, result, {figure.measure: dict, key: NUMBER})
        value = get_field(result, key)
        if not 0 <= value <= figure.maximum:
            raise RunError(f"{file} is not a result: {key} is {value}, not from 0 to {figure.maximum:g}")


def format_cells(task: str, row: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of a row's cells by column."""
    figures, paper, is_whole = (
        find_task(task).columns,
        row["paper"] or {},
        row["published"] == row["examples"],
    )
    means = {}
    for figure in figures:
        mean, sd = row[figure.heading]["mean"], row[figure.heading]["sd"]
        deviation = "" if sd is None else f" ± {sd:.{figure.digits}f}"
        means[figure.heading] = f"{mean:.{figure.digits}f}{deviation}"
    return {
        "model": row["recipe"],
        "paper": " / ".join(f"{paper[f.heading]:.{f.digits}f}" for f in figures if f.heading in paper),
        **means,
        "seeds": str(len(row["seeds"])),
        "parameters": f"{row['parameters']:,}",
        "s / epoch": f"{row['seconds']:.2f}",
        "on": row["device"],
        "trained on": f"{row['examples']:,}" + ("" if is_whole else f" of {row['published']:,}"),
        "vectors": row["vectors"] or "learned",
    }


def list_notes(task: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return how BLEU is computed, and the vectors of the paper's figures if rows have others."""
    notes, vectors = [], find_task(task).paper_vectors
    if any(figure.measure == "bleu" for figure in find_task(task).columns):
        # Without the installed version of sacrebleu: the figures may be from another machine.
        notes.append(f"BLEU is sacrebleu's, {get_signature().split('|version:')[0]}.")
    if any(row["paper"] and row["vectors"] != vectors for row in rows):
        notes.append(f"The paper's figures are with the vectors {vectors}.")
    return notes


def format_markdown(task: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table in Markdown."""
    cells = [format_cells(task, row) for row in rows]
    rules = ["---" if heading in LEFT_ALIGNED else "---:" for heading in cells[0]]
    lines = [list(cells[0]), rules, *(list(line.values()) for line in cells)]
    notes = "".join(f"\n{note}\n" for note in list_notes(task, rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + notes


def draw_table(task: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Draw a table for a terminal of 80 columns; the columns that do not fit go into the caption."""
    cells = [format_cells(task, row) for row in rows]
    columns = {heading: [line[heading] for line in cells] for heading in cells[0]}
    names = [recipe.removeprefix(f"{task}/") for recipe in columns.pop("model")]
    moved = {heading: columns.pop(heading) for heading in CAPTION_COLUMNS}
    too_wide = {}
    for heading in OPTIONAL_COLUMNS:
        texts = [
            names,
            *([shorten_cell(name), *map(shorten_cell, column)] for name, column in columns.items()),
        ]
        if sum(max(map(len, column)) + 1 for column in texts) > WIDTH + 1:
            too_wide[heading] = columns.pop(heading)
    caption = [summarize_column(heading, names, column) for heading, column in (too_wide | moved).items()]
    unit = "accuracy in percent, " if find_task(task).columns[0].measure == "accuracy" else ""
    table = Table(
        title=f"{task}: {unit}mean ± standard deviation over seeds",
        caption="\n".join([*caption, *list_notes(task, rows)]),
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    table.add_column("model", no_wrap=True)
    for heading in columns:
        table.add_column(shorten_cell(heading), justify="right", no_wrap=True)
    for name, *line in zip(names, *columns.values(), strict=True):
        table.add_row(name, *map(shorten_cell, line))
    return table


def shorten_cell(text: str) -> str:
    """Remove spaces, and the zero of two figures below 1, to save columns of a terminal."""
    shorter = text.replace(" ± ", "±").replace(" / ", "/")
    return re.sub(r"\b0\.", ".", shorter) if shorter != text and text.startswith("0.") else shorter


def summarize_column(heading: str, names: Iterable[str], column: Iterable[str]) -> str:
    """Return a column as a sentence: the most frequent cell, then the other rows by name."""
    names_by_text: dict[str, list[str]] = {}
    for name, text in zip(names, column, strict=True):
        names_by_text.setdefault(text, []).append(name)
    common, *others = sorted(names_by_text, key=lambda text: -len(names_by_text[text]))
    exceptions = [f"{', '.join(names_by_text[text])}: {text}" for text in others]
    return f"{heading}: {'; '.join([common, *exceptions])}"
