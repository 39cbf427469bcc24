"""Senders without a key who never stop: does the server's memory stay flat, and is it in time for others?

    python benchmarks/floods.py

Starts the real server with its defaults and lets six attacks at it, one after the other and then all at
once. Each runs in processes of its own, which open a new connection as soon as one is closed. Meanwhile a
client like any other asks /health/live, in turns over a connection that it keeps and over a new one. The
attackers have a nice value of 10, for they share the cores with the server here; attackers elsewhere would
not.
"""

import argparse
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from http_speed import RESULTS, about, family, quantile, server

from nse.files import write_text

NICE = 10
EVERY = 0.25
"""Seconds between two looks at the memory."""

PAUSE = 0.01
"""Seconds between two questions for the server's health."""

LINE = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"


class Attack(NamedTuple):
    """What is sent without end.

    Attributes:
        begin: Comes once on each connection.
        more: Comes again and again.
        connections: How many send it, a process each.
        reads: Whether answers are read.
    """

    begin: bytes
    more: bytes
    connections: int = 1
    reads: bool = True


ATTACKS = {
    "4 connections, small headers": Attack(LINE, b"a: b\r\n" * 10_000, 4),
    "small headers": Attack(LINE, b"a: b\r\n" * 10_000),
    "trailers of a body in chunks": Attack(CHUNKED, b"a: b\r\n" * 10_000),
    "one header value": Attack(LINE + b"a: ", b"b" * 65536),
    "a path": Attack(b"GET /", b"a" * 65536),
    "requests whose answers nobody reads": Attack(b"", (LINE + b"\r\n") * 1000, reads=False),
}


def attack(given: Attack, port: int, stop: Event, report: Connection) -> None:
    """Send until told to stop; report how much was sent, and what was answered."""
    os.nice(NICE)
    sent, answers = 0, Counter[str]()
    while not stop.is_set():
        answer = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            try:
                line.sendall(given.begin)
                line.settimeout(0.2)
                while not stop.is_set() and not answer:
                    with suppress(TimeoutError):
                        sent += line.send(given.more)
                    if given.reads:
                        with suppress(BlockingIOError):
                            answer = line.recv(4096, socket.MSG_DONTWAIT)
            except OSError:
                with suppress(OSError):
                    answer = line.recv(4096)
        answers[answer[9:12].decode() or "closed without an answer"] += 1
    report.send((sent, answers))


@contextmanager
def attacked(port: int, attacks: list[Attack]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Let attackers at the server; gives a function that ends them and tells what they did."""
    context = multiprocessing.get_context("fork")
    stop, reports, processes = context.Event(), [], []
    for each in attacks:
        for _ in range(each.connections):
            mine, theirs = context.Pipe()
            process = context.Process(target=attack, args=(each, port, stop, theirs), daemon=True)
            process.start()
            reports.append(mine)
            processes.append(process)

    def end() -> dict[str, Any]:
        stop.set()
        results = [report.recv() for report in reports if report.poll(10)]
        answers = sum((answers for _, answers in results), Counter[str]())
        return {"sent_mib": sum(sent for sent, _ in results) / 2**20, "answers": dict(answers)}

    try:
        yield end
    finally:
        stop.set()
        for process in processes:
            process.join(10)
            process.kill()


def memory(pid: int) -> float:
    """How many megabytes the server and its processes have, what they share once."""
    texts = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in family(pid)]
    return sum(int(text.split("Pss:")[1].split()[0]) for text in texts) / 1024


def ask(line: socket.socket) -> None:
    """Ask for the server's health."""
    line.sendall(LINE + b"\r\n")
    answer = b""
    while not answer.endswith(b'{"status":"live"}'):
        part = line.recv(4096)
        if not part:
            raise ConnectionError(f"no answer: {answer[:50]!r}")
        answer += part


def watch(port: int, pid: int, seconds: float) -> dict[str, Any]:
    """Ask for the server's health for so long; how long it took, and how much memory the server had."""
    times: dict[str, list[float]] = {"kept": [], "new": []}
    sizes, failures, done = [memory(pid)], 0, threading.Event()

    def look() -> None:
        while not done.wait(EVERY):
            sizes.append(memory(pid))

    looking = threading.Thread(target=look)
    looking.start()
    end = time.perf_counter() + seconds
    kept = socket.create_connection(("127.0.0.1", port), timeout=30)
    while time.perf_counter() < end:
        for name in times:
            begun = time.perf_counter()
            try:
                if name == "kept":
                    ask(kept)
                else:
                    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
                        ask(line)
            except OSError:
                failures += 1
                kept.close()
                kept = socket.create_connection(("127.0.0.1", port), timeout=30)
            times[name].append(time.perf_counter() - begun)
            time.sleep(PAUSE)
    kept.close()
    done.set()
    looking.join()
    both = times["kept"] + times["new"]
    return {
        "health_asked": len(both),
        "health_failed": failures,
        "health_p50_ms": quantile(both, 0.5),
        "health_p99_ms": quantile(both, 0.99),
        "health_most_ms": 1000 * max(both),
        "memory_mb_before": sizes[0],
        "memory_mb_most": max(sizes),
        "memory_mb_median": median(sizes),
    }


def main() -> None:
    """Attack, watch and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of each attack; half more of all at once"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "floods.json")
    given = parser.parse_args()
    rounds: dict[str, list[Attack]] = {"nobody": [], **{name: [each] for name, each in ATTACKS.items()}}
    rounds["all at once"] = list(ATTACKS.values())
    found = {}
    with server(given.model) as (port, pid):
        for name, attacks in rounds.items():
            seconds = given.seconds * (1.5 if name == "all at once" else 1)
            with attacked(port, attacks) as end:
                time.sleep(2)  # until the attackers are there
                seen = watch(port, pid, seconds)
                found[name] = {**seen, "attackers": sum(each.connections for each in attacks), **end()}
            time.sleep(3)
            found[name]["memory_mb_after"] = memory(pid)
            print(name, json.dumps(found[name]), file=sys.stderr)
    result = {
        "model": given.model,
        "seconds": given.seconds,
        "nice_value_of_attackers": NICE,
        "attacks": found,
        **about(),
    }
    write_text(given.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
