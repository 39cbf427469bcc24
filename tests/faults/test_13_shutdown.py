"""Fault 13: told to stop with requests in flight: not ready first, they finish, nothing is left behind."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from serve.running import list_children, read_error, read_events, read_json, read_metric, run_server, send
from small_models import save_sentence_model

LONG = ["a good film " * 90 + "a " * number for number in range(96)]  # seconds of work, in three batches


@pytest.fixture
def server(tmp_path):
    folder = save_sentence_model(tmp_path / "mine", size=64)
    with run_server(folder, "--max-batch", 32, "--max-queue", 8) as found:
        yield found


def working(address):
    """Wait until something is computed."""
    end = time.monotonic() + 30
    while not read_metric(address, "nse_computing"):
        assert time.monotonic() < end


def gone(pids, seconds=10):
    """Whether processes end in time."""
    end = time.monotonic() + seconds
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_requests_in_flight_are_answered_before_shutdown(server):
    address, process = server
    engines = list_children(process.pid)
    assert engines
    asks = [("/v1/predict", {"texts": LONG}), ("/v1/encode", {"texts": ["good film"]})]
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(send, address, *asks[0])
        working(address)
        second = pool.submit(send, address, *asks[1])  # waits behind the first
        while not read_metric(address, "nse_queue_requests"):
            assert not second.done()
        process.send_signal(signal.SIGTERM)
        assert read_events(process, "stopping")[0]["signal"] == "SIGTERM"
        # From now on it says so, and takes nothing new.
        assert read_error(send(address, "/health/ready"), 503) == "the server is shutting down"
        assert read_json(send(address, "/health/live")) == {"status": "live"}
        refused = send(address, "/v1/predict", {"texts": ["good"]})
        assert "the server is shutting down" in read_error(refused, 503)
        assert refused[1]["Connection"] == "close"
        assert int(refused[1]["Retry-After"]) >= 1
        assert not first.done(), "it was too fast to see anything"
        # What was asked before is answered.
        answer = first.result(60)
        assert len(read_json(answer)["predictions"]) == len(LONG)
        assert answer[1]["Connection"] == "close"
        assert len(read_json(second.result(60))["vectors"]) == 1
    assert process.wait(30) == 143
    assert gone(engines)
    assert "Traceback" not in process.read_log()
    assert read_events(process, "stopped")[0]["finished"]
    with pytest.raises(OSError, match="refused"):
        send(address, "/health/live")


def test_a_second_signal_stops_immediately(server):
    address, process = server
    engines, ended = list_children(process.pid), []

    def ask():
        try:
            ended.append(read_error(send(address, "/v1/predict", {"texts": LONG}), 503))
        except OSError as lost:
            ended.append(lost)

    asking = threading.Thread(target=ask)
    asking.start()
    working(address)
    process.send_signal(signal.SIGINT)
    assert (
        read_events(process, "stopping")[0]["active"] >= 1
    )  # or two: the look at the figures may just be ending
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    asking.join(30)
    assert ended  # not with an answer
    assert gone(engines)
    assert "Traceback" not in process.read_log()


def test_worker_processes_ignore_signals_to_the_process_group(server):
    """As a terminal sends Ctrl-C, and a service manager SIGTERM: what was accepted is still answered."""
    address, process = server
    engines = list_children(process.pid)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, address, "/v1/predict", {"texts": LONG})
        working(address)
        for pid in (*engines, process.pid):
            os.kill(pid, signal.SIGTERM)
        assert len(read_json(first.result(60))["predictions"]) == len(LONG)
    assert process.wait(30) == 143
    assert gone(engines)


def test_a_killed_server_leaves_no_worker_process(server):
    _, process = server
    engines = list_children(process.pid)
    process.kill()
    process.wait(30)
    assert gone(engines)
