"""HTTP connections with limits: bounded heads, one request at a time, and timeouts.

The bytes of a head are counted before the parser gets them. A request that follows another one on the same
connection stays unread until the first is answered.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nse.serve.http_errors import HTTPError
from nse.serve.observe import Log, Metrics
from nse.serve.settings import MAX_HEAD, MAX_HEADERS, MAX_PATH, compute_connection_limits

END = b"\r\n\r\n"  # of a head, and of a chunked body
MAX_LINE = MAX_PATH + 32  # bytes of the request line: method, path, version
UPGRADE = re.compile(rb"(?i)\r\nupgrade(?=[ \t]*:)")
TURN = 0.001  # seconds of parsing before other connections get their turn
PIECE = 4096  # bytes of a chunked body per call of the parser
LINGER, LINGER_BYTES = 2.0, 1 << 24  # seconds and bytes that are read and discarded before a close
FIRST_CHECK, CHECK = 0.3, 0.1  # seconds between probes of a half-closed connection
LOG_INTERVAL = 60.0  # seconds without a closed connection before the next one is logged again


class ConnectionLimit:
    """Limit of open connections: a new one closes the connection that has waited longest for a request.

    Connections whose request is being answered stay open; if all are, the new one is closed.
    """

    def __init__(self, log: Log, metrics: Metrics):
        self.log, self.metrics = log, metrics
        self.max_open, self.backlog = compute_connection_limits()
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}  # an ordered set, the longest wait first
        self.last_closed = -LOG_INTERVAL
        metrics.add_gauge("nse_connections", "Open connections.", lambda: len(self.open))

    def add(self, connection: Connection) -> None:
        """Add a connection, and close another one if there are too many."""
        self.open.add(connection)
        self.idle[connection] = None
        if len(self.open) <= self.max_open:
            return
        oldest = next(iter(self.idle))
        self.remove(oldest)
        oldest.transport.abort()
        self.metrics.closed_connections.inc()
        now = time.monotonic()
        if now > self.last_closed + LOG_INTERVAL:
            message = "too many connections: the oldest without a request are closed; see ulimit -n"
            self.log.put("crowded", message=message, connections=self.max_open)
        self.last_closed = now

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.open.discard(connection)
        self.idle.pop(connection, None)


class BufferedFlowControl(FlowControl):
    """Flow control that stops reading while received bytes wait to be parsed."""

    has_buffered = False

    def resume_reading(self) -> None:
        """Resume reading, unless bytes wait to be parsed."""
        if not self.has_buffered:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """HTTP/1.1 connection with bounded memory and timeouts."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        app: Any = self.config.app  # `App`
        self.limit: ConnectionLimit = app.connections
        self.log_refusal, self.timeout = app.log_refusal, app.settings.timeout
        self.buffer = b""  # received bytes that are not parsed yet
        self.partial_head = b""
        self.in_head = True  # whether the next byte belongs to a head
        self.body_left: int | None = 0  # bytes of the body still to come; None for a chunked body
        self.tail = b""  # last parsed bytes of a chunked body, which may contain the beginning of END
        self.overhead = 0  # bytes of a chunked body since its last content
        self.lingering = False  # whether received bytes are discarded until the connection is closed
        self.discarded = 0
        self.half_closed = False  # whether the client has sent EOF
        self.close_timer: asyncio.TimerHandle | None = None  # until the rest of a request must arrive
        self.write_timer: asyncio.TimerHandle | None = None  # until the client must read its answer

    @property
    def is_answering(self) -> bool:
        """True while a complete request waits for its answer."""
        return self.cycle is not None and not self.cycle.response_complete and self.in_head

    def connection_made(self, transport: Any) -> None:
        """Set up the connection."""
        super().connection_made(transport)
        self.flow: BufferedFlowControl = BufferedFlowControl(transport)
        # Responses are written to the transport, but closing it is left to `close_gracefully`.
        self.outlet = SimpleNamespace(
            write=transport.write, is_closing=transport.is_closing, close=self.close_gracefully
        )
        self.limit.add(self)
        self.start_close_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that the connection holds."""
        super().connection_lost(exc)
        self.buffer, self.partial_head, self.headers = b"", b"", []
        self.outlet.close = self.transport.close  # breaks a reference cycle
        self.cancel_close_timer()
        if self.write_timer:
            self.write_timer.cancel()
        self.limit.remove(self)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, or discard them before a close."""
        if self.lingering:
            self.discarded += len(data)
            if self.discarded > LINGER_BYTES:
                self.transport.abort()
            return
        self.buffer = self.buffer + data if self.buffer else data
        self.parse_buffer()

    def parse_buffer(self) -> None:
        """Parse the buffer, up to the end of a request that must be answered before the next."""
        if self.lingering or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        end = time.perf_counter() + TURN
        try:
            while self.buffer and not self.lingering:
                if self.is_answering or (self.in_head and self.flow.write_paused):
                    break  # `on_response_complete` or `resume_writing` continues
                if time.perf_counter() > end:
                    self.loop.call_soon(self.parse_buffer)
                    break
                if self.in_head:
                    self.parse_head()
                elif self.body_left is None:
                    self.parse_chunks()
                else:
                    self.parse_body(self.body_left)
        except (HttpParserError, HttpParserUpgrade):  # the latter for CONNECT
            self.refuse(HTTPError(400, "no_http", "the request is not valid HTTP"))
        self.update_reading()
        self.start_close_timer()

    def parse_head(self) -> None:
        """Collect a head within the limits, and parse it when it is complete: the parser has no limits."""
        start = max(0, len(self.partial_head) - len(END) + 1)
        # Empty lines may precede a request.
        data = self.partial_head + self.buffer if self.partial_head else self.buffer.lstrip(b"\r\n")
        end = data.find(END, start)
        if end < 0:
            self.partial_head, self.buffer = data, b""
            self.check_head(data)
            return
        head, self.partial_head, self.buffer = data[: end + len(END)], b"", data[end + len(END) :]
        self.check_head(head)
        if not self.lingering:
            # Upgrades are ignored. The parser must not see the header, or it would not parse the body.
            self.parser.feed_data(UPGRADE.sub(b"\r\nignored", head))

    def check_head(self, head: bytes) -> None:
        """Refuse a complete or partial head that exceeds the limits."""
        if len(head) > MAX_HEAD:
            self.refuse_large(f"the head of a request may have {MAX_HEAD:,} bytes: send fewer")
        elif len(head) > MAX_LINE and head.find(b"\r\n", 0, MAX_LINE) < 0:
            self.refuse_large(f"the path of a request may have {MAX_PATH:,} bytes: shorten it")
        elif head.count(b"\r\n") > MAX_HEADERS + 2:
            self.refuse_large(f"a request may have {MAX_HEADERS} headers: send fewer")

    def parse_body(self, left: int) -> None:
        """Parse the bytes that belong to the body."""
        piece, self.buffer = self.buffer[:left], self.buffer[left:]
        self.body_left = left - len(piece)
        self.parser.feed_data(piece)
        if not self.body_left and not self.in_head:
            raise HttpParserError("the body should end here")

    def parse_chunks(self) -> None:
        """Parse a piece of a chunked body, up to END, which it always ends with."""
        joined = self.tail + self.buffer[:PIECE]
        end = joined.find(END)
        size = len(joined) if end < 0 else end + len(END)
        piece, self.buffer = self.buffer[: size - len(self.tail)], self.buffer[size - len(self.tail) :]
        self.tail = joined[max(0, size - len(END) + 1) : size]
        before = len(self.cycle.body)
        self.parser.feed_data(piece)
        self.overhead = 0 if len(self.cycle.body) > before else self.overhead + len(piece)
        if self.overhead > MAX_HEAD or len(self.headers) > MAX_HEADERS:
            self.refuse_large(f"a request may have {MAX_HEADERS} trailers of {MAX_HEAD:,} bytes: send fewer")

    def update_reading(self) -> None:
        """Pause reading while the buffer is not empty."""
        if self.buffer and not self.lingering:
            self.flow.has_buffered = True
            self.flow.pause_reading()
        elif self.flow.has_buffered:
            self.flow.has_buffered = False
            if self.in_head or len(self.cycle.body) <= HIGH_WATER_LIMIT:
                self.flow.resume_reading()

    def on_headers_complete(self) -> None:
        """Start the application, and expect the body."""
        super().on_headers_complete()
        self.cycle.transport = self.outlet  # type: ignore[assignment]
        headers = dict(self.headers)  # the parser refuses two lengths, and a length of a chunked body
        self.body_left = None if b"transfer-encoding" in headers else int(headers.get(b"content-length", 0))
        self.in_head, self.overhead, self.tail = False, 0, b""
        self.headers = []  # trailers will be appended

    def on_message_complete(self) -> None:
        """Expect the next head."""
        super().on_message_complete()
        self.in_head = True
        if not self.cycle.response_complete:
            self.limit.idle.pop(self, None)

    def on_response_complete(self) -> None:
        """Continue with the next request."""
        if self.lingering:
            self.server_state.total_requests += 1
            return
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self.limit.idle[self] = None
        if self.buffer:
            self.parse_buffer()
        if self.half_closed and not self.buffer and not self.is_answering:
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Close the connection, unless the client waits for an answer with its own side closed."""
        if self.lingering or not (self.is_answering or self.buffer):
            return False
        self.half_closed = True
        self.loop.call_later(FIRST_CHECK, self.probe_client)
        return True

    def probe_client(self, probed: bool = False) -> None:
        """Probe whether a half-closed client has disconnected: then the kernel resets what is written."""
        if not self.is_answering or self.transport.is_closing():
            return
        cycle = self.cycle
        if not probed:
            if not cycle.response_started and cycle.scope["http_version"] == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # clients ignore it
        elif self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        self.loop.call_later(CHECK, self.probe_client, True)

    def refuse_large(self, message: str) -> None:
        """Refuse a request that exceeds the limits."""
        self.refuse(HTTPError(431, "head_too_large", message))

    def refuse(self, error: HTTPError) -> None:
        """Answer an invalid request with an error, and close the connection."""
        started = False
        if self.cycle is not None and not self.cycle.response_complete:
            started = self.cycle.response_started
            scope: Any = self.cycle.scope
            scope["refused"] = error  # the application stops reading the body, and logs the error
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            self.log_refusal(error)
        if not started:
            body = bytes(error.make_response().body)
            head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.in_head = False  # what follows is not a request
        self.close_gracefully()

    def close_gracefully(self) -> None:
        """Discard what the client still sends, then close: a reset could lose the answer."""
        if self.transport.is_closing() or self.lingering:
            return
        if self.half_closed or (self.in_head and not self.buffer and not self.partial_head):
            self.transport.close()
            return
        self.lingering = True
        self.buffer, self.partial_head = b"", b""
        self.limit.idle[self] = None
        self.cancel_close_timer()
        self.close_timer = self.loop.call_later(LINGER, self.transport.abort)
        self.flow.has_buffered = False
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def start_close_timer(self) -> None:
        """Start the timeout of an incomplete request, or cancel it while a request is answered."""
        if self.lingering:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cancel_close_timer()
        elif self.close_timer is None:
            self.close_timer = self.loop.call_later(self.timeout, self.transport.close)

    def cancel_close_timer(self) -> None:
        """Cancel the timeout of an incomplete request."""
        if self.close_timer:
            self.close_timer.cancel()
            self.close_timer = None

    def pause_writing(self) -> None:
        """Start the timeout of a client that does not read its answer."""
        super().pause_writing()
        self.check_writing()

    def resume_writing(self) -> None:
        """Continue with the requests in the buffer."""
        super().resume_writing()
        if self.write_timer:
            self.write_timer.cancel()
        if self.buffer:
            self.parse_buffer()

    def check_writing(self, before: int | None = None) -> None:
        """Close the connection if the client has read nothing since the last check."""
        size = self.transport.get_write_buffer_size()
        if before is not None and size >= before:
            self.transport.abort()
        else:
            self.write_timer = self.loop.call_later(self.timeout, self.check_writing, size)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its last answer was not read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()
