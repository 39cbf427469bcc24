"""The HTTP application: who may ask, how much and how long, what is answered and what is noted of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

import nse
from nse.errors import InputError, NSEError
from nse.inference.model import Model
from nse.serve.connection import ConnectionLimit
from nse.serve.errors import CLOSE, Problem, gone, stopping
from nse.serve.handlers import describe_model, hide_folder, make_routes
from nse.serve.observe import Log, Metrics
from nse.serve.queue import Batcher, HttpRequest
from nse.serve.schemas import DESCRIPTIONS, ERRORS, describe_components, describe_json, describe_responses
from nse.serve.settings import Settings
from nse.serve.worker import Engine
from nse.viz import report

HEADERS = {  # of every answer: nothing from elsewhere runs in the page, nothing of it goes elsewhere
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-cache",
}
SOON = 0.1  # seconds: whoever is answered within them is not asked whether they are still there


class Page(NamedTuple):
    """What is only read."""

    read: Callable[[], Response]
    about: str = ""  # a page without it is not described
    content: dict[str, Any] | None = None  # as it is described
    errors: tuple[int, ...] = ()  # besides those that every path may give


class App:
    """The application of a server: it sees every request first, and every answer last.

    It is served under the names of its hosts only, if there are some: else a page from elsewhere, whose name
    is made to lead here, could read what is served to this machine alone.
    """

    def __init__(
        self, model: Model, settings: Settings, log: Log, engines: Sequence[Engine], hosts: frozenset[str]
    ):
        self.model, self.settings, self.log = model, settings, log
        self.hosts = frozenset(host.lower() for host in hosts)
        self.active = 0  # requests that are not answered yet
        self.draining = False  # whether the server is about to stop; then nothing new is let in
        served = {"model": model.name, "kind": model.kind.name, "task": model.config.task}
        self.metrics = Metrics({**served, "version": nse.__version__})
        self.batcher = Batcher(engines, settings, self.metrics.count_batch)
        self.connections = ConnectionLimit(log, self.metrics)
        self.add_gauges()
        self.routes, self.pages = make_routes(model, settings), self.list_pages()
        described = describe(self)
        self.pages["/openapi.json"] = Page(lambda: JSONResponse(described))

    def add_gauges(self) -> None:
        """Let figures be looked up that tell how it is now."""
        batcher, add = self.batcher, self.metrics.add_gauge
        add("nse_queue_requests", "Requests that wait for the model.", lambda: len(batcher.queue))
        add("nse_computing", "Threads that compute.", lambda: len(batcher.running))
        about = "Processes that compute and can be asked; on a GPU, threads."
        add("nse_engines", about, lambda: len(batcher.find_able()))
        about = "Processes that died or hung, and were followed by another."
        add("nse_engines_replaced", about, lambda: sum(engine.replaced for engine in batcher.engines))
        add("nse_ready", "Whether requests are let in.", lambda: self.find_obstacle() is None)
        add("nse_log_dropped", "Lines of the log that nobody took in time.", lambda: self.log.dropped)

    def list_pages(self) -> dict[str, Page]:
        """List what is only read, by its path."""
        live = "Whether the process answers; if not, start it again."
        ready = "Whether requests are let in; if not, send them elsewhere."
        model = "What the model is, what it takes, and examples."
        figures = "What the server has counted, for Prometheus."
        health, anything = describe_json("Health"), {"application/json": {"schema": {"type": "object"}}}
        text = {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}
        described = describe_model(self.model, self.settings)
        return {
            "/": Page(partial(read_file, "index.html")),
            **{f"/page/{name}": Page(partial(read_file, name)) for name in report.FILES},
            "/health/live": Page(lambda: JSONResponse({"status": "live"}), live, health),
            "/health/ready": Page(self.read_ready, ready, health, (503,)),
            "/v1/model": Page(lambda: JSONResponse(described), model, anything),
            "/metrics": Page(self.read_figures, figures, text),
        }

    def read_ready(self) -> Response:
        """Tell whether requests are let in."""
        if reason := self.find_obstacle():
            raise Problem(503, "not_ready", reason)
        return JSONResponse({"status": "ready"})

    def read_figures(self) -> Response:
        """Write everything that was counted as Prometheus reads it."""
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def find_obstacle(self) -> str | None:
        """Find why no request should be sent here now, if so."""
        if self.draining:
            return "the server is about to stop"
        if not all(thread.is_alive() for thread in self.batcher.threads):
            return "the thread that computes has ended: start the server again"
        if not self.batcher.find_able():
            return "the processes that compute have died or hung: others are being started"
        if self.batcher.is_late(self.settings.timeout):
            return f"the model has been computing for more than {self.settings.timeout:g} s"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request, status = HttpRequest(scope, receive, self.settings.timeout), 0
        self.active += 1
        try:
            response = await self.respond(request)
            status = response.status_code
            response.raw_headers += [*HEADERS.items(), (b"x-request-id", request.name.encode())]
            if self.draining:
                response.raw_headers.append((b"connection", b"close"))
            await response(scope, receive, send)
        finally:
            self.active -= 1
            self.note(request, status)

    async def respond(self, request: HttpRequest) -> Response:
        """Answer a request, whatever comes of it."""
        try:
            return await self.answer(request)
        except Problem as error:
            problem = error
        except asyncio.CancelledError:  # the time to stop in peace is over
            problem = stopping()
        except Exception as error:
            self.log.error("a request was not answered", error, request=request.name)
            problem = Problem(500, "bug", "something is wrong with the server; see its log")
        request.error = problem.kind
        return problem.response()

    async def answer(self, request: HttpRequest) -> Response:
        """Let a request in, read it whole and answer it."""
        self.check_sender(request)
        if self.draining and request.method == "POST":  # how the server is may still be asked
            self.metrics.refused.labels("draining").inc()
            raise stopping()
        try:
            async with asyncio.timeout(self.settings.timeout):
                body = await self.read(request)
        except TimeoutError:
            message = f"the request did not arrive within {self.settings.timeout:g} s: send it faster"
            raise Problem(408, "too_slow", message, CLOSE) from None
        route, page = (
            self.routes.get(request.path),
            self.pages.get(request.path),
        )  # no path of the disk is one
        if route and request.method == "POST":
            route.ask(request, body)
            return Response(await self.compute(request), media_type="application/json")
        if page and request.method in ("GET", "HEAD"):
            return page.read()
        if route or page:
            allowed = {"Allow": "POST" if route else "GET, HEAD"}
            raise Problem(405, "wrong_method", "Method Not Allowed", allowed)
        raise Problem(404, "not_found", "Not Found")

    def check_sender(self, request: HttpRequest) -> None:
        """Refuse a request that was sent to another name, or to two, or without a key that is known."""
        if "refused" in request.scope:  # by the connection
            raise request.scope.pop("refused")
        headers, names = request.headers, [name for name, _ in request.scope["headers"]]
        if names.count(b"host") > 1:
            raise Problem(400, "unknown_host", "there are two Host headers: send one", CLOSE)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        host = host.rpartition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
        if self.hosts and host not in self.hosts:
            message = f"this server answers to {', '.join(sorted(self.hosts))} alone"
            raise Problem(400, "unknown_host", message, CLOSE)
        if self.settings.keys is None or request.path.startswith("/health/"):
            return
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        key = token.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        if not self.settings.keys.allow(key):
            message = "a key is needed: send the header Authorization: Bearer KEY"
            raise Problem(401, "no_key", message, {"WWW-Authenticate": "Bearer", **CLOSE})

    async def read(self, request: HttpRequest) -> bytes:
        """Read the body of a request, if it is not too long."""
        body, more = bytearray(), True
        while more:
            message = await request.receive()
            if message["type"] != "http.request":
                raise (
                    request.scope.pop("refused", None) or gone()
                )  # not kept: it refers to what has the scope
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.settings.max_body:
                reason = f"the request is longer than {self.settings.max_body:,} bytes: shorten it"
                raise Problem(413, "too_long", reason, CLOSE)
        return bytes(body)

    async def compute(self, request: HttpRequest) -> bytes:
        """Let a question be computed with others, unless it takes too long or its client goes away."""
        try:
            self.batcher.submit(request)
        except Problem:
            self.metrics.refused.labels("queue_full").inc()
            raise
        try:
            left = request.deadline - time.monotonic()
            await asyncio.wait((request.future,), timeout=min(left, SOON))
            if not request.future.done():
                await self.watch(request)
            return self.take_result(request)
        finally:
            if not request.future.done():
                self.batcher.drop(request)
                request.future.cancel()

    async def watch(self, request: HttpRequest) -> None:
        """Wait on, and look whether somebody else still does."""
        client = asyncio.ensure_future(request.receive())  # there is nothing more to come but that it goes
        try:
            both, left = (request.future, client), request.deadline - time.monotonic()
            await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not request.future.done():
                message = f"there was no answer within {self.settings.timeout:g} s: try again later"
                raise gone() if client.done() else Problem(504, "timed_out", message)
        finally:
            client.cancel()

    def take_result(self, request: HttpRequest) -> bytes:
        """Take what came of a request, errors as they are told."""
        try:
            return request.future.result()
        except Problem:
            raise
        except InputError as error:
            raise Problem(400, "invalid_text", hide_folder(self.model, error)) from None
        except NSEError as error:
            message = hide_folder(self.model, error)
        except Exception as error:
            self.log.error("the model failed on a request", error)
            message = "the model failed on this request; see the server's log"
        self.metrics.failed.inc()
        raise Problem(503, "model_failed", message)

    def note_refused(self, problem: Problem) -> None:
        """Count and log a request of which there is no more than what is wrong with its head."""
        self.metrics.count_request("other", problem.status, 0.0)
        if self.settings.access_log:
            self.log.put("request", status=problem.status, error=problem.kind)

    def note(self, request: HttpRequest, status: int) -> None:
        """Count a request and log it."""
        path, seconds = request.path, time.monotonic() - request.begun
        is_known = path in self.routes or (path in self.pages and not path.startswith("/page/"))
        self.metrics.count_request(path if is_known else "other", status, seconds)
        if not self.settings.access_log:
            return
        told = {"method": request.method, "path": path[:200], "status": status}
        told |= {"ms": round(1000 * seconds, 1), "wait_ms": round(1000 * request.waited, 1)}
        told |= {"rows": request.rows, "request": request.name}
        extra = {"error": request.error, "texts": self.settings.log_texts and request.texts}
        self.log.put("request", **told, **{name: value for name, value in extra.items() if value})


def read_file(name: str) -> Response:
    """Answer with a file of the page."""
    return Response(report.read_page_file(name), media_type=report.FILES[name])


def describe(app: App) -> dict[str, Any]:
    """Describe in OpenAPI's terms what can be read and asked."""
    locked = {401} if app.settings.keys else set()
    security: dict[str, Any] = {"security": [{"key": []}]} if locked else {}
    paths: dict[str, Any] = {}
    for path, page in app.pages.items():
        if page.about:
            name, is_open = path.rpartition("/")[2], path.startswith("/health/")
            errors = {*ERRORS, *page.errors} | (set() if is_open else locked)
            operation = {
                "summary": name.title(),
                "description": page.about,
                "operationId": f"{name}{path.replace('/', '_')}_get",
                "responses": describe_responses(page.content or {}, errors),
            }
            paths[path] = {"get": operation if is_open else operation | security}
    fitting = {path: route for path, route in app.routes.items() if not route.unfit}
    for path, route in fitting.items():
        examples = {f"{number}": {"value": each} for number, each in enumerate(route.examples, start=1)}
        content = {"application/json": {"schema": route.schema, "examples": examples}}
        answer = describe_json(route.gives.__name__ if route.gives else "Trace")
        operation = {
            "summary": route.about,
            "operationId": route.name,
            "requestBody": {"required": True, "content": content},
            "responses": describe_responses(answer, DESCRIPTIONS.keys() - {401} | locked),
        }
        paths[path] = {"post": operation | security}
    components = {"schemas": describe_components(each.gives for each in fitting.values() if each.gives)}
    if locked:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    about = {"title": f"nse {app.model.name}", "description": f"This model {app.model.does}."}
    info = {**about, "version": nse.__version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}
