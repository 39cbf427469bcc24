"""The real server in its own process."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager


@contextmanager
def running(model, *words):
    """Serve a model at a free port; gives the address and the process."""
    command = [sys.executable, "-m", "nse", "serve", str(model), "--port", "0", *words]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        line = server.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, server.stderr.read()
        yield found[0], server
    finally:
        server.terminate()
        server.communicate(timeout=30)


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
