"""The server over HTTP: traces, the page, errors, start and stop."""

import json
import re
import signal
import socket

import pytest

import nse
from nse import InputError
from nse.serve.server import listen
from nse.serve.settings import MAX_TRACE_CANDIDATES, MAX_TRACE_SENTENCES, MAX_TRACE_WORDS, MIN_BODY_LIMIT
from nse.viz import report
from nse.viz.trace import MemoryTrace
from serve.inside import serve_inside
from serve.running import connect, read_error, read_events, read_json, run_server, send
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_sentence_model(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture(scope="module")
def address(model):
    with run_server(model) as (url, _):
        yield url


def test_a_trace_equals_the_one_in_python(model, address):
    status, headers, body = send(address, "/v1/trace", {"texts": ["A good film."]})
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert MemoryTrace.from_json(body).to_json() == nse.load(model).trace("A good film.").to_json()


def test_the_model_route_describes_inputs_and_limits(address):
    model = read_json(send(address, "/v1/model"))
    assert model["name"] == "mine"
    assert model["fields"] == [{"label": "Sentence", "many": False}]
    assert model["labels"] == ["negative", "positive"]
    assert all(len(texts) == 1 for texts in model["examples"])
    assert model["limits"]["max_chars"] == 10_000
    assert read_json(send(address, "/health/live")) == {"status": "live"}
    assert read_json(send(address, "/health/ready")) == {"status": "ready"}


def test_rankers_and_translators_are_traced_with_their_own_inputs(tmp_path):
    with serve_inside(save_ranking_model(tmp_path / "ranks")) as server:
        assert [field["many"] for field in read_json(server.ask("/v1/model"))["fields"]] == [False, True]
        body = {"texts": ["who runs ?", "a dog runs .", "the cat sleeps ."]}
        trace = MemoryTrace.from_json(server.ask("/v1/trace", body)[2])
        assert len(trace.prediction["ranking"]) == 2
        many = {"texts": ["who runs ?", *["a dog ."] * (MAX_TRACE_CANDIDATES + 1)]}
        assert "there are 22 texts, and at most 21 can be drawn" in read_error(
            server.ask("/v1/trace", many), 413
        )
    with serve_inside(save_translator(tmp_path / "translates")) as server:
        assert [field["label"] for field in read_json(server.ask("/v1/model"))["fields"]] == [
            "English sentence"
        ]
        for beam in (None, 2):
            answer = server.ask("/v1/trace", {"texts": ["a dog"], "beam": beam})
            assert "translation" in read_json(answer)["prediction"]


def test_the_server_serves_the_files_of_the_page(address):
    for name, kind in report.FILES.items():
        path = "/" if name == "index.html" else f"/page/{name}"
        status, headers, body = send(address, path)
        assert status == 200
        assert headers["Content-Type"].startswith(kind)
        assert body.decode() == report.read_page_file(name)
        paths = re.findall(r'(?:src|href)="(page/[^"]+)"', body.decode())
        assert all(each.removeprefix("page/") in report.FILES for each in paths)


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/v1/model", "/nowhere", "/page/../app.py"])
def test_every_response_has_a_strict_content_security_policy(address, path):
    headers = send(address, path)[1]
    rules = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_invalid_texts_are_refused(address):
    assert "sentence is empty" in read_error(send(address, "/v1/trace", {"texts": [" "]}), 400)
    assert "expected 1, sentence, got 2" in read_error(send(address, "/v1/trace", {"texts": ["a", "b"]}), 400)


def test_texts_too_long_to_draw_are_refused(address, tmp_path):
    answer = send(address, "/v1/trace", {"texts": ["a " * (MAX_TRACE_WORDS + 1)]})
    expected = f"text 1 has 201 words, and at most {MAX_TRACE_WORDS} can be drawn: shorten it"
    assert read_error(answer, 413) == expected
    with serve_inside(save_document_model(tmp_path / "documents")) as server:
        many = {"texts": ["A dog runs. " * (MAX_TRACE_SENTENCES + 1)]}
        expected = f"text 1 has 51 sentences, and at most {MAX_TRACE_SENTENCES} can be drawn: shorten it"
        assert read_error(server.ask("/v1/trace", many), 413) == expected
        some = {"texts": ["A dog runs. " * MAX_TRACE_SENTENCES]}
        assert (
            len(MemoryTrace.from_json(server.ask("/v1/trace", some)[2]).readings) == MAX_TRACE_SENTENCES + 1
        )


def test_a_model_without_a_memory_predicts_but_cannot_be_traced(tmp_path):
    with serve_inside(save_sentence_model(tmp_path / "lstm", encoder="lstm")) as server:
        assert server.ask("/v1/predict", {"texts": ["a good film"]})[0] == 200
        message = read_error(server.ask("/v1/trace", {"texts": ["a good film"]}), 400)
        assert "lstm has no memory to trace" in message
        assert str(tmp_path) not in message
        assert "/v1/trace" not in read_json(server.ask("/openapi.json"))["paths"]


def test_another_content_type_than_json_is_refused(address):
    answer = send(address, "/v1/trace", b'{"texts": ["a"]}', {"Content-Type": "text/plain"})
    assert "needs the header Content-Type: application/json" in read_error(answer, 415)


def test_an_unknown_host_name_is_refused(address):
    """A DNS name of another site that points to this machine would let its pages read the server."""
    port = address.rpartition(":")[2]
    for name in ("evil.example", f"evil.example:{port}", "", "[::2]"):
        assert "this server is reached as 127.0.0.1" in read_error(
            send(address, "/v1/model", headers={"Host": name}), 400
        )
    for name in (f"localhost:{port}", "127.0.0.1", "[::1]:80", "localhost"):
        assert send(address, "/v1/model", headers={"Host": name})[0] == 200


def test_get_routes_answer_head_requests(address):
    for path in ("/", "/page/app.js", "/v1/model", "/health/live", "/health/ready", "/metrics"):
        status, headers, body = send(address, path, method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 0


def test_a_large_body_is_refused_with_and_without_a_length(address):
    large = json.dumps({"texts": ["a" * MIN_BODY_LIMIT]}).encode()
    assert "shorten it" in read_error(send(address, "/v1/trace", large), 413)
    with connect(address) as line:
        line.sendall(b"POST /v1/trace HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"a" * 8192
        for _ in range(MIN_BODY_LIMIT // len(piece) + 2):
            line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        line.sendall(b"0\r\n\r\n")
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    assert send(address, "/health/live")[0] == 200


def test_unknown_paths_and_methods_are_refused(address):
    assert read_error(send(address, "/nowhere"), 404) == "Not Found"
    assert read_error(send(address, "/v1/predict/"), 404) == "Not Found"
    assert read_error(send(address, "/page/app.py"), 404) == "Not Found"
    assert read_error(send(address, "/page/..%2fapp.py"), 404) == "Not Found"
    answer = send(address, "/v1/trace", method="GET")
    assert read_error(answer, 405) == "Method Not Allowed"
    assert answer[1]["Allow"] == "POST"
    assert send(address, "/docs")[0] == 404  # would load scripts from another site


def test_bytes_that_are_not_http_are_refused(address):
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with connect(address) as line:
            line.sendall(data + b"\r\n\r\n")
            head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        # A request without a Host header is valid for some HTTP libraries.
        assert json.loads(body)["error"]["type"] in ("no_http", "unknown_host")


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_the_server(model, stop, code):
    with run_server(model) as (address, server), connect(address) as idle:
        assert send(address, "/health/live")[0] == 200
        server.send_signal(stop)
        assert server.wait(timeout=20) == code
        assert idle.recv(1) == b""
        with socket.socket() as line:
            host, port = address.removeprefix("http://").split(":")
            assert line.connect_ex((host, int(port))) != 0
        assert [each["event"] for each in read_events(server, "stopped")] == ["stopped"]
        assert "Traceback" not in server.read_log()


def test_a_port_in_use_is_reported():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="use another port, or 0 for a free one"):
            listen("127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 90])
def test_an_address_of_another_machine_is_reported(host):
    with pytest.raises(InputError, match=f"cannot listen at {host}:0: .*; use an address of this machine"):
        listen(host, 0)
