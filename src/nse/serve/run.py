"""Start the server and keep it running until it is told to stop."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from ipaddress import ip_address

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
    hosts = frozenset({"127.0.0.1", "::1", "localhost", host}) if is_loopback(listening) else frozenset()
    config = uvicorn.Config(
        application(loaded, hosts), log_level="warning", lifespan="off", server_header=False
    )
    with listening:
        ready(address)
        uvicorn.Server(config).run(sockets=[listening])


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says what to do."""
    found = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
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
