"""What values read from a file must look like, said once as a shape and checked at any depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 2**63  # no number of a run comes near
NUMBER = (int, float)

Shape = Any
"""A type, a predicate, [the shape of every item], [one for each], or {key: shape} where no key may lack."""


def fits(value: Any, shape: Shape) -> bool:
    """Say whether a value has a shape; a bool is no number."""
    if isinstance(shape, dict):
        same = isinstance(value, dict) and value.keys() == shape.keys()
        return same and all(fits(value[key], inner) for key, inner in shape.items())
    if isinstance(shape, list):
        same = isinstance(value, list) and len(shape) in (1, len(value))
        return same and all(map(fits, value, shape * len(value) if len(shape) == 1 else shape))
    if isinstance(shape, type | tuple):
        return isinstance(value, shape) and not isinstance(value, bool)
    return bool(shape(value))


def list_misfits(value: Any, shapes: Mapping[str, Shape]) -> list[str]:
    """Return the names of fields that are missing or of another shape; inner names come after a dot."""
    return [name for name, shape in shapes.items() if not fits(find_field(value, name), shape)]


def find_field(value: Any, name: str) -> Any:
    """Find a field by its keys with dots between; `None` where there is none."""
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def is_count(value: Any) -> bool:
    """Say whether a value counts something."""
    return type(value) is int and 0 <= value < LARGEST


def is_number(value: Any) -> bool:
    """Say whether a value is a finite number, with which a run can go on computing."""
    return type(value) in NUMBER and -LARGEST < value < LARGEST


def is_dict_of(shape: Shape) -> Callable[[Any], bool]:
    """Return whether a value is a dictionary, by strings, of values of one shape."""
    return lambda value: (
        isinstance(value, dict)
        and all(isinstance(name, str) and fits(inner, shape) for name, inner in value.items())
    )
