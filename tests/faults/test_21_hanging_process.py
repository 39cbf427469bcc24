"""Fault 21: a process that computes hangs: its requests get 504, others an answer, and it is replaced."""

import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from faults.test_13_shutdown import gone
from faults.test_17_model_folder_changes import engines, until
from serve.running import read_error, read_events, read_json, read_metric, run_server, send
from small_models import save_sentence_model

TEXT = {"texts": ["a good film"]}


def status(address):
    return send(address, "/v1/predict", TEXT)[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with two processes and a short time limit, and the program that starts others."""
    folder = tmp_path_factory.mktemp("hangs")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    first = f"import multiprocessing; multiprocessing.set_executable({str(python)!r})"
    model = save_sentence_model(folder / "mine")
    with run_server(model, "--timeout", 2, "--max-batch", 1, workers=2, first=first) as (address, server):
        yield address, server, python


def test_a_hanging_worker_is_replaced_and_others_answer(served):
    address, server, _ = served
    until(lambda: read_metric(address, "nse_engines") == 2)
    count, (stuck, _) = read_metric(address, "nse_engines_replaced"), engines(server)
    os.kill(stuck, signal.SIGSTOP)
    statuses = Counter()
    with ThreadPoolExecutor(4) as pool:
        while read_metric(address, "nse_engines") == 2:
            statuses.update(pool.map(lambda _: status(address), range(8)))
            assert send(address, "/health/ready")[0] == 200  # the other one answers
    assert statuses.keys() == {200, 504}
    assert statuses[504] == 1  # it had one text
    until(lambda: read_metric(address, "nse_engines") == 2)
    assert read_metric(address, "nse_engines_replaced") == count + 1
    assert stuck not in engines(server)
    assert status(address) == 200
    line = read_events(server, "engine_lost")[-1]
    assert (line["process"], line["reason"], line["code"]) == (stuck, "did not answer", -9)


def test_a_worker_that_fails_to_start_is_retried(served):
    """All are killed while no other can be started; once that is possible, nobody has to ask for it."""
    address, server, python = served
    count = int(read_metric(address, "nse_engines_replaced"))
    assert read_json(send(address, "/health/ready")) == {"status": "ready"}
    away = python.rename(python.with_name("away"))
    for engine in engines(server):
        os.kill(engine, signal.SIGKILL)
    until(lambda: send(address, "/health/ready")[0] == 503)
    assert "are being replaced" in read_error(send(address, "/health/ready"), 503)
    assert read_metric(address, "nse_engines") == read_metric(address, "nse_ready") == 0
    assert status(address) == 504  # it waited for one as long as it may
    assert read_json(send(address, "/health/live")) == {"status": "live"}
    away.rename(python)
    until(lambda: send(address, "/health/ready")[0] == 200)
    assert status(address) == 200
    until(lambda: read_metric(address, "nse_engines") == 2)
    lines = read_events(server, "error", 2)
    message = "cannot start a worker process; trying again"
    assert [line["message"] for line in lines] == [message] * 2
    assert all(line["tries"] > 1 for line in read_events(server, "engine_replaced", count + 2)[count:])


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_hanging_workers_end_with_the_server(stop, tmp_path):
    with run_server(save_sentence_model(tmp_path / "mine"), "--timeout", 1, workers=2) as (address, server):
        assert status(address) == 200
        computing = engines(server)
        for engine in computing:
            os.kill(engine, signal.SIGSTOP)
        begun = time.monotonic()
        server.send_signal(stop)
        assert server.wait(30) == (143 if stop == signal.SIGTERM else -9)
        assert time.monotonic() - begun < 10  # 5, and time for a busy machine
        assert gone(computing)


@pytest.mark.slow  # it waits, for five seconds and more
def test_idle_workers_that_hang_are_replaced(tmp_path):
    with run_server(save_sentence_model(tmp_path / "mine"), "--timeout", 0.5) as (address, server):
        os.kill(*engines(server), signal.SIGSTOP)
        until(lambda: send(address, "/health/ready")[0] == 503)
        until(lambda: send(address, "/health/ready")[0] == 200)
        assert status(address) == 200
