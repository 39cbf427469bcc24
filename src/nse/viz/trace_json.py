"""A trace as plain values and back, strictly: what `trace.schema.json` describes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nse.errors import InputError
from nse.viz.trace import NOWHERE, Access, MemoryTrace, Reading, Text

SCHEMA, VERSION = "nse-trace", 1
"""What a trace calls itself; another version is refused."""

Check = Callable[[Any], bool]
"""Whether a value is of the type that the schema says."""


def as_dict(trace: MemoryTrace) -> dict[str, Any]:
    """A trace as plain values."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "model": dict(trace.model),
        "texts": [
            {
                "name": each.name,
                "text": each.text,
                "words": list(each.words),
                "unknown": list(each.unknown),
                "cut": each.cut,
            }
            for each in trace.texts
        ],
        "prediction": dict(trace.prediction),
        "readings": [
            {
                "name": reading.name,
                "words": list(reading.words),
                "outputs": list(reading.outputs),
                "memories": [memory_as_dict(reading, memory) for memory in reading.memories],
            }
            for reading in trace.readings
        ],
    }


def memory_as_dict(reading: Reading, memory: Access) -> dict[str, Any]:
    """A memory as plain values, with what follows from its keys."""
    return {
        "name": memory.name,
        "slots": list(memory.slots),
        "held": list(memory.held),
        "own": list(memory.own),
        "keys": [[short(weight) for weight in row] for row in memory.keys],
        "read": list(memory.read),
        "composed": list(memory.composed),
        "compositions": reading.compositions(memory),
    }


def short(weight: np.float32) -> float:
    """The shortest decimal number that is this one among those of 32 bits."""
    return float(np.format_float_scientific(weight, unique=True))


def is_text(value: Any) -> bool:
    """A string."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """A number, neither true nor false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """A whole number from 0 on."""
    return type(value) is int and value >= 0


def is_slot(value: Any) -> bool:
    """A place, or none."""
    return type(value) is int and value >= NOWHERE


def is_object(value: Any) -> bool:
    """Names and values."""
    return isinstance(value, dict)


def list_of(check: Check) -> Check:
    """Whether a value is a list of such values."""
    return lambda value: isinstance(value, list) and all(check(each) for each in value)


TOP = {
    "schema": is_text,
    "version": is_count,
    "model": is_object,
    "texts": list_of(is_object),
    "prediction": is_object,
    "readings": list_of(is_object),
}
MODEL = {"name": is_text, "task": is_text, "kind": is_text, "labels": list_of(is_text)}
TEXT = {
    "name": is_text,
    "text": is_text,
    "words": list_of(is_text),
    "unknown": list_of(is_count),
    "cut": is_count,
}
READING = {
    "name": is_text,
    "words": list_of(is_text),
    "outputs": list_of(is_text),
    "memories": list_of(is_object),
}
MEMORY = {
    "name": is_text,
    "slots": list_of(is_text),
    "held": list_of(is_text),
    "own": list_of(is_slot),
    "keys": list_of(list_of(is_number)),
    "read": list_of(is_count),
    "composed": list_of(is_count),
    "compositions": list_of(is_text),
}
LABEL = {"label": is_text, "probabilities": is_object}
RANKING = {"ranking": list_of(is_object)}
RANKED = {"rank": is_count, "number": is_count, "text": is_text, "score": is_number, "probability": is_number}
TRANSLATION = {"translation": is_text, "words": list_of(is_text)}
"""The fields of each object of a trace, and what they must be."""


def from_dict(data: Any) -> MemoryTrace:
    """A trace from plain values; see `MemoryTrace.from_json`."""
    if isinstance(data, dict) and data.get("schema") != SCHEMA:
        raise InputError(f"trace: expected schema {SCHEMA!r}, got {data.get('schema')!r}")
    if isinstance(data, dict) and is_count(data.get("version")) and data["version"] != VERSION:
        raise InputError(
            f"trace: version {data['version']} is not {VERSION}, which this nse reads: update nse"
        )
    top = fields("trace", data, TOP)
    texts = [fields("text", row, TEXT) for row in top["texts"]]
    return MemoryTrace(
        fields("model", top["model"], MODEL),
        tuple(
            Text(row["name"], row["text"], tuple(row["words"]), tuple(row["unknown"]), row["cut"])
            for row in texts
        ),
        tuple(reading_of(row) for row in top["readings"]),
        prediction_of(top["prediction"]),
    )


def reading_of(row: dict[str, Any]) -> Reading:
    """A reading, if what it says follows from its keys does."""
    told = fields("reading", row, READING)
    given = [fields("memory", memory, MEMORY) for memory in told["memories"]]
    for each in given:
        if len({len(weights) for weights in each["keys"]}) > 1:
            raise InputError(f"memory {each['name']!r}: keys: the rows differ in length")
    names = ("name", "slots", "keys", "own", "held")
    memories = tuple(Access(*(each[name] for name in names)) for each in given)
    reading = Reading(told["name"], told["words"], memories, told["outputs"])
    for memory, said in zip(memories, given, strict=True):
        made = memory_as_dict(reading, memory)
        if wrong := [name for name in ("read", "composed", "compositions") if made[name] != said[name]]:
            raise InputError(f"reading {reading.name!r}: {', '.join(wrong)}: not what follows from the keys")
    return reading


def prediction_of(said: dict[str, Any]) -> dict[str, Any]:
    """What a model says: one of three."""
    if "label" in said:
        found = fields("prediction", said, LABEL)
        if not all(is_number(share) for share in found["probabilities"].values()):
            raise InputError("prediction: probabilities: not of the type that the schema says")
        return found
    if "ranking" in said:
        for row in fields("prediction", said, RANKING)["ranking"]:
            fields("ranking", row, RANKED)
        return said
    return fields("prediction", said, TRANSLATION)


def fields(what: str, data: Any, checks: Mapping[str, Check]) -> dict[str, Any]:
    """The fields of an object: none missing, no other, each of its type."""
    if not isinstance(data, dict):
        raise InputError(f"{what}: expected an object, got {type(data).__name__}")
    if wrong := sorted({*checks} ^ {*data}):
        raise InputError(f"{what}: these fields are missing or unknown: {', '.join(map(str, wrong))}")
    if wrong := [name for name, check in checks.items() if not check(data[name])]:
        raise InputError(f"{what}: {', '.join(wrong)}: not of the type that the schema says")
    return data
