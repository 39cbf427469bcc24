"""The ASGI application: access, limits and timeouts of requests, responses, log and metrics."""

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
from nse.serve.handlers import describe_model, hide_folder, make_routes
from nse.serve.http_errors import CLOSE, HTTPError, make_disconnect_error, make_stopping_error
from nse.serve.observe import Log, Metrics
from nse.serve.queue import Batcher, HttpRequest
from nse.serve.schemas import DESCRIPTIONS, ERRORS, describe_components, describe_json, describe_responses
from nse.serve.settings import Settings
from nse.serve.worker import Engine
from nse.viz import report

HEADERS = {  # of every response: the page loads nothing from other sites, and cannot be embedded
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-cache",
}
WATCH_AFTER = 0.1  # seconds: a disconnect is noticed only after this time


class GetRoute(NamedTuple):
    """Route that is read with GET."""

    respond: Callable[[], Response]
    description: str = ""  # routes without one are not in /openapi.json
    content: dict[str, Any] | None = None
    errors: tuple[int, ...] = ()  # other than `ERRORS`


class App:
    """ASGI application of a server.

    With `hosts`, it answers only requests to these host names: else a web page elsewhere could read a local
    server through a DNS name that points to 127.0.0.1 (DNS rebinding).
    """

    def __init__(
        self, model: Model, settings: Settings, log: Log, engines: Sequence[Engine], hosts: frozenset[str]
    ):
        self.model, self.settings, self.log = model, settings, log
        self.hosts = frozenset(host.lower() for host in hosts)
        self.active = 0  # requests without an answer yet
        self.draining = False  # whether the server is shutting down and refuses new requests
        model_info = {"model": model.name, "kind": model.kind.name, "task": model.config.task}
        self.metrics = Metrics({**model_info, "version": nse.__version__})
        self.batcher = Batcher(engines, settings, self.metrics.count_batch)
        self.connections = ConnectionLimit(log, self.metrics)
        self.add_gauges()
        self.routes, self.get_routes = make_routes(model, settings), self.make_get_routes()
        openapi = describe_api(self)
        self.get_routes["/openapi.json"] = GetRoute(lambda: JSONResponse(openapi))

    def add_gauges(self) -> None:
        """Export the current state of queue and engines."""
        batcher, add = self.batcher, self.metrics.add_gauge
        add("nse_queue_requests", "Requests that wait for the model.", lambda: len(batcher.queue))
        add("nse_computing", "Threads that compute.", lambda: len(batcher.running))
        text = "Ready worker processes; on a GPU, threads."
        add("nse_engines", text, lambda: len(batcher.find_ready_threads()))
        text = "Worker processes that died or hung, and were replaced."
        add("nse_engines_replaced", text, lambda: sum(engine.replaced for engine in batcher.engines))
        add("nse_ready", "Whether new requests are accepted.", lambda: self.explain_unready() is None)
        add("nse_log_dropped", "Log lines that were dropped.", lambda: self.log.dropped)

    def make_get_routes(self) -> dict[str, GetRoute]:
        """Make the routes that are read with GET."""
        live = "Whether the process responds; if not, restart it."
        ready = "Whether new requests are accepted; if not, send them to another server."
        health, any_object = describe_json("Health"), {"application/json": {"schema": {"type": "object"}}}
        text = {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}
        model = describe_model(self.model, self.settings)
        about_model = "The model: inputs, labels, limits and examples."
        return {
            "/": GetRoute(partial(read_file, "index.html")),
            **{f"/page/{name}": GetRoute(partial(read_file, name)) for name in report.FILES},
            "/health/live": GetRoute(lambda: JSONResponse({"status": "live"}), live, health),
            "/health/ready": GetRoute(self.check_ready, ready, health, (503,)),
            "/v1/model": GetRoute(lambda: JSONResponse(model), about_model, any_object),
            "/metrics": GetRoute(self.write_metrics, "Metrics for Prometheus.", text),
        }

    def check_ready(self) -> Response:
        """Respond with 200 if new requests are accepted, else with 503."""
        if reason := self.explain_unready():
            raise HTTPError(503, "not_ready", reason)
        return JSONResponse({"status": "ready"})

    def write_metrics(self) -> Response:
        """Write all metrics for Prometheus."""
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def explain_unready(self) -> str | None:
        """Return why no request should be sent to this server now, or None."""
        if self.draining:
            return "the server is shutting down"
        if not all(thread.is_alive() for thread in self.batcher.threads):
            return "a worker thread has ended: restart the server"
        if not self.batcher.find_ready_threads():
            return "all worker processes have died or hung, and are being replaced"
        if self.batcher.is_overdue(self.settings.timeout):
            return f"the model has been computing for more than {self.settings.timeout:g} s"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request, status = HttpRequest(scope, receive, self.settings.timeout), 0
        self.active += 1
        try:
            response = await self.respond(request)
            status = response.status_code
            response.raw_headers += [*HEADERS.items(), (b"x-request-id", request.id.encode())]
            if self.draining:
                response.raw_headers.append((b"connection", b"close"))
            await response(scope, receive, send)
        finally:
            self.active -= 1
            self.log_request(request, status)

    async def respond(self, request: HttpRequest) -> Response:
        """Answer a request, or turn any error into a response."""
        try:
            return await self.dispatch(request)
        except HTTPError as http_error:
            response = http_error
        except asyncio.CancelledError:  # the grace period of the shutdown is over
            response = make_stopping_error()
        except Exception as error:
            self.log.put_error("internal error in a request", error, request=request.id)
            response = HTTPError(500, "bug", "internal server error; see the log of the server")
        request.error = response.kind
        return response.make_response()

    async def dispatch(self, request: HttpRequest) -> Response:
        """Check a request, read its body and call its route."""
        self.check_access(request)
        if self.draining and request.method == "POST":  # health and metrics remain available
            self.metrics.refused.labels("draining").inc()
            raise make_stopping_error()
        try:
            async with asyncio.timeout(self.settings.timeout):
                body = await self.read_body(request)
        except TimeoutError:
            message = f"the request did not arrive within {self.settings.timeout:g} s: send it faster"
            raise HTTPError(408, "too_slow", message, CLOSE) from None
        # Paths are looked up, never opened as files.
        route, get_route = self.routes.get(request.path), self.get_routes.get(request.path)
        if route and request.method == "POST":
            route.read_request(request, body)
            return Response(await self.compute(request), media_type="application/json")
        if get_route and request.method in ("GET", "HEAD"):
            return get_route.respond()
        if route or get_route:
            allowed = {"Allow": "POST" if route else "GET, HEAD"}
            raise HTTPError(405, "wrong_method", "Method Not Allowed", allowed)
        raise HTTPError(404, "not_found", "Not Found")

    def check_access(self, request: HttpRequest) -> None:
        """Refuse a request to an unknown host name, or without an accepted API key."""
        if "refused" in request.scope:  # by the connection
            raise request.scope.pop("refused")
        headers, names = request.headers, [name for name, _ in request.scope["headers"]]
        if names.count(b"host") > 1:
            raise HTTPError(400, "unknown_host", "there are two Host headers: send one", CLOSE)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        host = host.rpartition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
        if self.hosts and host not in self.hosts:
            message = f"unknown host name: this server is reached as {', '.join(sorted(self.hosts))}"
            raise HTTPError(400, "unknown_host", message, CLOSE)
        if self.settings.keys is None or request.path.startswith("/health/"):
            return
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        key = token.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        if not self.settings.keys.allow(key):
            message = "an API key is needed: send the header Authorization: Bearer KEY"
            raise HTTPError(401, "no_key", message, {"WWW-Authenticate": "Bearer", **CLOSE})

    async def read_body(self, request: HttpRequest) -> bytes:
        """Read the body of a request within the size limit."""
        body, more = bytearray(), True
        while more:
            message = await request.receive()
            if message["type"] != "http.request":
                # Popped: the error would keep the scope alive in a reference cycle.
                raise request.scope.pop("refused", None) or make_disconnect_error()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.settings.max_body:
                reason = f"the request is longer than {self.settings.max_body:,} bytes: shorten it"
                raise HTTPError(413, "too_long", reason, CLOSE)
        return bytes(body)

    async def compute(self, request: HttpRequest) -> bytes:
        """Compute a request in a batch, unless the timeout passes or the client disconnects."""
        try:
            self.batcher.submit(request)
        except HTTPError:
            self.metrics.refused.labels("queue_full").inc()
            raise
        try:
            seconds = request.deadline - time.monotonic()
            await asyncio.wait((request.future,), timeout=min(seconds, WATCH_AFTER))
            if not request.future.done():
                await self.watch_client(request)
            return self.get_answer(request)
        finally:
            if not request.future.done():
                self.batcher.drop(request)
                request.future.cancel()

    async def watch_client(self, request: HttpRequest) -> None:
        """Wait for the answer; raise an error if the client disconnects or the timeout passes."""
        disconnect = asyncio.ensure_future(request.receive())  # the body has been read
        try:
            seconds = request.deadline - time.monotonic()
            futures = (request.future, disconnect)
            await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not request.future.done():
                message = f"no answer within {self.settings.timeout:g} s: try again later"
                raise make_disconnect_error() if disconnect.done() else HTTPError(504, "timed_out", message)
        finally:
            disconnect.cancel()

    def get_answer(self, request: HttpRequest) -> bytes:
        """Return the answer of a computed request, or raise its error as an `HTTPError`."""
        try:
            return request.future.result()
        except HTTPError:
            raise
        except InputError as error:
            raise HTTPError(400, "invalid_text", hide_folder(self.model, error)) from None
        except NSEError as error:
            message = hide_folder(self.model, error)
        except Exception as error:
            self.log.put_error("the model failed on a request", error)
            message = "the model failed on this request; see the log of the server"
        self.metrics.failed.inc()
        raise HTTPError(503, "model_failed", message)

    def log_refusal(self, error: HTTPError) -> None:
        """Count and log a request whose head is invalid."""
        self.metrics.count_request("other", error.status, 0.0)
        if self.settings.access_log:
            self.log.put("request", status=error.status, error=error.kind)

    def log_request(self, request: HttpRequest, status: int) -> None:
        """Count and log a request."""
        path, seconds = request.path, time.monotonic() - request.start
        is_known = path in self.routes or (path in self.get_routes and not path.startswith("/page/"))
        self.metrics.count_request(path if is_known else "other", status, seconds)
        if not self.settings.access_log:
            return
        fields = {"method": request.method, "path": path[:200], "status": status}
        fields |= {"ms": round(1000 * seconds, 1), "wait_ms": round(1000 * request.wait_seconds, 1)}
        fields |= {"rows": request.rows, "request": request.id}
        if request.error:
            fields["error"] = request.error
        if self.settings.log_texts and request.texts:
            fields["texts"] = request.texts
        self.log.put("request", **fields)


