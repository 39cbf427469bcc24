"""Start the server, and stop it gracefully on a signal."""

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
from nse.serve.worker import EngineProcess, make_engines, stop_engines

KEEP_ALIVE = 75  # seconds; longer than the usual 60 of a proxy
SHUTDOWN_SECONDS = 5  # to send the last answers
SWITCH_INTERVAL = 0.001  # seconds until a computing thread must release the GIL
LOGGED_SETTINGS = ("max_batch", "max_wait_ms", "max_queue", "max_chars", "max_texts", "timeout")


def serve(model: Model, settings: Settings, ready: Callable[[str, bool], None]) -> int:
    """Serve a model until a signal stops the server; return the exit code, 128 plus the number of the signal.

    `ready` is called with the address, and whether other machines can reach it, once requests are accepted.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    engines = make_engines(model, settings.workers)
    host = settings.host
    listener = listen(host, settings.port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    is_loopback = ip_address(listener.getsockname()[0]).is_loopback
    hosts = frozenset({"127.0.0.1", "::1", "localhost", host}) if is_loopback else frozenset()
    with listener, open_log() as log:
        app = App(model, settings, log, engines, hosts)
        server = Server(app)
        for engine in engines:
            if isinstance(engine, EngineProcess):
                engine.watch(settings.timeout, log, app.batcher.wake_threads)
        fields = {name: getattr(settings, name) for name in LOGGED_SETTINGS}
        log.put("started", address=address, model=model.name, **fields)
        with server.capture_signals():  # before `ready`: a signal may arrive right after it
            ready(address, not is_loopback)
            server.run(sockets=[listener])
        end = time.monotonic() + SHUTDOWN_SECONDS
        finished = app.batcher.stop(SHUTDOWN_SECONDS)
        stop_engines(engines, end - time.monotonic() if finished else 0)
        log.put("stopped", code=server.code, finished=finished)
    if not finished:  # a normal exit would wait for the threads
        sys.stdout.flush()
        os._exit(server.code)
    return server.code


class Server(uvicorn.Server):
    """uvicorn server that reports "not ready" and finishes its requests before it stops."""

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
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            backlog=app.connections.backlog,
        )
        super().__init__(config)
        self.app = app
        self.code, self.signal_time = 0, 0.0  # exit code and time of the first signal

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Handle signals while serving; uvicorn would raise them again afterwards."""
        return handle_signals(self.handle_exit, "SIGINT", "SIGTERM")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully on the first signal, immediately on the second."""
        if self.code:
            self.should_exit = self.force_exit = True
            return
        self.code, self.signal_time = 128 + sig, time.monotonic()
        self.app.draining = True
        self.app.log.put("stopping", signal=signal.Signals(sig).name, active=self.app.active)

    async def on_tick(self, counter: int) -> bool:
        """Stop the server when all requests are answered, or after the timeout; called ten times a second."""
        if self.app.draining and not self.should_exit:
            is_late = time.monotonic() > self.signal_time + self.app.settings.timeout
            self.should_exit = is_late or not self.app.active
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """Make a listening socket."""
    listener = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, UnicodeError) as error:
        if listener:
            listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        hint = "use an address of this machine"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            hint = "use another port, or 0 for a free one"
        raise InputError(f"cannot listen at {host}:{port}: {reason}; {hint}") from None
    return listener
