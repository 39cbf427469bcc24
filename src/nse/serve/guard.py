"""Around the application: who may ask, how much and how long, and what is noted of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from random import getrandbits

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nse.serve.connection_limit import ConnectionLimit
from nse.serve.keys import Keys
from nse.serve.problems import CLOSE, Problem, bug, stopping
from nse.serve.questions import Route
from nse.serve.service import GONE, Request, Service, gone

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]
"""On every answer: nothing from elsewhere runs in the page, nothing of it goes elsewhere."""

NAME = re.compile(rb"[A-Za-z0-9._-]{1,64}")
"""What somebody else may call a request."""


class Guarded:
    """Takes every request first, and sees every answer last.

    Args:
        app: What serves the others.
        service: The model behind it.
        questions: The routes that ask the model. They are answered here: on the way through the layers of a
            framework a request would spend as much time as with everything else that is done to it.
        paths: What else the figures tell apart.
        hosts: The only names under which it is served, if there are some: else a page from elsewhere, whose
            name is made to lead here, could read what is served to this machine alone.
        keys: The keys of which one is needed, everywhere but for the server's health.
        access_log: Whether requests are logged.

    Attributes:
        active: Requests that are not answered yet.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        questions: Iterable[Route],
        paths: Iterable[str],
        hosts: frozenset[str] = frozenset(),
        keys: Keys | None = None,
        access_log: bool = True,
    ):
        self.app, self.service = app, service
        self.questions = {route.path: route for route in questions}
        self.paths = {*paths, *self.questions}
        self.hosts = frozenset(host.lower() for host in hosts)
        self.keys, self.access_log = keys, access_log
        self.connections = ConnectionLimit(service.log, service.metrics)
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] == "http"  # nothing else is switched on
        headers = dict(scope["headers"])
        sent = headers.get(b"x-request-id", b"")
        name = sent.decode() if NAME.fullmatch(sent) else f"{getrandbits(64):016x}"
        request = scope["nse"] = Request(name, self.service.limits.timeout)
        status = GONE

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [*HEADERS, (b"x-request-id", name.encode())]
                if self.service.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        self.active += 1
        try:
            await self.answer(scope, headers, receive, sending)
        except asyncio.CancelledError:  # the time to stop in peace is over
            await stopping().response()(scope, receive, sending)
        except Problem as problem:
            request.error = problem.kind
            await problem.response()(scope, receive, sending)
        except Exception as error:
            self.service.log.error("a request was not answered", error, request=name)
            if status == GONE:  # nothing is sent yet
                await bug().response()(scope, receive, sending)
        finally:
            self.active -= 1
            self.note(scope, request, status)

    async def answer(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        """Let a request in, read it whole and hand it on."""
        if "refused" in scope:
            raise scope.pop("refused")
        self.check_host(scope, headers)
        self.check_key(scope["path"], headers)
        self.check_draining(scope)
        try:
            async with asyncio.timeout(self.service.limits.timeout):
                body = await self.read(scope, receive)
        except TimeoutError:
            most = f"{self.service.limits.timeout:g} s"
            message = f"the request did not arrive within {most}: send it faster"
            raise Problem(408, "too_slow", message, CLOSE) from None
        if scope["method"] == "POST" and (route := self.questions.get(scope["path"])):
            kind = headers.get(b"content-type", b"").decode("latin-1")
            found = await self.service.answer(route, scope["nse"], kind, body, receive)
            await Response(found, media_type="application/json")(scope, receive, send)
            return
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return parts.pop() if parts else await receive()

        await self.app(scope, again, send)

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request, if it is not too long."""
        body, more = bytearray(), True
        most = self.service.limits.max_body
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise scope.pop("refused", None) or gone()  # not kept: it refers to what has the scope
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                reason = f"the request is longer than {most:,} bytes: shorten it"
                raise Problem(413, "too_long", reason, CLOSE)
        return bytes(body)

    def check_host(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Refuse a request that was sent to another name, or to two."""
        if len(headers) < len(scope["headers"]) and [name for name, _ in scope["headers"]].count(b"host") > 1:
            raise Problem(400, "unknown_host", "there are two Host headers: send one", CLOSE)
        if self.hosts and host_of(headers.get(b"host", b"").decode("latin-1")) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            message = f"this server answers to {names} alone; start it with --host"
            raise Problem(400, "unknown_host", message, CLOSE)

    def check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        """Refuse a request without a key that is known."""
        if self.keys is None or path.startswith("/health/"):
            return
        given = headers.get(b"x-api-key", b"")
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer":
            given = token.strip()
        if not self.keys.allow(given):
            message = "a key is needed: send the header Authorization: Bearer KEY"
            raise Problem(401, "no_key", message, {"WWW-Authenticate": "Bearer", **CLOSE})

    def check_draining(self, scope: Scope) -> None:
        """Refuse new work once the server is about to stop; how it is may still be asked."""
        if self.service.draining and scope["method"] == "POST":
            self.service.metrics.refused.labels("draining").inc()
            raise stopping()

    def note_refused(self, problem: Problem) -> None:
        """Count and log a request of which there is no more than what is wrong with its head."""
        self.service.metrics.answered("other", problem.status, 0.0)
        if self.access_log:
            self.service.log.put("request", status=problem.status, error=problem.kind)

    def note(self, scope: Scope, request: Request, status: int) -> None:
        """Count a request and log it."""
        path, seconds = scope["path"], time.monotonic() - request.begun
        route = path if path in self.paths else "other"
        self.service.metrics.answered(route, status, seconds)
        if not self.access_log:
            return
        told = {"ms": round(1000 * seconds, 1), "wait_ms": round(1000 * request.waited, 1)}
        extra = {"error": request.error, "texts": request.texts}
        self.service.log.put(
            "request",
            method=scope["method"],
            path=path[:200],
            status=status,
            **told,
            rows=request.rows,
            request=request.name,
            **{name: value for name, value in extra.items() if value},
        )


def host_of(header: str) -> str:
    """The name in a Host header, in lower case and without its port."""
    header = header.lower()
    return header.rpartition("]")[0].strip("[") if header.startswith("[") else header.partition(":")[0]
