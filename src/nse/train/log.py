"""The figures of a run, an epoch at a time: metrics.jsonl for programs, events for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from nse.files import write, write_bytes

METRICS = "metrics.jsonl"
EVENTS = "events.out.tfevents."

SCALARS = ("loss", "train", "dev", "rate", "examples_per_second")
"""What TensorBoard shows, over the steps."""


class Log:
    """Writes both. What an earlier part of a run wrote is replaced, so that no epoch is there twice.

    Args:
        folder: The run's.
        rows: One per epoch that is over.
    """

    def __init__(self, folder: Path, rows: list[dict[str, Any]]):
        self.metrics = folder / METRICS
        for old in folder.glob(f"{EVENTS}*"):
            old.unlink()
        self.events = folder / f"{EVENTS}{int(time.time())}.{os.getpid()}"
        write(self.metrics, "".join(map(line, rows)))
        write_bytes(self.events, version() + b"".join(map(event, rows)))

    def add(self, row: dict[str, Any]) -> None:
        """One more epoch is over."""
        with self.metrics.open("a", encoding="utf-8") as metrics:
            metrics.write(line(row))
        with self.events.open("ab") as events:
            events.write(event(row))


def line(row: dict[str, Any]) -> str:
    """A row for metrics.jsonl."""
    return json.dumps(row, allow_nan=False) + "\n"


def event(row: dict[str, Any]) -> bytes:
    """A row for TensorBoard."""
    from tensorboard.compat.proto.event_pb2 import Event  # takes a moment, and only training needs it
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=row[name]) for name in SCALARS]
    return record(Event(wall_time=time.time(), step=row["step"], summary=Summary(value=values)))


def version() -> bytes:
    """What a file of events begins with."""
    from tensorboard.compat.proto.event_pb2 import Event

    return record(Event(wall_time=time.time(), file_version="brain.Event:2"))


def record(event: Any) -> bytes:
    """An event with its length and checksums, as TensorBoard reads it."""
    from io import BytesIO

    from tensorboard.summary.writer.record_writer import RecordWriter

    content = BytesIO()
    RecordWriter(content).write(event.SerializeToString())
    return content.getvalue()
