"""Requests as bytes, drawn by hypothesis, sent to the server's own connection over a pair of sockets.

A request says its name in `X-Request-Id`, which its answer repeats. Bodies hold a whole request of the name
`smuggled`: an answer of that name means that a part of a body was taken for a request.
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
from nse.serve.run import Server
from serve.inside import begun

SMUGGLED = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n"

STATUSES = {200, 400, 404, 405, 408, 413, 415, 422, 431, 501, 505}
"""Of answers that are no fault of the server's."""

HEADERS = [
    b"Accept: */*",
    b"accept-encoding: gzip, deflate, br",
    b"User-Agent: " + b"x" * 300,
    b"X-Empty:",
    b"X-Latin: \xe9\xff",
    b"Cookie: a=b; c=d",
    b"Connection: keep-alive",
]
"""Nothing that changes an answer."""

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
"""What a client should not send, or what asks for something that this server does not do."""

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


class Sent(NamedTuple):
    """What is sent on one connection.

    Attributes:
        content: All bytes.
        cuts: Where they are cut into pieces.
        statuses: Of the answers, where every request is as it should be.
        names: Of the requests, in their order; none where bytes were damaged, for then nothing says what is
            a body.
    """

    content: bytes
    cuts: list[int]
    statuses: list[int] | None
    names: list[str] | None

    def __repr__(self):
        text = f"Sent({self.content!r}, {self.cuts}, {self.statuses}, {self.names})"
        return re.sub("x{100,}", lambda match: f"[{len(match[0])} x]", text)


class Answer(NamedTuple):
    """What came back for a request."""

    status: int
    name: str


@st.composite
def body_of(draw):
    """The headers and the bytes of a body: of a given length, or in chunks, perhaps with trailers."""
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
def request(draw, name, odd):
    """A request of a name, and the status of its answer.

    Args:
        odd: Whether its first line or a header is not as it should be.
    """
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    headers = [b"Host: localhost", b"X-Request-Id: " + name.encode(), *headers]
    if draw(st.booleans()):
        line, content, status = b"GET /health/live HTTP/1.1", b"", 200
    else:
        framing, content = draw(body_of())
        line, status = b"POST /v1/predict HTTP/1.1", 415
        headers += [framing, b"Content-Type: text/plain"]
    if odd and draw(st.booleans()):
        line = draw(st.sampled_from(ODD_LINES))
    elif odd:
        headers.insert(draw(st.integers(0, len(headers))), draw(st.sampled_from(ODD_HEADERS)))
    return b"\r\n".join([line, *headers, b"", content]), status


@st.composite
def heads(draw):
    """Requests one after the other: all as they should be, one odd, or bytes of them damaged."""
    names = [f"r{number}" for number in range(draw(st.integers(1, 4)))]
    kind = draw(st.sampled_from(["right", "odd", "odd", "damaged"]))
    which = draw(st.sampled_from(names)) if kind == "odd" else ""
    requests = [draw(request(name, name == which)) for name in names]
    content = b"".join(request for request, _ in requests)
    if kind == "damaged":
        content = draw(damaged(content))
    lines = [line.end() for line in re.finditer(b"\r\n", content)] or [0]
    places = st.integers(0, len(content)) | st.sampled_from(lines)
    cuts = sorted(draw(st.lists(places, max_size=5)))
    statuses = [status for _, status in requests] if kind == "right" else None
    return Sent(content, cuts, statuses, None if kind == "damaged" else names)


class Alarm(logging.Handler):
    """Keeps errors that uvicorn or asyncio log."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.records = []

    def emit(self, record):
        self.records.append(self.format(record))


def try_heads(folder):
    """Serve a model in this process; gives a function from what is sent to the status of the last answer."""
    written, alarm = [], Alarm()
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(alarm)
    inside = begun(folder, log=Log(written.append))
    server = Server(inside.app)
    server.config.load()

    def attempt(sent):
        exchange = asyncio.wait_for(talk(server, sent), 60)
        received = asyncio.run_coroutine_threadsafe(exchange, inside.loop).result()
        inside.app.log.flush()
        lines = [json.loads(line) for line in b"".join(written).splitlines()]
        written.clear()
        assert not alarm.records, (sent, alarm.records.pop())
        return judge(sent, received, lines)

    return attempt


async def talk(server, sent):
    """Send pieces, each read by itself, then end; gives all bytes that come back."""
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
            await turn(5)
        await turn(50)  # until all is answered that will be
        here.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has closed the connection
    try:
        return await reading
    finally:
        here.close()


async def receive(loop, here):
    """All bytes that come until the server closes."""
    content = b""
    try:
        while piece := await loop.sock_recv(here, 1 << 16):
            content += piece
    except ConnectionResetError:
        pass  # closed, and not all that was sent had been read
    return content


async def turn(times):
    """Let the event loop turn so many times."""
    for _ in range(times):
        await asyncio.sleep(0)


def judge(sent, received, lines):
    """Check what came back and what was logged; gives the status of the last answer, or "closed"."""
    answers = parse(received)
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


def parse(received):
    """The answers in some bytes, which must be whole."""
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
