"""What goes wrong, in the one shape that every error has: {"error": {"type": ..., "message": ...}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from nse.errors import InputError

CLOSE = {"Connection": "close"}
"""The header of an answer after which nothing more is read: the rest of a body may still be on its way."""


class What(BaseModel):
    """What was wrong, and what to do."""

    type: str
    message: str


class Failure(BaseModel):
    """The shape of every error."""

    error: What


class TooLongError(InputError):
    """More than is read, or than a picture shows."""


class Problem(Exception):  # noqa: N818 - it is an answer
    """An answer that is not the one that was asked for.

    Args:
        status: Of HTTP.
        kind: A word for programs.
        message: What was wrong and what to do, for people.
        headers: Of the answer.
    """

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, headers

    def response(self) -> JSONResponse:
        """The answer."""
        told = {"error": {"type": self.kind, "message": self.message}}
        return JSONResponse(told, self.status, self.headers)


def bug() -> Problem:
    """What nobody expected."""
    return Problem(500, "bug", "something is wrong with the server; see its log")


def stopping() -> Problem:
    """What is told to those who come too late."""
    message = "the server is about to stop: ask another one, or again later"
    return Problem(503, "stopping", message, {"Retry-After": "1", **CLOSE})


DESCRIPTIONS = {
    400: "The model cannot take these texts, a key comes twice, or the server is not called so.",
    401: "The key is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request or a text is too long, or there are too many texts.",
    415: "The request does not say that it is JSON.",
    422: "The request has another form than described.",
    429: "Too many requests wait already; come back after as many seconds as Retry-After says.",
    431: "The head of the request is too long, or has too many headers.",
    503: "The model failed on this request, or the server is about to stop.",
    504: "The answer was not there in time.",
}
"""Every status of an error that a described route gives."""

RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors, as OpenAPI describes them."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {"model": Failure, "description": DESCRIPTIONS[status]}
        if status == 429:
            found[status]["headers"] = RETRY
    return found
