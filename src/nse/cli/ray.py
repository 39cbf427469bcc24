"""Vectors by the workers of a Ray cluster, on Ray Data: the same as one process makes, in the same order.

One task reads the file, on the machine where the command was typed, a chunk of rows at a time, and is held
back where Ray's store fills up. Each worker is a process that loads the model once; the model's files travel
to it. Ray starts a worker that died again and has its chunk computed again. Chunks come back in their order,
and the process that asked writes them.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nse
from nse.cli import answer_rows as answers
from nse.cli.rows import Columns, in_chunks, rows
from nse.cli.writing import Answer
from nse.data.records import Format, Problem, Source
from nse.errors import InputError, NSEError, RunError
from nse.inference import folder as hub

STORE = 256 << 20
"""Bytes that a Ray on this machine keeps on their way: some dozens of chunks."""

PATIENCE = 10.0
"""Seconds until somebody answers at the address of a cluster."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""No reports to its makers, no warnings about Ray Data's own ways."""

Batch = dict[str, Any]
"""A row of Ray Data."""


@dataclass
class Chunk:
    """What travels in a row: an object, because Ray would cut and join lists that it can look into.

    Attributes:
        place: Which chunk of the file it is, from 0.
        found: Its rows, their answers, or what was raised; at first what to read.
    """

    place: int
    found: Any


def opaque(chunk: Chunk) -> Batch:
    """A row of Ray Data with a chunk in it."""
    row = np.empty(1, dtype=object)
    row[0] = chunk
    return {"chunk": row}


class Reading(NamedTuple):
    """What to read, and how."""

    file: str
    form: Format
    columns: Columns


class Asking(NamedTuple):
    """What to ask, and how."""

    model: str
    device: str
    strict: bool
    batch: int


def vectors(
    address: str, workers: int | None, reading: Reading, asking: Asking
) -> Iterator[list[Answer | Problem]]:
    """The vectors of a file's rows, or why there are none, a chunk at a time; see `answers.vectors`.

    Args:
        address: "local" starts Ray on this machine; "auto" finds the cluster that this machine belongs to;
            any other is that of a cluster.
        workers: How many processes compute; `None` means one for each GPU, or for each CPU if there is none.
        reading: What to read.
        asking: What to ask.

    Raises:
        InputError: Ray is not installed.
        RunError: There is no cluster at the address, or it has no GPU where one is asked for.
        NSEError: What reading or computing raised.
    """
    with connected(address, workers) as ray:
        expected, found = 0, None
        for batch in computed(ray, workers, reading, asking):
            for content in batch["chunk"]:
                place, found = content.place, content.found
                if isinstance(found, NSEError):
                    raise found
                if place != expected:
                    raise RunError(f"Ray gave chunk {place} where chunk {expected} was expected; try again")
                expected += 1
                yield found
        if found != []:
            raise RunError(f"Ray gave {expected} chunks and then no end; try again")


@contextmanager
def connected(address: str, workers: int | None) -> Iterator[Any]:
    """Ray, connected to a cluster, and no more talkative than need be."""
    reach(address)
    for name, value in QUIET.items():  # which Ray reads when it is imported
        os.environ.setdefault(name, value)
    try:
        import pyarrow  # noqa: F401
        import ray
        import ray.data
    except ImportError:
        raise InputError("--ray needs Ray Data: pip install 'neural-semantic-encoders[ray]'") from None
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        settings |= {"num_cpus": workers, "object_store_memory": STORE, "include_dashboard": False}
    try:
        before = signal.getsignal(signal.SIGTERM)
        with silenced():
            ray.init(address, **settings)
        with suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGTERM, before)  # Ray would end in an abort
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        said = str(error.__cause__ or error).strip().splitlines()[0]
        raise RunError(f"--ray: cannot work with the cluster at {address!r}: {said}") from None
    with redirect_stdout(sys.stderr):  # where answers go, Ray would tell of its troubles
        try:
            yield ray
        except ray.exceptions.RayError as error:
            said = str(error).strip().splitlines()[-1]
            raise RunError(
                f"--ray: workers failed, is the package installed on every machine of the cluster? {said}"
            ) from None
        finally:
            ray.shutdown()


