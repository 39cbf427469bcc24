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
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nse
from nse.cli.output import Answer
from nse.cli.pipeline import encode_rows
from nse.cli.rows import Input, in_chunks
from nse.data.records import Problem
from nse.errors import InputError, NSEError, RunError
from nse.inference.folder import find

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
    """What travels in a row: an object, because Ray would cut and join lists that it can look into."""

    place: int  # which chunk of the file it is, from 0
    content: Any  # what to read, its rows, their answers, or what was raised; nothing in the last one

    def as_row(self) -> Batch:
        """Make a row of Ray Data."""
        row = np.empty(1, dtype=object)
        row[0] = self
        return {"chunk": row}


class Asking(NamedTuple):
    """What to ask, and how."""

    model: str
    device: str
    strict: bool
    batch: int


def encode_file(
    address: str, workers: int | None, reading: tuple[Input, tuple[str, ...]], asking: Asking
) -> Iterator[list[Answer | Problem]]:
    """Encode the rows of a file: for each its vector, or why there is none, a chunk at a time.

    Args:
        address: "local" starts Ray on this machine; "auto" finds the cluster that this machine belongs to;
            any other is that of a cluster.
        workers: How many processes compute; `None` means one for each GPU, or for each CPU if there is none.
        reading: The file, and the columns to read.
        asking: What to ask.
    """
    with connect(address, workers) as ray:
        expected, content = 0, None
        for row in compute_chunks(ray, workers, reading, asking):
            (chunk,) = row["chunk"]
            content = chunk.content
            if isinstance(content, NSEError):
                raise content
            if chunk.place != expected:
                raise RunError(f"Ray gave chunk {chunk.place} where chunk {expected} was expected; try again")
            expected += 1
            yield content
        if content != []:
            raise RunError(f"Ray gave {expected} chunks and then no end; try again")


@contextmanager
def connect(address: str, workers: int | None) -> Iterator[Any]:
    """Connect Ray to a cluster, and let it be no more talkative than need be."""
    check_address(address)
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


def compute_chunks(
    ray: Any, workers: int | None, reading: tuple[Input, tuple[str, ...]], asking: Asking
) -> Iterator[Batch]:
    """Compute the chunks of a file, in their order."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = 1  # a block for each chunk, which is what a worker is given at a time
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0)) if asking.device != "cpu" else 0
    if asking.device == "cuda" and not gpus:
        raise RunError("--ray: the cluster has no GPU; use --device cpu or auto")
    content = pack_model(asking._replace(device="cuda" if gpus else "cpu"))
    here = f"node:{ray.util.get_node_ip_address()}"
    chunks = ray.data.from_items([{"reading": Chunk(0, reading)}]).map_batches(
        read_chunks, batch_size=1, num_cpus=0, resources={here: 0.001}
    )
    answers = chunks.map_batches(
        Worker,
        fn_constructor_args=(ray.put(content),),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=workers or gpus or max(1, int(there.get("CPU", 1)))),
        num_cpus=None if gpus else 1,
        num_gpus=1 if gpus else None,
    )
    yield from answers.iter_batches(batch_size=1)


def read_chunks(batch: Any) -> Iterator[Batch]:
    """Read the chunks of a file with their places; the last one is empty, or what was raised."""
    given, names = batch["reading"][0].content
    place = -1
    end: NSEError | list[Any] = []
    try:
        with given.open() as source:
            for place, rows in enumerate(in_chunks(given.read(source, names))):
                yield Chunk(place, rows).as_row()
    except NSEError as error:
        end = error
    yield Chunk(place + 1, end).as_row()


def pack_model(asking: Asking) -> tuple[str, dict[str, bytes], Asking]:
    """Pack a question and the files of its model, to be sent to workers."""
    files = {file.name: file.read_bytes() for file in find(asking.model).iterdir() if file.is_file()}
    return nse.__version__, files, asking


class Worker:
    """A process with a model, made of what `pack_model` packed, or of where that lies in Ray's store."""

    def __init__(self, content: Any):
        if not isinstance(content, tuple):
            import ray

            content = ray.get(content)
        self.version, self.files, self.asking = content

    @cached_property
    def model(self) -> Any:
        """Load the model from the files that came with it."""
        if self.version != nse.__version__:
            raise RunError(f"--ray: a worker has nse {nse.__version__} and you have {self.version}")
        with tempfile.TemporaryDirectory() as folder:
            for name, file in self.files.items():
                (Path(folder) / name).write_bytes(file)
            return nse.load(folder, self.asking.device)

    def __call__(self, batch: Any) -> Batch:
        """Answer a chunk, or pass on what was raised."""
        (chunk,) = batch["chunk"]
        content = chunk.content
        try:
            if not isinstance(content, NSEError):
                content = encode_rows(self.model, content, self.asking.strict, self.asking.batch)
        except NSEError as error:
            content = error
        return Chunk(chunk.place, content).as_row()
