"""MAP and MRR of answer sentence selection, computed as trec_eval computes them.

- Scores are compared as float32; the highest comes first.
- trec_eval breaks ties by the candidate's id, the largest first: of equal scores the later row comes first.
- trec_eval ranks NaN last, and gives 0 to a question without a right answer. Here NaN is an error, and the
  means leave out such questions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nse.errors import InputError

MEASURES = ("map", "mrr", "map_mixed", "mrr_mixed")
"""MAP and MRR over questions with a right answer, and (`mixed`) over those that also have a wrong one."""

COLUMNS: dict[str, tuple[str, Any, str]] = {
    "scores": ("iuf", np.float32, "finite float32 numbers"),
    "groups": ("iu", np.int64, "the numbers of questions, from 0"),
    "labels": ("iub", np.int64, "1 (right) or 0 (wrong)"),
}
"""Columns of scored candidates: accepted kinds of numbers, type to convert to, meaning."""

MAX_NAMES = 3
"""Number of rows or ids that an error names."""


def compute_measures(scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute the `MEASURES` of scored candidates.

    Args:
        scores: [N] higher is better; ranked as float32.
        groups: [N] number of the question, from 0; its rows need not be consecutive.
        labels: [N] 1 for right, 0 for wrong.

    Raises:
        InputError: The columns do not fit each other, or no question has a right answer.
    """
    score, group, label = check_columns(scores=scores, groups=groups, labels=labels)
    order = rank_rows(score, group)
    right, rank = label[order], number_rows(group[order]) + 1
    question, rights, mixed = count_rights(group[order], right)
    right_so_far = right.cumsum() - (rights.cumsum() - rights)[question]
    precision = np.bincount(question, right * right_so_far / rank) / np.maximum(rights, 1)
    reciprocal = np.maximum.reduceat(right / rank, np.flatnonzero(rank == 1))
    means = {}
    for suffix, mask, answers in (("", rights > 0, "right"), ("_mixed", mixed, "right and a wrong")):
        if not mask.any():
            raise InputError(f"labels: no question has a {answers} answer, so there is no mean to compute")
        for name, values in (("map", precision[mask]), ("mrr", reciprocal[mask])):
            means[name + suffix] = math.fsum(values.tolist()) / len(values)
    return means


def count_questions(groups: ArrayLike, labels: ArrayLike) -> dict[str, int]:
    """Count the questions with a right answer, and (`mixed`) those that also have a wrong one."""
    _, rights, mixed = count_rights(*check_columns(groups=groups, labels=labels))
    return {"questions": int((rights > 0).sum()), "mixed": int(mixed.sum())}


def count_rights(groups: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return the question of each row [N], and by question [Q] its right answers and whether it is mixed."""
    _, question, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rights = np.bincount(question, labels)
    return question, rights, (rights > 0) & (rights < sizes)


def rank_rows(scores: NDArray[Any], groups: NDArray[Any]) -> NDArray[np.intp]:
    """Return the order of rows [N] by question and rank."""
    return np.lexsort((-np.arange(len(scores)), -scores, groups))


def number_rows(groups: NDArray[Any]) -> NDArray[np.intp]:
    """Number the rows [N] of each question from 0."""
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return numbers


def check_columns(**columns: ArrayLike) -> list[NDArray[Any]]:
    """Return the columns as arrays; raise InputError for wrong shapes or values."""
    rows, checked = np.asarray(columns["groups"]).size, []
    for name, values in columns.items():
        kinds, dtype, content = COLUMNS[name]
        array = np.asarray(values)
        if not rows or array.shape != (rows,) or array.dtype.kind not in kinds:
            expected = f"{content}, a row for each of groups [{rows}]"
            raise InputError(f"{name}: expected {expected}, got {array.dtype} {list(array.shape)}")
        with np.errstate(over="ignore"):  # infinity is refused below
            column = array.astype(dtype)
        valid = np.isfinite(column) if name == "scores" else column >= 0
        if name == "labels":
            valid &= column <= 1
        if invalid := [f"{array[row]} in row {row}" for row in np.flatnonzero(~valid)]:
            raise InputError(f"{name}: expected {content}, got {join_names(invalid)}")
        checked.append(column)
    return checked


def join_names(names: list[str]) -> str:
    """Join the first few names, and the number of the others."""
    rest = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + rest
