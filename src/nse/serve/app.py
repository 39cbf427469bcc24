"""The HTTP application: the page at /, and under /v1 what it asks for."""

from __future__ import annotations

import threading
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import nse
from nse import api, hub
from nse.errors import InputError, NSEError
from nse.serve.about import about
from nse.viz import report

LARGEST_BODY = 1 << 16
"""Bytes of a request."""

MOST_TEXTS, LONGEST_TEXT = 21, 10_000
"""Texts of a request, and characters of each."""

MOST_WORDS = 200
"""Of a text that is traced: a picture of more could not be looked at."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""On every answer: nothing from elsewhere runs in the page, nothing of it goes elsewhere."""


SEND = 'send {"texts": ["..."]}'
"""What an error says to do."""


class Texts(BaseModel):
    """What a request brings."""

    model_config = ConfigDict(extra="forbid", strict=True)

    texts: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_TEXT)]], Field(min_length=1, max_length=MOST_TEXTS)
    ]
    """What the model takes, as `fields` of `/v1/model` says."""


class Problem(BaseModel):
    """What was wrong, and what to do."""

    type: str
    message: str


class Failure(BaseModel):
    """The shape of every error."""

    error: Problem


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "The model cannot take these texts."},
    413: {"model": Failure, "description": "The request or a text is too long."},
    422: {"model": Failure, "description": "The request has another form than described."},
    503: {"model": Failure, "description": "The model failed on this request."},
}


def application(loaded: hub.Model) -> FastAPI:
    """The application that serves a model."""
    app = FastAPI(title=f"nse {loaded.folder.name}", version=nse.__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Guarded)
    one_at_a_time = threading.Lock()  # while a model is traced, its encoders are hooked

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(report.page("index.html"), media_type=report.FILES["index.html"])

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in report.FILES:  # a closed list: no path of the disk can be asked for
            raise HTTPException(404)
        return Response(report.page(name), media_type=report.FILES[name])

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "live"}

    @app.get("/v1/model")
    async def model() -> dict[str, Any]:
        """What the model is, what it takes, and examples."""
        return about(loaded)

    @app.post("/v1/trace", responses=ERRORS)
    def trace(given: Annotated[Texts, Body()]) -> Response:
        """What the memory did with texts, and what the model says, as trace.schema.json describes it."""
        with one_at_a_time:
            found = api.trace(loaded, *given.texts)
        longest = max(len(text.words) for text in found.texts)
        if longest > MOST_WORDS and loaded.config.kind != "document":
            raise TooLongError(
                f"a text has {longest:,} words and a picture shows {MOST_WORDS}: shorten it, or ask for its "
                "label alone with nse predict"
            )
        return Response(found.to_json(), media_type="application/json")

    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(NSEError, failed)
    app.add_exception_handler(Exception, failed)
    return app


class TooLongError(InputError):
    """More than a picture shows."""


def told(status: int, kind: str, message: str) -> JSONResponse:
    """An error in the one shape that all have."""
    return JSONResponse({"error": {"type": kind, "message": message}}, status)


async def malformed(request: Request, error: Exception) -> Response:
    """A request of another form."""
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()[0]
    place = ".".join(str(part) for part in wrong["loc"] if part != "body")
    return told(422, "invalid_request", f"{place or 'body'}: {wrong['msg']}; {SEND}")


async def refused(request: Request, error: Exception) -> Response:
    """A page that does not exist, a method that it does not take, or a body that is no JSON at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return told(400, "invalid_request", f"the body cannot be read as JSON; {SEND}")
    return told(error.status_code, "not_found" if error.status_code == 404 else "refused", str(error.detail))


async def failed(request: Request, error: Exception) -> Response:
    """The texts are none for this model, or the model failed on them; the next request is served."""
    if isinstance(error, TooLongError):
        return told(413, "too_long", str(error))
    if isinstance(error, InputError):
        return told(400, "invalid_text", str(error))
    message = (
        str(error)
        if isinstance(error, NSEError)
        else "the model failed on this request; see the server's log"
    )
    return told(503, "model_failed", message)


class Guarded:
    """Refuses bodies that are too large, whatever their headers say, and puts `HEADERS` on every answer.

    Args:
        app: What serves the others.
    """

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body up to the limit, then hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client is gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > LARGEST_BODY:
                too_long = told(
                    413, "too_long", f"the request is longer than {LARGEST_BODY:,} bytes: shorten it"
                )
                await too_long(scope, receive, with_headers)
                return
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return parts.pop() if parts else await receive()

        await self.app(scope, again, with_headers)
