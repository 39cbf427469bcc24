"""Figures of scores that were written before, in the format of trec_eval."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from nse.errors import InputError, RunError, explain_errors
from nse.files import write
from nse.metrics import ranking, trec
from nse.train.evaluate import describe_means
from nse.train.lock import only_writer
from nse.train.results import read_json
from nse.train.run import RESULT, SCORES, as_json

GIVE = "give the folder of a run that ranks, or a .run file"


def score(path: Path, qrels: Path | None = None) -> dict[str, Any]:
    """Compute MAP and MRR of scores that were written before, and complete a finished run's result.json.

    The path is that of a run, or of a file in TREC's format; qrels tell which answers are right, by default
    the .qrels beside it, and WikiQA's .ref will do. `splits` are the figures by split, `added` the measures
    that result.json lacked and now has.
    """
    files = find_scores(path, qrels)
    splits = {run.stem: trec.figures_of_files(run, judgements) for run, judgements in files}
    added = []
    if (path / RESULT).is_file():
        with only_writer(path):
            added = complete_result(path / RESULT, splits)
    return {"scores": str(path), "splits": splits, "added": added}


def find_scores(path: Path, qrels: Path | None) -> list[tuple[Path, Path]]:
    """Return for each split the file of its scores and the file of its right answers."""
    if path.is_dir():
        if qrels:
            raise InputError(f"qrels: needs one .run file, and {path} is a folder, whose own are taken")
        if runs := sorted((path / SCORES).glob("*.run")):
            return [(run, find_judgements(run)) for run in runs]
        raise InputError(f"scores: there is no {SCORES}/*.run in {path}; {GIVE}")
    if not path.exists():
        raise InputError(f"scores: there is no {path}; {GIVE}")
    if path.suffix != ".run":
        raise InputError(f"scores: expected the folder of a run, or a file that ends in .run, got {path}")
    return [(path, qrels or find_judgements(path))]


def find_judgements(run: Path) -> Path:
    """Return the file of right answers that belongs to a file of scores."""
    judgements = run.with_suffix(".qrels")
    if not judgements.is_file():
        raise InputError(
            f"scores: there is no {judgements.name} beside {run}; name the file with the right answers",
            ("qrels", str(run)),
        )
    return judgements


def complete_result(file: Path, splits: dict[str, dict[str, float | int]]) -> list[str]:
    """Add the measures that a run's result lacks, where a run writes them; return which."""
    result = read_json(file)
    if not isinstance(result, dict):
        raise RunError(f"{file} cannot be read: expected keys and values, got {type(result).__name__}")
    figures: dict[str, Any] = {}
    for measure in ranking.MEASURES:
        computed = {split: values[measure] for split, values in splits.items()}
        before = result.get(measure, {})
        refuse_other_figures(f"{file}: {measure}", before, computed)
        figures[measure] = computed | before  # what is there stays to the last digit
    added = [measure for measure in figures if result.get(measure) != figures[measure]]
    if added:
        rest = [key for key in result if key not in figures]
        place = rest.index("parameters") if "parameters" in rest else len(rest)
        everything = result | figures
        with explain_errors(f"{file} cannot be written", advice="; it is as it was"):
            write(file, as_json({key: everything[key] for key in (*rest[:place], *figures, *rest[place:])}))
    return added


def refuse_other_figures(name: str, before: Any, computed: dict[str, float]) -> None:
    """Refuse to write over a figure that is another one."""
    if not isinstance(before, dict):
        raise RunError(f"{name}: expected a figure for each split, got {before!r}")
    for split in before.keys() & computed.keys():
        old, new = before[split], computed[split]
        if not isinstance(old, int | float) or not math.isclose(old, new, rel_tol=0, abs_tol=1e-9):
            raise RunError(
                f"{name} of {split} is {old} there and {new} by the scores beside it; "
                "nothing was changed: one of the two is of another run"
            )


def describe(result: dict[str, Any]) -> list[str]:
    """Describe the figures, a line for each split."""
    lines = [f"{split}: {describe_means(values)}" for split, values in result["splits"].items()]
    if result["added"]:
        lines.append(f"added to {Path(result['scores']) / RESULT}: {', '.join(result['added'])}")
    return lines
