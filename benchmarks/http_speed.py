"""How many pairs a second are answered over HTTP, beside the same pairs from a file.

    python benchmarks/http_speed.py [--pairs FILE]

In turns, `nse predict` answers all pairs of a file, from the start of its process to its end, and 32
connections on loopback send the real server one pair after the other, each the next one as soon as it is
answered. FILE has a JSON object on each line, with a premise and a hypothesis; without it, sentences are made
up.
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
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from nse.files import write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CLIENTS = 32

WORDS = """
a the two three in on near with and is are of at by for an his her some people
man woman boy girl child dog cat crowd player singer worker horse shirt hat ball guitar bike boat
red blue old young tall small wet busy sleeping smiling running sitting street beach snow park outside
"""
"""Of sentences that are made up."""

Pair = tuple[str, str]
Heard = Callable[[int, float], None]
"""Takes the status of an answer and how many seconds it took."""


def read_pairs(file: Path | None, most: int = 10_000) -> list[Pair]:
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
def server(model: str, *options: str, python: str = sys.executable) -> Iterator[tuple[int, int]]:
    """The real server in a process of its own: its port and its process."""
    command = [python, "-m", "nse", "serve", model, "--port", "0", *options]
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
    for name in ("neural-semantic-encoders", "torch", "uvicorn", "starlette", "httptools", "uvloop"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def from_a_file(model: str, pairs: list[Pair], folder: Path, python: str = sys.executable) -> float:
    """Pairs a second of `nse predict`, the whole process."""
    file = folder / "pairs.jsonl"
    rows = [{"premise": premise, "hypothesis": hypothesis} for premise, hypothesis in pairs]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    words = [python, "-m", "nse", "predict", model, "--file", str(file)]
    begun = time.perf_counter()
    subprocess.run([*words, "--out", str(folder / "answers.jsonl")], check=True, stderr=subprocess.DEVNULL)
    return len(pairs) / (time.perf_counter() - begun)


def over_http(port: int, pid: int, requests: Iterator[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Pairs a second of the server, how long each took, and what server and clients computed."""
    before, mine, begun = cpu_seconds(pid), time.process_time(), time.perf_counter()
    times = asyncio.run(closed_loop(port, requests, clients, seconds))
    return {
        "times": times,
        "pairs_per_second": len(times) / (time.perf_counter() - begun),
        "cpu_ms_per_pair": 1000 * (cpu_seconds(pid) - before) / len(times),
        "client_cpu_ms_per_pair": 1000 * (time.process_time() - mine) / len(times),
    }


def main() -> None:
    """Measure both, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "http.json")
    parser.add_argument("--serve", default="", help="options of nse serve, in one word")
    given = parser.parse_args()
    pairs = read_pairs(given.pairs)
    requests = cycle([as_request(pair) for pair in pairs])
    files, rounds = [], []
    with TemporaryDirectory() as place, server(given.model, *given.serve.split()) as (port, pid):
        over_http(port, pid, requests, given.clients, min(5.0, given.seconds))  # to warm up
        for _ in range(given.rounds):
            files.append(from_a_file(given.model, pairs, Path(place)))
            rounds.append(over_http(port, pid, requests, given.clients, given.seconds))
    times = [each for row in rounds for each in row.pop("times")]
    middle = {name: median(row[name] for row in rounds) for name in rounds[0]}
    result = {
        "model": given.model,
        "clients": given.clients,
        "seconds": given.seconds,
        "pairs_of": given.pairs.name if given.pairs else "made up",
        "options": given.serve,
        "http": {
            **middle,
            "p50_ms": quantile(times, 0.5),
            "p99_ms": quantile(times, 0.99),
            "pairs": len(times),
        },
        "file": {"pairs": len(pairs), "pairs_per_second": median(files)},
        "rounds": {"http": [row["pairs_per_second"] for row in rounds], "file": files},
        "share": middle["pairs_per_second"] / median(files),
        **about(),
    }
    write_text(given.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
