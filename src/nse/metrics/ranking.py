"""MAP and MRR of answer sentence selection by trec_eval itself, and the files that trec_eval reads.

What trec_eval does, and no option changes:

- It compares scores as float32, and ranks the highest first.
- It breaks ties by the candidate's id, compared as a string, the largest first. Ids are therefore written
  with four digits, so that strings compare as numbers do: among equal scores the later row comes first.
- It ranks NaN last, drops questions that the run lacks, and gives 0 to a question without a right answer,
  all without a word. Here the first two are errors, and the third is left out of the means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nse import files
from nse.errors import DataError, InputError

MEASURES = ("map", "mrr", "map_mixed", "mrr_mixed")
"""MAP and MRR over the questions that have a right answer, and over those that also have a wrong one."""

_DIGITS = 4
_MOST = 10**_DIGITS
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)

Run = dict[str, dict[str, float]]
"""The score of each candidate of each question, by their ids."""
Judgements = dict[str, dict[str, int]]
"""The label of each candidate of each question, by their ids: 1 right, 0 wrong."""


class Ranked(NamedTuple):
    """Scored candidates, a row each; those of a question need not stand together.

    Attributes:
        scores: [N] float32, the higher the better.
        groups: [N] which question, from 0.
        labels: [N] 1 right, 0 wrong.
    """

    scores: NDArray[np.float32]
    groups: NDArray[np.int64]
    labels: NDArray[np.int64]


def available() -> bool:
    """Whether trec_eval can be imported."""
    try:
        import pytrec_eval  # noqa: F401
    except ImportError:
        return False
    return True


def needed() -> None:
    """Refuse to go on without trec_eval, before anything takes time."""
    _trec_eval()


def figures(scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """The `MEASURES` of scored candidates, by trec_eval.

    Args:
        scores: [N] the higher the better; ranked as float32.
        groups: [N] which question, from 0.
        labels: [N] 1 right, 0 wrong.

    Raises:
        InputError: The rows do not fit, no question can be ranked, or trec_eval is not installed.
    """
    ranked = _ranked(scores, groups, labels)
    run: Run = {}
    judgements: Judgements = {}
    columns = (ranked.groups + 1, _candidates(ranked.groups), ranked.scores, ranked.labels)
    for question, candidate, score, label in zip(*(column.tolist() for column in columns), strict=True):
        run.setdefault(str(question), {})[_padded(str(candidate))] = score
        judgements.setdefault(str(question), {})[_padded(str(candidate))] = label
    return _by_trec_eval(run, judgements)


def questions(groups: ArrayLike, labels: ArrayLike) -> dict[str, int]:
    """How many questions have a right answer, and how many of those (`mixed`) also have a wrong one."""
    grouped = _groups(groups)
    labelled = _labels(labels, len(grouped))
    _, number = np.unique(grouped, return_inverse=True)
    right, wrong = np.bincount(number, labelled == 1) > 0, np.bincount(number, labelled == 0) > 0
    return {"questions": int(right.sum()), "mixed": int((right & wrong).sum())}


def average_precision(scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> float:
    """Mean average precision over the questions that have a right answer, without trec_eval.

    It ranks as trec_eval does, ties too, so that training chooses the same epoch on every machine. Figures to
    report come from `figures`.
    """
    ranked = _ranked(scores, groups, labels)
    order = _order(ranked.scores, ranked.groups)
    right = ranked.labels[order]
    _, starts, number, sizes = np.unique(
        ranked.groups[order], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.arange(1, len(order) + 1) - starts[number]
    rights = np.add.reduceat(right, starts)
    before = np.repeat(np.cumsum(rights) - rights, sizes)  # right answers of the questions before
    precision = (np.cumsum(right) - before) / rank
    total = np.bincount(number, precision * right)
    answerable = rights > 0
    return _mean((total[answerable] / rights[answerable]).tolist(), "right")


def write(file: Path, scores: ArrayLike, groups: ArrayLike) -> None:
    """Write a TREC run: `QUESTION Q0 CANDIDATE RANK SCORE nse` a line, by question and rank.

    Questions are numbered from 1, as in WikiQA's .ref files; the candidates of a question from 0, in the
    order of its rows; ranks from 1, as trec_eval ranks. Reading a score gives the same float32.
    """
    grouped = _groups(groups)
    scored = _scores(scores, len(grouped))
    candidates = _candidates(grouped)
    lines, last, rank = [], -1, 0
    for row in _order(scored, grouped).tolist():
        group = int(grouped[row])
        rank = rank + 1 if group == last else 1
        last = group
        candidate = _padded(str(candidates[row]))
        lines.append(f"{group + 1} Q0 {candidate} {rank} {scored[row]:.9g} nse\n")
    files.write(file, "".join(lines))


def write_judgements(file: Path, groups: ArrayLike, labels: ArrayLike) -> None:
    """Write TREC judgements (qrels), `QUESTION 0 CANDIDATE LABEL` a line, numbered as `write` numbers."""
    grouped = _groups(groups)
    labelled = _labels(labels, len(grouped))
    candidates = _candidates(grouped)
    files.write(
        file,
        "".join(
            f"{grouped[row] + 1} 0 {_padded(str(candidates[row]))} {labelled[row]}\n"
            for row in np.argsort(grouped, kind="stable").tolist()
        ),
    )


def read(file: Path) -> Run:
    """Read a TREC run; the ranks it tells are not used, as trec_eval does not use them.

    Ids that are whole numbers lose their leading zeros, and those of candidates are filled up to four digits.

    Raises:
        DataError: The file cannot be read or a line is wrong: which, and what.
    """
    run: Run = {}
    for number, (question, _, candidate, _, score, _) in _rows(
        file, 6, "QUESTION Q0 CANDIDATE RANK SCORE NAME"
    ):
        _put(run, question, candidate, _score(score, f"{file}: line {number}"), f"{file}: line {number}")
    return run


def read_judgements(file: Path) -> Judgements:
    """Read TREC judgements (qrels) or one of WikiQA's .ref files; ids become those that `read` gives.

    Raises:
        DataError: The file cannot be read or a line is wrong: which, and what.
    """
    judgements: Judgements = {}
    for number, (question, _, candidate, label) in _rows(file, 4, "QUESTION 0 CANDIDATE LABEL"):
        if label not in ("0", "1"):
            raise DataError(
                f"{file}: line {number}: label: expected 1 (right) or 0 (wrong), got {label[:40]!r}"
            )
        _put(judgements, question, candidate, int(label), f"{file}: line {number}")
    return judgements


def figures_of_files(run: Path, judgements: Path) -> dict[str, float | int]:
    """The `MEASURES` of a run and how many `questions` and `mixed` ones they are means of, by trec_eval.

    Raises:
        DataError: A file is broken, or one of the two files lacks what the other holds.
        InputError: No question can be ranked, or trec_eval is not installed.
    """
    scored, judged = read(run), read_judgements(judgements)
    _refuse_difference(judged, scored, f"{judgements}: judges what {run} does not rank")
    _refuse_difference(scored, judged, f"{run}: ranks what {judgements} does not judge")
    right = [question for question, labels in judged.items() if 1 in labels.values()]
    mixed = [question for question in right if 0 in judged[question].values()]
    return {**_by_trec_eval(scored, judged), "questions": len(right), "mixed": len(mixed)}


def _by_trec_eval(run: Run, judgements: Judgements) -> dict[str, float]:
    evaluator = _trec_eval().RelevanceEvaluator
    right = {question: labels for question, labels in judgements.items() if 1 in labels.values()}
    told = evaluator(right, {"map", "recip_rank"}).evaluate({question: run[question] for question in right})
    mixed = [question for question, labels in right.items() if 0 in labels.values()]
    return {
        "map": _mean((told[question]["map"] for question in right), "right"),
        "mrr": _mean((told[question]["recip_rank"] for question in right), "right"),
        "map_mixed": _mean((told[question]["map"] for question in mixed), "right and a wrong"),
        "mrr_mixed": _mean((told[question]["recip_rank"] for question in mixed), "right and a wrong"),
    }


def _trec_eval() -> Any:
    try:
        import pytrec_eval
    except ImportError:
        raise InputError(
            "MAP and MRR are computed by trec_eval, which is not installed; type "
            "`pip install neural-semantic-encoders[ranking]`, or keep the scores and type "
            "`nse evaluate --scores FILE` where it is installed"
        ) from None
    return pytrec_eval


def _mean(values: Iterable[float], answer: str) -> float:
    values = list(values)
    if not values:
        raise InputError(
            f"labels: no question has a {answer} answer, so there is nothing to take the mean of"
        )
    return math.fsum(values) / len(values)


def _order(scores: NDArray[np.float32], groups: NDArray[np.int64]) -> NDArray[np.intp]:
    """The rows by question, and within a question as trec_eval ranks them."""
    return np.lexsort((-np.arange(len(scores)), -scores, groups))


def _candidates(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each row among the rows of its question, from 0."""
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    numbers = np.zeros_like(groups)
    numbers[order] = np.arange(len(groups)) - np.repeat(starts, sizes)
    if (numbers >= _MOST).any():  # five digits would no longer compare as numbers do
        row = int(np.argmax(numbers >= _MOST))
        raise InputError(f"groups: question {groups[row]} has more than {_MOST:,} candidates")
    return numbers


