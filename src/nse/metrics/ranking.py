"""MAP and MRR of answer sentence selection, computed as trec_eval computes them.

- Scores are compared as float32; the highest comes first.
- trec_eval breaks ties by the candidate's id, the largest first: of equal scores the later row comes first.
- trec_eval ranks NaN last, and gives 0 to a question without a right answer. Here NaN is an error, and such a
  question is left out of the means.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nse.errors import InputError

MEASURES = ("map", "mrr", "map_mixed", "mrr_mixed")
"""MAP and MRR over the questions that have a right answer, and over those that also have a wrong one."""

SHOWN = 3
"""An error names so many rows or ids."""


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

    @classmethod
    def check(cls, scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> Ranked:
        """Refuse rows that do not fit each other, or cannot be ranked."""
        grouped = check_groups(groups)
        numbers = _column("scores", scores, "iuf", "numbers", len(grouped))
        with np.errstate(over="ignore"):  # what overflows is refused
            rounded = numbers.astype(np.float32)
        _refuse_rows("scores", numbers, ~np.isfinite(rounded), "finite float32 numbers")
        return cls(rounded, grouped, check_labels(labels, len(grouped)))

    def order(self) -> NDArray[np.intp]:
        """Return the rows [N] by question, and within a question by rank."""
        return np.lexsort((-np.arange(len(self.scores)), -self.scores, self.groups))


def figures(scores: ArrayLike, groups: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute the `MEASURES` of scored candidates.

    Args:
        scores: [N] the higher the better; ranked as float32.
        groups: [N] which question, from 0.
        labels: [N] 1 right, 0 wrong.

    Raises:
        InputError: The rows do not fit, or no question can be ranked.
    """
    precision, reciprocal, right, wrong = _by_question(Ranked.check(scores, groups, labels))
    mixed = right & wrong
    return {
        "map": _mean(precision[right], "right"),
        "mrr": _mean(reciprocal[right], "right"),
        "map_mixed": _mean(precision[mixed], "right and a wrong"),
        "mrr_mixed": _mean(reciprocal[mixed], "right and a wrong"),
    }


def questions(groups: ArrayLike, labels: ArrayLike) -> dict[str, int]:
    """Count questions that have a right answer, and of them those (`mixed`) that also have a wrong one."""
    grouped = check_groups(groups)
    labelled = check_labels(labels, len(grouped))
    _, question = np.unique(grouped, return_inverse=True)
    right, wrong = np.bincount(question, labelled) > 0, np.bincount(question, 1 - labelled) > 0
    return {"questions": int(right.sum()), "mixed": int((right & wrong).sum())}


def _by_question(rows: Ranked) -> tuple[NDArray[Any], ...]:
    """Return per question [Q]: average precision, reciprocal rank, has a right answer, has a wrong one."""
    order = rows.order()
    right = rows.labels[order]
    _, question, sizes = np.unique(rows.groups[order], return_inverse=True, return_counts=True)
    starts = sizes.cumsum() - sizes
    rank = np.arange(1, len(order) + 1) - starts[question]
    rights = np.bincount(question, right)
    right_so_far = right.cumsum() - (rights.cumsum() - rights)[question]
    precision = np.bincount(question, right * right_so_far / rank) / np.maximum(rights, 1)
    return precision, np.maximum.reduceat(right / rank, starts), rights > 0, rights < sizes


def _mean(values: NDArray[np.float64], answer: str) -> float:
    if not len(values):
        raise InputError(
            f"labels: no question has a {answer} answer, so there is nothing to take the mean of"
        )
    return math.fsum(values.tolist()) / len(values)


def check_groups(groups: ArrayLike) -> NDArray[np.int64]:
    """Refuse groups [N] that are no numbers of questions."""
    grouped = _column("groups", groups, "iu", "whole numbers")
    _refuse_rows("groups", grouped, grouped < 0, "the numbers of questions, from 0")
    return grouped.astype(np.int64)


def check_labels(labels: ArrayLike, rows: int) -> NDArray[np.int64]:
    """Refuse labels [N] other than 1 and 0."""
    labelled = _column("labels", labels, "iub", "whole numbers", rows)
    _refuse_rows("labels", labelled, (labelled != 0) & (labelled != 1), "1 (right) or 0 (wrong)")
    return labelled.astype(np.int64)


def _column(name: str, values: ArrayLike, kinds: str, expected: str, rows: int | None = None) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected {expected} [N]: {error}") from None
    if array.ndim != 1 or array.size == 0:
        shape = list(array.shape)
        raise InputError(f"{name}: expected {expected} [N] with N of 1 or more, got shape {shape}")
    if array.dtype.kind not in kinds:
        raise InputError(f"{name}: expected {expected}, got {array.dtype}")
    if rows is not None and len(array) != rows:
        raise InputError(f"{name}: expected as many as groups, {rows}, got {len(array)}")
    return array


def _refuse_rows(name: str, values: NDArray[Any], wrong: NDArray[np.bool_], expected: str) -> None:
    if wrong.any():
        rows = [f"{values[row]} in row {row}" for row in np.flatnonzero(wrong).tolist()]
        raise InputError(f"{name}: expected {expected}, got {name_first(rows)}")


def name_first(names: list[str]) -> str:
    """Join the first few names, and say how many more there are."""
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest
