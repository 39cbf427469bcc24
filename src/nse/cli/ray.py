"""Encode texts on a Ray cluster, with the same results in the same order as in one process.

This process reads and writes; each worker receives the files of the model and loads it once. Ray restarts a
worker that dies, and computes its chunk again.
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
from nse.cli.rows import RowOrBadLine
from nse.errors import InputError, NSEError, RunError
from nse.inference.batches import Precision
from nse.inference.folder import find_folder

STORE_BYTES = 256 << 20  # object store of a local cluster: some dozens of chunks
TIMEOUT = 10.0  # seconds to connect to a cluster

# No usage statistics, no warnings.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
QUIET |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class WorkerSettings(NamedTuple):
    """Model and options of the workers."""

    model: str
    device: str
    strict: bool
    batch: int
    precision: Precision = "float32"


def answer_chunks(
    address: str, workers: int | None, chunks: Iterable[list[RowOrBadLine]], settings: WorkerSettings
) -> Iterator[list[Result]]:
    """Encode chunks of rows in order; an error while reading is raised after the answers before it.

    The address "local" starts Ray on this machine; "auto" finds the cluster of this machine.
    """
    with connect(address, workers) as ray:
        pool, _model = start_workers(ray, workers, settings)  # the reference keeps the model for restarts
        pending = deque[Future[Any]]()
        for future in submit_chunks(pool, chunks):
            pending.append(future)
            if len(pending) > 2 * len(pool):
                yield get_results(pending.popleft())
        yield from map(get_results, pending)


def submit_chunks(pool: list[Any], chunks: Iterable[list[RowOrBadLine]]) -> Iterator[Future[Any]]:
    """Submit each chunk to the first free worker; wait in Python, because Ray's own wait ignores signals."""
    busy = {worker.answer.remote([]).future(): worker for worker in pool}  # no rows: only load the model
    try:
        for chunk in chunks:
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            worker = busy.pop(done.pop())
            future = worker.answer.remote(chunk).future()
            busy[future] = worker
            yield future
    except NSEError as error:  # raised after the answers before it
        future = Future()
        future.set_exception(error)
        yield future


def get_results(future: Future[Any]) -> list[Result]:
    """Wait for the results of a chunk; raise the error of the worker, if any."""
    results: list[Result] | NSEError = future.result()
    if isinstance(results, NSEError):
        raise results
    return results


@contextmanager
def connect(address: str, workers: int | None) -> Iterator[Any]:
    """Connect to a Ray cluster, with as little output of Ray as possible."""
    check_address(address)
    for name, value in QUIET.items():  # read when Ray is imported
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise InputError("--ray: needs Ray: pip install 'neural-semantic-encoders[ray]'") from None
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        settings |= {"num_cpus": workers, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    try:
        before = signal.getsignal(signal.SIGTERM)
        with silence_standard_error():
            ray.init(address, **settings)
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, before)  # Ray's handler aborts
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        why = str(error.__cause__ or error).strip().splitlines()[0]
        raise RunError(f"--ray: cannot connect to the cluster at {address!r}: {why}") from None
    with redirect_stdout(sys.stderr):  # Ray prints to standard output, where the answers go
        try:
            yield ray
        except ray.exceptions.RayError as error:
            advice = "is nse installed on every machine of the cluster?"
            why = str(error).strip().splitlines()[-1]
            raise RunError(f"--ray: workers failed; {advice} {why}") from None
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Raise an error if there is no cluster at an address, where Ray would try for minutes."""
    if address in ("local", "auto"):
        return
    if address.startswith("ray://"):
        where = "run the command on a machine of the cluster with --ray auto, or use `ray job submit`"
        raise InputError(f"--ray: Ray Client is not supported; {where}")
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise InputError(f"--ray: expected local, auto or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"--ray: there is no cluster at {address}: {error}") from None


@contextmanager
def silence_standard_error() -> Iterator[None]:
    """Redirect file descriptor 2 to the null device, because Ray's core writes to it directly."""
    sys.stderr.flush()
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def start_workers(ray: Any, count: int | None, settings: WorkerSettings) -> tuple[list[Any], Any]:
    """Start workers, each with a GPU, or a CPU if there is no GPU; return them and their packed model."""
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if settings.device != "cpu" else 0
    if settings.device == "cuda" and not gpus:
        raise RunError("--ray: the cluster has no GPU; use --device cpu or auto")
    model = ray.put(pack_model(settings._replace(device="cuda" if gpus else "cpu")))
    needs = {"num_gpus": 1, "num_cpus": 0} if gpus else {"num_cpus": 1}
    worker = ray.remote(max_restarts=-1, max_task_retries=-1, **needs)(Worker)
    count = count or gpus or max(1, int(resources.get("CPU", 1)))
    return [worker.remote(model) for _ in range(count)], model


def pack_model(settings: WorkerSettings) -> tuple[str, dict[str, bytes], WorkerSettings]:
    """Pack the files of a model and the settings, for the workers."""
    files = {file.name: file.read_bytes() for file in find_folder(settings.model).iterdir() if file.is_file()}
    return nse.__version__, files, settings


class Worker:
    """Process with a model from `pack_model`."""

    def __init__(self, content: tuple[str, dict[str, bytes], WorkerSettings]):
        self.version, self.files, self.settings = content

    @cached_property
    def model(self) -> nse.Model:
        """Loaded model."""
        if self.version != nse.__version__:
            raise RunError(f"--ray: a worker has nse {nse.__version__} and you have {self.version}")
        with tempfile.TemporaryDirectory() as folder:
            for name, file in self.files.items():
                (Path(folder) / name).write_bytes(file)
            return nse.load(folder, self.settings.device, precision=self.settings.precision)

    def answer(self, rows: Sequence[RowOrBadLine]) -> list[Result] | NSEError:
        """Encode rows; return an error instead of raising it."""
        try:
            return answer_rows(self.model, "encode", self.settings.batch, rows, strict=self.settings.strict)
        except NSEError as error:
            return error
