"""Vectors by the workers of a Ray cluster: the same as one process makes, in the same order.

The process that was started reads and writes; each worker is a process that loads the model once, whose files
travel to it. Ray starts a worker that died again and has its chunk computed again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import nse
from nse.cli.pipeline import Result, answer_rows
from nse.cli.rows import Read
from nse.errors import InputError, NSEError, RunError
from nse.inference.folder import find_folder

STORE = 256 << 20  # bytes that a Ray on this machine keeps on their way: some dozens of chunks
PATIENCE = 10.0  # seconds until somebody answers at the address of a cluster

# No reports to its makers, no warnings about its own ways.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
QUIET |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class Asking(NamedTuple):
    """What to ask, and how."""

    model: str
    device: str
    strict: bool
    batch: int


def answer_chunks(
    address: str, workers: int | None, chunks: Iterable[list[Read]], asking: Asking
) -> Iterator[list[Result]]:
    """Encode chunks of rows in their order; a mistake that ends them is raised after the answers before it.

    The address "local" starts Ray on this machine; "auto" finds the cluster that this machine belongs to.
    """
    with connect(address, workers) as ray:
        team, _model = start_workers(ray, workers, asking)  # the model stays for workers that start again
        waiting = deque[Future[Any]]()
        for future in submit(team, chunks):
            waiting.append(future)
            if len(waiting) > 2 * len(team):
                yield receive(waiting.popleft())
        yield from map(receive, waiting)


def submit(team: list[Any], chunks: Iterable[list[Read]]) -> Iterator[Future[Any]]:
    """Submit chunks, each to the worker that is free first; signals are not heard while Ray itself waits."""
    busy = {worker.answer.remote([]).future(): worker for worker in team}  # without rows they load the model
    try:
        for chunk in chunks:
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            worker = busy.pop(done.pop())
            future = worker.answer.remote(chunk).future()
            busy[future] = worker
            yield future
    except NSEError as error:  # raised after the answers to what came before it
        future = Future()
        future.set_exception(error)
        yield future


def receive(future: Future[Any]) -> list[Result]:
    """Wait for the results of a chunk; raise what was raised."""
    results: list[Result] | NSEError = future.result()
    if isinstance(results, NSEError):
        raise results
    return results


@contextmanager
def connect(address: str, workers: int | None) -> Iterator[Any]:
    """Connect Ray to a cluster, and let it be no more talkative than need be."""
    check_address(address)
    for name, value in QUIET.items():  # which Ray reads when it is imported
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray: pip install 'neural-semantic-encoders[ray]'") from None
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        settings |= {"num_cpus": workers, "object_store_memory": STORE, "include_dashboard": False}
    try:
        before = signal.getsignal(signal.SIGTERM)
        with silence_standard_error():
            ray.init(address, **settings)
        with suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGTERM, before)  # Ray would end in an abort
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        why = str(error.__cause__ or error).strip().splitlines()[0]
        raise RunError(f"--ray: cannot work with the cluster at {address!r}: {why}") from None
    with redirect_stdout(sys.stderr):  # where answers go, Ray would tell of its troubles
        try:
            yield ray
        except ray.exceptions.RayError as error:
            advice = "is the package installed on every machine of the cluster?"
            why = str(error).strip().splitlines()[-1]
            raise RunError(f"--ray: workers failed, {advice} {why}") from None
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Refuse an address at which nobody listens; Ray would try for minutes."""
    if address in ("local", "auto"):
        return
    if address.startswith("ray://"):
        where = "type this on a machine of the cluster, with --ray auto, or give it to `ray job submit`"
        raise InputError(f"--ray: this does not run through Ray Client; {where}")
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise InputError(f"--ray: expected local, auto or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"--ray: there is no cluster at {address}: {error}") from None


@contextmanager
def silence_standard_error() -> Iterator[None]:
    """Let nothing reach standard error, to which Ray's core writes without Python."""
    sys.stderr.flush()
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def start_workers(ray: Any, count: int | None, asking: Asking) -> tuple[list[Any], Any]:
    """Start workers, each with a GPU where there are some, else with a CPU; also return their model."""
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0)) if asking.device != "cpu" else 0
    if asking.device == "cuda" and not gpus:
        raise RunError("--ray: the cluster has no GPU; use --device cpu or auto")
    model = ray.put(pack_model(asking._replace(device="cuda" if gpus else "cpu")))
    needs = {"num_gpus": 1, "num_cpus": 0} if gpus else {"num_cpus": 1}
    worker = ray.remote(max_restarts=-1, max_task_retries=-1, **needs)(Worker)
    count = count or gpus or max(1, int(there.get("CPU", 1)))
    return [worker.remote(model) for _ in range(count)], model


def pack_model(asking: Asking) -> tuple[str, dict[str, bytes], Asking]:
    """Pack a question and the files of its model, to be sent to workers."""
    files = {file.name: file.read_bytes() for file in find_folder(asking.model).iterdir() if file.is_file()}
    return nse.__version__, files, asking


class Worker:
    """A process with a model, made of what `pack_model` packed."""

    def __init__(self, content: tuple[str, dict[str, bytes], Asking]):
        self.version, self.files, self.asking = content

    @cached_property
    def model(self) -> nse.Model:
        """Load the model from the files that came with it."""
        if self.version != nse.__version__:
            raise RunError(f"--ray: a worker has nse {nse.__version__} and you have {self.version}")
        with tempfile.TemporaryDirectory() as folder:
            for name, file in self.files.items():
                (Path(folder) / name).write_bytes(file)
            return nse.load(folder, self.asking.device)

    def answer(self, rows: Sequence[Read]) -> list[Result] | NSEError:
        """Encode rows; what is raised is given back."""
        try:
            return answer_rows(self.model, "encode", self.asking.batch, rows, strict=self.asking.strict)
        except NSEError as error:
            return error
