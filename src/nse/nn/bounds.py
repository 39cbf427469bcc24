"""Bounds of the numbers in configurations of models."""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from nse.errors import FieldsError, shorten


@dataclass(frozen=True)
class Range:
    """Range of a numeric field, part of its annotation: from `low` to `high`, or `below` it."""

    low: int
    high: int
    below: bool = False

    def __str__(self) -> str:
        return f"at least {self.low:,} and {'below' if self.below else 'at most'} {self.high:,}"

    def contains(self, value: float) -> bool:
        """Return whether a number is in the range; NaN is not."""
        return self.low <= value <= self.high and not (self.below and value == self.high)


Probability = Annotated[float, Range(0, 1, below=True)]


def check_ranges(config: Any) -> None:
    """Raise FieldsError for all numbers outside the ranges of their fields."""
    mistakes = {}
    for name, bounds in collect_ranges(config.__class__).items():
        if not bounds.contains(value := getattr(config, name)):
            mistakes[name] = f"must be {bounds}, got {shorten(value)}"
    if mistakes:
        raise FieldsError(mistakes)


@cache
def collect_ranges(cls: Any) -> dict[str, Range]:
    """Collect the ranges of a dataclass's fields by name."""
    hints = get_type_hints(cls, include_extras=True).items()
    annotations = {name: get_args(hint)[1] for name, hint in hints if get_origin(hint) is Annotated}
    return {name: bounds for name, bounds in annotations.items() if isinstance(bounds, Range)}
