"""Fault 20: heads, trailers and pipelines without end are refused before they are kept."""

import json
from contextlib import suppress

import pytest

from serve.running import connect, read_error, read_metric, send

LINE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1 << 20

ENDLESS = {  # what comes once, and what comes again and again
    "small headers": (LINE, b"a: b\r\n"),
    "headers with long values": (LINE, b"a: " + b"b" * 4000 + b"\r\n"),
    "one value": (LINE + b"a: ", b"b"),
    "one value of blanks": (LINE + b"a:", b" "),
    "one name": (LINE, b"a"),
    "a path": (b"GET /", b"a"),
    "a query": (b"GET /?", b"a=b&"),
    "a host": (b"GET http://", b"a"),
    "a method": (b"", b"A"),
    "small trailers": (CHUNKED + b"1\r\n{\r\n0\r\n", b"a: b\r\n"),
    "one trailer": (CHUNKED + b"1\r\n{\r\n0\r\na: ", b"b"),
    "the extension of a chunk": (CHUNKED + b"1;a=", b"b"),
}


def answered(line):
    """Status and error of the one answer that comes before the server closes."""
    head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
def test_endless_request_heads_are_refused(served, begin, more):
    route = "/v1/predict" if begin.startswith(CHUNKED) else "other"
    name = f'nse_requests_total{{route="{route}",status="431"}}'
    before = read_metric(served, name)
    with connect(served) as line:
        line.sendall(begin)
        for _ in range(16):  # no error: the answer is not overtaken by a reset
            line.sendall(more * (MEGABYTE // 16 // len(more)))
        status, told = answered(line)
    assert (status, told["type"]) == (431, "head_too_large")
    assert read_metric(served, name) == before + 1


def padded(size):
    """A head of so many bytes, a short name and a long value in each line."""
    head, lines = LINE, 16
    each = (size - len(head) - 2) // lines
    for number in range(lines):
        length = each if number < lines - 1 else size - len(head) - 2
        head += b"a%02d: " % number + b"b" * (length - 7) + b"\r\n"
    assert len(head) + 2 == size
    return head + b"\r\n"


BOUNDS = {
    "100 headers": (LINE + b"a: b\r\n" * 99 + b"\r\n", 200),
    "101 headers": (LINE + b"a: b\r\n" * 100 + b"\r\n", 431),
    "64 KiB": (padded(65536), 200),
    "a byte more": (padded(65537), 431),
    "a path of 8 KiB": (LINE.replace(b"/health/live", b"/".ljust(8192, b"a")) + b"\r\n", 404),
    "a longer path": (LINE.replace(b"/health/live", b"/".ljust(8300, b"a")) + b"\r\n", 431),
    "100 trailers": (CHUNKED + b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * 100 + b"\r\n", 415),
    "101 trailers": (CHUNKED + b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
    "empty lines before it": (b"\r\n" * 50_000 + LINE + b"\r\n", 200),
}


@pytest.mark.parametrize(("request_", "status"), BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("step", [1000, 1 << 20], ids=["in pieces", "at once"])
def test_the_limits_of_heads_are_those_in_the_errors(served, request_, status, step):
    with connect(served) as line:
        for at in range(0, len(request_), step):
            line.sendall(request_[at : at + step])
        assert int(line.recv(4096).split()[1]) == status


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
def test_requests_sent_in_pieces_are_read_correctly(served, step):
    """Wherever the pieces end, also within the end of a head or of a body."""
    body = b'{"texts": ["good\\r\\n\\r\\nfilm"]}'
    kind = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = kind + b"Transfer-Encoding: chunked\r\n\r\n"
    sent = [
        LINE + b"\r\n",
        kind + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        b"\r\n" + chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
        chunked + b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in body) + b"0\r\nHost: evil\r\n\r\n",
        kind + b"Content-Length: 8\r\n\r\n\r\n\r\n\r\n\r\n",
        LINE.replace(b"live", b"nothing") + b"Connection: close\r\n\r\n" + LINE + b"\r\n",
    ]
    with connect(served) as line:
        line.setsockopt(6, 1, 1)  # TCP_NODELAY: each piece by itself
        for at in range(0, len(b"".join(sent)), step):
            line.sendall(b"".join(sent)[at : at + step])
        answers = line.makefile("rb").read().split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == [200, 200, 200, 200, 422, 404]


def test_trailers_do_not_count_as_headers(served):
    head = b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"Host: evil\r\nContent-Type: application/json\r\nX-Request-Id: mine\r\nConnection: close\r\n"
    with connect(served) as line:
        line.sendall(head + b'f\r\n{"texts":["a"]}\r\n0\r\n' + trailers + b"\r\n")
        answer = line.recv(4096)
    assert answer.startswith(b"HTTP/1.1 415 ")  # the type was not said in the head
    assert b"x-request-id: mine" not in answer


def test_pipelined_requests_are_answered_in_order(served):
    count = 300
    paths = [b"/health/live", b"/nowhere"]
    sent = b"".join(
        LINE.replace(b"/health/live", paths[number % 2]) + b"X-Request-Id: %d\r\n\r\n" % number
        for number in range(count)
    )
    with connect(served) as line:
        line.sendall(sent.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n")
        answers = line.makefile("rb").read().split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == [200, 404] * (count // 2)
    assert [int(answer.partition(b"x-request-id: ")[2].split()[0]) for answer in answers] == list(
        range(count)
    )


def test_pipelined_requests_wait_if_answers_are_not_read(served):
    """Requests that follow each other wait in the network, and not in the memory, until answers are read."""
    name = 'nse_requests_total{route="/health/live",status="200"}'
    memory, before = read_metric(served, "process_resident_memory_bytes"), read_metric(served, name)
    piece, sent = (LINE + b"\r\n") * 1000, 0
    with connect(served) as line:
        line.settimeout(1)
        with suppress(TimeoutError):  # nothing more fits into the network
            while sent < 64 * MEGABYTE:
                sent += line.send(piece)
        assert sent < 64 * MEGABYTE
        assert read_metric(served, "process_resident_memory_bytes") < memory + 8 * MEGABYTE
        assert read_metric(served, name) - before < sent / len(LINE) / 2
        assert send(served, "/health/live")[0] == 200


def test_a_head_that_arrives_slowly_is_answered(served):
    with connect(served) as line:
        for at in range(0, len(LINE), 4):
            line.sendall(LINE[at : at + 4])
            assert send(served, "/health/live")[0] == 200
        line.sendall(b"\r\n")
        assert line.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_the_error_of_a_long_head_has_the_usual_format(served):
    for headers in ({"a": "b" * 65536}, {f"a{number}": "b" for number in range(101)}):
        assert "send fewer" in read_error(send(served, "/v1/model", headers=headers), 431)
    assert "shorten it" in read_error(send(served, "/" + "a" * 9000), 431)
