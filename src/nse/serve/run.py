"""Start the server and keep it running until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from nse import hub
from nse.errors import InputError
from nse.serve.app import application


def serve(loaded: hub.Model, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve a model.

    Args:
        loaded: The model.
        host: Address to listen at.
        port: Port to listen at; 0 takes one that is free.
        ready: Called with the server's address once connections are accepted.
    """
    listening = bound(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}"
    config = uvicorn.Config(application(loaded), log_level="warning", lifespan="off", server_header=False)
    with listening:
        ready(address)
        uvicorn.Server(config).run(sockets=[listening])


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says what to do."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except OSError as error:
        hint = "another program listens there; choose another --port, or 0 for any that is free"
        reason = hint if port else error.strerror
        raise InputError(f"serve: cannot listen at {host}:{port}: {error.strerror}; {reason}") from None
    return found
