"""The HTTP application: the page at /, and under /v1 what a model is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import nse
from nse.serve import schemas
from nse.serve.about import about
from nse.serve.guard import Guarded
from nse.serve.keys import Keys
from nse.serve.metrics import CONTENT_TYPE
from nse.serve.problems import Problem, bug, documented
from nse.serve.questions import Route, routes
from nse.serve.service import Service
from nse.viz import report

Endpoint = Callable[..., Awaitable[Response]]

PATHS = ("/", "/openapi.json", "/metrics", "/v1/model", "/health/live", "/health/ready")
"""What the figures tell apart, beside the questions."""

ANSWERS_TO_POSTS = (400, 408, 413, 415, 422, 429, 431, 503, 504)


def application(
    service: Service,
    hosts: frozenset[str] = frozenset(),
    keys: Keys | None = None,
    access_log: bool = True,
) -> Guarded:
    """The application that serves a model; see `Guarded` for the arguments."""
    locked = (401,) if keys else ()
    app = FastAPI(
        title=f"nse {service.model.name}",
        version=nse.__version__,
        description=f"This model {service.model.does}.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_page(app)
    add_health(app, service)
    add_figures(app, service, locked)
    asked = routes(service.model, service.limits)
    for route in asked:
        add_question(app, route, locked)
    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, surprised)
    describe(app, keys)
    return Guarded(app, service, asked, PATHS, hosts, keys, access_log)


def add_page(app: FastAPI) -> None:
    """The page and its files."""

    async def page() -> Response:
        return Response(report.page("index.html"), media_type=report.FILES["index.html"])

    async def part(name: str) -> Response:
        if name not in report.FILES:  # a closed list: no path of the disk can be asked for
            raise HTTPException(404)
        return Response(report.page(name), media_type=report.FILES[name])

    app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)(page)
    app.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)(part)


def add_health(app: FastAPI, service: Service) -> None:
    """Whether the process answers, and whether it takes requests."""

    async def live() -> Response:
        """Whether the process answers; if not, start it again."""
        return JSONResponse({"status": "live"})

    async def ready() -> Response:
        """Whether requests are let in; if not, send them elsewhere."""
        if reason := service.unready():
            raise Problem(503, "not_ready", reason)
        return JSONResponse({"status": "ready"})

    told: dict[int | str, dict[str, Any]] = {200: {"model": schemas.Health}}
    add_get(app, "/health/live", live, {**told, **documented(400, 408, 413, 431)})
    add_get(app, "/health/ready", ready, {**told, **documented(400, 408, 413, 431, 503)})


def add_figures(app: FastAPI, service: Service, locked: tuple[int, ...]) -> None:
    """What the model is, and what the server has counted."""

    async def model() -> Response:
        """What the model is, what it takes, and examples."""
        return JSONResponse(about(service.model, service.limits))

    async def metrics() -> Response:
        """What the server has counted, for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    errors = documented(400, *locked, 408, 413, 431)
    add_get(app, "/v1/model", model, {200: {"model": dict[str, Any]}, **errors})
    content = {CONTENT_TYPE: {"schema": {"type": "string"}}}
    text = {"description": "Prometheus's text format.", "content": content}
    add_get(app, "/metrics", metrics, {200: text, **errors})


def add_get(app: FastAPI, path: str, endpoint: Endpoint, responses: dict[int | str, dict[str, Any]]) -> None:
    """A route that is only read."""
    app.get(path, responses=responses, response_class=Response)(endpoint)
    app.head(path, include_in_schema=False)(endpoint)


def add_question(app: FastAPI, route: Route, locked: tuple[int, ...]) -> None:
    """A route that asks the model: here it is described, and other methods are refused; `Guarded` answers."""

    async def answered() -> Response:
        raise AssertionError("Guarded has answered this")

    if route.gives:
        told: dict[str, Any] = {"model": route.gives}
    else:
        schema = {"$ref": "#/components/schemas/Trace"}
        told = {"description": "The trace.", "content": {"application/json": {"schema": schema}}}
    app.post(
        route.path,
        summary=route.about,
        operation_id=route.path.rpartition("/")[2],
        responses={200: told, **documented(*sorted({*ANSWERS_TO_POSTS, *locked}))},
        response_class=Response,
        include_in_schema=not route.unfit,
        openapi_extra=schemas.body(route.parts, route.examples),
    )(answered)


def describe(app: FastAPI, keys: Keys | None) -> None:
    """Put into the description what FastAPI does not know: the schema of traces, and that a key is needed."""
    told = app.openapi()
    told["components"]["schemas"]["Trace"] = schemas.trace_schema()
    if keys:
        told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in told["paths"].items():
            if not path.startswith("/health/"):
                for operation in operations.values():
                    operation["security"] = [{"key": []}]


async def problem(request: Request, error: Exception) -> Response:
    """A question that was not answered."""
    assert isinstance(error, Problem)
    request.scope["nse"].error = error.kind
    return error.response()


async def surprised(request: Request, error: Exception) -> Response:
    """What nobody expected; `Guarded` logs it."""
    return await problem(request, bug())


async def refused(request: Request, error: Exception) -> Response:
    """A page that does not exist, or a method that it does not take."""
    assert isinstance(error, HTTPException)
    kind = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
    headers: Mapping[str, str] | None = error.headers
    return await problem(request, Problem(error.status_code, kind, str(error.detail), headers))
