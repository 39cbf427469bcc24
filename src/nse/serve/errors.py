"""What goes wrong, in the one shape that every error has: {"error": {"type": ..., "message": ...}}."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

CLOSE = {"Connection": "close"}  # nothing more is read: the rest of a body may still be on its way
GONE = 499  # the status of a request whose client went away, as nginx has it


class Problem(Exception):  # noqa: N818 - it is an answer
    """An answer that is not the one that was asked for: a kind for programs, a message for people."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, headers

    def response(self) -> JSONResponse:
        """Make the answer."""
        content = {"error": {"type": self.kind, "message": self.message}}
        return JSONResponse(content, self.status, self.headers)


def gone() -> Problem:
    """Note that nobody waits for an answer any more."""
    return Problem(GONE, "gone", "the client has gone away")


def stopping() -> Problem:
    """Refuse those who come too late."""
    message = "the server is about to stop: ask another one, or again later"
    return Problem(503, "stopping", message, {"Retry-After": "1", **CLOSE})
