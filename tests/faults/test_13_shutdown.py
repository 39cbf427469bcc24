"""Fault 13: told to stop with requests in flight: not ready first, they finish, nothing is left behind."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve.running import asked, error, events, figure, running, told
from test_api import sentence_model

LONG = ["a good film " * 90 + "a " * number for number in range(96)]  # seconds of work, in three batches


@pytest.fixture
def server(tmp_path):
    folder = sentence_model(tmp_path / "mine", size=64)
    with running(folder, "--max-batch", 32, "--max-queue", 8) as found:
        yield found


def working(address):
    """Wait until something is computed."""
    end = time.monotonic() + 30
    while not figure(address, "nse_computing"):
        assert time.monotonic() < end


def children(pid):
    """Processes and threads of a process."""
    tasks = Path(f"/proc/{pid}/task")
    below = [path.read_text().split() for path in tasks.glob("*/children")]
    return [child for some in below for child in some]


def test_requests_in_flight_finish(server):
    address, process = server
    asks = [("/v1/predict", {"texts": LONG}), ("/v1/encode", {"texts": ["good film"]})]
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(asked, address, *asks[0])
        working(address)
        second = pool.submit(asked, address, *asks[1])  # waits behind the first
        while not figure(address, "nse_queue_requests"):
            assert not second.done()
        process.send_signal(signal.SIGTERM)
        assert events(process, "stopping")[0]["signal"] == "SIGTERM"
        # From now on it says so, and takes nothing new.
        assert error(asked(address, "/health/ready"), 503) == "the server is about to stop"
        assert told(asked(address, "/health/live")) == {"status": "live"}
        refused = asked(address, "/v1/predict", {"texts": ["good"]})
        assert "about to stop" in error(refused, 503)
        assert refused[1]["Connection"] == "close"
        assert int(refused[1]["Retry-After"]) >= 1
        assert not first.done(), "it was too fast to see anything"
        # What was asked before is answered.
        answer = first.result(60)
        assert len(told(answer)["predictions"]) == len(LONG)
        assert answer[1]["Connection"] == "close"
        assert len(told(second.result(60))["vectors"]) == 1
    assert process.wait(30) == 143
    assert "Traceback" not in process.told()
    assert events(process, "stopped")[0]["finished"]
    with pytest.raises(OSError, match="refused"):
        asked(address, "/health/live")


def test_a_second_signal_does_not_wait(server):
    address, process = server
    assert children(process.pid) == []  # there is nobody that could be left behind
    ended = []

    def ask():
        try:
            ended.append(error(asked(address, "/v1/predict", {"texts": LONG}), 503))
        except OSError as lost:
            ended.append(lost)

    asking = threading.Thread(target=ask)
    asking.start()
    working(address)
    process.send_signal(signal.SIGINT)
    assert events(process, "stopping")[0]["active"] == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    asking.join(30)
    assert ended  # not with an answer
    assert not os.path.exists(f"/proc/{process.pid}/task")
    assert "Traceback" not in process.told()
