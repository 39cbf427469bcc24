"""Fault 20: connections that are opened and left alone lock nobody out; nobody waits for them without end."""

import pytest

from serve.running import connect, read_events, read_metric, run_server, send
from small_models import save_sentence_model

FILES = 256
FEW = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_sentence_model(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture(scope="module")
def small(folder):
    """A server that may open few files."""
    with run_server(folder, first=FEW) as found:
        yield found


HALVES = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: loc",
    "half a body": b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    "a request, and nothing more": b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\r\n\r\n",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_too_many_connections_are_refused(small, half):
    """The oldest are closed, and whoever asks is answered; it is counted, and the log has one line of it."""
    address, process = small
    before = read_metric(address, "nse_connections_crowded_out_total")
    lines = []
    try:
        for number in range(2 * FILES):
            lines.append(connect(address))
            lines[-1].sendall(half)
            if number % 64 == 0:
                assert send(address, "/v1/predict", {"texts": ["good"]})[0] == 200
        assert send(address, "/v1/predict", {"texts": ["good"]})[0] == 200
        assert read_metric(address, "nse_connections_crowded_out_total") > before + FILES / 2
        assert FILES / 4 < read_metric(address, "nse_connections") < FILES
        assert read_metric(address, "process_open_fds") < FILES
    finally:
        for line in lines:
            line.close()
    [line] = read_events(process, "crowded")
    assert "the oldest without a request are closed; see ulimit -n" in line["message"]
    assert "Too many open files" not in process.read_log()


def test_clients_that_do_not_read_their_answer_are_disconnected(folder):
    with run_server(folder, "--timeout", 1) as (address, _), connect(address) as line:
        line.settimeout(0.5)
        with pytest.raises(OSError, match=r"timed out|reset|Broken pipe"):  # noqa: PT012
            while True:
                line.sendall(b"GET /page/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        while read_metric(address, "nse_connections") > 1:  # its own
            pass
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                line.sendall(b"\r\n")
