"""Error responses, all of the form {"error": {"type": ..., "message": ...}}."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

CLOSE = {"Connection": "close"}  # the rest of the body is not read
CLIENT_CLOSED_REQUEST = 499  # as nginx calls it


class HTTPError(Exception):
    """Error response: a status, a type for programs and a message for people."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, headers

    def make_response(self) -> JSONResponse:
        """Make the response."""
        content = {"error": {"type": self.kind, "message": self.message}}
        return JSONResponse(content, self.status, self.headers)


def make_disconnect_error() -> HTTPError:
    """Make the error of a request whose client has disconnected; only the log shows it."""
    return HTTPError(CLIENT_CLOSED_REQUEST, "gone", "the client has disconnected")


def make_stopping_error() -> HTTPError:
    """Make the error of a request that arrives while the server shuts down."""
    message = "the server is shutting down: send the request to another server, or later"
    return HTTPError(503, "stopping", message, {"Retry-After": "1", **CLOSE})
