"""The server, over real HTTP: traces, and one shape for every error."""

import json
import re
import signal
import socket
import subprocess
import sys

import pytest

from nse import InputError, api
from nse.serve.app import LARGEST_BODY, LONGEST_TEXT, MOST_SENTENCES, MOST_TEXTS, MOST_WORDS
from nse.serve.run import bound
from nse.viz import report
from nse.viz.trace import MemoryTrace
from serve.running import asked, running
from test_api import document_model, ranking_model, sentence_model
from test_translate import translator


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return sentence_model(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture(scope="module")
def address(model):
    with running(model) as (found, _):
        yield found


def error(answer, status):
    """What an error says, if it has the one shape that all have."""
    found, headers, body = answer
    assert found == status, body
    assert headers["Content-Type"] == "application/json"
    told = json.loads(body)
    assert told.keys() == {"error"}
    assert told["error"].keys() == {"type", "message"}
    return told["error"]["message"]


def test_a_trace_is_that_of_the_library(model, address):
    status, headers, body = asked(address, "/v1/trace", {"texts": ["A good film."]})
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert MemoryTrace.from_json(body).to_json() == api.trace(model, "A good film.").to_json()


def test_the_model_tells_what_it_takes(address):
    told = json.loads(asked(address, "/v1/model")[2])
    assert told["name"] == "mine"
    assert told["fields"] == [{"label": "Sentence", "many": False}]
    assert told["labels"] == ["negative", "positive"]
    assert all(len(texts) == 1 for texts in told["examples"])
    assert json.loads(asked(address, "/health/live")[2]) == {"status": "live"}


def test_other_models_take_other_texts(tmp_path):
    with running(ranking_model(tmp_path / "ranks")) as (address, _):
        told = json.loads(asked(address, "/v1/model")[2])
        assert [field["many"] for field in told["fields"]] == [False, True]
        given = {"texts": ["who runs ?", "a dog runs .", "the cat sleeps ."]}
        trace = MemoryTrace.from_json(asked(address, "/v1/trace", given)[2])
        assert len(trace.prediction["ranking"]) == 2
    with running(translator(tmp_path / "translates")) as (address, _):
        assert [field["label"] for field in json.loads(asked(address, "/v1/model")[2])["fields"]] == [
            "English sentence"
        ]
        assert "translation" in json.loads(asked(address, "/v1/trace", {"texts": ["a dog"]})[2])["prediction"]


def test_the_page_and_its_files(address):
    for name, kind in report.FILES.items():
        path = "/" if name == "index.html" else f"/page/{name}"
        status, headers, body = asked(address, path)
        assert status == 200
        assert headers["Content-Type"].startswith(kind)
        assert body.decode() == report.page(name)
        named = re.findall(r'(?:src|href)="(page/[^"]+)"', body.decode())
        assert all(each.removeprefix("page/") in report.FILES for each in named)


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/v1/model", "/nowhere", "/page/../app.py"])
def test_every_answer_has_a_strict_policy(address, path):
    headers = asked(address, path)[1]
    rules = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_bad_texts_are_told(address):
    assert "sentence is empty" in error(asked(address, "/v1/trace", {"texts": [" "]}), 400)
    assert "expected 1, sentence, got 2" in error(asked(address, "/v1/trace", {"texts": ["a", "b"]}), 400)
    half = b'{"texts": ["a\\ud800"]}'
    assert "half of a character" in error(asked(address, "/v1/trace", half), 400)


def test_too_much_is_told_before_it_is_computed(address, tmp_path):
    for texts, says in (
        (["a " * (MOST_WORDS + 1)], f"a picture shows {MOST_WORDS}: shorten it, or .* with nse predict"),
        (["a" * (LONGEST_TEXT + 1)], "text 1 has 10,001 characters and 10,000 are read: shorten it"),
        (["a"] * (MOST_TEXTS + 1), "there are 22 texts and at most 21 are read: leave some out"),
    ):
        assert re.search(says, error(asked(address, "/v1/trace", {"texts": texts}), 413))
    with running(document_model(tmp_path / "documents")) as (found, _):
        many = {"texts": ["A dog runs. " * (MOST_SENTENCES + 1)]}
        assert f"51 sentences and a picture shows {MOST_SENTENCES}" in error(
            asked(found, "/v1/trace", many), 413
        )
        some = {"texts": ["A dog runs. " * MOST_SENTENCES]}
        assert len(MemoryTrace.from_json(asked(found, "/v1/trace", some)[2]).readings) == MOST_SENTENCES + 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"texts": "a"}',
        b'{"texts": []}',
        b'{"texts": [1]}',
        b'{"texts": [null]}',
        b'{"texts": ["a"], "more": 1}',
        b'{"texts": NaN}',
        b'\xff\xfe{"texts": ["a"]}',
    ],
)
def test_bad_requests_are_told(address, body):
    assert "send" in error(asked(address, "/v1/trace", body), 422)


