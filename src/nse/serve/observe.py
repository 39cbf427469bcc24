"""What the server tells of itself: events on standard error, a line of JSON each, and figures for Prometheus.

A thread writes the lines, so that neither a slow disk nor a reader that has stopped holds up an answer.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

MOST_LINES, MOST_BYTES = 10_000, 1 << 23  # that wait to be written
WRITTEN_AT_ONCE = 1 << 20  # bytes, about; a reader that has stopped holds them up, no more
PERIOD = 0.2  # seconds between two writes
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)


def write_to_stderr(content: bytes) -> None:
    """Write all of it to standard error, or nothing where that is closed."""
    with suppress(OSError, ValueError):
        while content:
            content = content[os.write(sys.stderr.fileno(), content) :]


class Log:
    """A log that never blocks who writes to it; `write` takes the lines, as bytes."""

    def __init__(self, write: Callable[[bytes], None] = write_to_stderr):
        self.write = write
        self.lines: deque[str] = deque()
        self.bytes = self.dropped = 0
        self.closing = threading.Event()
        self.queueing, self.writing = threading.Lock(), threading.Lock()
        self.thread = threading.Thread(target=self._run, name="nse-log", daemon=True)

    def close(self, seconds: float = 1.0) -> None:
        """Write what is left, unless nobody takes it for so long."""
        self.closing.set()
        self.thread.join(seconds)

    def put(self, event: str, **fields: Any) -> None:
        """Note an event."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        content = {"time": now, "event": event, **fields}
        line = json.dumps(content, default=str)  # ASCII: as many characters as bytes
        with self.queueing:
            self.lines.append(line)
            self.bytes += len(line)
            while len(self.lines) > MOST_LINES or self.bytes > MOST_BYTES:  # the oldest are dropped
                self.bytes -= len(self.lines.popleft())
                self.dropped += 1

    def error(self, message: str, error: BaseException, **fields: Any) -> None:
        """Note an error that nobody expected, with where it happened."""
        where = "".join(traceback.format_exception(error))
        self.put("error", message=message, error=type(error).__name__, traceback=where, **fields)

    def flush(self) -> None:
        """Write what waits."""
        with self.writing:
            while content := self._take():
                self.write(content)

    def _take(self) -> bytes:
        lines, size = [], 0
        with self.queueing:
            while self.lines and size < WRITTEN_AT_ONCE:
                lines.append(self.lines.popleft() + "\n")
                size += len(lines[-1])
            self.bytes -= size - len(lines)
        return "".join(lines).encode()

    def _run(self) -> None:
        while not self.closing.wait(PERIOD):
            self.flush()
        self.flush()


class LogHandler(logging.Handler):
    """Takes what libraries say from warnings on into the same log, a line each."""

    def __init__(self, log: Log):
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Note a message, and the error with it."""
        if record.exc_info and record.exc_info[1]:
            self.log.error(record.getMessage(), record.exc_info[1])
        else:
            self.log.put("server", level=record.levelname.lower(), message=record.getMessage())


@contextmanager
def open_log() -> Iterator[Log]:
    """Start the log of a server, where uvicorn and asyncio write too."""
    log = Log()
    handler, root = LogHandler(log), logging.getLogger()
    log.thread.start()
    root.addHandler(handler)
    try:
        yield log
    finally:
        root.removeHandler(handler)
        log.close()


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self, about: dict[str, str]):
        registry = self.registry = CollectorRegistry()
        count, measure = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        ProcessCollector(registry=registry)  # memory, CPU time, open files
        Info("nse_model", "What is served.", registry=registry).info(about)
        self.requests = count("nse_requests", "Requests answered.", ["route", "status"])
        what = "From the first line of a request to its answer."
        self.seconds = measure("nse_request_seconds", what, ["route"], buckets=SECONDS)
        self.refused = count("nse_refused", "Requests that were not let in.", ["reason"])
        what = "Connections without a request that were closed to make room for others."
        self.crowded_out = count("nse_connections_crowded_out", what)
        self.texts = count("nse_texts", "Texts computed.")
        self.failed = count("nse_model_failures", "Requests on which the model failed.")
        self.batch_rows = measure("nse_batch_rows", "Texts computed at a time.", buckets=ROWS)
        self.batch_seconds = measure("nse_batch_seconds", "How long a batch took.", buckets=SECONDS)
        for reason in ("queue_full", "draining"):
            self.refused.labels(reason)  # so that it is 0 from the start, and not missing

    def add_gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Look a figure up whenever it is asked for."""
        Gauge(name, about, registry=self.registry).set_function(value)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_batch(self, rows: int, seconds: float) -> None:
        """Count a batch that was computed."""
        self.texts.inc(rows)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)
