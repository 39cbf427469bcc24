"""Schemas of values read from checkpoints and results, checked at any depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LARGEST = 2**63  # no number of a run comes near
NUMBER = (int, float)

Schema = Any
"""A type, a predicate, [schema of every item], [a schema per item], or {key: schema} with just these keys."""


def matches(value: Any, schema: Schema) -> bool:
    """Return whether a value matches a schema; a bool is not a number."""
    if isinstance(schema, dict):
        same = isinstance(value, dict) and value.keys() == schema.keys()
        return same and all(matches(value[key], inner) for key, inner in schema.items())
    if isinstance(schema, list):
        same = isinstance(value, list) and len(schema) in (1, len(value))
        return same and all(map(matches, value, schema * len(value) if len(schema) == 1 else schema))
    if isinstance(schema, type | tuple):
        return isinstance(value, schema) and not isinstance(value, bool)
    return bool(schema(value))


def list_invalid_fields(value: Any, schemas: Mapping[str, Schema]) -> list[str]:
    """Return the names of fields that are missing or do not match; nested names are dotted."""
    return [name for name, schema in schemas.items() if not matches(get_field(value, name), schema)]


def get_field(value: Any, name: str) -> Any:
    """Return a nested field by its dotted name, or `None`."""
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def is_count(value: Any) -> bool:
    """Return whether a value is a non-negative integer."""
    return type(value) is int and 0 <= value < LARGEST


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return type(value) in NUMBER and -LARGEST < value < LARGEST


def is_dict_of(schema: Schema) -> Callable[[Any], bool]:
    """Return a predicate: a dictionary with string keys and values that match the schema."""
    return lambda value: (
        isinstance(value, dict)
        and all(isinstance(name, str) and matches(inner, schema) for name, inner in value.items())
    )