def test_what_does_not_say_that_it_is_json_is_told(address):
    answer = asked(address, "/v1/trace", b'{"texts": ["a"]}', {"Content-Type": "text/plain"})
    assert "must say Content-Type: application/json" in error(answer, 415)


def test_another_name_is_refused(address):
    """A page from elsewhere, whose name is made to lead to this machine, learns nothing."""
    port = address.rpartition(":")[2]
    for name in ("evil.example", f"evil.example:{port}", "", "[::2]"):
        assert "answers to 127.0.0.1" in error(asked(address, "/v1/model", headers={"Host": name}), 400)
    for name in (f"localhost:{port}", "127.0.0.1", "[::1]:80", "localhost"):
        assert asked(address, "/v1/model", headers={"Host": name})[0] == 200


def test_heads(address):
    for path in ("/", "/page/app.js", "/v1/model", "/health/live"):
        status, headers, body = asked(address, path, method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 0


def test_deep_json_is_told(address):
    assert "cannot be read as JSON; send" in error(asked(address, "/v1/trace", b"[" * 20_000), 400)


def test_a_large_body_is_refused_whatever_its_headers_say(address):
    large = json.dumps({"texts": ["a" * LARGEST_BODY]}).encode()
    assert "shorten it" in error(asked(address, "/v1/trace", large), 413)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(b"POST /v1/trace HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"a" * 8192
        for _ in range(LARGEST_BODY // len(piece) + 2):
            line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    assert asked(address, "/health/live")[0] == 200


def test_what_is_not_there(address):
    assert error(asked(address, "/nowhere"), 404) == "Not Found"
    assert error(asked(address, "/page/app.py"), 404) == "Not Found"
    assert error(asked(address, "/page/..%2fapp.py"), 404) == "Not Found"
    answer = asked(address, "/v1/trace", method="GET")
    assert error(answer, 405) == "Method Not Allowed"
    assert answer[1]["Allow"] == "POST"
    assert asked(address, "/docs")[0] == 404  # it would fetch scripts from elsewhere


def test_every_status_of_a_trace_is_documented(address):
    told = json.loads(asked(address, "/openapi.json")[2])
    assert {"200", "400", "413", "415", "422", "503"} <= told["paths"]["/v1/trace"]["post"][
        "responses"
    ].keys()


def test_a_failing_model_does_not_end_the_server(tmp_path):
    script = """
import sys, torch
from nse import api, hub
from nse.serve import run
loaded = hub.load(sys.argv[1])
real, calls = loaded.model.forward, []
def sometimes(*args):
    calls.append(0)
    if len(calls) == 1:
        raise torch.OutOfMemoryError("no room in /secret/path")
    return real(*args)
loaded.model.forward = sometimes
run.serve(loaded, "127.0.0.1", 0, lambda address: print(address, flush=True))
"""
    command = [sys.executable, "-c", script, str(sentence_model(tmp_path / "mine"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        address = server.stdout.readline().strip()
        told = error(asked(address, "/v1/trace", {"texts": ["a"]}), 503)
        assert "secret" not in told
        assert asked(address, "/v1/trace", {"texts": ["a"]})[0] == 200
        server.terminate()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_it_is_told_to(model, stop):
    with running(model) as (address, server):
        assert asked(address, "/health/live")[0] == 200
        server.send_signal(stop)
        assert server.wait(timeout=20) in (-stop, 128 + stop, 0)
        with socket.socket() as line:
            host, port = address.removeprefix("http://").split(":")
            assert line.connect_ex((host, int(port))) != 0


def refused(*words):
    command = [sys.executable, "-m", "nse", "serve", *map(str, words)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.count("\n") == 1
    return answer.stderr


def test_what_cannot_be_served_says_why(model, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert "choose another --port" in refused(model, "--port", port)
    assert "has no memory" in refused(sentence_model(tmp_path / "lstm", encoder="lstm"), "--port", 0)
    assert "no such model" in refused("snil", "--port", 0)


@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 90])
def test_an_address_that_is_not_of_this_machine(host):
    with pytest.raises(InputError, match=f"cannot listen at {host}:0: .*; give an address of this machine"):
        bound(host, 0)


def test_without_fastapi_it_says_what_to_type(model, tmp_path):
    script = (
        "import sys; sys.modules['fastapi'] = None; import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'fastapi' else real(name, *a)\n"
        "from nse import cli; cli.main()"
    )
    command = [sys.executable, "-c", script, "serve", str(model)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert answer.returncode == 2
    assert "pip install 'neural-semantic-encoders[serve]'" in answer.stderr
