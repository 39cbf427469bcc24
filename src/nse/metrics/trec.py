"""Scores and right answers in the formats of trec_eval: PREFIX.run and PREFIX.qrels.

trec_eval compares the ids of candidates as strings. They are written with four digits, so that strings
compare as numbers do.
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
"""Fields of a line of a run, and of judgements, which WikiQA's .ref files have too."""

VALUES = {
    RUN: (4, r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", "score: expected a finite float32 number"),
    QRELS: (3, r"[01]", "label: expected 1 (right) or 0 (wrong)"),
}
"""Position of a line's value, its pattern, and the message for another one."""

DIGITS = 4

ValueById = dict[tuple[str, str], float]
"""Score or label by the ids of question and candidate."""


def write_trec(prefix: Path, scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> Path:
    """Write PREFIX.run and PREFIX.qrels; return the file of the scores.

    Questions are numbered from 1, as in WikiQA's .ref files; candidates from 0, in the order of their rows;
    ranks from 1. Scores have enough digits to be read back as the same float32.
    """
    score, group, label = ranking.check_columns(scores=scores, groups=groups, labels=labels)
    number = ranking.number_rows(group)
    if number.max() >= 10**DIGITS:  # more digits would not compare as numbers do
        question = group[number.argmax()]
        raise InputError(f"groups: question {question} has more than {10**DIGITS:,} candidates")
    order = ranking.rank_rows(score, group)
    ranks = zip(order, ranking.number_rows(group[order]) + 1, strict=True)
    run_lines = [f"{group[row] + 1} Q0 {number[row]:04} {rank} {score[row]:.9g} nse\n" for row, rank in ranks]
    by_question = np.argsort(group, kind="stable")
    qrels_lines = [f"{group[row] + 1} 0 {number[row]:04} {label[row]}\n" for row in by_question]
    run = prefix.with_name(f"{prefix.name}.run")
    files.write_text(run, "".join(run_lines))
    files.write_text(run.with_suffix(".qrels"), "".join(qrels_lines))
    return run


def compute_file_measures(run: Path, judgements: Path) -> dict[str, float | int]:
    """Compute the `MEASURES` of a run, and the number of its `questions` and of those that are `mixed`."""
    scores, labels = read_trec(run), read_trec(judgements, QRELS)
    check_same_ids(labels, scores, f"{judgements}: has ids that {run} does not have")
    check_same_ids(scores, labels, f"{run}: has ids that {judgements} does not have")
    rows = sorted(scores)  # by id, which breaks ties
    _, groups = np.unique([question for question, _ in rows], return_inverse=True)
    right = [int(labels[row]) for row in rows]
    try:
        measures = ranking.compute_measures([scores[row] for row in rows], groups, right)
    except InputError as error:
        raise DataError(f"{judgements}: {error}") from None
    return measures | ranking.count_questions(groups, right)


def check_same_ids(table: ValueById, other: ValueById, message: str) -> None:
    """Raise DataError if the other table lacks a question or candidate of the first one."""
    questions = {question for question, _ in other}
    missing = dict.fromkeys(
        f"candidate {candidate} of question {question}" if question in questions else f"question {question}"
        for question, candidate in table
        if (question, candidate) not in other
    )
    if missing:
        raise DataError(f"{message}: {ranking.join_names(list(missing))}")


def read_trec(file: Path, layout: str = RUN) -> ValueById:
    """Read the scores of a run, or with the layout `QRELS` judgements; the ranks of a run are ignored.

    Ids that are whole numbers lose their leading zeros; those of candidates are padded to four digits.
    """
    with explain_errors(f"{file}: cannot be read", DataError):
        content = file.read_bytes()
    if not content.strip():
        raise DataError(f"{file}: is empty; expected {layout} in each line")
    table: ValueById = {}
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            question, candidate, value = parse_line(line, layout)
            key = pad_id(question, 1), pad_id(candidate, DIGITS)
            if key in table:
                raise ValueError(f"candidate {candidate} of question {question} occurs twice")
            table[key] = value
        except ValueError as error:
            raise DataError(f"{file}: line {number}: {error}") from None
    return table


def parse_line(line: bytes, layout: str) -> tuple[str, str, float]:
    """Return question, candidate and value of a line, split at white space as in trec_eval."""
    try:
        fields = [field.decode("utf-8") for field in line.split()]
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if len(fields) != len(layout.split()):
        raise ValueError(f"expected {len(layout.split())} fields, {layout}, got {len(fields)}")
    if b"\0" in line:  # which would end an id in trec_eval
        raise ValueError("holds a NUL character")
    position, pattern, expected = VALUES[layout]
    text = fields[position]
    number = float(text) if re.fullmatch(pattern, text, re.A | re.I) else math.nan
    with np.errstate(over="ignore"):
        value = float(np.float32(number))
    if not math.isfinite(value):
        raise ValueError(f"{expected}, got {text[:40]!r}")
    return fields[0], fields[2], value


def pad_id(name: str, digits: int) -> str:
    """Pad an id that is a whole number to a number of digits; return any other as it is."""
    return name.lstrip("0").zfill(digits) if name.isascii() and name.isdigit() else name
