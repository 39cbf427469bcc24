"""Access to the server: API keys, disconnected clients, internal errors."""

import json

import pytest

from nse.serve.observe import Log
from nse.serve.settings import ApiKeys
from serve.inside import serve_inside
from serve.running import read_error, read_json
from small_models import save_sentence_model

KEY, OTHER = "correct-horse-battery", "another-key-0123456789"


@pytest.fixture
def model(tmp_path):
    return save_sentence_model(tmp_path / "mine")


def test_with_api_keys_only_health_checks_are_open(model):
    written = []
    log = Log(written.append)
    with serve_inside(model, keys=ApiKeys([KEY, OTHER]), log=log) as server:
        for path in ("/health/live", "/health/ready"):
            assert server.ask(path)[0] == 200
        wrong = [
            {},
            {"Authorization": f"Bearer {KEY}x"},
            {"Authorization": f"Basic {KEY}"},
            {"X-API-Key": ""},
        ]
        wrong += [{"Authorization": "Bearer"}, {"Authorization": KEY}, {"X-API-Key": KEY[:-1]}]
        for path in (
            "/",
            "/page/app.js",
            "/v1/model",
            "/metrics",
            "/openapi.json",
            "/nowhere",
            "/v1/predict",
        ):
            body = {"texts": ["a"]} if path == "/v1/predict" else None
            for headers in wrong:
                answer = server.ask(path, body, headers)
                assert "Authorization: Bearer KEY" in read_error(answer, 401)
                assert answer[1]["Www-Authenticate"] == "Bearer"
        right = [
            {"Authorization": f"Bearer {KEY}"},
            {"authorization": f"bearer  {OTHER} "},
            {"X-API-Key": KEY},
        ]
        for headers in right:
            assert server.ask("/v1/predict", {"texts": ["a"]}, headers)[0] == 200
            assert server.ask("/metrics", None, headers)[0] == 200
            assert server.ask("/nowhere", None, headers)[0] == 404
        openapi = read_json(server.ask("/openapi.json", None, right[0]))
        for path, operations in openapi["paths"].items():
            for operation in operations.values():
                assert ("401" in operation["responses"]) == (not path.startswith("/health/"))
                assert ("security" in operation) == (not path.startswith("/health/"))
    log.flush()
    assert KEY not in b"".join(written).decode()
    assert OTHER not in b"".join(written).decode()


def test_a_wrong_key_is_refused_before_the_body_is_read(model):
    with serve_inside(model, keys=ApiKeys([KEY])) as server:
        answer = server.ask("/v1/predict", parts=[b"x" * 1000, None])  # then the client disconnects
        assert read_error(answer, 401)
        assert answer[1]["Connection"] == "close"


def test_a_body_may_arrive_in_pieces(model):
    body = json.dumps({"texts": ["a good film"]}).encode()
    with serve_inside(model) as server:
        answer = server.ask("/v1/predict", parts=[body[at : at + 5] for at in range(0, len(body), 5)])
        assert read_json(answer)["predictions"][0]["words"] == 3


def test_a_client_that_disconnects_has_status_499(model):
    with serve_inside(model) as server:
        assert server.ask("/v1/predict", parts=[b'{"texts": ', None])[0] == 499
        assert server.app.active == 0


def test_an_internal_error_is_a_500_and_is_logged(model, monkeypatch):
    written = []
    log = Log(written.append)
    with serve_inside(model, log=log) as server:
        monkeypatch.setattr(server.app, "explain_unready", lambda: {}["no such key"])
        answer = server.ask("/health/ready")
        assert read_error(answer, 500) == "internal server error; see the log of the server"
        assert answer[1]["X-Content-Type-Options"] == "nosniff"
        monkeypatch.undo()
        assert server.ask("/health/ready")[0] == 200
        assert server.app.active == 0
    log.flush()
    lines = [json.loads(line) for line in b"".join(written).decode().splitlines()]
    [line] = [line for line in lines if line["event"] == "error"]
    assert line["error"] == "KeyError"
    assert "no such key" in line["traceback"]


def test_a_dead_worker_thread_makes_the_server_unready_but_live(model):
    with serve_inside(model) as server:
        assert server.app.batcher.stop(10)
        assert "restart the server" in read_error(server.ask("/health/ready"), 503)
        assert read_json(server.ask("/health/live")) == {"status": "live"}
