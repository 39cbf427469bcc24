"""Start the server and keep it running until it is told to stop."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import ip_address
from types import FrameType

import torch
import uvicorn

from nse.console import handle_signals
from nse.errors import InputError
from nse.inference.batches import cores
from nse.inference.model import Model
from nse.serve.app import application
from nse.serve.connection import Connection
from nse.serve.guard import Guarded
from nse.serve.keys import Keys
from nse.serve.limits import RECEIVE_BUFFER, Limits
from nse.serve.log import IntoLog, Log
from nse.serve.service import Service
from nse.serve.worker import Engine, end_all, separate

KEEP_ALIVE = 75
"""Seconds for which a connection without requests stays open: longer than a proxy keeps it, which closes it
then, instead of sending a request into a connection that is being closed."""

LAST_WORDS = 5
"""Seconds for which answers are still sent to slow readers when everything is computed."""

SWITCH = 0.001
"""Seconds after which a thread that computes lets another one run Python."""


def serve(
    model: Model,
    host: str,
    port: int,
    ready: Callable[[str, bool], None],
    limits: Limits | None = None,
    keys: Keys | None = None,
    workers: int | None = None,
    access_log: bool = True,
    log_texts: bool = False,
) -> int:
    """Serve a model until a signal says stop.

    Args:
        model: The model.
        host: Address to listen at.
        port: Port to listen at; 0 takes one that is free.
        ready: Called once connections are accepted, with the address and whether other machines may reach it.
        limits: What is let in.
        keys: The keys of which one is needed, if any.
        workers: Threads that compute, on a CPU each in a process; as many as suit this machine by default.
        access_log: Whether every request is logged.
        log_texts: Whether the log has the texts.

    Returns:
        The exit code: 128 and the number of the signal.
    """
    workers = shared_out(model, workers)
    engines = [Engine(model) for _ in range(workers)] if separate(model) else []
    listening = bound(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}"
    hosts = frozenset({"127.0.0.1", "::1", "localhost", host}) if is_loopback(listening) else frozenset()
    limits = limits or Limits()
    with listening, logged() as log:
        service = Service(model, limits, log, workers, log_texts, engines)
        server = Server(application(service, hosts, keys, access_log))
        service.batcher.start()
        for engine in engines:
            engine.watch(limits.timeout, log, service.batcher.look_again)
        log.put("started", address=address, model=model.name, **asdict(limits))
        with server.capture_signals():  # from the moment on which somebody may know of the server
            ready(address, not hosts)
            server.run(sockets=[listening])
        end = time.monotonic() + LAST_WORDS
        finished = service.batcher.stop(LAST_WORDS)
        end_all(engines, end - time.monotonic() if finished else 0)
        log.put("stopped", code=server.code, finished=finished)
    if not finished:  # a thread that still computes would be waited for
        sys.stdout.flush()
        os._exit(server.code)
    return server.code


def shared_out(model: Model, workers: int | None) -> int:
    """How many threads compute; on a CPU one for each core by default, and each of them works on one core.

    Several cores at one batch wait for each other after each of its many small steps, actively: where another
    process wants a core too, that takes many times as long.
    """
    sys.setswitchinterval(SWITCH)
    if model.device.type != "cpu":
        return workers or 1
    torch.set_num_threads(1)
    return workers or cores()


@contextmanager
def logged() -> Iterator[Log]:
    """The log of a server, where uvicorn and asyncio write too."""
    log = Log()
    log.start()
    handler = IntoLog(log)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for each in loggers:
        each.addHandler(handler)
        each.propagate = False
    try:
        yield log
    finally:
        for each in loggers:
            each.removeHandler(handler)
            each.propagate = True
        log.close()


class Server(uvicorn.Server):
    """uvicorn, which on a signal first lets requests finish and says that it is not ready, then stops.

    Args:
        app: The application.

    Attributes:
        code: 128 and the number of the signal, once there was one.
    """

    def __init__(self, app: Guarded):
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=LAST_WORDS,
                backlog=app.connections.backlog,
            )
        )
        self.app, self.service = app, app.service
        self.code = 0
        self.since = 0.0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals for as long as it serves; uvicorn would send them to itself again afterwards."""
        with handle_signals(self.handle_exit, "SIGINT", "SIGTERM"):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins to stop, the second stops at once."""
        if self.code:
            self.should_exit = self.force_exit = True
            return
        self.code, self.since = 128 + sig, time.monotonic()
        self.service.draining = True
        self.service.log.put("stopping", signal=signal.Signals(sig).name, active=self.app.active)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether it is time to stop listening."""
        if self.service.draining and not self.should_exit:
            late = time.monotonic() > self.since + self.service.limits.timeout
            self.should_exit = late or not self.app.active
        return await super().on_tick(counter)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says what to do."""
    found = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        found.bind((host, port))
        found.listen(1024)
    except (OSError, UnicodeError) as error:
        if found:
            found.close()
        reason = getattr(error, "strerror", None) or str(error)
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        hint = (
            "choose another --port, or 0 for any that is free" if taken else "give an address of this machine"
        )
        raise InputError(f"serve: cannot listen at {host}:{port}: {reason}; {hint}") from None
    return found


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach a socket."""
    return ip_address(listening.getsockname()[0]).is_loopback
