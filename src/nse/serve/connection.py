"""Connections: whole request heads of a bounded size, one request at a time, an answer before one closes.

What is not part of a request that can be answered is refused before it is kept: bytes of a head are counted
before the parser sees them, and a request that follows another one waits unread until that one is answered.
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

from nse.serve.errors import Problem
from nse.serve.observe import Log, Metrics
from nse.serve.settings import MOST_HEAD, MOST_HEADERS, MOST_PATH, connection_room

END = b"\r\n\r\n"  # of a head, and of a body in chunks
MOST_LINE = MOST_PATH + 32  # bytes of the first line: the method, the path, the version
UPGRADE = re.compile(rb"(?i)\r\nupgrade(?=[ \t]*:)")
TURN = 0.001  # seconds for which one connection may keep the event loop parsing before others have their turn
PIECE = 4096  # bytes of a body in chunks that are parsed at a time
LINGER, LINGER_BYTES = 2.0, 1 << 24  # how long and how much a refused client may go on sending
FIRST_CHECK, CHECK = 0.3, 0.1  # seconds until a look whether a client that ended sending waits; to the next
EPISODE = 60.0  # seconds with room for every connection after which the next one without is logged again


class ConnectionLimit:
    """Makes room for new connections by closing those that have waited longest for a whole request to come.

    A connection whose request is being answered is never closed for another; if all are, the new one is.
    """

    def __init__(self, log: Log, metrics: Metrics):
        self.log, self.metrics = log, metrics
        self.most, self.backlog = connection_room()
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}  # in the order in which they began to wait for a whole request
        self.last = -EPISODE
        metrics.add_gauge("nse_connections", "Open connections.", lambda: len(self.open))

    def add(self, connection: Connection) -> None:
        """Take a new connection in, and close another one if there is no room."""
        self.open.add(connection)
        self.idle[connection] = None
        if len(self.open) <= self.most:
            return
        oldest = next(iter(self.idle))
        self.remove(oldest)
        oldest.transport.abort()
        self.metrics.crowded_out.inc()
        now = time.monotonic()
        if now > self.last + EPISODE:
            message = "too many connections: the oldest without a request are closed; see ulimit -n"
            self.log.put("crowded", message=message, connections=self.most)
        self.last = now

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.open.discard(connection)
        self.idle.pop(connection, None)


class Flow(FlowControl):
    """Flow control that does not read on while received bytes wait to be parsed."""

    full = False  # whether they do

    def resume_reading(self) -> None:
        """Read on, unless there is enough to do."""
        if not self.full:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """A connection that bounds what it keeps of its client, and how long it waits for it."""

    def __init__(self, *words: Any, **settings: Any):
        super().__init__(*words, **settings)
        app: Any = self.config.app  # itself, whatever uvicorn makes of it
        self.limit: ConnectionLimit = app.connections
        self.note_refused, self.timeout = app.note_refused, app.settings.timeout
        self.held = b""  # bytes that were received and not parsed yet
        self.head = b""  # the beginning of a head whose end has not come yet
        self.in_head = True  # whether the next byte belongs to a head, and not to a body
        self.left: int | None = 0  # bytes of the body that are missing; None for a body in chunks
        self.tail = b""  # the last bytes of a body in chunks that were parsed; its end may begin in them
        self.framing = 0  # bytes of a body in chunks since the last one that is content
        self.leaving = False  # whether it is about to be closed; what still comes is counted and thrown away
        self.discarded = 0
        self.finished = False  # whether the client has said that it sends nothing more
        self.waiting: asyncio.TimerHandle | None = None  # for the rest of a request
        self.stalled: asyncio.TimerHandle | None = None  # because answers are not read

    @property
    def is_answering(self) -> bool:
        """Whether a request that is complete is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete and self.in_head

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)
        # What answers a request writes to the transport itself, but closes it as `hang_up` does.
        self.outlet = SimpleNamespace(
            write=transport.write, is_closing=transport.is_closing, close=self.hang_up
        )
        self.limit.add(self)
        self.expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer, and keep nothing."""
        super().connection_lost(exc)
        self.held, self.head, self.headers = b"", b"", []
        self.outlet.close = self.transport.close  # no circle of references is left to the garbage collector
        self.forget()
        if self.stalled:
            self.stalled.cancel()
        self.limit.remove(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came, once its turn comes."""
        if self.leaving:
            self.discarded += len(data)
            if self.discarded > LINGER_BYTES:
                self.transport.abort()
            return
        self.held = self.held + data if self.held else data
        self.parse_held()

    def parse_held(self) -> None:
        """Parse the bytes that wait, up to the end of a request that has to be answered before the next."""
        if self.leaving or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        end = time.perf_counter() + TURN
        try:
            while self.held and not self.leaving:
                if self.is_answering or (self.in_head and self.flow.write_paused):
                    break  # and on it goes when the answer is written
                if time.perf_counter() > end:
                    self.loop.call_soon(self.parse_held)
                    break
                if self.in_head:
                    self.parse_head()
                elif self.left is None:
                    self.parse_chunks()
                else:
                    self.parse_body(self.left)
        except (HttpParserError, HttpParserUpgrade):  # the latter of CONNECT
            self.refuse(Problem(400, "no_http", "this is no HTTP request that can be understood"))
        self.control_reading()
        self.expect()

    def parse_head(self) -> None:
        """Take the bytes of a head, and give it to the parser, which has no limit, once it is whole."""
        start = max(0, len(self.head) - len(END) + 1)
        data = self.head + self.held if self.head else self.held.lstrip(b"\r\n")  # empty lines may come first
        at = data.find(END, start)
        if at < 0:
            self.head, self.held = data, b""
            self.check_head(data)
            return
        head, self.head, self.held = data[: at + len(END)], b"", data[at + len(END) :]
        self.check_head(head)
        if not self.leaving:
            # A request to change the protocol is answered in this one. The parser would take its body for
            # bytes of another protocol, so it must not see the header.
            self.parser.feed_data(UPGRADE.sub(b"\r\nignored", head))

    def check_head(self, head: bytes) -> None:
        """Refuse a head above the limits, or the beginning of one."""
        if len(head) > MOST_HEAD:
            self.refuse_large(f"the head of a request may have {MOST_HEAD:,} bytes: send fewer")
        elif len(head) > MOST_LINE and head.find(b"\r\n", 0, MOST_LINE) < 0:
            self.refuse_large(f"the path of a request may have {MOST_PATH:,} bytes: shorten it")
        elif head.count(b"\r\n") > MOST_HEADERS + 2:
            self.refuse_large(f"a request may have {MOST_HEADERS} headers: send fewer")

    def parse_body(self, left: int) -> None:
        """Give bytes of a body to the parser, and none after its end."""
        piece, self.held = self.held[:left], self.held[left:]
        self.left = left - len(piece)
        self.parser.feed_data(piece)
        if not self.left and not self.in_head:
            raise HttpParserError("the body should end here")

    def parse_chunks(self) -> None:
        """Give bytes of a body in chunks to the parser, and none after its end, which END always precedes."""
        joined = self.tail + self.held[:PIECE]
        at = joined.find(END)
        size = len(joined) if at < 0 else at + len(END)
        piece, self.held = self.held[: size - len(self.tail)], self.held[size - len(self.tail) :]
        self.tail = joined[max(0, size - len(END) + 1) : size]
        before = len(self.cycle.body)
        self.parser.feed_data(piece)
        self.framing = 0 if len(self.cycle.body) > before else self.framing + len(piece)
        if self.framing > MOST_HEAD or len(self.headers) > MOST_HEADERS:
            self.refuse_large(f"trailers may have {MOST_HEAD:,} bytes and be {MOST_HEADERS}: send fewer")

    def control_reading(self) -> None:
        """Read on only when everything that was read is parsed."""
        if self.held and not self.leaving:
            self.flow.full = True
            self.flow.pause_reading()
        elif self.flow.full:
            self.flow.full = False
            if self.in_head or len(self.cycle.body) <= HIGH_WATER_LIMIT:
                self.flow.resume_reading()

    def on_headers_complete(self) -> None:
        """Begin to answer, and to read the body."""
        super().on_headers_complete()
        self.cycle.transport = self.outlet  # type: ignore[assignment]
        headers = dict(self.headers)  # the parser refuses two lengths, and a length of chunks
        self.left = None if b"transfer-encoding" in headers else int(headers.get(b"content-length", 0))
        self.in_head, self.framing, self.tail = False, 0, b""
        self.headers = []  # for trailers, which are no headers

    def on_message_complete(self) -> None:
        """Note that there is a request to answer."""
        super().on_message_complete()
        self.in_head = True
        if not self.cycle.response_complete:
            self.limit.idle.pop(self, None)

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        if self.leaving:
            self.server_state.total_requests += 1
            return
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self.limit.idle[self] = None
        if self.held:
            self.parse_held()
        if self.finished and not self.held and not self.is_answering:
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Close, unless the client waits for an answer: many shut down their side once they have asked."""
        if self.leaving or not (self.is_answering or self.held):
            return False
        self.finished = True
        self.loop.call_later(FIRST_CHECK, self.check_client)
        return True

    def check_client(self, probed: bool = False) -> None:
        """Look whether a client that has finished sending has gone: it then resets what is written to it."""
        if not self.is_answering or self.transport.is_closing():
            return
        cycle = self.cycle
        if not probed:
            if not cycle.response_started and cycle.scope["http_version"] == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # which a client skips
        elif self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        self.loop.call_later(CHECK, self.check_client, True)

    def refuse_large(self, message: str) -> None:
        """Refuse what is above the limits."""
        self.refuse(Problem(431, "head_too_large", message))

    def refuse(self, problem: Problem) -> None:
        """Answer what is no request, in the shape of all errors, and close."""
        started = False
        if self.cycle is not None and not self.cycle.response_complete:
            started = self.cycle.response_started
            scope: Any = self.cycle.scope
            scope["refused"] = problem  # the application stops reading, and notes it
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            self.note_refused(problem)
        if not started:
            body = bytes(problem.response().body)
            head = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self.transport.write(head.encode() + body)
        self.in_head = False  # nothing after this is a request
        self.hang_up()

    def hang_up(self) -> None:
        """Close once the client has had time to read the answer, which a reset would overtake."""
        if self.transport.is_closing() or self.leaving:
            return
        if self.finished or (self.in_head and not self.held and not self.head):
            self.transport.close()
            return
        self.leaving = True
        self.held, self.head = b"", b""
        self.limit.idle[self] = None
        self.forget()
        self.waiting = self.loop.call_later(LINGER, self.transport.abort)
        self.flow.full = False
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def expect(self) -> None:
        """See to it that half a request is not waited for without end."""
        if self.leaving:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.forget()
        elif self.waiting is None:
            self.waiting = self.loop.call_later(self.timeout, self.transport.close)

    def forget(self) -> None:
        """Wait no longer."""
        if self.waiting:
            self.waiting.cancel()
            self.waiting = None

    def pause_writing(self) -> None:
        """Give a client that does not read its answers the time limit to go on."""
        super().pause_writing()
        self.watch_reader()

    def resume_writing(self) -> None:
        """Go on with requests that waited."""
        super().resume_writing()
        if self.stalled:
            self.stalled.cancel()
        if self.held:
            self.parse_held()

    def watch_reader(self, before: int | None = None) -> None:
        """Cut off a client that reads nothing of its answer for as long as the time limit."""
        size = self.transport.get_write_buffer_size()
        if before is not None and size >= before:
            self.transport.abort()
        else:
            self.stalled = self.loop.call_later(self.timeout, self.watch_reader, size)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that is not used, also where its answer was never read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()
