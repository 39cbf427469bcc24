"""How many pairs a second are answered over HTTP, beside the same pairs without it.

    python benchmarks/http_speed.py [--pairs FILE]

First a process of its own answers the pairs in batches, as `nse predict` does with a file. Then the real
server is started and 32 connections on loopback send one pair after the other, each the next one as soon as
it is answered. FILE has a JSON object on each line, with a premise and a hypothesis; without it, sentences
are made up.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from nse.files import write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CLIENTS, BATCH = 32, 128

WORDS = """
a the two three in on near with and is are of at by for an his her some people
man woman boy girl child dog cat crowd player singer worker horse shirt hat ball guitar bike boat
red blue old young tall small wet busy sleeping smiling running sitting street beach snow park outside
"""
"""Of sentences that are made up."""

Pair = tuple[str, str]
Heard = Callable[[int, float], None]
"""Takes the status of an answer and how many seconds it took."""

ALONE = """
import json, sys, time
import nse
model, seconds, batch = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
pairs = [tuple(each) for each in json.load(sys.stdin)]
loaded = nse.load(model)
loaded.predict(pairs[: 4 * batch], batch)
begun, cpu, done = time.perf_counter(), time.process_time(), 0
while time.perf_counter() < begun + seconds:
    done += len(loaded.predict(pairs[done % len(pairs) :][: 8 * batch], batch))
spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
print(json.dumps({"pairs_per_second": done / spent, "cpu_ms_per_pair": 1000 * cpu / done}))
"""
"""A process that answers without a server."""


def read_pairs(file: Path | None, most: int = 8192) -> list[Pair]:
    """The pairs of a file, or made-up ones of lengths as people write them."""
    if file:
        with file.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line, _ in zip(lines, range(most), strict=False)]
        return [(row["premise"], row["hypothesis"]) for row in rows]
    rng = random.Random(0)
    known = re.findall(r"\w+", WORDS)

    def sentence(words: float) -> str:
        length = max(2, round(rng.gauss(words, words / 3)))
        return " ".join(rng.choice(known) for _ in range(length)) + "."

    return [(sentence(13), sentence(7.5)) for _ in range(most // 2)]


def as_request(pair: Pair) -> bytes:
    """A pair as it goes over the line."""
    body = json.dumps({"texts": [pair]}).encode()
    head = f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """A connection that is kept; it does as little as a client can.

    Args:
        heard: Called for each answer.
    """

    def __init__(self, heard: Heard):
        self.heard = heard
        self.rest = b""
        self.sent = 0.0
        self.transport: Any = None
        self.next: Callable[[], None] | None = None
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        """Keep the line."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the line is gone."""
        self.lost = True

    def send(self, request: bytes) -> None:
        """Ask."""
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take an answer, once it is whole."""
        self.rest += data
        end = self.rest.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        at = self.rest.index(b"content-length: ") + 16
        if len(self.rest) < end + int(self.rest[at : self.rest.index(b"\r", at)]):
            return
        status, self.rest = int(self.rest[9:12]), b""
        self.heard(status, time.perf_counter() - self.sent)
        if self.next:
            self.next()


async def closed_loop(port: int, requests: Iterator[bytes], clients: int, seconds: float) -> list[float]:
    """So many clients, each of which asks again as soon as it is answered; how long each answer took."""
    loop, times, end = asyncio.get_running_loop(), [], time.perf_counter() + seconds
    done, open_ones = asyncio.Event(), clients

    def heard(status: int, took: float) -> None:
        if status != 200:
            raise SystemExit(f"the server answered {status}")
        times.append(took)

    def go_on(client: Client) -> None:
        nonlocal open_ones
        if time.perf_counter() < end:
            client.send(next(requests))
            return
        open_ones -= 1
        client.transport.close()
        if not open_ones:
            done.set()

    for _ in range(clients):
        _, client = await loop.create_connection(lambda: Client(heard), "127.0.0.1", port)
        client.next = lambda client=client: go_on(client)  # type: ignore[misc]
        go_on(client)
    await done.wait()
    return times


@contextmanager
def server(model: str, *options: str) -> Iterator[tuple[int, int]]:
    """The real server in a process of its own: its port and its process."""
    command = [sys.executable, "-m", "nse", "serve", model, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield int(re.findall(r"http://\S+:(\d+)", process.stdout.readline())[0]), process.pid
    finally:
        process.terminate()
        process.wait(30)


def family(pid: int) -> list[int]:
    """A process and those that it has started."""
    below = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(int(child) for some in below for child in some)]


def cpu_seconds(pid: int) -> float:
    """What a process and those that it has started have computed so far."""
    ticks = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def quantile(times: list[float], share: float) -> float:
    """In milliseconds, what a share of the answers took at the most."""
    return 1000 * sorted(times)[min(len(times) - 1, int(share * len(times)))]


def about() -> dict[str, Any]:
    """Of the machine and the versions."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"cores": os.cpu_count(), "python": platform.python_version()}
    for name in ("neural-semantic-encoders", "torch", "uvicorn", "fastapi", "httptools", "uvloop"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def main() -> None:
    """Measure both, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "http.json")
    parser.add_argument("--serve", default="", help="options of nse serve, in one word")
    given = parser.parse_args()
    pairs = read_pairs(given.pairs)
    words = [sys.executable, "-c", ALONE, given.model, str(given.seconds), str(BATCH)]
    answer = subprocess.run(words, input=json.dumps(pairs), capture_output=True, text=True, check=True)
    alone = json.loads(answer.stdout)
    requests = cycle([as_request(pair) for pair in pairs])
    with server(given.model, *given.serve.split()) as (port, pid):
        asyncio.run(closed_loop(port, requests, given.clients, min(5.0, given.seconds)))  # to warm up
        before, mine, begun = cpu_seconds(pid), time.process_time(), time.perf_counter()
        times = asyncio.run(closed_loop(port, requests, given.clients, given.seconds))
        spent = time.perf_counter() - begun
        over_http = {
            "pairs_per_second": len(times) / spent,
            "p50_ms": quantile(times, 0.5),
            "p99_ms": quantile(times, 0.99),
            "cpu_ms_per_pair": 1000 * (cpu_seconds(pid) - before) / len(times),
            "client_cpu_ms_per_pair": 1000 * (time.process_time() - mine) / len(times),
            "pairs": len(times),
        }
    result = {
        "model": given.model,
        "clients": given.clients,
        "seconds": given.seconds,
        "pairs_of": given.pairs.name if given.pairs else "made up",
        "options": given.serve,
        "http": over_http,
        "alone": {**alone, "batch": BATCH},
        "share": over_http["pairs_per_second"] / alone["pairs_per_second"],
        **about(),
    }
    write(given.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
