"""Bounds of the numbers and labels of a configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from nse.errors import FieldsError, shorten

MOST_LABELS = 10_000
"""Labels that a model may tell apart."""

LONGEST_LABELS = 800_000
"""Bytes of all of them as JSON, so that a configuration with them is one that can be read."""

LONGEST_NAME = 200
"""Characters of a label, and of the name of a task or a data set."""


@dataclass(frozen=True)
class Range:
    """The numbers that a field of a configuration may hold; its annotation carries it.

    Attributes:
        low: The smallest.
        high: The largest.
        below: Whether the number must be below `high`.
    """

    low: int
    high: int
    below: bool = False

    def __str__(self) -> str:
        """Say it as a message does."""
        return f"at least {self.low:,} and {'below' if self.below else 'at most'} {self.high:,}"

    def holds(self, value: float) -> bool:
        """Tell whether a number is inside; NaN never is."""
        return self.low <= value <= self.high and not (self.below and value == self.high)


Probability = Annotated[float, Range(0, 1, below=True)]


def check_ranges(config: Any) -> None:
    """Refuse a dataclass with numbers outside the ranges of its fields.

    Raises:
        FieldsError: With every number that is outside.
    """
    cls: Any = type(config)
    known = ranges(cls)
    values = {name: getattr(config, name) for name in known}
    mistakes = {
        name: f"must be {bounds}, got {shorten(str(values[name]))}"
        for name, bounds in known.items()
        if not bounds.holds(values[name])
    }
    if mistakes:
        raise FieldsError(mistakes)


@cache
def ranges(cls: Any) -> dict[str, Range]:
    """Collect the ranges of a dataclass's fields, by their names."""
    hints = get_type_hints(cls, include_extras=True).items()
    annotations = {name: get_args(hint)[1] for name, hint in hints if get_origin(hint) is Annotated}
    return {name: bounds for name, bounds in annotations.items() if isinstance(bounds, Range)}


def check_labels(labels: Sequence[str]) -> str:
    """Say why these cannot be the labels of a model; nothing where they can."""
    if len(labels) > MOST_LABELS:
        return f"there may be at most {MOST_LABELS:,}, got {len(labels):,}"
    if len(json.dumps(list(labels))) > LONGEST_LABELS:
        return f"they take more than {LONGEST_LABELS:,} bytes"
    return next((f'"{shorten(label)}" {why}' for label in labels if (why := check_name(label))), "")


def check_name(name: str) -> str:
    """Say why this cannot be a label or a name; nothing where it can."""
    if not name.isprintable():  # it could rewrite a terminal's screen, or turn a line around
        return "holds what cannot be printed"
    return f"is longer than {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else ""
