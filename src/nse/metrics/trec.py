"""Scores and right answers in the formats of trec_eval: PREFIX.run and PREFIX.qrels.

trec_eval compares the ids of candidates as strings. They are therefore written with four digits, so that
strings compare as numbers do.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nse import files
from nse.errors import DataError, InputError, explain_errors
from nse.metrics import ranking

DIGITS = 4
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)

Table = dict[tuple[str, str], float]
"""A score or a label by the ids of question and candidate."""


def write(prefix: Path, scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> Path:
    """Write PREFIX.run and PREFIX.qrels; returns the file of the scores.

    `QUESTION Q0 CANDIDATE RANK SCORE nse` and `QUESTION 0 CANDIDATE LABEL` a line. Questions are numbered
    from 1, as in WikiQA's .ref files; candidates from 0, in the order of their rows; ranks from 1.
    Reading a score gives the same float32.
    """
    rows = ranking.Ranked.check(scores, groups, labels)
    questions, candidates = (rows.groups + 1).tolist(), _number(rows.groups)
    if max(candidates) >= 10**DIGITS:  # more digits would no longer compare as numbers do
        question = rows.groups[candidates.index(10**DIGITS)]
        raise InputError(f"groups: question {question} has more than {10**DIGITS:,} candidates")
    ids = [f"{candidate:0{DIGITS}}" for candidate in candidates]
    ranked = rows.order()
    scored = [
        f"{questions[row]} Q0 {ids[row]} {rank + 1} {rows.scores[row]:.9g} nse\n"
        for row, rank in zip(ranked.tolist(), _number(rows.groups[ranked]), strict=True)
    ]
    by_question = np.argsort(rows.groups, kind="stable").tolist()
    judged = [f"{questions[row]} 0 {ids[row]} {rows.labels[row]}\n" for row in by_question]
    run = prefix.with_name(f"{prefix.name}.run")
    files.write(run, "".join(scored))
    files.write(run.with_suffix(".qrels"), "".join(judged))
    return run


def _number(groups: NDArray[np.int64]) -> list[int]:
    """Number the rows of each question from 0, in their order."""
    counters: defaultdict[int, Iterator[int]] = defaultdict(count)
    return [next(counters[group]) for group in groups.tolist()]


def figures_of_files(run: Path, judgements: Path) -> dict[str, float | int]:
    """Compute the `MEASURES` of a run, and over how many `questions` and `mixed` ones they are means.

    Raises:
        DataError: A file is broken, one lacks what the other holds, or no question can be ranked.
    """
    scores, labels = read(run), read_judgements(judgements)
    _refuse_missing(labels, scores, f"{judgements}: judges what {run} does not rank")
    _refuse_missing(scores, labels, f"{run}: ranks what {judgements} does not judge")
    rows = sorted(scores)  # so that the later row is the one with the larger id
    _, groups = np.unique([question for question, _ in rows], return_inverse=True)
    right = [int(labels[row]) for row in rows]
    try:
        measures = ranking.figures([scores[row] for row in rows], groups, right)
    except InputError as error:
        raise DataError(f"{judgements}: {error}") from None
    return measures | ranking.questions(groups, right)


def _refuse_missing(table: Table, other: Table, message: str) -> None:
    """Refuse a question or candidate of the first table that the other one lacks."""
    questions = {question for question, _ in other}
    missing = dict.fromkeys(
        f"candidate {candidate} of question {question}" if question in questions else f"question {question}"
        for question, candidate in table
        if (question, candidate) not in other
    )
    if missing:
        raise DataError(f"{message}: {ranking.name_first(list(missing))}")


def read(file: Path) -> Table:
    """Read a run; the ranks in it are not used, as trec_eval does not use them.

    Ids that are whole numbers lose their leading zeros, and those of candidates are filled up to four digits.

    Raises:
        DataError: The file cannot be read or a line is wrong: which, and what.
    """
    return _read(file, "QUESTION Q0 CANDIDATE RANK SCORE NAME", _parse_score)


def read_judgements(file: Path) -> Table:
    """Read judgements (qrels) or one of WikiQA's .ref files, as `read` reads a run."""
    return _read(file, "QUESTION 0 CANDIDATE LABEL", _parse_label)


def _parse_score(line: list[str]) -> float:
    number = float(line[4]) if NUMBER.fullmatch(line[4]) else math.nan
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    if not math.isfinite(rounded):
        raise ValueError(f"score: expected a finite float32 number, got {line[4][:40]!r}")
    return rounded


def _parse_label(line: list[str]) -> float:
    if line[3] not in ("0", "1"):
        raise ValueError(f"label: expected 1 (right) or 0 (wrong), got {line[3][:40]!r}")
    return int(line[3])


def _read(file: Path, layout: str, parse: Callable[[list[str]], float]) -> Table:
    with explain_errors(f"{file}: cannot be read", DataError):
        content = file.read_bytes()
    if not content.strip():
        raise DataError(f"{file}: is empty; expected {layout} a line")
    table: Table = {}
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            fields = _split(line, layout)
            key = _pad(fields[0], 1), _pad(fields[2], DIGITS)
            if key in table:
                raise ValueError(f"candidate {fields[2]} of question {fields[0]} is there twice")
            table[key] = parse(fields)
        except ValueError as error:
            raise DataError(f"{file}: line {number}: {error}") from None
    return table


def _split(line: bytes, layout: str) -> list[str]:
    try:  # split at the white space that trec_eval knows, before other characters come in
        fields = [field.decode("utf-8") for field in line.split()]
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if len(fields) != len(layout.split()):
        raise ValueError(f"expected {len(layout.split())} fields, {layout}, got {len(fields)}")
    if b"\0" in line:  # where trec_eval would end an id
        raise ValueError("holds a NUL character")
    return fields


def _pad(name: str, digits: int) -> str:
    """Return an id that is a whole number with at least so many digits, any other as it is."""
    return name.lstrip("0").zfill(digits) if name.isascii() and name.isdigit() else name
