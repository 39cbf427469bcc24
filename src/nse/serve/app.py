"""The HTTP application: the page at /, and under /v1 what it asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import nse
from nse import api, hub
from nse.errors import InputError, NSEError
from nse.purpose import purpose
from nse.reading import limit
from nse.serve.about import about
from nse.text.sentences import sentences
from nse.viz import report

LARGEST_BODY = 1 << 16
"""Bytes of a request."""

MOST_TEXTS, LONGEST_TEXT = 21, 10_000
"""Texts of a request, and characters of each."""

MOST_WORDS, MOST_SENTENCES = 200, 50
"""Of a text that is traced, and of a document: a picture of more could not be looked at."""

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

    texts: Annotated[list[str], Field(min_length=1)]
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
    413: {"model": Failure, "description": "The request or a text is too long, or there are too many texts."},
    415: {"model": Failure, "description": "The request does not say that it is JSON."},
    422: {"model": Failure, "description": "The request has another form than described."},
    503: {"model": Failure, "description": "The model failed on this request."},
}


def application(loaded: hub.Model, hosts: frozenset[str] = frozenset()) -> FastAPI:
    """The application that serves a model, under these names alone if some are given."""
    app = FastAPI(title=f"nse {loaded.folder.name}", version=nse.__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Guarded, hosts=hosts)
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
        refuse_too_much(loaded, given.texts)
        with one_at_a_time:
            found = api.trace(loaded, *given.texts)
        return Response(found.to_json(), media_type="application/json")

    got: dict[str, Callable[..., Any]] = {"/": page, "/page/{name}": part, "/health/live": live}
    for path, answer in {**got, "/v1/model": model}.items():
        app.head(path, include_in_schema=False)(answer)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(NSEError, failed)
    app.add_exception_handler(Exception, failed)
    return app


class TooLongError(InputError):
    """More than a picture shows."""


def refuse_too_much(loaded: hub.Model, texts: list[str]) -> None:
    """Refuse more than a picture shows, before anything is computed."""
    if len(texts) > MOST_TEXTS:
        raise TooLongError(f"there are {len(texts)} texts and at most {MOST_TEXTS} are read: leave some out")
    for number, text in enumerate(texts, start=1):
        if len(text) > LONGEST_TEXT:
            most = f"{LONGEST_TEXT:,} are read"
            raise TooLongError(f"text {number} has {len(text):,} characters and {most}: shorten it")
        if loaded.config.kind == "document":
            words, what = len(sentences(text)), "sentences"
        else:
            words, what = min(len(loaded.tokenize(text)), limit(loaded)), "words"
        if words > (most_shown := MOST_SENTENCES if what == "sentences" else MOST_WORDS):
            raise TooLongError(
                f"text {number} has {words:,} {what} and a picture shows {most_shown}: shorten it, or ask "
                f"for the answer alone with nse {purpose(loaded)[1]}"
            )


def told(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error in the one shape that all have."""
    return JSONResponse({"error": {"type": kind, "message": message}}, status, headers)


async def malformed(request: Request, error: Exception) -> Response:
    """A request of another form."""
    assert isinstance(error, RequestValidationError)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return told(415, "not_json", f"the request must say Content-Type: application/json; {SEND}")
    wrong = error.errors()[0]
    if wrong["type"] == "json_invalid":
        return told(422, "invalid_request", f"the body is no JSON; {SEND}")
    place = ".".join(str(part) for part in wrong["loc"] if part != "body")
    return told(422, "invalid_request", f"{place or 'body'}: {wrong['msg']}; {SEND}")


async def refused(request: Request, error: Exception) -> Response:
    """A page that does not exist, a method that it does not take, or a body that is no JSON at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return told(400, "invalid_request", f"the body cannot be read as JSON; {SEND}")
    kind = "not_found" if error.status_code == 404 else "refused"
    return told(error.status_code, kind, str(error.detail), error.headers)


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


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    return header.rpartition("]")[0].strip("[") if header.startswith("[") else header.partition(":")[0]


class Guarded:
    """Refuses bodies that are too large, whatever their headers say, and puts `HEADERS` on every answer.

    Args:
        app: What serves the others.
        hosts: The only names under which it is served, if there are some: else a page from elsewhere, whose
            name is made to lead here, could read what is served to this machine alone.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] = frozenset()):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body up to the limit, then hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if self.hosts and host_of(Headers(scope=scope).get("host", "")) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            await told(400, "unknown_host", f"this server answers to {names} alone; start it with --host")(
                scope, receive, with_headers
            )
            return
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
