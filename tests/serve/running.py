"""A server in its own process, and requests to it."""

import json
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import forking


@contextmanager
def run_server(model, *words, first="", workers=1, **environment):
    """Serve a model at a free port, after running the Python code `first`; yield address and process."""
    command = ["-m", "nse", "serve", str(model), "--port", "0", "--workers", str(workers)]
    with tempfile.TemporaryFile() as log:
        server = forking.Popen(
            [*command, *words],
            first=first,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **environment},
        )
        server.read_log = lambda: read_file(log)
        try:
            line = server.stdout.readline()
            match = re.search(r"http://\S+", line)
            assert match, read_file(log)
            yield match[0], server
        finally:
            server.terminate()
            server.communicate(timeout=30)


def list_children(pid):
    """Return the child processes of a process, such as the workers of a server."""
    below = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for line in below for child in line]


def measure_memory(pid):
    """Return the memory of a process and its children in megabytes; shared memory counts once."""
    texts = (Path(f"/proc/{process}/smaps_rollup").read_text() for process in (pid, *list_children(pid)))
    return sum(int(text.split("Pss:")[1].split()[0]) / 1024 for text in texts)


def read_file(log):
    """Return the contents of a file that another process writes."""
    return os.pread(log.fileno(), 1 << 24, 0).decode()


def read_events(server, name, count=1, seconds=10):
    """Wait for a number of log lines of an event, and return them."""
    end = time.monotonic() + seconds
    while True:
        lines = [json.loads(line) for line in server.read_log().splitlines() if line.startswith("{")]
        matches = [line for line in lines if line["event"] == name]
        if len(matches) >= count or time.monotonic() > end:
            return matches
        time.sleep(0.02)


def send(address, path, body=None, headers=None, method=None):
    """Send a request; return status, headers and content of the answer."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(f"{address}{path}", data, all_headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def read_json(answer, status=200):
    """Check the status of an answer, and parse its JSON."""
    assert answer[0] == status, answer[2]
    assert answer[1]["Content-Type"] == "application/json"
    return json.loads(answer[2])


def read_error(answer, status):
    """Check the status and the form of an error, and return its message."""
    content = read_json(answer, status)
    assert content.keys() == {"error"}
    assert content["error"].keys() == {"type", "message"}
    return content["error"]["message"]


def connect(address):
    """Connect to the server."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def read_metric(address, name, headers=None):
    """Return a metric by its name and labels, as Prometheus writes them."""
    lines = send(address, "/metrics", headers=headers)[2].decode().splitlines()
    values = [float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name]
    return values[0] if values else 0.0
