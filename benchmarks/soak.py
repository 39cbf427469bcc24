"""Twice as much as the server can do, for minutes: does it refuse what is too much, and nothing else?

    python benchmarks/soak.py --minutes 10

Starts the real server, measures what it can do with as many clients as fill a few batches, then sends twice
as many requests a second, whether or not those before are answered. What was sent must have been served or
refused with 429; the server must have counted the same; and its memory must not grow.
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

from http_speed import RESULTS, Client, about, as_request, closed_loop, family, quantile, read_pairs, server

from nse.files import write_text

LINES = 2000
"""Connections at the most: more than the queue and the batches hold, so that what waits is refused there."""

EVERY = 2.0
"""Seconds between two looks at the memory."""


class Load:
    """Requests at an even pace over connections that are kept; each connection has one request at a time.

    Args:
        port: Of the server.
        requests: What to send, without end.
    """

    def __init__(self, port: int, requests: Iterator[bytes]):
        self.port, self.requests = port, requests
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.served: list[float] = []
        self.refused: list[float] = []
        self.free: deque[Client] = deque()
        self.lines = 0
        self.held_up = 0

    async def send(self) -> None:
        """One request, over a connection that is free, or a new one."""
        if not self.free:
            if self.lines >= LINES:  # the server does not even refuse in time
                self.held_up += 1
                return
            self.lines += 1
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(lambda: Client(self.heard), "127.0.0.1", self.port)
            client.next = lambda client=client: self.free.append(client)  # type: ignore[misc]
            self.free.append(client)
        self.sent += 1
        self.free.popleft().send(next(self.requests))

    def heard(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        (self.served if status == 200 else self.refused).append(seconds)

    async def run(self, rate: float, seconds: float) -> None:
        """So many a second, for so long; then wait for the answers that are missing."""
        begun, number = time.perf_counter(), 0
        while (now := time.perf_counter() - begun) < seconds:
            while number < rate * now:
                number += 1
                await self.send()
            await asyncio.sleep(0.002)
        end = time.perf_counter() + 60
        while sum(self.statuses.values()) < self.sent and time.perf_counter() < end:
            await asyncio.sleep(0.05)
        for client in self.free:
            client.transport.close()


async def watched(pid: int, seen: list[tuple[float, float]]) -> None:
    """Note how many megabytes the server and its processes have, what they share once, again and again."""
    begun = time.perf_counter()
    while True:
        texts = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in family(pid)]
        size = sum(int(text.split("Pss:")[1].split()[0]) for text in texts)
        seen.append((time.perf_counter() - begun, size / 1024))
        await asyncio.sleep(EVERY)


async def soaked(
    port: int, pid: int, requests: Iterator[bytes], rate: float, seconds: float
) -> dict[str, Any]:
    """What came of so many requests a second."""
    load, seen = Load(port, requests), []
    watching = asyncio.ensure_future(watched(pid, seen))
    await load.run(rate, seconds)
    watching.cancel()
    served, refused = load.statuses[200], load.statuses[429]
    return {
        "seconds": seconds,
        "offered_per_second": rate,
        "sent": load.sent,
        "served": served,
        "refused": refused,
        "other": sum(load.statuses.values()) - served - refused,
        "unanswered": load.sent - sum(load.statuses.values()),
        "not_sent": load.held_up,
        "served_per_second": served / seconds,
        "p50_ms": quantile(load.served, 0.5),
        "p99_ms": quantile(load.served, 0.99),
        "most_ms": 1000 * max(load.served),
        "refused_p99_ms": quantile(load.refused, 0.99) if load.refused else None,
        "connections": load.lines,
        **memory(seen),
    }


def memory(seen: list[tuple[float, float]]) -> dict[str, Any]:
    """The memory after warming up, and in the end: means over a minute, or less where it was short."""
    end = seen[-1][0]
    warm = min(60.0, end / 4)

    def mean(first: float, last: float) -> float:
        some = [size for at, size in seen if first <= at <= last]
        return sum(some) / len(some)

    return {
        "memory_mb_after_warming_up": mean(warm, 2 * warm),
        "memory_mb_at_the_end": mean(end - warm, end),
        "memory_mb_most": max(size for _, size in seen),
    }


def counted(port: int) -> dict[str, int]:
    """What the server has counted, by status."""
    text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    name = 'nse_requests_total{route="/v1/predict",status="'
    lines = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    return {line[:3]: int(float(line.rpartition(" ")[2])) for line in lines}


def main() -> None:
    """Measure, soak, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path, help="as of http_speed.py")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--times", type=float, default=2.0, help="how much more than the server can do")
    parser.add_argument("--serve", default="", help="options of nse serve, in one word")
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    given = parser.parse_args()
    requests = cycle([as_request(pair) for pair in read_pairs(given.pairs)])
    with server(given.model, *given.serve.split()) as (port, pid):
        calm = min(20.0, 20 * given.minutes)
        asyncio.run(closed_loop(port, requests, 128, min(5.0, calm)))  # to warm up
        times = asyncio.run(closed_loop(port, requests, 128, calm))
        capacity = len(times) / calm
        before = counted(port)
        rate = given.times * capacity
        result = asyncio.run(soaked(port, pid, requests, rate, 60 * given.minutes))
        after = counted(port)
    told = {status: count - before.get(status, 0) for status, count in after.items()}
    result = {
        "model": given.model,
        "options": given.serve,
        "capacity_per_second": capacity,
        "times": given.times,
        **result,
        "counted_by_the_server": told,
        "adds_up": result["sent"] == result["served"] + result["refused"]
        and told.get("200", 0) == result["served"]
        and told.get("429", 0) == result["refused"],
        **about(),
    }
    write_text(given.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    if not result["adds_up"]:
        sys.exit("what was sent is not what was served and refused")


if __name__ == "__main__":
    main()
