"""Log and metrics of the server: JSON Lines on standard error, and Prometheus.

A thread writes the log, so that a slow disk or a stopped reader never delays an answer.
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

MAX_LINES, MAX_BYTES = 10_000, 1 << 23  # of lines that wait to be written; the oldest are dropped
WRITE_BYTES = 1 << 20  # per write, about
WRITE_PERIOD = 0.2  # seconds
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)


def write_to_stderr(content: bytes) -> None:
    """Write all bytes to standard error, or none if it is closed."""
    with suppress(OSError, ValueError):
        while content:
            content = content[os.write(sys.stderr.fileno(), content) :]


class Log:
    """Log that never blocks its callers; a thread passes the lines to `write`."""

    def __init__(self, write: Callable[[bytes], None] = write_to_stderr):
        self.write = write
        self.lines: deque[str] = deque()
        self.bytes = self.dropped = 0
        self.closing = threading.Event()
        self.queue_lock, self.write_lock = threading.Lock(), threading.Lock()
        self.thread = threading.Thread(target=self._run, name="nse-log", daemon=True)

    def close(self, seconds: float = 1.0) -> None:
        """Write the remaining lines, with a timeout."""
        self.closing.set()
        self.thread.join(seconds)

    def put(self, event: str, **fields: Any) -> None:
        """Log an event."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, "event": event, **fields}, default=str)  # ASCII
        with self.queue_lock:
            self.lines.append(line)
            self.bytes += len(line)
            while len(self.lines) > MAX_LINES or self.bytes > MAX_BYTES:
                self.bytes -= len(self.lines.popleft())
                self.dropped += 1

    def put_error(self, message: str, error: BaseException, **fields: Any) -> None:
        """Log an unexpected error with its traceback."""
        lines = "".join(traceback.format_exception(error))
        self.put("error", message=message, error=type(error).__name__, traceback=lines, **fields)

    def flush(self) -> None:
        """Write all waiting lines."""
        with self.write_lock:
            while content := self._take_lines():
                self.write(content)

    def _take_lines(self) -> bytes:
        lines, size = [], 0
        with self.queue_lock:
            while self.lines and size < WRITE_BYTES:
                lines.append(self.lines.popleft() + "\n")
                size += len(lines[-1])
            self.bytes -= size - len(lines)
        return "".join(lines).encode()

    def _run(self) -> None:
        while not self.closing.wait(WRITE_PERIOD):
            self.flush()
        self.flush()


class LogHandler(logging.Handler):
    """Handler that sends warnings and errors of libraries to the log."""

    def __init__(self, log: Log):
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log a message, and its exception if it has one."""
        if record.exc_info and record.exc_info[1]:
            self.log.put_error(record.getMessage(), record.exc_info[1])
        else:
            self.log.put("server", level=record.levelname.lower(), message=record.getMessage())


@contextmanager
def open_log() -> Iterator[Log]:
    """Start the log, which uvicorn and asyncio write to as well."""
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
    """Prometheus metrics of one server, in their own registry."""

    def __init__(self, model_info: dict[str, str]):
        registry = self.registry = CollectorRegistry()
        count, measure = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        ProcessCollector(registry=registry)  # memory, CPU time, open files
        Info("nse_model", "Served model.", registry=registry).info(model_info)
        self.requests = count("nse_requests", "Requests answered.", ["route", "status"])
        text = "Seconds from the first line of a request to its answer."
        self.seconds = measure("nse_request_seconds", text, ["route"], buckets=SECONDS)
        self.refused = count("nse_refused", "Requests refused because of load or shutdown.", ["reason"])
        text = "Connections without a request that were closed to make room for others."
        self.closed_connections = count("nse_connections_crowded_out", text)
        self.texts = count("nse_texts", "Texts computed.")
        self.failed = count("nse_model_failures", "Requests on which the model failed.")
        self.batch_rows = measure("nse_batch_rows", "Texts per batch.", buckets=ROWS)
        self.batch_seconds = measure("nse_batch_seconds", "Seconds per batch.", buckets=SECONDS)
        for reason in ("queue_full", "draining"):
            self.refused.labels(reason)  # exported as 0 from the start

    def add_gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Export the current value of a function."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_batch(self, rows: int, seconds: float) -> None:
        """Count a computed batch."""
        self.texts.inc(rows)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)