def reach(address: str) -> None:
    """Refuse an address at which nobody listens; Ray would try for minutes."""
    if address in ("local", "auto"):
        return
    if address.startswith("ray://"):
        raise InputError(
            "--ray: Ray Data does not run through Ray Client; type this on a machine of the cluster, with "
            "--ray auto, or give it to `ray job submit`"
        )
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise InputError(f"--ray: expected local, auto or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"--ray: there is no cluster at {address}: {error}") from None


@contextmanager
def silenced() -> Iterator[None]:
    """Let nothing reach standard error; what Ray's core writes there passes Python by."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def computed(ray: Any, workers: int | None, reading: Reading, asking: Asking) -> Iterator[Batch]:
    """The chunks of a file, computed, in their order."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = 1  # a block for each chunk, which is what a worker is given at a time
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0)) if asking.device != "cpu" else 0
    if asking.device == "cuda" and not gpus:
        raise RunError("--ray: the cluster has no GPU; use --device cpu or auto")
    count = workers or gpus or max(1, int(there.get("CPU", 1)))
    here = f"node:{ray.util.get_node_ip_address()}"
    chunks = ray.data.from_items([{"reading": Chunk(0, reading)}]).map_batches(
        read, batch_size=1, num_cpus=0, resources={here: 0.001}
    )
    device = "cuda" if gpus else "cpu"
    found = chunks.map_batches(
        Worker,
        fn_constructor_args=(ray.put(carried(asking._replace(device=device))),),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=count),
        num_cpus=None if gpus else 1,
        num_gpus=1 if gpus else None,
    )
    yield from found.iter_batches(batch_size=1)


def read(batch: Any) -> Iterator[Batch]:
    """The chunks of a file with their places; the last one is empty, or what was raised."""
    (content,) = batch["reading"]
    file, form, columns = content.found
    place = -1
    end: NSEError | list[Any] = []
    try:
        with Source(Path(file)) as source:
            for place, some in enumerate(in_chunks(rows(source, form, columns))):
                yield opaque(Chunk(place, some))
    except NSEError as error:
        end = error
    yield opaque(Chunk(place + 1, end))


def carried(asking: Asking) -> tuple[str, dict[str, bytes], Asking]:
    """A question and the files of its model, to be sent to workers."""
    files = {file.name: file.read_bytes() for file in hub.find(asking.model).iterdir() if file.is_file()}
    return nse.__version__, files, asking


class Worker:
    """A process with a model.

    Args:
        content: What `carried` gave, or where it lies in Ray's store.
    """

    def __init__(self, content: Any):
        if not isinstance(content, tuple):
            import ray

            content = ray.get(content)
        version, files, self.asking = content
        self.wrong: NSEError | None = None
        if version != nse.__version__:
            self.wrong = RunError(f"--ray: a worker has nse {nse.__version__} and you have {version}")
            return
        from nse.inference.model import load

        with tempfile.TemporaryDirectory() as folder:
            for name, file in files.items():
                (Path(folder) / name).write_bytes(file)
            try:
                self.model = load(folder, self.asking.device).quick
            except NSEError as error:
                self.wrong = error

    def __call__(self, batch: Any) -> Batch:
        """The answers of a chunk, or what was raised."""
        (content,) = batch["chunk"]
        place, some = content.place, content.found
        if isinstance(some, NSEError) or self.wrong:
            return opaque(Chunk(place, self.wrong or some))
        try:
            found = answers.vectors(self.model, some, self.asking.strict, self.asking.batch)
            return opaque(Chunk(place, found))
        except NSEError as error:
            return opaque(Chunk(place, error))
