"""MAP and MRR of answer sentence selection, computed as trec_eval computes them.

- Scores are compared as float32; the highest comes first.
- trec_eval breaks ties by the candidate's id, the largest first: of equal scores the later row comes first.
- trec_eval ranks NaN last, and gives 0 to a question without a right answer. Here NaN is an error, and such a
  question is left out of the means.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nse.errors import InputError

MEASURES = ("map", "mrr", "map_mixed", "mrr_mixed")
"""MAP and MRR over the questions that have a right answer, and over those that also have a wrong one."""

COLUMNS: dict[str, tuple[str, Any, str]] = {
    "scores": ("iuf", np.float32, "finite float32 numbers"),
    "groups": ("iu", np.int64, "the numbers of questions, from 0"),
    "labels": ("iub", np.int64, "1 (right) or 0 (wrong)"),
}
"""The columns of scored candidates: the kinds of numbers that are taken, what they become, what they mean."""

SHOWN = 3
"""An error names so many rows or ids."""


def figures(scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute the `MEASURES` of scored candidates.

    Args:
        scores: [N] the higher the better; ranked as float32.
        groups: [N] which question, from 0; the rows of one need not stand together.
        labels: [N] 1 right, 0 wrong.

    Raises:
        InputError: The rows do not fit, or no question can be ranked.
    """
    score, group, label = check_columns(scores=scores, groups=groups, labels=labels)
    order = rank_rows(score, group)
    right, rank = label[order], number_rows(group[order]) + 1
    question, rights, mixed = count_rights(group[order], right)
    right_so_far = right.cumsum() - (rights.cumsum() - rights)[question]
    precision = np.bincount(question, right * right_so_far / rank) / np.maximum(rights, 1)
    reciprocal = np.maximum.reduceat(right / rank, np.flatnonzero(rank == 1))
    means = {}
    for suffix, kept, what in (("", rights > 0, "right"), ("_mixed", mixed, "right and a wrong")):
        if not kept.any():
            raise InputError(
                f"labels: no question has a {what} answer, so there is nothing to take the mean of"
            )
        for name, values in (("map", precision[kept]), ("mrr", reciprocal[kept])):
            means[name + suffix] = math.fsum(values.tolist()) / len(values)
    return means


def questions(groups: ArrayLike, labels: ArrayLike) -> dict[str, int]:
    """Count questions that have a right answer, and of them those (`mixed`) that also have a wrong one."""
    _, rights, mixed = count_rights(*check_columns(groups=groups, labels=labels))
    return {"questions": int((rights > 0).sum()), "mixed": int(mixed.sum())}


def count_rights(groups: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return the question of each row [N]; by question [Q] how many are right, and whether it is mixed."""
    _, question, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rights = np.bincount(question, labels)
    return question, rights, (rights > 0) & (rights < sizes)


def rank_rows(scores: NDArray[Any], groups: NDArray[Any]) -> NDArray[np.intp]:
    """Sort rows [N] by question, and within a question by rank."""
    return np.lexsort((-np.arange(len(scores)), -scores, groups))


def number_rows(groups: NDArray[Any]) -> NDArray[np.intp]:
    """Number the rows [N] of each question from 0, in their order."""
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return numbers


def check_columns(**columns: ArrayLike) -> list[NDArray[Any]]:
    """Refuse columns that do not fit each other, or that hold what their names do not stand for."""
    rows, checked = np.asarray(columns["groups"]).size, []
    for name, values in columns.items():
        kinds, dtype, content = COLUMNS[name]
        given = np.asarray(values)
        if not rows or given.shape != (rows,) or given.dtype.kind not in kinds:
            expected = f"{content}, a row for each of groups [{rows}]"
            raise InputError(f"{name}: expected {expected}, got {given.dtype} {list(given.shape)}")
        with np.errstate(over="ignore"):  # what overflows is refused
            column = given.astype(dtype)
        good = np.isfinite(column) if name == "scores" else column >= 0
        if name == "labels":
            good &= column <= 1
        if wrong := [f"{given[row]} in row {row}" for row in np.flatnonzero(~good)]:
            raise InputError(f"{name}: expected {content}, got {name_first(wrong)}")
        checked.append(column)
    return checked


def name_first(names: list[str]) -> str:
    """Join the first few names, and say how many more there are."""
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest
