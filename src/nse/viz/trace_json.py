"""A trace as plain values and back, strictly: what `trace.schema.json` describes, and nothing else."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from nse.errors import InputError
from nse.viz import graph
from nse.viz.trace import Access, MemoryTrace, Reading, Text

SCHEMA, VERSION = "nse-trace", 1
"""What a trace calls itself; another version is refused."""


@cache
def read_schema() -> dict[str, Any]:
    """Read the schema of a trace."""
    text = resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def as_dict(trace: MemoryTrace) -> dict[str, Any]:
    """Write a trace as plain values."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "model": dict(trace.model),
        "texts": [vars(text) | {"words": [*text.words], "unknown": [*text.unknown]} for text in trace.texts],
        "prediction": dict(trace.prediction),
        "readings": [
            {
                "name": reading.name,
                "words": list(reading.words),
                "outputs": list(reading.outputs),
                "memories": [memory_as_dict(reading, memory) for memory in reading.memories],
                "graph": [graph.panel_as_dict(reading, panel) for panel in graph.panels(reading)],
            }
            for reading in trace.readings
        ],
    }


def memory_as_dict(reading: Reading, memory: Access) -> dict[str, Any]:
    """Write a memory as plain values, with what follows from its keys."""
    return {
        "name": memory.name,
        "slots": list(memory.slots),
        "held": list(memory.held),
        "own": list(memory.own),
        # The shortest decimal number that is this one among those of 32 bits.
        "keys": [[float(np.format_float_scientific(z, unique=True)) for z in row] for row in memory.keys],
        "read": list(memory.read),
        "composed": list(memory.composed),
        "compositions": reading.compositions(memory),
    }


def from_dict(data: Any) -> MemoryTrace:
    """Make a trace of plain values; see `MemoryTrace.from_json`."""
    if not isinstance(data, dict):
        raise InputError(f"trace: expected an object, got {type(data).__name__}")
    if data.get("schema") != SCHEMA:
        raise InputError(f"trace: expected schema {SCHEMA!r}, got {data.get('schema')!r}")
    if type(version := data.get("version")) is int and version != VERSION:
        raise InputError(f"trace: version {version} is not {VERSION}, which this nse reads: update nse")
    check_object(data, read_schema() | {"title": "trace"})
    lists = ("words", "unknown")
    texts = tuple(Text(**each | {name: tuple(each[name]) for name in lists}) for each in data["texts"])
    readings = tuple(map(reading_from_dict, data["readings"]))
    return MemoryTrace(data["model"], texts, readings, data["prediction"])


def reading_from_dict(data: dict[str, Any]) -> Reading:
    """Make a reading, if what it says follows from its keys does."""
    for each in data["memories"]:
        if len({len(weights) for weights in each["keys"]}) > 1:
            raise InputError(f"memory {each['name']!r}: keys: the rows differ in length")
    names = ("name", "slots", "keys", "own", "held")
    memories = tuple(Access(*(each[name] for name in names)) for each in data["memories"])
    reading = Reading(data["name"], data["words"], memories, data["outputs"])
    for memory, said in zip(memories, data["memories"], strict=True):
        made = memory_as_dict(reading, memory)
        if wrong := [name for name in ("read", "composed", "compositions") if made[name] != said[name]]:
            raise InputError(f"reading {reading.name!r}: {', '.join(wrong)}: not what follows from the keys")
    return reading


def check_object(data: dict[str, Any], schema: dict[str, Any]) -> None:
    """Refuse an object with a field missing, another one, or one of another type than the schema says."""
    parts, what = schema["properties"], schema["title"]
    if wrong := sorted({*schema["required"]} - {*data} | {*data} - {*parts}):
        raise InputError(f"{what}: these fields are missing or unknown: {', '.join(map(str, wrong))}")
    if wrong := [name for name, value in data.items() if not fits(value, parts[name])]:
        raise InputError(f"{what}: {', '.join(wrong)}: not of the type that the schema says")
    for name, value in data.items():
        part, items = resolve(parts[name], value), [value]
        if part["type"] == "array":
            part, items = resolve(part["items"]), value
        for item in items if "properties" in part else ():
            check_object(item, part)


def resolve(schema: dict[str, Any], value: Any = None) -> dict[str, Any]:
    """Return the schema that a reference names, or of several the one that begins as the value does."""
    if "oneOf" in schema:
        named = (each for each in schema["oneOf"] if isinstance(value, dict) and each["required"][0] in value)
        return next(named, schema["oneOf"][-1])
    name = schema.get("$ref", "").rpartition("/")[2]
    return read_schema()["$defs"][name] if name else {"type": "const", **schema}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Tell whether a value is of the type of a schema; `Access` says whether numbers add up."""
    schema = resolve(schema, value)
    match schema["type"]:
        case "array":
            return isinstance(value, list) and all(fits(each, schema["items"]) for each in value)
        case "object":
            of = schema.get("additionalProperties")
            return isinstance(value, dict) and (not of or all(fits(each, of) for each in value.values()))
        case "integer":
            return type(value) is int and value >= schema.get("minimum", value)
        case "string" | "boolean" | "number" as name:
            return type(value) in {"string": (str,), "boolean": (bool,), "number": (int, float)}[name]
    choices = schema.get("enum", [schema.get("const")])
    return any(type(value) is type(choice) and value == choice for choice in choices)
