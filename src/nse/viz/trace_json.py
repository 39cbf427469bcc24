"""Conversion of traces to plain values and back, as `trace.schema.json` describes them."""

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
"""Schema and version of every trace; other versions are refused."""


@cache
def read_schema() -> dict[str, Any]:
    """Read the schema of a trace."""
    text = resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def dump_trace(trace: MemoryTrace) -> dict[str, Any]:
    """Convert a trace to plain values."""
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
                "memories": [dump_memory(reading, memory) for memory in reading.memories],
                "graph": [graph.dump_panel(reading, panel) for panel in graph.lay_out(reading)],
            }
            for reading in trace.readings
        ],
    }


def dump_memory(reading: Reading, memory: Access) -> dict[str, Any]:
    """Convert a memory to plain values, with those that are computed from its keys."""
    return {
        "name": memory.name,
        "slots": list(memory.slots),
        "held": list(memory.held),
        "own": list(memory.own),
        # Shortest decimal number that a float32 is restored from exactly.
        "keys": [[float(np.format_float_scientific(z, unique=True)) for z in row] for row in memory.keys],
        "read": list(memory.read),
        "composed": list(memory.composed),
        "compositions": reading.compositions(memory),
    }


def parse_trace(text: str | bytes) -> MemoryTrace:
    """Parse a trace; see `MemoryTrace.from_json`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"trace: expected JSON, {error}") from None
    return load_trace(data)


def load_trace(data: Any) -> MemoryTrace:
    """Make a trace of plain values; see `MemoryTrace.from_json`."""
    if not isinstance(data, dict):
        raise InputError(f"trace: expected an object, got {type(data).__name__}")
    if data.get("schema") != SCHEMA:
        raise InputError(f"trace: expected schema {SCHEMA!r}, got {data.get('schema')!r}")
    if type(version := data.get("version")) is int and version != VERSION:
        raise InputError(f"trace: expected version {VERSION}, got {version}: update nse")
    check_object(data, read_schema() | {"title": "trace"})
    texts = (item | {name: tuple(item[name]) for name in ("words", "unknown")} for item in data["texts"])
    readings = tuple(map(load_reading, data["readings"]))
    return MemoryTrace(data["model"], tuple(Text(**item) for item in texts), readings, data["prediction"])


def load_reading(data: dict[str, Any]) -> Reading:
    """Make a reading, and check what is computed from its keys."""
    for item in data["memories"]:
        if len({len(row) for row in item["keys"]}) > 1:
            raise InputError(f"memory {item['name']!r}: keys: the rows differ in length")
    names = ("name", "slots", "keys", "own", "held")
    memories = tuple(Access(*(item[name] for name in names)) for item in data["memories"])
    reading = Reading(data["name"], data["words"], memories, data["outputs"])
    for memory, item in zip(memories, data["memories"], strict=True):
        expected = dump_memory(reading, memory)
        if wrong := [name for name in ("read", "composed", "compositions") if expected[name] != item[name]]:
            raise InputError(f"reading {reading.name!r}: {', '.join(wrong)}: contradicts the keys")
    return reading


def check_object(data: dict[str, Any], schema: dict[str, Any]) -> None:
    """Check the names and the types of all fields against a schema."""
    fields, name = schema["properties"], schema["title"]
    if wrong := sorted({*schema["required"]} - {*data} | {*data} - {*fields}):
        raise InputError(f"{name}: missing or unknown fields: {', '.join(map(str, wrong))}")
    if wrong := [key for key, value in data.items() if not has_type(value, fields[key])]:
        raise InputError(f"{name}: {', '.join(wrong)}: wrong type")
    for key, value in data.items():
        item_schema, items = resolve(fields[key], value), [value]
        if item_schema["type"] == "array":
            item_schema, items = resolve(item_schema["items"]), value
        for item in items if "properties" in item_schema else ():
            check_object(item, item_schema)


def resolve(schema: dict[str, Any], value: Any = None) -> dict[str, Any]:
    """Follow a reference, or choose the alternative whose first required field the value has."""
    if "oneOf" in schema:
        options = (o for o in schema["oneOf"] if isinstance(value, dict) and o["required"][0] in value)
        return next(options, schema["oneOf"][-1])
    name = schema.get("$ref", "").rpartition("/")[2]
    return read_schema()["$defs"][name] if name else {"type": "const", **schema}


def has_type(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value has the type of a schema; `Access` checks the numbers."""
    schema = resolve(schema, value)
    match schema["type"]:
        case "array":
            return isinstance(value, list) and all(has_type(item, schema["items"]) for item in value)
        case "object":
            inner = schema.get("additionalProperties")
            return isinstance(value, dict) and (
                not inner or all(has_type(item, inner) for item in value.values())
            )
        case "integer":
            return type(value) is int and value >= schema.get("minimum", value)
        case "string" | "boolean" | "number" as name:
            return type(value) in {"string": (str,), "boolean": (bool,), "number": (int, float)}[name]
    choices = schema.get("enum", [schema.get("const")])
    return any(type(value) is type(choice) and value == choice for choice in choices)
