"""The figures of a run, an epoch at a time: metrics.jsonl for programs, events for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from nse.files import write

METRICS = "metrics.jsonl"

EVENTS = "events.out.tfevents."
"""How the file for TensorBoard begins; TensorBoard's own writer would put the machine's name behind it."""

SCALARS = ("loss", "train", "dev", "rate", "examples_per_second")
"""What TensorBoard shows, over the steps."""


class History:
    """Writes both, from the rows of epochs that are over; replaces what an earlier part of the run wrote."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]]):
        self.metrics, self.events = folder / METRICS, folder / f"{EVENTS}{int(time.time())}.{os.getpid()}"
        for old in folder.glob(f"{EVENTS}*"):
            old.unlink()
        write(self.metrics, "")
        self.write_event(file_version="brain.Event:2")
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Write the row of one more epoch."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        values = [Summary.Value(tag=name, simple_value=row[name]) for name in SCALARS]
        self.write_event(step=row["step"], summary=Summary(value=values))

    def write_event(self, **content: Any) -> None:
        """Write an event as TensorBoard reads it, with its length and checksums."""
        with self.events.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **content).SerializeToString())
