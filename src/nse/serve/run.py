"""Start the server and keep it running until it is told to stop."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from ipaddress import ip_address
from types import FrameType

import uvicorn

from nse.console import handle_signals
from nse.errors import InputError
from nse.inference.model import Model
from nse.serve.app import App
from nse.serve.connection import Connection
from nse.serve.observe import open_log
from nse.serve.settings import RECEIVE_BUFFER, Settings
from nse.serve.worker import EngineProcess, end_all, make_engines

KEEP_ALIVE = 75  # seconds without requests until a connection is closed, later than a proxy would close it
LAST_WORDS = 5  # seconds for which answers are still sent to slow readers when everything is computed
SWITCH = 0.001  # seconds after which a thread that computes lets another one run Python
LIMITS = ("max_batch", "max_wait_ms", "max_queue", "max_chars", "max_texts", "timeout")  # told by the log


def serve(model: Model, settings: Settings, ready: Callable[[str, bool], None]) -> int:
    """Serve a model until a signal says stop; returns the exit code, 128 and the number of the signal.

    Once connections are accepted, `ready` is told the address and whether other machines may reach it.
    """
    sys.setswitchinterval(SWITCH)
    engines = make_engines(model, settings.workers)
    host = settings.host
    listening = listen(host, settings.port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    is_loopback = ip_address(listening.getsockname()[0]).is_loopback
    hosts = frozenset({"127.0.0.1", "::1", "localhost", host}) if is_loopback else frozenset()
    with listening, open_log() as log:
        app = App(model, settings, log, engines, hosts)
        server = Server(app)
        for engine in engines:
            if isinstance(engine, EngineProcess):
                engine.watch(settings.timeout, log, app.batcher.look_again)
        log.put("started", address=address, model=model.name, **{n: getattr(settings, n) for n in LIMITS})
        with server.capture_signals():  # from the moment on which somebody may know of the server
            ready(address, not is_loopback)
            server.run(sockets=[listening])
        end = time.monotonic() + LAST_WORDS
        finished = app.batcher.stop(LAST_WORDS)
        end_all(engines, end - time.monotonic() if finished else 0)
        log.put("stopped", code=server.code, finished=finished)
    if not finished:  # a thread that still computes would be waited for
        sys.stdout.flush()
        os._exit(server.code)
    return server.code


class Server(uvicorn.Server):
    """uvicorn, which on a signal first lets requests finish and says that it is not ready, then stops."""

    def __init__(self, app: App):
        config = uvicorn.Config(
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
        super().__init__(config)
        self.app = app
        self.code, self.since = 0, 0.0  # 128 and the number of the signal, once there was one; and its time

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Handle signals for as long as it serves; uvicorn would send them to itself again afterwards."""
        return handle_signals(self.handle_exit, "SIGINT", "SIGTERM")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop at the first signal, stop at once at the second."""
        if self.code:
            self.should_exit = self.force_exit = True
            return
        self.code, self.since = 128 + sig, time.monotonic()
        self.app.draining = True
        self.app.log.put("stopping", signal=signal.Signals(sig).name, active=self.app.active)

    async def on_tick(self, counter: int) -> bool:
        """Look ten times a second whether it is time to stop listening."""
        if self.app.draining and not self.should_exit:
            late = time.monotonic() > self.since + self.app.settings.timeout
            self.should_exit = late or not self.app.active
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """Make a socket that listens, or say what to do."""
    listening = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, UnicodeError) as error:
        if listening:
            listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        hint = "give an address of this machine"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            hint = "choose another port, or 0 for any that is free"
        raise InputError(f"cannot listen at {host}:{port}: {reason}; {hint}") from None
    return listening
