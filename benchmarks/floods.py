"""Flood the server with endless requests, and measure its memory and its latency for other clients.

    python benchmarks/floods.py

Starts the real server with its defaults and runs six attacks, one after the other and then all together. Each
runs in its own processes, which open a new connection as soon as one is closed. Meanwhile a client requests
/health/live, alternately over a keep-alive and a new connection. The attackers have a nice value of 10,
because they share the cores with the server.
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

from http_speed import RESULTS, compute_quantile_ms, describe_versions, list_processes, start_server

from nse.files import write_text

NICE = 10
MEMORY_INTERVAL = 0.25
"""Seconds between two measurements of the memory."""

PAUSE = 0.01
"""Seconds between two health requests."""

LINE = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"


class Attack(NamedTuple):
    """Endless request.

    Attributes:
        head: Sent once on each connection.
        repeated: Sent again and again.
        connections: Number of processes that send it.
        reads: Whether answers are read.
    """

    head: bytes
    repeated: bytes
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


def run_attack(flood: Attack, port: int, stop: Event, report: Connection) -> None:
    """Send until the event is set; report the number of bytes and the answers."""
    os.nice(NICE)
    sent, answers = 0, Counter[str]()
    while not stop.is_set():
        answer = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            try:
                line.sendall(flood.head)
                line.settimeout(0.2)
                while not stop.is_set() and not answer:
                    with suppress(TimeoutError):
                        sent += line.send(flood.repeated)
                    if flood.reads:
                        with suppress(BlockingIOError):
                            answer = line.recv(4096, socket.MSG_DONTWAIT)
            except OSError:
                with suppress(OSError):
                    answer = line.recv(4096)
        answers[answer[9:12].decode() or "closed without an answer"] += 1
    report.send((sent, answers))


@contextmanager
def run_attacks(port: int, attacks: list[Attack]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Run attacks in the block; yield a function that ends them and returns their counts."""
    context = multiprocessing.get_context("fork")
    stop, reports, processes = context.Event(), [], []
    for flood in attacks:
        for _ in range(flood.connections):
            receiver, sender = context.Pipe()
            process = context.Process(target=run_attack, args=(flood, port, stop, sender), daemon=True)
            process.start()
            reports.append(receiver)
            processes.append(process)

    def end_attacks() -> dict[str, Any]:
        stop.set()
        results = [report.recv() for report in reports if report.poll(10)]
        answers = sum((answers for _, answers in results), Counter[str]())
        return {"sent_mib": sum(sent for sent, _ in results) / 2**20, "answers": dict(answers)}

    try:
        yield end_attacks
    finally:
        stop.set()
        for process in processes:
            process.join(10)
            process.kill()


def measure_memory(pid: int) -> float:
    """Return megabytes of the server and its processes; shared memory counts once."""
    texts = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in list_processes(pid)]
    return sum(int(text.split("Pss:")[1].split()[0]) for text in texts) / 1024


def request_health(line: socket.socket) -> None:
    """Request /health/live and read the answer."""
    line.sendall(LINE + b"\r\n")
    answer = b""
    while not answer.endswith(b'{"status":"live"}'):
        part = line.recv(4096)
        if not part:
            raise ConnectionError(f"no answer: {answer[:50]!r}")
        answer += part


def measure_health(port: int, pid: int, seconds: float) -> dict[str, Any]:
    """Request the server's health for some seconds; return latencies and memory."""
    times: dict[str, list[float]] = {"kept": [], "new": []}
    sizes, failures, done = [measure_memory(pid)], 0, threading.Event()

    def record_memory() -> None:
        while not done.wait(MEMORY_INTERVAL):
            sizes.append(measure_memory(pid))

    recorder = threading.Thread(target=record_memory)
    recorder.start()
    end = time.perf_counter() + seconds
    kept = socket.create_connection(("127.0.0.1", port), timeout=30)
    while time.perf_counter() < end:
        for name in times:
            start_time = time.perf_counter()
            try:
                if name == "kept":
                    request_health(kept)
                else:
                    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
                        request_health(line)
            except OSError:
                failures += 1
                kept.close()
                kept = socket.create_connection(("127.0.0.1", port), timeout=30)
            times[name].append(time.perf_counter() - start_time)
            time.sleep(PAUSE)
    kept.close()
    done.set()
    recorder.join()
    both = times["kept"] + times["new"]
    return {
        "health_asked": len(both),
        "health_failed": failures,
        "health_p50_ms": compute_quantile_ms(both, 0.5),
        "health_p99_ms": compute_quantile_ms(both, 0.99),
        "health_most_ms": 1000 * max(both),
        "memory_mb_before": sizes[0],
        "memory_mb_most": max(sizes),
        "memory_mb_median": median(sizes),
    }


def main() -> None:
    """Run the attacks, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of each attack; half more for all together"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "floods.json")
    args = parser.parse_args()
    rounds: dict[str, list[Attack]] = {"nobody": [], **{name: [flood] for name, flood in ATTACKS.items()}}
    rounds["all at once"] = list(ATTACKS.values())
    results = {}
    with start_server(args.model) as (port, pid):
        for name, attacks in rounds.items():
            seconds = args.seconds * (1.5 if name == "all at once" else 1)
            with run_attacks(port, attacks) as end_attacks:
                time.sleep(2)  # until the attackers have started
                health = measure_health(port, pid, seconds)
                results[name] = {
                    **health,
                    "attackers": sum(flood.connections for flood in attacks),
                    **end_attacks(),
                }
            time.sleep(3)
            results[name]["memory_mb_after"] = measure_memory(pid)
            print(name, json.dumps(results[name]), file=sys.stderr)
    result = {
        "model": args.model,
        "seconds": args.seconds,
        "nice_value_of_attackers": NICE,
        "attacks": results,
        **describe_versions(),
    }
    write_text(args.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
