"""MAP and MRR of scores in the format of trec_eval that were written earlier."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from nse.errors import InputError, RunError, explain_errors
from nse.files import write_text
from nse.metrics import ranking, trec
from nse.train.evaluate import describe_means
from nse.train.lock import lock_run
from nse.train.results import read_json
from nse.train.run import RESULT, SCORES, format_json

ADVICE = "give the folder of a ranking run, or a .run file"


def evaluate_scores(path: Path, qrels: Path | None = None) -> dict[str, Any]:
    """Compute MAP and MRR of the scores in a run folder or a .run file.

    The right answers are in `qrels`, by default the .qrels next to the scores; WikiQA's .ref has the same
    format. The result has figures in `splits`, and in `added` the measures that were added to result.json.
    """
    files = find_score_files(path, qrels)
    splits = {run.stem: trec.compute_file_measures(run, judgements) for run, judgements in files}
    added = []
    if (path / RESULT).is_file():
        with lock_run(path):
            added = complete_result(path / RESULT, splits)
    return {"scores": str(path), "splits": splits, "added": added}


def find_score_files(path: Path, qrels: Path | None) -> list[tuple[Path, Path]]:
    """Return for each split the file of its scores and the file of its right answers."""
    if path.is_dir():
        if qrels:
            raise InputError(f"qrels: needs one .run file, and {path} is a folder, which has its own")
        if runs := sorted((path / SCORES).glob("*.run")):
            return [(run, find_judgements(run)) for run in runs]
        raise InputError(f"scores: there is no {SCORES}/*.run in {path}; {ADVICE}")
    if not path.exists():
        raise InputError(f"scores: there is no {path}; {ADVICE}")
    if path.suffix != ".run":
        raise InputError(f"scores: expected the folder of a run, or a file that ends in .run, got {path}")
    return [(path, qrels or find_judgements(path))]


def find_judgements(run: Path) -> Path:
    """Return the file of right answers that belongs to a file of scores."""
    judgements = run.with_suffix(".qrels")
    if not judgements.is_file():
        message = f"scores: there is no {judgements.name} next to {run}; name the file of right answers"
        raise InputError(message, ("qrels", str(run)))
    return judgements


def complete_result(file: Path, splits: dict[str, dict[str, float | int]]) -> list[str]:
    """Add the measures that a result lacks, at the position where a run writes them; return their names."""
    result = read_json(file)
    if not isinstance(result, dict):
        raise RunError(f"{file} cannot be read: expected keys and values, got {type(result).__name__}")
    figures: dict[str, Any] = {}
    for measure in ranking.MEASURES:
        computed = {split: values[measure] for split, values in splits.items()}
        existing = result.get(measure, {})
        check_same_figures(f"{file}: {measure}", existing, computed)
        figures[measure] = computed | existing  # existing ones stay, to the last digit
    added = [measure for measure in figures if result.get(measure) != figures[measure]]
    if added:
        keys = [key for key in result if key not in figures]
        position = keys.index("parameters") if "parameters" in keys else len(keys)
        order = (*keys[:position], *figures, *keys[position:])
        completed = result | figures
        with explain_errors(f"{file} cannot be written", advice="; it was not changed"):
            write_text(file, format_json({key: completed[key] for key in order}))
    return added


def check_same_figures(name: str, existing: Any, computed: dict[str, float]) -> None:
    """Raise RunError if a figure that exists differs from the computed one."""
    if not isinstance(existing, dict):
        raise RunError(f"{name}: expected a figure for each split, got {existing!r}")
    for split in existing.keys() & computed.keys():
        old, new = existing[split], computed[split]
        if not isinstance(old, int | float) or not math.isclose(old, new, rel_tol=0, abs_tol=1e-9):
            raise RunError(
                f"{name} of {split} is {old} in the file, but {new} by the scores of the run; "
                "nothing was changed: one of the two is of another run"
            )


def describe_scores(result: dict[str, Any]) -> list[str]:
    """Return a line of text for each split, and one about the measures that were added."""
    lines = [f"{split}: {describe_means(values)}" for split, values in result["splits"].items()]
    if result["added"]:
        lines.append(f"added to {Path(result['scores']) / RESULT}: {', '.join(result['added'])}")
    return lines
