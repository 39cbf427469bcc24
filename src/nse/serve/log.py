"""What the server writes down: a JSON object on each line of standard error.

Lines are handed to a thread that writes them a few times a second, so that neither a slow disk nor a reader
that has stopped reading holds up an answer. What does not fit is dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

MOST_LINES, MOST_BYTES = 10_000, 1 << 23
"""Lines that wait to be written, and bytes of them."""

WRITTEN_AT_ONCE = 1 << 20
"""Bytes that are handed to the writer at a time, about; a reader that has stopped holds them up, no more."""

PERIOD = 0.2
"""Seconds between two writes."""


def to_stderr(content: bytes) -> None:
    """Write all of it to standard error, or nothing where that is closed."""
    try:
        while content:
            content = content[os.write(sys.stderr.fileno(), content) :]
    except (OSError, ValueError):
        pass


class Log:
    """A log that never blocks who writes to it.

    Args:
        write: Takes the lines, as bytes.
    """

    def __init__(self, write: Callable[[bytes], None] = to_stderr):
        self.write = write
        self.lines: deque[str] = deque()
        self.bytes = self.dropped = 0
        self.closing = threading.Event()
        self.queueing, self.writing = threading.Lock(), threading.Lock()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write."""
        self.thread = threading.Thread(target=self._run, name="nse-log", daemon=True)
        self.thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Write what is left, unless nobody takes it for so long."""
        self.closing.set()
        if self.thread:
            self.thread.join(seconds)

    def put(self, event: str, **told: Any) -> None:
        """Note an event."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        content = {"time": f"{stamp}.{int(now % 1 * 1000):03}Z", "event": event, **told}
        line = json.dumps(content, default=str)  # ASCII: as many characters as bytes
        with self.queueing:
            self.lines.append(line)
            self.bytes += len(line)
            while len(self.lines) > MOST_LINES or self.bytes > MOST_BYTES:  # the oldest are dropped
                self.bytes -= len(self.lines.popleft())
                self.dropped += 1

    def error(self, message: str, error: BaseException, **told: Any) -> None:
        """Note an error that nobody expected, with where it happened."""
        where = "".join(traceback.format_exception(error))
        self.put("error", message=message, error=type(error).__name__, traceback=where, **told)

    def flush(self) -> None:
        """Write what waits."""
        with self.writing:
            while content := self.take_lines():
                self.write(content)

    def take_lines(self) -> bytes:
        """The next lines, as they are written."""
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


class IntoLog(logging.Handler):
    """Takes what uvicorn and asyncio say into the same log, a line each.

    Args:
        log: The log.
    """

    def __init__(self, log: Log):
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Note a message, and the error with it."""
        if record.exc_info and record.exc_info[1]:
            self.log.error(record.getMessage(), record.exc_info[1])
        else:
            self.log.put("server", level=record.levelname.lower(), message=record.getMessage())
