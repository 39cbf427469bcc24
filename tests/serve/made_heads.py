"""Requests as bytes, drawn by hypothesis and sent to the server over a pair of sockets.

Each request has a name in `X-Request-Id`, which its answer repeats. Bodies contain a request named
`smuggled`: an answer with this name means that part of a body was parsed as a request.
"""

import asyncio
import json
import logging
import re
import socket
from typing import NamedTuple

from hypothesis import strategies as st

from faults.fuzzing import damaged
from nse.serve.observe import Log
from nse.serve.server import Server
from serve.inside import start_server

SMUGGLED = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n"

STATUSES = {200, 400, 404, 405, 408, 413, 415, 422, 431, 501, 505}
"""Allowed statuses of answers."""

HEADERS = [
    b"Accept: */*",
    b"accept-encoding: gzip, deflate, br",
    b"User-Agent: " + b"x" * 300,
    b"X-Empty:",
    b"X-Latin: \xe9\xff",
    b"Cookie: a=b; c=d",
    b"Connection: keep-alive",
]
"""Headers that change nothing in an answer."""

ODD_HEADERS = [
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==",
    b"Connection: close",
    b"Expect: 100-continue",
    b"Expect: nothing",
    b"Host: elsewhere",
    b"Content-Length: 3",
    b"Content-Length: +3",
    b"Content-Length: 0x10",
    b"Content-Length: 3, 3",
    b"Content-Length: " + b"9" * 30,
    b"Content-Length : 3",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"X-Folded: one\r\n two",
    b"X-Bare: one\nX-Request-Id: smuggled",
    b"X-Return: one\rX-Request-Id: smuggled",
    b"X-Nul: one\0two",
    b"no colon here",
    b": no name",
    b"X-Long: " + b"x" * 70_000,
    b"\r\n".join(b"X-%d: x" % number for number in range(200)),
]
"""Headers that are invalid, or ask for something that the server does not support."""

ODD_LINES = [
    b"GET /health/live HTTP/1.0",
    b"GET /health/live HTTP/0.9",
    b"GET /health/live HTTP/2.0",
    b"GET /health/live",
    b"get /health/live HTTP/1.1",
    b"GET  /health/live  HTTP/1.1",
    b"GET http://localhost/health/live HTTP/1.1",
    b"GET /" + b"x" * 9000 + b" HTTP/1.1",
    b"GET /\xff\xfe HTTP/1.1",
    b"GET /%00%ff%zz HTTP/1.1",
    b"GET //elsewhere/../health/live HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"CONNECT localhost:80 HTTP/1.1",
    b"PRI * HTTP/2.0\r\n\r\nSM",
    b"POST /v1/predict HTTP/1.1",
]


class SentBytes(NamedTuple):
    """Bytes that are sent on one connection.

    Attributes:
        content: All bytes.
        cuts: Positions at which they are split into pieces.
        statuses: Expected statuses of the answers, if every request is valid.
        names: Names of the requests, in order; None if bytes were damaged.
    """

    content: bytes
    cuts: list[int]
    statuses: list[int] | None
    names: list[str] | None

    def __repr__(self):
        text = f"Sent({self.content!r}, {self.cuts}, {self.statuses}, {self.names})"
        return re.sub("x{100,}", lambda match: f"[{len(match[0])} x]", text)


class Answer(NamedTuple):
    """Answer to a request."""

    status: int
    name: str