def _ranked(scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> Ranked:
    grouped = _groups(groups)
    return Ranked(_scores(scores, len(grouped)), grouped, _labels(labels, len(grouped)))


def _scores(scores: ArrayLike, rows: int) -> NDArray[np.float32]:
    given = _row_of("scores", scores, "iuf", "numbers", rows)
    with np.errstate(over="ignore"):  # what overflows is refused below
        scored = given.astype(np.float32)
    _refuse_rows("scores", given, ~np.isfinite(scored), "finite float32 numbers")
    return scored


def _groups(groups: ArrayLike) -> NDArray[np.int64]:
    grouped = _row_of("groups", groups, "iu", "whole numbers")
    _refuse_rows("groups", grouped, grouped < 0, "the numbers of questions, from 0")
    return grouped.astype(np.int64)


def _labels(labels: ArrayLike, rows: int) -> NDArray[np.int64]:
    labelled = _row_of("labels", labels, "iub", "whole numbers", rows)
    _refuse_rows("labels", labelled, (labelled != 0) & (labelled != 1), "1 (right) or 0 (wrong)")
    return labelled.astype(np.int64)


def _row_of(name: str, values: ArrayLike, kinds: str, expected: str, rows: int | None = None) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected {expected} [N]: {error}") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(
            f"{name}: expected {expected} [N] with N of 1 or more, got shape {list(array.shape)}"
        )
    if array.dtype.kind not in kinds:
        raise InputError(f"{name}: expected {expected}, got {array.dtype}")
    if rows is not None and len(array) != rows:
        raise InputError(f"{name}: expected as many as groups, {rows}, got {len(array)}")
    return array


