"""Answers to questions: let in or refused, computed with others, within the time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from starlette.types import Receive

from nse.errors import InputError, NSEError
from nse.inference.model import Model
from nse.serve.limits import Limits
from nse.serve.log import Log
from nse.serve.metrics import Metrics
from nse.serve.problems import Problem, TooLongError
from nse.serve.questions import Route, nameless, read_question, refuse_too_much
from nse.serve.queue import Batcher, FullError, Job
from nse.serve.worker import Engine

GONE = 499
"""The status in the log and in the figures of a request whose client went away."""

SOON = 0.1
"""Seconds: whoever is answered within them is not asked whether they are still there."""


class Request:
    """One request, from its first line to its answer.

    Args:
        name: What it is called in the log and in the header X-Request-Id.
        timeout: Seconds that it may take.

    Attributes:
        rows: How many texts it has.
        waited: How many seconds it waited for the model.
        texts: Themselves, if they are to be logged.
        error: The word for what went wrong.
    """

    def __init__(self, name: str, timeout: float):
        self.name = name
        self.begun = time.monotonic()
        self.deadline = self.begun + timeout
        self.rows = 0
        self.waited = 0.0
        self.texts: list[str] | None = None
        self.error: str | None = None


class Service:
    """A model and who asks it.

    Args:
        model: The model.
        limits: What is let in.
        log: Where events go.
        workers: Threads that compute.
        log_texts: Whether the log has the texts.
        engines: The processes in which they compute, one for each, if it is not this one.

    Attributes:
        draining: Whether the server is about to stop; then nothing new is let in.
    """

    def __init__(
        self,
        model: Model,
        limits: Limits,
        log: Log,
        workers: int = 1,
        log_texts: bool = False,
        engines: Sequence[Engine] = (),
    ):
        self.model, self.limits, self.log, self.log_texts = model, limits, log, log_texts
        self.metrics = Metrics(model)
        self.draining = False
        self.batcher = Batcher(
            model,
            limits.max_batch,
            limits.max_wait_ms / 1000,
            limits.max_queue,
            workers,
            engines,
            self.metrics.computed,
        )
        gauges = {
            "nse_queue_requests": ("Requests that wait for the model.", self.batcher.waiting),
            "nse_computing": ("Threads that compute.", self.batcher.computing),
            "nse_engines": (
                "Processes that compute and can be asked; on a GPU, threads.",
                lambda: float(len(self.batcher.find_able())),
            ),
            "nse_engines_replaced": (
                "Processes that died or hung, and were followed by another.",
                lambda: float(sum(engine.replaced for engine in engines)),
            ),
            "nse_ready": ("Whether requests are let in.", lambda: float(self.unready() is None)),
            "nse_log_dropped": ("Lines of the log that nobody took in time.", lambda: self.log.dropped),
        }
        for name, (about, value) in gauges.items():
            self.metrics.gauge(name, about, value)

    def unready(self) -> str | None:
        """Why no request should be sent here now, if so."""
        if self.draining:
            return "the server is about to stop"
        if not self.batcher.alive():
            return "the thread that computes has ended: start the server again"
        if not self.batcher.find_able():
            return "the processes that compute have died or hung: others are being started"
        if self.batcher.is_late(self.limits.timeout):
            return f"the model has been computing for more than {self.limits.timeout:g} s"
        return None

    async def answer(self, route: Route, request: Request, kind: str, body: bytes, receive: Receive) -> bytes:
        """The answer to a question, or a `Problem`.

        Args:
            route: Where it was asked.
            request: The request.
            kind: What its body says that it is.
            body: The body.
            receive: Tells when the client has gone.
        """
        if kind.partition(";")[0].strip().lower() != "application/json":
            message = f"the request must say Content-Type: application/json; {route.hint}"
            raise Problem(415, "not_json", message)
        if route.unfit:
            raise Problem(400, "wrong_model", route.unfit)
        try:
            question = route.ask(read_question(route, body))
            refuse_too_much(question, self.limits)
        except TooLongError as error:
            raise Problem(413, "too_long", str(error)) from None
        request.rows = question.rows
        if self.log_texts:
            request.texts = list(question.texts)
        job = Job(question.group, question.rows, question.work, question.answer)
        try:
            self.batcher.submit(job)
        except FullError as full:
            self.metrics.refused.labels("queue_full").inc()
            message = f"too many requests wait already: come back in {full.seconds} s"
            raise Problem(429, "busy", message, {"Retry-After": str(full.seconds)}) from None
        return await self.waited(job, request, receive)

    async def waited(self, job: Job, request: Request, receive: Receive) -> bytes:
        """What comes of a job, unless it takes too long or its client goes away."""
        try:
            left = request.deadline - time.monotonic()
            await asyncio.wait((job.future,), timeout=min(left, SOON))
            if not job.future.done():
                await self.watched(job, request, receive)
            request.waited = job.waited
            return self.result(job)
        finally:
            if not job.future.done():
                self.batcher.drop(job)
                job.future.cancel()

    async def watched(self, job: Job, request: Request, receive: Receive) -> None:
        """Wait on, and look whether somebody else still does."""
        client = asyncio.ensure_future(receive())  # there is nothing more to come but that it goes
        try:
            left = request.deadline - time.monotonic()
            await asyncio.wait((job.future, client), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise gone() if client.done() else late(self.limits)
        finally:
            client.cancel()

    def result(self, job: Job) -> bytes:
        """What came of a job, errors as they are told."""
        try:
            return job.future.result()
        except TooLongError as error:
            raise Problem(413, "too_long", str(error)) from None
        except InputError as error:
            raise Problem(400, "invalid_text", nameless(self.model, str(error))) from None
        except NSEError as error:
            self.metrics.failed.inc()
            raise Problem(503, "model_failed", nameless(self.model, str(error))) from None
        except Exception as error:
            self.metrics.failed.inc()
            self.log.error("the model failed on a request", error)
            message = "the model failed on this request; see the server's log"
            raise Problem(503, "model_failed", message) from None


def gone() -> Problem:
    """What is noted where nobody waits for an answer any more; nginx has the same number for it."""
    return Problem(GONE, "gone", "the client has gone away")


def late(limits: Limits) -> Problem:
    """The answer to somebody who has waited too long."""
    return Problem(504, "timed_out", f"there was no answer within {limits.timeout:g} s: try again later")
