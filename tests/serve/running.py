"""The real server in its own process."""

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
def running(model, *words, first="", workers=1, **environment):
    """Serve a model at a free port; gives the address and the process.

    Args:
        first: Python to run in the process before the command.
    """
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
        server.told = lambda: written(log)
        try:
            line = server.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, written(log)
            yield found[0], server
        finally:
            server.terminate()
            server.communicate(timeout=30)


def children(pid):
    """The processes that a process has started, such as those in which a server computes."""
    below = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for some in below for child in some]


def resident(pid):
    """How many megabytes of memory a process and those that it has started have, what they share once."""
    found = 0.0
    for each in (pid, *children(pid)):
        text = Path(f"/proc/{each}/smaps_rollup").read_text()
        found += int(text.split("Pss:")[1].split()[0]) / 1024
    return found


def written(log):
    """What is in a file that another process writes to."""
    return os.pread(log.fileno(), 1 << 24, 0).decode()


def events(server, name, count=1, seconds=10):
    """The lines of the server's log of one kind, once there are so many; they come a little later."""
    end = time.monotonic() + seconds
    while True:
        lines = [json.loads(line) for line in server.told().splitlines() if line.startswith("{")]
        found = [line for line in lines if line["event"] == name]
        if len(found) >= count or time.monotonic() > end:
            return found
        time.sleep(0.02)


def asked(address, path, body=None, headers=None, method=None):
    """Status, headers and content of an answer."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(f"{address}{path}", data, given, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def told(answer, status=200):
    """What an answer says, as JSON, if it has this status."""
    assert answer[0] == status, answer[2]
    assert answer[1]["Content-Type"] == "application/json"
    return json.loads(answer[2])


def error(answer, status):
    """What an error says, if it has the one shape that all have."""
    found = told(answer, status)
    assert found.keys() == {"error"}
    assert found["error"].keys() == {"type", "message"}
    return found["error"]["message"]


def line_to(address):
    """A connection to the server."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def figure(address, name, headers=None):
    """A figure of /metrics, by its name and labels as Prometheus writes them."""
    lines = asked(address, "/metrics", headers=headers)[2].decode().splitlines()
    found = [float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name]
    return found[0] if found else 0.0