def _refuse_rows(name: str, values: NDArray[Any], wrong: NDArray[np.bool_], expected: str) -> None:
    if wrong.any():
        rows = np.flatnonzero(wrong)
        first = _first_few([f"{values[row]} in row {row}" for row in rows[:4].tolist()], len(rows))
        raise InputError(f"{name}: expected {expected}, got {first}")


def _first_few(names: list[str], count: int, most: int = 3) -> str:
    rest = f" and {count - most} more" if count > most else ""
    return ", ".join(names[:most]) + rest


def _refuse_difference(held: Run | Judgements, other: Run | Judgements, told: str) -> None:
    """Refuse a question or candidate of `held` that `other` lacks."""
    names: list[str] = []
    for question, candidates in held.items():
        if question not in other:
            names.append(f"question {question}")
            continue
        missing = [candidate for candidate in candidates if candidate not in other[question]]
        names += [f"candidate {candidate} of question {question}" for candidate in missing]
    if names:
        raise DataError(f"{told}: {_first_few(names, len(names))}")


def _rows(file: Path, fields: int, layout: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of each line."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None
    lines = content.removesuffix(b"\n").split(b"\n")
    if not content.strip():
        raise DataError(f"{file}: is empty; expected {layout} a line")
    for number, line in enumerate(lines, start=1):
        try:  # split at the white space that trec_eval knows, before other characters come in
            row = [field.decode("utf-8") for field in line.split()]
        except UnicodeDecodeError:
            raise DataError(f"{file}: line {number}: is not UTF-8") from None
        if len(row) != fields:
            raise DataError(f"{file}: line {number}: expected {fields} fields, {layout}, got {len(row)}")
        if b"\0" in line:  # where trec_eval would end an id
            raise DataError(f"{file}: line {number}: holds a NUL character")
        yield number, row


def _score(text: str, where: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    if not math.isfinite(rounded):
        raise DataError(f"{where}: score: expected a finite float32 number, got {text[:40]!r}")
    return rounded


def _put(table: dict[str, dict[str, Any]], question: str, candidate: str, value: float, where: str) -> None:
    candidates = table.setdefault(_padded(question, 1), {})
    if _padded(candidate) in candidates:
        raise DataError(f"{where}: candidate {candidate} of question {question} is there twice")
    candidates[_padded(candidate)] = value


def _padded(name: str, digits: int = _DIGITS) -> str:
    """An id that is a whole number with at least so many digits, any other as it is."""
    if name.isascii() and name.isdigit():
        return name.lstrip("0").zfill(digits)
    return name
