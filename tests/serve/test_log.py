"""The log: a line of JSON for each event, and nobody waits for it."""

import json
import logging
import threading

from nse.serve import log as logs
from nse.serve.log import IntoLog, Log
from serve.inside import inside
from serve.running import error
from small_models import sentence_model


def lines(content):
    return [json.loads(line) for line in content.decode().splitlines()]


def test_lines_are_written_in_their_order_and_at_the_end():
    written = []
    log = Log(written.append)
    log.start()
    for number in range(300):
        log.put("counted", number=number)
    log.close()
    found = lines(b"".join(written))
    assert [line["number"] for line in found] == list(range(300))
    assert {line["event"] for line in found} == {"counted"}
    assert len(written) < 300  # many at a time


def test_a_reader_that_stopped_reading_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(logs, "MOST_LINES", 50)
    monkeypatch.setattr(logs, "PERIOD", 0.001)
    stuck, inside_write = threading.Event(), threading.Event()

    def write(content):
        inside_write.set()
        assert stuck.wait(10)

    log = Log(write)
    log.start()
    log.put("first")
    assert inside_write.wait(10)
    for number in range(80):
        log.put("more", number=number)
    assert log.dropped == 30
    assert [json.loads(line)["number"] for line in log.lines] == list(range(30, 80))  # the oldest are dropped
    log.close(0.01)
    stuck.set()


def test_what_waits_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(logs, "MOST_BYTES", 10_000)
    monkeypatch.setattr(logs, "WRITTEN_AT_ONCE", 3000)
    written = []
    log = Log(written.append)
    for number in range(100):
        log.put("long", number=number, text="a" * 1000)
    log.put("longer", text="a" * 20_000)  # has no room of its own
    assert log.dropped + len(log.lines) == 101
    assert sum(map(len, log.lines)) == log.bytes <= 10_000
    assert log.dropped == 101
    for number in range(100, 120):
        log.put("long", number=number, text="ü" * 150)
    kept = [json.loads(line)["number"] for line in log.lines]
    assert kept == list(range(120 - len(kept), 120))  # the oldest are dropped
    assert 5 < len(kept) < 12
    log.flush()
    assert [line["number"] for line in lines(b"".join(written))] == kept
    assert max(map(len, written)) < 3000 + 1100
    assert log.bytes == len(log.lines) == 0


def test_what_libraries_say_is_a_line_too():
    written = []
    log = Log(written.append)
    logger = logging.Logger("other")
    logger.addHandler(IntoLog(log))
    logger.info("not of interest")
    logger.warning("mind the %s", "gap")
    try:
        raise ZeroDivisionError("by\nzero")
    except ZeroDivisionError:
        logger.exception("went wrong")
    log.flush()
    one, two = lines(b"".join(written))
    assert (one["event"], one["level"], one["message"]) == ("server", "warning", "mind the gap")
    assert (two["event"], two["error"], two["message"]) == ("error", "ZeroDivisionError", "went wrong")
    assert "by\nzero" in two["traceback"]


def test_requests_are_logged_without_their_texts_unless_they_are_wanted(tmp_path):
    secret = "a film about my neighbour"
    model = sentence_model(tmp_path / "mine")
    for log_texts in (False, True):
        written = []
        log = Log(written.append)
        with inside(model, log=log, log_texts=log_texts) as server:
            server.ask("/v1/predict", {"texts": [secret, "good"]}, {"X-Request-Id": "mine-1"})
            server.ask("/v1/predict", {"texts": [secret, ""]})
            server.ask("/v1/predict", {secret: [secret]})
            server.ask("/nowhere?" + secret.replace(" ", "+"))
        log.flush()
        one, two, three, four = lines(b"".join(written))
        assert (one["method"], one["path"], one["status"], one["rows"]) == ("POST", "/v1/predict", 200, 2)
        assert one["request"] == "mine-1"
        assert one["ms"] >= one["wait_ms"] > 0
        assert (two["status"], two["error"]) == (400, "invalid_text")
        assert (three["status"], three["error"]) == (422, "invalid_request")
        assert (four["status"], four["rows"]) == (404, 0)
        assert (secret in b"".join(written).decode()) == log_texts
        if log_texts:
            assert one["texts"] == [secret, "good"]


def test_requests_have_names(tmp_path):
    with inside(sentence_model(tmp_path / "mine")) as server:
        for name in ("abc", "A.b-c_9", "x" * 64):
            assert server.ask("/v1/model", headers={"X-Request-Id": name})[1]["X-Request-Id"] == name
        made = set()
        for name in ("", "x" * 65, "two words", "line\nbreak", "<script>", "ü"):
            answer = server.ask("/nowhere", headers={"X-Request-Id": name})
            assert error(answer, 404)
            made.add(answer[1]["X-Request-Id"])
        assert len(made) == 6
        assert all(len(name) == 16 and name.isalnum() for name in made)