@st.composite
def draw_body(draw):
    """Draw the framing header and the bytes of a body: with a length, or chunked, perhaps with trailers."""
    content = draw(st.sampled_from([b"", b'{"texts": 1}', SMUGGLED, b"x=1\r\n\r\n" + SMUGGLED, SMUGGLED * 9]))
    if draw(st.booleans()):
        return b"Content-Length: %d" % len(content), content
    ends = sorted(draw(st.lists(st.integers(0, len(content)), max_size=4)))
    chunks = [content[a:b] for a, b in zip([0, *ends], [*ends, len(content)], strict=True) if b > a]
    extension = draw(st.sampled_from([b"", b";name=value", b";" + b"x" * 200]))
    trailers = draw(st.sampled_from([b"", b"X-Trailer: x\r\n", b"X-Request-Id: smuggled\r\n"]))
    parts = [b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    return b"Transfer-Encoding: chunked", b"".join([*parts, b"0\r\n", trailers, b"\r\n"])


@st.composite
def draw_http_request(draw, name, odd):
    """Draw a request with a name, and the expected status of its answer; `odd` makes one line invalid."""
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    headers = [b"Host: localhost", b"X-Request-Id: " + name.encode(), *headers]
    if draw(st.booleans()):
        line, content, status = b"GET /health/live HTTP/1.1", b"", 200
    else:
        framing, content = draw(draw_body())
        line, status = b"POST /v1/predict HTTP/1.1", 415
        headers += [framing, b"Content-Type: text/plain"]
    if odd and draw(st.booleans()):
        line = draw(st.sampled_from(ODD_LINES))
    elif odd:
        headers.insert(draw(st.integers(0, len(headers))), draw(st.sampled_from(ODD_HEADERS)))
    return b"\r\n".join([line, *headers, b"", content]), status


@st.composite
def draw_heads(draw):
    """Draw several requests: all valid, one of them odd, or with damaged bytes."""
    names = [f"r{number}" for number in range(draw(st.integers(1, 4)))]
    kind = draw(st.sampled_from(["right", "odd", "odd", "damaged"]))
    which = draw(st.sampled_from(names)) if kind == "odd" else ""
    requests = [draw(draw_http_request(name, name == which)) for name in names]
    content = b"".join(request for request, _ in requests)
    if kind == "damaged":
        content = draw(damaged(content))
    lines = [line.end() for line in re.finditer(b"\r\n", content)] or [0]
    places = st.integers(0, len(content)) | st.sampled_from(lines)
    cuts = sorted(draw(st.lists(places, max_size=5)))
    statuses = [status for _, status in requests] if kind == "right" else None
    return SentBytes(content, cuts, statuses, None if kind == "damaged" else names)


class Alarm(logging.Handler):
    """Collects errors that uvicorn and asyncio log."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.records = []

    def emit(self, record):
        self.records.append(self.format(record))


def try_heads(folder):
    """Serve a model in this process; return a function that sends bytes and returns the last status."""
    written, alarm = [], Alarm()
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(alarm)
    inside = start_server(folder, log=Log(written.append))
    server = Server(inside.app)
    server.config.load()

    def attempt(sent):
        exchange = asyncio.wait_for(exchange_bytes(server, sent), 60)
        received = asyncio.run_coroutine_threadsafe(exchange, inside.loop).result()
        inside.app.log.flush()
        lines = [json.loads(line) for line in b"".join(written).splitlines()]
        written.clear()
        assert not alarm.records, (sent, alarm.records.pop())
        return check_answers(sent, received, lines)

    return attempt


async def exchange_bytes(server, sent):
    """Send the pieces one by one, close, and return all bytes that come back."""
    loop = asyncio.get_running_loop()
    there, here = socket.socketpair()
    here.setblocking(False)

    def connection():
        kind = server.config.http_protocol_class
        return kind(config=server.config, server_state=server.server_state, app_state={}, _loop=loop)

    await loop.connect_accepted_socket(connection, there)
    reading = asyncio.ensure_future(receive(loop, here))
    try:
        for start, end in zip([0, *sent.cuts], [*sent.cuts, len(sent.content)], strict=True):
            await loop.sock_sendall(here, sent.content[start:end])
            await run_loop(5)
        await run_loop(50)  # until everything is answered
        here.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has closed the connection
    try:
        return await reading
    finally:
        here.close()


async def receive(loop, here):
    """Return all bytes that arrive until the server closes."""
    content = b""
    try:
        while piece := await loop.sock_recv(here, 1 << 16):
            content += piece
    except ConnectionResetError:
        pass  # closed before everything was read
    return content


async def run_loop(times):
    """Run the event loop some times."""
    for _ in range(times):
        await asyncio.sleep(0)


def check_answers(sent, received, lines):
    """Check answers and log; return the status of the last answer, or "closed"."""
    answers = parse_answers(received)
    assert not [line for line in lines if line["event"] == "error"], (sent, lines)
    assert {answer.status for answer in answers} <= STATUSES, (sent, received)
    if sent.names is not None:
        names = [answer.name for answer in answers]
        named = [line.get("request") for line in lines]
        assert "smuggled" not in [*names, *named], (sent, received)
        if answers and names[-1] not in sent.names:
            assert answers[-1].status >= 400, (sent, received)
            names.pop()
        assert names == sent.names[: len(names)], (sent, received)
    if sent.statuses is not None:
        assert [answer.status for answer in answers] == sent.statuses, (sent, received)
    return str(answers[-1].status) if answers else "closed"


def parse_answers(received):
    """Parse complete answers."""
    answers = []
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        first, *headers = head.split(b"\r\n")
        line = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [\w -]+", first)
        assert line, received
        assert end, received
        status = int(line[1])
        values = dict(re.fullmatch(rb"([\w-]+): ?(.*)", header).groups() for header in headers)
        values = {name.lower(): value for name, value in values.items()}
        size = int(values.get(b"content-length", b"0"))
        if rest and not rest.startswith(b"HTTP/1.1 "):  # to a HEAD there is no body
            assert len(rest) >= size, received
            rest = rest[size:]
        if status >= 200:
            assert b"content-length" in values, received
            answers.append(Answer(status, values.get(b"x-request-id", b"").decode()))
        received = rest
    return answers
