"""Fault 12: ten times the load: what was sent was served or told to come back, and the memory is flat."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from serve.running import connect, measure_memory, read_error, read_json, read_metric, run_server, send
from small_models import save_sentence_model

QUEUE, ROOM = 4, 5  # one is computed, the others wait
SLOW = {"texts": ["good bad film " * 300]}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server that computes one text at a time, and lets four requests wait."""
    folder = save_sentence_model(tmp_path_factory.mktemp("models") / "mine")
    with run_server(folder, "--max-queue", QUEUE, "--max-batch", 1, "--timeout", 60) as found:
        yield found


def burst(address, count):
    """So many at the same time; how often each status was answered, and the refusals."""
    together = threading.Barrier(count)

    def ask(_):
        together.wait()
        return send(address, "/v1/predict", SLOW)

    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(ask, range(count)))
    return Counter(answer[0] for answer in answers), [answer for answer in answers if answer[0] != 200]


def test_every_request_gets_an_answer_or_a_time_to_retry(small):
    address, server = small
    sent = 10 * ROOM
    burst(address, sent)
    before = measure_memory(server.pid)
    served = refused = 0
    for _ in range(4):
        statuses, refusals = burst(address, sent)
        assert statuses[200] + statuses[429] == sent
        assert statuses[200] >= ROOM
        assert statuses[429] > 0
        for refusal in refusals:
            assert int(refusal[1]["Retry-After"]) >= 1
            assert "too many requests are waiting: try again in" in read_error(refusal, 429)
        served, refused = served + statuses[200], refused + statuses[429]
    assert measure_memory(server.pid) < before + 20
    assert read_json(send(address, "/v1/predict", {"texts": ["good"]}))[
        "predictions"
    ]  # and then it is as before
    assert read_metric(address, "nse_queue_requests") == 0
    assert read_metric(address, 'nse_refused_total{reason="queue_full"}') >= refused
    assert read_metric(address, 'nse_requests_total{route="/v1/predict",status="200"}') >= served


def test_traces_wait_in_the_same_queue(small):
    address, _ = small
    asks = [("/v1/trace", {"texts": ["good bad film " * 60]}), ("/v1/predict", SLOW)] * 15
    with ThreadPoolExecutor(len(asks)) as pool:
        statuses = Counter(answer[0] for answer in pool.map(lambda ask: send(address, *ask), asks))
    assert statuses[200] + statuses[429] == len(asks)
    assert statuses[429] > 0


def test_requests_of_closed_connections_are_not_computed(tmp_path):
    slow = {"texts": ["good bad film " * 200 + "a " * number for number in range(32)]}
    body = json.dumps({"texts": ["good"]}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    gone = 'nse_requests_total{route="/v1/predict",status="499"}'
    with run_server(save_sentence_model(tmp_path / "mine", size=128), "--max-batch", 32) as (address, _):
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(send, address, "/v1/predict", slow)
            while not read_metric(address, "nse_computing"):
                assert not first.done(), "it was too fast to see anything"
            lines = [connect(address) for _ in range(4)]
            for line in lines:
                line.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            while read_metric(address, "nse_queue_requests") < len(lines):
                assert not first.done(), "it was too fast to see anything"
            for line in lines:
                line.close()
            while read_metric(address, gone) < len(lines):
                assert not first.done(), "who went away is still waited for"
            assert read_metric(address, "nse_queue_requests") == 0
            assert first.result()[0] == 200
        assert read_metric(address, "nse_texts_total") == len(slow["texts"])


def test_slow_senders_do_not_delay_others(tmp_path):
    """Whether the head or the body of a request does not come: others are served, and it ends in time."""
    with run_server(save_sentence_model(tmp_path / "mine"), "--timeout", 1) as (address, _):
        lines = [connect(address) for _ in range(3)]
        lines[0].sendall(b"")
        lines[1].sendall(b"POST /v1/predict HTTP/1.1\r\nHost: loc")
        lines[2].sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert send(address, "/v1/predict", {"texts": ["good"]})[0] == 200
        answers = [line.makefile("rb").read() for line in lines]  # until the server closes them
        for line in lines:
            line.close()
        assert answers[:2] == [b"", b""]
        head, _, body = answers[2].partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["error"]["type"] == "too_slow"
