"""Fault 20: upgrades, half-closed connections, names and bodies that say two things at once."""

import json
import shutil
import socket
import subprocess
from http.client import HTTPResponse

import pytest

from serve.running import connect, read_error, read_events, read_json, read_metric, run_server, send
from small_models import save_sentence_model

BODY = b'{"texts": ["good film"]}'
POST = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
SMUGGLED = b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n"
WAIT = ("--max-wait-ms", "1500")  # so that an answer takes a while, a fifth of it
SOON = "from nse.serve import connection; connection.FIRST_CHECK = connection.CHECK = 0.01"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that waits before it answers, longer than it takes to see whether its client has gone."""
    folder = save_sentence_model(tmp_path_factory.mktemp("models") / "mine")
    with run_server(folder, *WAIT, first=SOON) as found:
        yield found


@pytest.fixture
def address(server):
    return server[0]


def read(line):
    """The next answer: its status, and what it says."""
    answer = HTTPResponse(line)
    answer.begin()
    return answer.status, json.loads(answer.read())


UPGRADES = {
    "of curl": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAA\r\n",
    "of Java": b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAI\r\nUpgrade: h2c\r\n",
    "in capitals": b"CONNECTION: UPGRADE\r\nUPGRADE: H2C\r\n",
    "to a WebSocket": b"Connection: keep-alive, upgrade\r\nUpgrade:websocket\r\n",
    "to several": b"Upgrade: h2c, websocket\r\nUpgrade: x\r\nConnection: upgrade\r\n",
    "to nothing": b"Connection: upgrade\r\nUpgrade:\r\n",
}


@pytest.mark.parametrize("later", [False, True], ids=["together", "later"])
@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
def test_upgrade_headers_are_ignored(served, headers, later):
    """With the body, which is not taken for a request."""
    body = b'{"texts": ["good film"], "strict": false}' + b" " * 20
    for content, status in ((body, 200), (SMUGGLED, 422)):
        head = POST + headers + b"Content-Length: %d\r\n\r\n" % len(content)
        with connect(served) as line:
            line.sendall(head if later else head + content)
            if later:
                assert send(served, "/health/live")[0] == 200  # so the head has arrived by itself
                line.sendall(content)
            assert read(line)[0] == status
            line.sendall(WHOLE)
            answer = read(line)  # the next answer is that of the next request
            assert (answer[0], len(answer[1]["predictions"])) == (200, 1)


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl here")
def test_curl_with_http_2_gets_an_answer(served):
    command = ["curl", "--silent", "--http2", "--write-out", "\n%{http_version} %{http_code}"]
    command += ["--data", BODY.decode(), "--header", "Content-Type: application/json"]
    answer = subprocess.run([*command, f"{served}/v1/predict"], capture_output=True, text=True, check=True)
    content, _, version = answer.stdout.rpartition("\n")
    assert version == "1.1 200"
    assert len(json.loads(content)["predictions"]) == 1


@pytest.mark.parametrize("sent", [WHOLE, WHOLE.replace(b"1.1", b"1.0"), SMUGGLED, WHOLE * 3])
def test_a_half_closed_connection_gets_its_answer(address, sent):
    """A client may shut down its side once it has asked, and wait."""
    with connect(address) as line:
        line.sendall(sent)
        line.shutdown(socket.SHUT_WR)
        for _ in range(sent.count(b"HTTP/1")):
            assert read(line)[0] == 200
        assert line.recv(1) == b""


def test_a_closed_connection_is_detected(address):
    """It looks the same as one that only sends nothing more, until it is asked."""
    name = 'nse_requests_total{route="/v1/predict",status="499"}'
    served = 'nse_requests_total{route="/v1/predict",status="200"}'
    before, answers = read_metric(address, name), read_metric(address, served)
    with connect(address) as line:
        line.sendall(WHOLE)
        while not read_metric(address, "nse_queue_requests"):
            pass
    while read_metric(address, name) == before:
        assert read_metric(address, served) == answers
    assert read_metric(address, "nse_queue_requests") == 0


def test_half_a_request_is_not_answered(address):
    for sent in (b"", b"GET / HT", WHOLE[:-1]):
        with connect(address) as line:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            assert line.recv(1) == b""


@pytest.mark.parametrize("names", [(b"localhost", b"localhost"), (b"evil.example", b"localhost")])
def test_two_host_headers_are_refused(served, names):
    for order in (names, names[::-1]):
        with connect(served) as line:
            hosts = b"".join(b"%s: %s\r\n" % pair for pair in zip((b"Host", b"hOST"), order, strict=True))
            line.sendall(b"GET /v1/model HTTP/1.1\r\n" + hosts + b"\r\n")
            status, told = read(line)
            assert (status, told["error"]["message"]) == (400, "there are two Host headers: send one")


@pytest.mark.parametrize("name", ["LOCALHOST", "LocalHost", "LOCALHOST:80"])
def test_header_names_are_case_insensitive(served, name):
    assert send(served, "/v1/model", headers={"Host": name})[0] == 200
    assert read_error(send(served, "/v1/model", headers={"Host": f"x{name}"}), 400)


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
BROKEN = {
    "a size that is none": CHUNKED + b"\r\nxyz\r\n",
    "a chunk longer than it says": CHUNKED + b"\r\n2\r\nabc\r\n0\r\n\r\n",
    "a size without end": CHUNKED + b"\r\n" + b"f" * 17 + b"\r\n",
    "a negative size": CHUNKED + b"\r\n-1\r\n",
    "bare line feeds": CHUNKED + b"\r\n1\na\n0\n\n",
    "two lengths": CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths, the other way": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two equal lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a length that is none": POST + b"Content-Length: +2\r\n\r\n{}",
    "an encoding that is none": POST + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "chunked and something after it": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n{}",
    "a line that goes on": POST + b"a: b\r\n c\r\n\r\n",
    "a blank before the colon": POST + b"Upgrade : h2c\r\nConnection: upgrade\r\n\r\n" + SMUGGLED,
    "a bare line feed in a head": POST + b"a: b\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n" + SMUGGLED,
    "a NUL in a head": POST + b"a: \0\r\n\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + SMUGGLED,
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
def test_broken_requests_get_400_and_are_counted_as_such(address, sent):
    gone = 'nse_requests_total{route="/v1/predict",status="499"}'
    names = [f'nse_requests_total{{route="{route}",status="400"}}' for route in ("/v1/predict", "other")]
    before, left = sum(read_metric(address, name) for name in names), read_metric(address, gone)
    with connect(address) as line:
        line.sendall(sent)
        answers = line.makefile("rb").read()
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1") == 1
    assert sum(read_metric(address, name) for name in names) == before + 1
    assert read_metric(address, gone) == left


def test_the_log_has_the_status_of_broken_requests(server):
    address, process = server
    with connect(address) as line:
        line.sendall(CHUNKED + b"X-Request-Id: broken-chunk\r\n\r\nxyz\r\n")
        assert read(line)[1]["error"]["type"] == "no_http"
    read_json(send(address, "/v1/predict", json.loads(BODY), {"X-Request-Id": "after-it"}))
    while not any(line.get("request") == "after-it" for line in read_events(process, "request")):
        pass
    [line] = [line for line in read_events(process, "request") if line.get("request") == "broken-chunk"]
    assert (line["status"], line["error"]) == (400, "no_http")
