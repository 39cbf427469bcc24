"""Send the server twice the load it can serve, for minutes, and check that it refuses only the excess.

    python benchmarks/soak.py --minutes 10

Starts the real server, measures its capacity with enough clients to fill a few batches, then sends twice as
many requests per second, without waiting for answers. Every request must be served or refused with 429, the
server must count the same, and its memory must not grow.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from http_speed import (
    RESULTS,
    Client,
    compute_quantile_ms,
    describe_versions,
    encode_request,
    list_processes,
    read_pairs,
    run_closed_loop,
    start_server,
)

from nse.files import write_text

MAX_CONNECTIONS = 2000
"""More than queue and batches hold, so that the server has to refuse requests."""

MEMORY_INTERVAL = 2.0
"""Seconds between two measurements of the memory."""


class Load:
    """Requests at a constant rate over keep-alive connections, one at a time on each.

    Args:
        port: Of the server.
        requests: Endless requests to send.
    """

    def __init__(self, port: int, requests: Iterator[bytes]):
        self.port, self.requests = port, requests
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.served: list[float] = []
        self.refused: list[float] = []
        self.idle_clients: deque[Client] = deque()
        self.connections = 0
        self.not_sent = 0

    async def send(self) -> None:
        """Send one request, over an idle or a new connection."""
        if not self.idle_clients:
            if self.connections >= MAX_CONNECTIONS:  # the server refuses too slowly
                self.not_sent += 1
                return
            self.connections += 1
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(
                lambda: Client(self.record_answer), "127.0.0.1", self.port
            )
            client.next = lambda client=client: self.idle_clients.append(client)  # type: ignore[misc]
            self.idle_clients.append(client)
        self.sent += 1
        self.idle_clients.popleft().send(next(self.requests))

    def record_answer(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        (self.served if status == 200 else self.refused).append(seconds)

    async def run(self, rate: float, seconds: float) -> None:
        """Send requests at a rate per second for some seconds; then wait for missing answers."""
        start_time, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start_time) < seconds:
            while count < rate * elapsed:
                count += 1
                await self.send()
            await asyncio.sleep(0.002)
        end = time.perf_counter() + 60
        while sum(self.statuses.values()) < self.sent and time.perf_counter() < end:
            await asyncio.sleep(0.05)
        for client in self.idle_clients:
            client.transport.close()


async def record_memory(pid: int, sizes: list[tuple[float, float]]) -> None:
    """Append time and megabytes of the server and its processes again and again; count shared memory once."""
    start_time = time.perf_counter()
    while True:
        texts = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in list_processes(pid)]
        size = sum(int(text.split("Pss:")[1].split()[0]) for text in texts)
        sizes.append((time.perf_counter() - start_time, size / 1024))
        await asyncio.sleep(MEMORY_INTERVAL)


async def soak(port: int, pid: int, requests: Iterator[bytes], rate: float, seconds: float) -> dict[str, Any]:
    """Send requests at a rate, and return latencies, counts and memory."""
    load, sizes = Load(port, requests), []
    recording = asyncio.ensure_future(record_memory(pid, sizes))
    await load.run(rate, seconds)
    recording.cancel()
    served, refused = load.statuses[200], load.statuses[429]
    return {
        "seconds": seconds,
        "offered_per_second": rate,
        "sent": load.sent,
        "served": served,
        "refused": refused,
        "other": sum(load.statuses.values()) - served - refused,
        "unanswered": load.sent - sum(load.statuses.values()),
        "not_sent": load.not_sent,
        "served_per_second": served / seconds,
        "p50_ms": compute_quantile_ms(load.served, 0.5),
        "p99_ms": compute_quantile_ms(load.served, 0.99),
        "most_ms": 1000 * max(load.served),
        "refused_p99_ms": compute_quantile_ms(load.refused, 0.99) if load.refused else None,
        "connections": load.connections,
        **summarize_memory(sizes),
    }


def summarize_memory(sizes: list[tuple[float, float]]) -> dict[str, Any]:
    """Return mean memory after the warm-up and at the end, over a minute or a quarter of a short run."""
    end = sizes[-1][0]
    warm = min(60.0, end / 4)

    def mean(first: float, last: float) -> float:
        interval = [size for seconds, size in sizes if first <= seconds <= last]
        return sum(interval) / len(interval)

    return {
        "memory_mb_after_warming_up": mean(warm, 2 * warm),
        "memory_mb_at_the_end": mean(end - warm, end),
        "memory_mb_most": max(size for _, size in sizes),
    }


def read_counts(port: int) -> dict[str, int]:
    """Read the server's number of answers by status."""
    text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    name = 'nse_requests_total{route="/v1/predict",status="'
    lines = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    return {line[:3]: int(float(line.rpartition(" ")[2])) for line in lines}


def main() -> None:
    """Measure the capacity, send twice the load, compare the counts and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path, help="as in http_speed.py")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--times", type=float, default=2.0, help="load, in multiples of the capacity")
    parser.add_argument("--serve", default="", help="options of nse serve, in one word")
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    args = parser.parse_args()
    requests = cycle([encode_request(pair) for pair in read_pairs(args.pairs)])
    with start_server(args.model, *args.serve.split()) as (port, pid):
        calibration = min(20.0, 20 * args.minutes)
        asyncio.run(run_closed_loop(port, requests, 128, min(5.0, calibration)))  # warm-up
        times = asyncio.run(run_closed_loop(port, requests, 128, calibration))
        capacity = len(times) / calibration
        before = read_counts(port)
        rate = args.times * capacity
        result = asyncio.run(soak(port, pid, requests, rate, 60 * args.minutes))
        after = read_counts(port)
    counts = {status: count - before.get(status, 0) for status, count in after.items()}
    result = {
        "model": args.model,
        "options": args.serve,
        "capacity_per_second": capacity,
        "times": args.times,
        **result,
        "counted_by_the_server": counts,
        "adds_up": result["sent"] == result["served"] + result["refused"]
        and counts.get("200", 0) == result["served"]
        and counts.get("429", 0) == result["refused"],
        **describe_versions(),
    }
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    if not result["adds_up"]:
        sys.exit("the requests that were sent are not those that were served or refused")


if __name__ == "__main__":
    main()
