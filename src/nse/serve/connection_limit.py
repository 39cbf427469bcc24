"""How many connections are open at a time, and which is closed when there is no room for another."""

from __future__ import annotations

import time
from typing import Any, Protocol

from nse.serve.limits import connection_room
from nse.serve.log import Log
from nse.serve.metrics import Metrics

EPISODE = 60.0
"""Seconds without a connection closed for want of room after which the next one is logged again."""


class Closable(Protocol):
    """A connection, as far as it matters here."""

    transport: Any


class ConnectionLimit:
    """Makes room for new connections by closing those that have waited longest for a whole request to come.

    So whoever opens connections and asks nothing locks out nobody. A connection whose request is being
    answered is never closed for another; if there are no others, the new one is closed.

    Args:
        log: Where it is told.
        metrics: Where it is counted.

    Attributes:
        most: Connections that may be open.
        backlog: Connections that may wait to be accepted.
    """

    def __init__(self, log: Log, metrics: Metrics):
        self.log, self.metrics = log, metrics
        self.most, self.backlog = connection_room()
        self.open: set[Closable] = set()
        self.idle: dict[Closable, None] = {}  # in the order in which they began to wait
        self.last = -EPISODE
        metrics.gauge("nse_connections", "Open connections.", lambda: len(self.open))

    def add(self, connection: Closable) -> None:
        """Take a new connection in, and close another one if there is no room."""
        self.open.add(connection)
        self.idle[connection] = None
        if len(self.open) > self.most:
            oldest = next(iter(self.idle))
            self.remove(oldest)
            oldest.transport.abort()
            self.tell()

    def remove(self, connection: Closable) -> None:
        """Forget a connection that is closed."""
        self.open.discard(connection)
        self.idle.pop(connection, None)

    def begin(self, connection: Closable) -> None:
        """Note that a connection has a whole request, which is being answered."""
        self.idle.pop(connection, None)

    def wait(self, connection: Closable) -> None:
        """Note that a connection waits for a request again."""
        self.idle[connection] = None

    def tell(self) -> None:
        """Count a connection that was closed, and log the first of many."""
        self.metrics.crowded_out.inc()
        now = time.monotonic()
        if now > self.last + EPISODE:
            message = "too many connections: the oldest without a request are closed; see ulimit -n"
            self.log.put("crowded", message=message, connections=self.most)
        self.last = now