def read_file(name: str) -> Response:
    """Respond with a file of the page."""
    return Response(report.read_page_file(name), media_type=report.FILES[name])


def describe_api(app: App) -> dict[str, Any]:
    """Describe all routes in OpenAPI 3.1."""
    key_errors = {401} if app.settings.keys else set()
    security: dict[str, Any] = {"security": [{"key": []}]} if key_errors else {}
    paths: dict[str, Any] = {}
    for path, get_route in app.get_routes.items():
        if get_route.description:
            name, is_open = path.rpartition("/")[2], path.startswith("/health/")
            errors = {*ERRORS, *get_route.errors} | (set() if is_open else key_errors)
            operation = {
                "summary": name.title(),
                "description": get_route.description,
                "operationId": f"{name}{path.replace('/', '_')}_get",
                "responses": describe_responses(get_route.content or {}, errors),
            }
            paths[path] = {"get": operation if is_open else operation | security}
    routes = {path: route for path, route in app.routes.items() if not route.mismatch}
    for path, route in routes.items():
        examples = {f"{number}": {"value": value} for number, value in enumerate(route.examples, start=1)}
        content = {"application/json": {"schema": route.schema, "examples": examples}}
        answer = describe_json(route.answer_type.__name__ if route.answer_type else "Trace")
        operation = {
            "summary": route.description,
            "operationId": route.name,
            "requestBody": {"required": True, "content": content},
            "responses": describe_responses(answer, DESCRIPTIONS.keys() - {401} | key_errors),
        }
        paths[path] = {"post": operation | security}
    answer_types = (route.answer_type for route in routes.values() if route.answer_type)
    components = {"schemas": describe_components(answer_types)}
    if key_errors:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    title, description = f"nse {app.model.name}", f"This model {app.model.does}."
    info = {"title": title, "description": description, "version": nse.__version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}
