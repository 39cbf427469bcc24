"""The figures of a run, an epoch at a time: metrics.jsonl for programs, events for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from io import BytesIO
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from nse.files import write, write_bytes

METRICS = "metrics.jsonl"

EVENTS = "events.out.tfevents."
"""How the file for TensorBoard begins; TensorBoard's own writer would put the machine's name behind it."""

SCALARS = ("loss", "train", "dev", "rate", "examples_per_second")
"""What TensorBoard shows, over the steps."""


class History:
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
        write(self.metrics, "".join(map(as_line, rows)))
        begin = as_record(Event(wall_time=time.time(), file_version="brain.Event:2"))
        write_bytes(self.events, begin + b"".join(map(as_event, rows)))

    def add(self, row: dict[str, Any]) -> None:
        """Write the row of one more epoch."""
        with self.metrics.open("a", encoding="utf-8") as metrics:
            metrics.write(as_line(row))
        with self.events.open("ab") as events:
            events.write(as_event(row))


def as_line(row: dict[str, Any]) -> str:
    """Write a row for metrics.jsonl."""
    return json.dumps(row, allow_nan=False) + "\n"


def as_event(row: dict[str, Any]) -> bytes:
    """Write a row for TensorBoard."""
    values = [Summary.Value(tag=name, simple_value=row[name]) for name in SCALARS]
    return as_record(Event(wall_time=time.time(), step=row["step"], summary=Summary(value=values)))


def as_record(event: Any) -> bytes:
    """Write an event with its length and checksums, as TensorBoard reads it."""
    content = BytesIO()
    RecordWriter(content).write(event.SerializeToString())
    return content.getvalue()
