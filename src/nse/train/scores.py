"""Figures of scores that were written where trec_eval was not installed: `nse evaluate --scores`.

A run that ranks leaves scores/SPLIT.run and scores/SPLIT.qrels. Where trec_eval is installed they give the
figures, and the result.json of a finished run that lacks them gets them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from nse.errors import DataError, InputError, RunError
from nse.files import write
from nse.metrics import ranking
from nse.train.evaluate import means
from nse.train.lock import only_writer
from nse.train.run import RESULT, SCORES, as_json

Figures = dict[str, dict[str, float | int]]
"""By split: the measures, and how many questions they are means of."""


def score(path: Path, qrels: Path | None = None) -> dict[str, Any]:
    """What trec_eval says to scores that were written before.

    Args:
        path: The folder of a run, or one file in TREC's format whose name ends in .run.
        qrels: Which answers are right, for a file; by default the .qrels beside it. WikiQA's .ref will do.

    Returns:
        Figures that JSON can hold: `scores` (the path), `splits` (for each the measures of
        `nse.metrics.ranking`, and over how many `questions` and `mixed` ones) and `added` (the measures that
        a finished run's result.json lacked and now has).

    Raises:
        InputError: There is no such path, there are no scores, or trec_eval is not installed.
        DataError: A file is broken, or the two of a split do not belong together.
        RunError: A finished run tells other figures, its result.json cannot be read or written, or another
            process writes in its folder.
    """
    files = found(path, qrels)
    ranking.needed()
    splits = {name: figures(*both) for name, both in files.items()}
    added = []
    if (path / RESULT).is_file():
        with only_writer(path):
            added = complete(path / RESULT, splits)
    return {"scores": str(path), "splits": splits, "added": added}


def found(path: Path, qrels: Path | None) -> dict[str, tuple[Path, Path]]:
    """For each split, the file of its scores and the file of its right answers."""
    if path.is_dir():
        if qrels:
            raise InputError(f"qrels: needs one .run file, and {path} is a folder, whose own are taken")
        runs = sorted((path / SCORES).glob("*.run"))
        if not runs:
            raise InputError(
                f"scores: there is no {SCORES}/*.run in {path}; give the folder of a run that ranks, or a "
                ".run file"
            )
        return {run.stem: (run, beside(run)) for run in runs}
    if not path.exists():
        raise InputError(f"scores: there is no {path}; give the folder of a run that ranks, or a .run file")
    if path.suffix != ".run":
        raise InputError(f"scores: expected the folder of a run, or a file that ends in .run, got {path}")
    return {path.stem: (path, qrels or beside(path))}


def beside(run: Path) -> Path:
    """The right answers that belong to a file of scores."""
    judgements = run.with_suffix(".qrels")
    if not judgements.is_file():
        raise InputError(
            f"scores: there is no {judgements.name} beside {run}; name the file with the right answers: "
            f"nse evaluate --scores {run} --qrels FILE"
        )
    return judgements


def figures(run: Path, judgements: Path) -> dict[str, float | int]:
    """The measures of a split."""
    try:
        return ranking.figures_of_files(run, judgements)
    except InputError as error:
        raise DataError(f"{judgements}: {error}") from None


def complete(file: Path, splits: Figures) -> list[str]:
    """Add the measures that a run's result lacks, in the place where a run writes them; returns which."""
    if not file.is_file():  # a run that did not finish
        return []
    result = read(file)
    told: dict[str, Any] = {}
    for measure in ranking.MEASURES:
        new = {split: values[measure] for split, values in splits.items()}
        before = result.get(measure, {})
        refuse_others(file, measure, before, new)
        told[measure] = new | before  # what is there stays to the last digit
    added = [measure for measure in told if result.get(measure) != told[measure]]
    if added:
        rest = {key: value for key, value in result.items() if key not in told}
        head = list(rest).index("parameters") if "parameters" in rest else len(rest)
        pairs = list(rest.items())
        try:
            write(file, as_json(dict([*pairs[:head], *told.items(), *pairs[head:]])))
        except OSError as error:
            raise RunError(f"{file} cannot be written: {error.strerror}; it is as it was") from None
    return added


def read(file: Path) -> dict[str, Any]:
    """What a run's result.json holds."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number in JSON")

    try:
        result = json.loads(file.read_text("utf-8"), parse_constant=refuse)
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}") from None
    if not isinstance(result, dict):
        raise RunError(f"{file} cannot be read: expected keys and values, got {type(result).__name__}")
    return result


def refuse_others(file: Path, measure: str, before: Any, new: dict[str, float | int]) -> None:
    """Refuse to write over a figure that is another one."""
    if not isinstance(before, dict):
        raise RunError(f"{file}: {measure}: expected a figure for each split, got {before!r}")
    for split in before.keys() & new.keys():
        old = before[split]
        if not isinstance(old, int | float) or not math.isclose(old, new[split], rel_tol=0, abs_tol=1e-9):
            raise RunError(
                f"{file}: {measure} of {split} is {old} there and {new[split]} by the scores beside it; "
                "nothing was changed: one of the two is of another run"
            )


def describe(result: dict[str, Any]) -> list[str]:
    """A line for each split."""
    lines = [f"{split}: {means(values)}" for split, values in result["splits"].items()]
    if result["added"]:
        lines.append(f"added to {Path(result['scores']) / RESULT}: {', '.join(result['added'])}")
    return lines
