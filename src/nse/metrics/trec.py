"""Scores and right answers in the formats of trec_eval: PREFIX.run and PREFIX.qrels.

trec_eval compares the ids of candidates as strings. They are therefore written with four digits, so that
strings compare as numbers do.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from nse import files
from nse.errors import DataError, InputError, explain_errors
from nse.metrics import ranking

RUN, QRELS = "QUESTION Q0 CANDIDATE RANK SCORE NAME", "QUESTION 0 CANDIDATE LABEL"
"""The fields of a line of a run, and of judgements; WikiQA's .ref files have those too."""

VALUES = {
    RUN: (4, r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", "score: expected a finite float32 number"),
    QRELS: (3, r"[01]", "label: expected 1 (right) or 0 (wrong)"),
}
"""Which field of a line counts, how it is written, and what to say where it is not."""

DIGITS = 4

Table = dict[tuple[str, str], float]
"""A score or a label by the ids of question and candidate."""


def write(prefix: Path, scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> Path:
    """Write PREFIX.run and PREFIX.qrels; returns the file of the scores.

    Questions are numbered from 1, as in WikiQA's .ref files; candidates from 0, in the order of their rows;
    ranks from 1. Reading a score gives the same float32.
    """
    score, group, label = ranking.check_columns(scores=scores, groups=groups, labels=labels)
    number = ranking.number_rows(group)
    if number.max() >= 10**DIGITS:  # more digits would no longer compare as numbers do
        question = group[number.argmax()]
        raise InputError(f"groups: question {question} has more than {10**DIGITS:,} candidates")
    order = ranking.rank_rows(score, group)
    ranks = zip(order, ranking.number_rows(group[order]) + 1, strict=True)
    scored = [f"{group[row] + 1} Q0 {number[row]:04} {rank} {score[row]:.9g} nse\n" for row, rank in ranks]
    by_question = np.argsort(group, kind="stable")
    judged = [f"{group[row] + 1} 0 {number[row]:04} {label[row]}\n" for row in by_question]
    run = prefix.with_name(f"{prefix.name}.run")
    files.write(run, "".join(scored))
    files.write(run.with_suffix(".qrels"), "".join(judged))
    return run


def figures_of_files(run: Path, judgements: Path) -> dict[str, float | int]:
    """Compute the `MEASURES` of a run, and over how many `questions` and `mixed` ones they are means."""
    scores, labels = read(run), read(judgements, QRELS)
    refuse_missing(labels, scores, f"{judgements}: judges what {run} does not rank")
    refuse_missing(scores, labels, f"{run}: ranks what {judgements} does not judge")
    rows = sorted(scores)  # so that the later row is the one with the larger id
    _, groups = np.unique([question for question, _ in rows], return_inverse=True)
    right = [int(labels[row]) for row in rows]
    try:
        measures = ranking.figures([scores[row] for row in rows], groups, right)
    except InputError as error:
        raise DataError(f"{judgements}: {error}") from None
    return measures | ranking.questions(groups, right)


def refuse_missing(table: Table, other: Table, message: str) -> None:
    """Refuse a question or candidate of the first table that the other one lacks."""
    known = {question for question, _ in other}
    missing = dict.fromkeys(
        f"candidate {candidate} of question {question}" if question in known else f"question {question}"
        for question, candidate in table
        if (question, candidate) not in other
    )
    if missing:
        raise DataError(f"{message}: {ranking.name_first(list(missing))}")


def read(file: Path, layout: str = RUN) -> Table:
    """Read the scores of a run, whose ranks count for nothing, or judgements by the layout `QRELS`.

    Ids that are whole numbers lose their leading zeros, and those of candidates are filled up to four digits.
    """
    with explain_errors(f"{file}: cannot be read", DataError):
        content = file.read_bytes()
    if not content.strip():
        raise DataError(f"{file}: is empty; expected {layout} a line")
    table: Table = {}
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            question, candidate, value = parse_line(line, layout)
            key = pad_id(question, 1), pad_id(candidate, DIGITS)
            if key in table:
                raise ValueError(f"candidate {candidate} of question {question} is there twice")
            table[key] = value
        except ValueError as error:
            raise DataError(f"{file}: line {number}: {error}") from None
    return table


def parse_line(line: bytes, layout: str) -> tuple[str, str, float]:
    """Return question, candidate and value of a line, split at the white space that trec_eval knows."""
    try:
        fields = [field.decode("utf-8") for field in line.split()]
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if len(fields) != len(layout.split()):
        raise ValueError(f"expected {len(layout.split())} fields, {layout}, got {len(fields)}")
    if b"\0" in line:  # where trec_eval would end an id
        raise ValueError("holds a NUL character")
    place, pattern, expected = VALUES[layout]
    number = float(fields[place]) if re.fullmatch(pattern, fields[place], re.A | re.I) else math.nan
    with np.errstate(over="ignore"):
        value = float(np.float32(number))
    if not math.isfinite(value):
        raise ValueError(f"{expected}, got {fields[place][:40]!r}")
    return fields[0], fields[2], value


def pad_id(name: str, digits: int) -> str:
    """Write an id that is a whole number with at least so many digits, any other as it is."""
    return name.lstrip("0").zfill(digits) if name.isascii() and name.isdigit() else name
