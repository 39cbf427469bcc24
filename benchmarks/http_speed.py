"""Measure pairs per second over HTTP and from a file.

    python benchmarks/http_speed.py [--pairs FILE]

In alternating rounds, `nse predict` answers all pairs of a file (the whole process counts), and 32 clients on
loopback send the real server one pair after the other. FILE has a JSON object with premise and hypothesis on
each line; without it, sentences are generated.
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
"""Words of generated sentences."""

Pair = tuple[str, str]
OnAnswer = Callable[[int, float], None]
"""Callback with the status of an answer and its latency in seconds."""


def read_pairs(file: Path | None, max_pairs: int = 10_000) -> list[Pair]:
    """Read the pairs of a file, or generate pairs of realistic lengths."""
    if file:
        with file.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line, _ in zip(lines, range(max_pairs), strict=False)]
        return [(row["premise"], row["hypothesis"]) for row in rows]
    rng = random.Random(0)
    vocabulary = re.findall(r"\w+", WORDS)

    def make_sentence(mean_length: float) -> str:
        length = max(2, round(rng.gauss(mean_length, mean_length / 3)))
        return " ".join(rng.choice(vocabulary) for _ in range(length)) + "."

    return [(make_sentence(13), make_sentence(7.5)) for _ in range(max_pairs // 2)]


def encode_request(pair: Pair) -> bytes:
    """Return the HTTP request of a pair."""
    body = json.dumps({"texts": [pair]}).encode()
    head = f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """Client with a keep-alive connection; it parses as little of an answer as possible.

    Args:
        on_answer: Called for each answer.
    """

    def __init__(self, on_answer: OnAnswer):
        self.on_answer = on_answer
        self.received = b""
        self.send_time = 0.0
        self.transport: Any = None
        self.next: Callable[[], None] | None = None
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed."""
        self.lost = True

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.send_time = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Report an answer once it is complete."""
        self.received += data
        end = self.received.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        at = self.received.index(b"content-length: ") + 16
        if len(self.received) < end + int(self.received[at : self.received.index(b"\r", at)]):
            return
        status, self.received = int(self.received[9:12]), b""
        self.on_answer(status, time.perf_counter() - self.send_time)
        if self.next:
            self.next()


async def run_closed_loop(port: int, requests: Iterator[bytes], clients: int, seconds: float) -> list[float]:
    """Run clients that each send the next request after an answer; return the latencies in seconds."""
    loop, times, end = asyncio.get_running_loop(), [], time.perf_counter() + seconds
    done, open_clients = asyncio.Event(), clients

    def record_answer(status: int, latency: float) -> None:
        if status != 200:
            raise SystemExit(f"the server answered {status}")
        times.append(latency)

    def send_next(client: Client) -> None:
        nonlocal open_clients
        if time.perf_counter() < end:
            client.send(next(requests))
            return
        open_clients -= 1
        client.transport.close()
        if not open_clients:
            done.set()

    for _ in range(clients):
        _, client = await loop.create_connection(lambda: Client(record_answer), "127.0.0.1", port)
        client.next = lambda client=client: send_next(client)  # type: ignore[misc]
        send_next(client)
    await done.wait()
    return times


@contextmanager
def start_server(model: str, *options: str, python: str = sys.executable) -> Iterator[tuple[int, int]]:
    """Start the server in its own process; yield its port and process id."""
    command = [python, "-m", "nse", "serve", model, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield int(re.findall(r"http://\S+:(\d+)", process.stdout.readline())[0]), process.pid
    finally:
        process.terminate()
        process.wait(30)


def list_processes(pid: int) -> list[int]:
    """Return the ids of a process and its children."""
    children = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(int(child) for pids in children for child in pids)]


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its children so far."""
    ticks = 0
    for process_id in list_processes(pid):
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def compute_quantile_ms(times: list[float], fraction: float) -> float:
    """Return a quantile of seconds, in milliseconds."""
    return 1000 * sorted(times)[min(len(times) - 1, int(fraction * len(times)))]


def describe_versions() -> dict[str, Any]:
    """Return the number of cores and the versions."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"cores": os.cpu_count(), "python": platform.python_version()}
    for name in ("neural-semantic-encoders", "torch", "uvicorn", "starlette", "httptools", "uvloop"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def measure_file(model: str, pairs: list[Pair], folder: Path, python: str = sys.executable) -> float:
    """Return pairs per second of `nse predict`, including the start of its process."""
    file = folder / "pairs.jsonl"
    rows = [{"premise": premise, "hypothesis": hypothesis} for premise, hypothesis in pairs]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    command = [python, "-m", "nse", "predict", model, "--file", str(file)]
    start_time = time.perf_counter()
    subprocess.run([*command, "--out", str(folder / "answers.jsonl")], check=True, stderr=subprocess.DEVNULL)
    return len(pairs) / (time.perf_counter() - start_time)


def measure_http(
    port: int, pid: int, requests: Iterator[bytes], clients: int, seconds: float
) -> dict[str, Any]:
    """Return pairs per second of the server, latencies, and CPU time of server and clients."""
    server_cpu, client_cpu, start_time = read_cpu_seconds(pid), time.process_time(), time.perf_counter()
    times = asyncio.run(run_closed_loop(port, requests, clients, seconds))
    return {
        "times": times,
        "pairs_per_second": len(times) / (time.perf_counter() - start_time),
        "cpu_ms_per_pair": 1000 * (read_cpu_seconds(pid) - server_cpu) / len(times),
        "client_cpu_ms_per_pair": 1000 * (time.process_time() - client_cpu) / len(times),
    }


def main() -> None:
    """Measure both, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "http.json")
    parser.add_argument("--serve", default="", help="options of nse serve, in one word")
    args = parser.parse_args()
    pairs = read_pairs(args.pairs)
    requests = cycle([encode_request(pair) for pair in pairs])
    files, rounds = [], []
    with TemporaryDirectory() as folder, start_server(args.model, *args.serve.split()) as (port, pid):
        measure_http(port, pid, requests, args.clients, min(5.0, args.seconds))  # warm-up
        for _ in range(args.rounds):
            files.append(measure_file(args.model, pairs, Path(folder)))
            rounds.append(measure_http(port, pid, requests, args.clients, args.seconds))
    times = [latency for row in rounds for latency in row.pop("times")]
    medians = {name: median(row[name] for row in rounds) for name in rounds[0]}
    result = {
        "model": args.model,
        "clients": args.clients,
        "seconds": args.seconds,
        "pairs_of": args.pairs.name if args.pairs else "made up",
        "options": args.serve,
        "http": {
            **medians,
            "p50_ms": compute_quantile_ms(times, 0.5),
            "p99_ms": compute_quantile_ms(times, 0.99),
            "pairs": len(times),
        },
        "file": {"pairs": len(pairs), "pairs_per_second": median(files)},
        "rounds": {"http": [row["pairs_per_second"] for row in rounds], "file": files},
        "share": medians["pairs_per_second"] / median(files),
        **describe_versions(),
    }
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
