"""The log, which never blocks, and the Prometheus metrics."""

import json
import logging
import threading

from prometheus_client.parser import text_string_to_metric_families

from nse.serve import observe as logs
from nse.serve.observe import Log, LogHandler
from serve.inside import serve_inside
from serve.running import read_error
from small_models import save_sentence_model


def lines(content):
    return [json.loads(line) for line in content.decode().splitlines()]


def test_lines_are_written_in_order_and_flushed_at_the_end():
    written = []
    log = Log(written.append)
    log.thread.start()
    for number in range(300):
        log.put("counted", number=number)
    log.close()
    logged = lines(b"".join(written))
    assert [line["number"] for line in logged] == list(range(300))
    assert {line["event"] for line in logged} == {"counted"}
    assert len(written) < 300  # many at a time


def test_a_stopped_reader_of_the_log_blocks_nothing(monkeypatch):
    monkeypatch.setattr(logs, "MAX_LINES", 50)
    monkeypatch.setattr(logs, "WRITE_PERIOD", 0.001)
    stuck, inside_write = threading.Event(), threading.Event()

    def write(content):
        inside_write.set()
        assert stuck.wait(10)

    log = Log(write)
    log.thread.start()
    log.put("first")
    assert inside_write.wait(10)
    for number in range(80):
        log.put("more", number=number)
    assert log.dropped == 30
    assert [json.loads(line)["number"] for line in log.lines] == list(range(30, 80))  # the oldest are dropped
    log.close(0.01)
    stuck.set()


def test_the_waiting_lines_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 10_000)
    monkeypatch.setattr(logs, "WRITE_BYTES", 3000)
    written = []
    log = Log(written.append)
    for number in range(100):
        log.put("long", number=number, text="a" * 1000)
    log.put("longer", text="a" * 20_000)  # longer than the bound
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


def test_warnings_of_libraries_are_log_lines():
    written = []
    log = Log(written.append)
    logger = logging.Logger("other")
    logger.addHandler(LogHandler(log))
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


def test_requests_are_logged_without_texts_by_default(tmp_path):
    secret = "a film about my neighbour"
    model = save_sentence_model(tmp_path / "mine")
    for log_texts in (False, True):
        written = []
        log = Log(written.append)
        with serve_inside(model, log=log, log_texts=log_texts) as server:
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


def test_a_request_keeps_its_valid_id_or_gets_one(tmp_path):
    with serve_inside(save_sentence_model(tmp_path / "mine")) as server:
        for name in ("abc", "A.b-c_9", "x" * 64):
            assert server.ask("/v1/model", headers={"X-Request-Id": name})[1]["X-Request-Id"] == name
        made = set()
        for name in ("", "x" * 65, "two words", "line\nbreak", "<script>", "ü"):
            answer = server.ask("/nowhere", headers={"X-Request-Id": name})
            assert read_error(answer, 404)
            made.add(answer[1]["X-Request-Id"])
        assert len(made) == 6
        assert all(len(name) == 16 and name.isalnum() for name in made)


def read_metrics(server):
    """Return all metrics by name and labels."""
    status, headers, body = server.ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    samples = (each for family in text_string_to_metric_families(body.decode()) for each in family.samples)
    return {(each.name, *each.labels.values()): each.value for each in samples}


def test_metrics_count_requests_texts_batches_and_refusals(tmp_path):
    model = save_sentence_model(tmp_path / "mine")
    with serve_inside(model) as server, serve_inside(model, max_queue=1) as other:
        before = read_metrics(server)
        assert before["nse_refused_total", "queue_full"] == 0
        assert before["nse_ready",] == 1
        for texts in (["a"], ["good", "bad"], [""]):
            server.ask("/v1/predict", {"texts": texts})
        server.ask("/no/such/path")
        server.app.draining = True
        server.ask("/v1/predict", {"texts": ["a"]})
        metrics = read_metrics(server)
        assert metrics["nse_requests_total", "/v1/predict", "200"] == 2
        assert metrics["nse_requests_total", "/v1/predict", "400"] == 1
        assert metrics["nse_requests_total", "/v1/predict", "503"] == 1
        assert metrics["nse_requests_total", "other", "404"] == 1
        assert metrics["nse_request_seconds_count", "/v1/predict"] == 4
        assert metrics["nse_batch_rows_count",] == 3
        assert metrics["nse_batch_rows_sum",] == metrics["nse_texts_total",] == 4
        assert metrics["nse_refused_total", "draining"] == 1
        assert metrics["nse_ready",] == 0
        assert metrics["nse_queue_requests",] == metrics["nse_computing",] == 0
        assert metrics["process_resident_memory_bytes",] > 1e6
        other_metrics = read_metrics(other)  # each server has its own
        assert ("nse_requests_total", "/v1/predict", "200") not in other_metrics
        assert [key for key in metrics if key[0] == "nse_model_info"]
