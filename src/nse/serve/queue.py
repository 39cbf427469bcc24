"""Batching of requests: a bounded queue, and a thread for each engine.

If a batch fails, its requests are computed one by one, so that one bad text fails only its own request.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from random import getrandbits

import torch
from starlette.types import Receive, Scope
from torch import Tensor

from nse.inference.inputs import Answers, Request
from nse.serve.http_errors import HTTPError
from nse.serve.settings import Settings
from nse.serve.worker import Engine, EngineDiedError

MAX_RETRY_AFTER = 60  # seconds
IDLE_FRACTION = 0.2  # stop waiting for more requests after this fraction of max_wait without a new one
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # accepted from clients
MIN_SPLIT = 4  # rows: a smaller batch is not split among threads


class HttpRequest:
    """HTTP request, from its first line to its answer."""

    def __init__(self, scope: Scope, receive: Receive, timeout: float):
        self.scope, self.receive = scope, receive
        self.path, self.method, self.headers = scope["path"], scope["method"], dict(scope["headers"])
        sent_id = self.headers.get(b"x-request-id", b"")
        self.id = (sent_id if REQUEST_ID.fullmatch(sent_id) else b"%016x" % getrandbits(64)).decode()
        self.start = time.monotonic()
        self.deadline = self.start + timeout
        self.error = ""  # type of the error response
        # From the body:
        self.rows, self.texts = 0, list[str]()  # number of texts or pairs; all texts in them
        self.group: Hashable = None  # requests of a group share batches; None: computed while nothing else is
        self.prepare: Callable[[], Request | bytes]  # encodes the texts; without a group, returns the answer
        self.serialize: Callable[[Answers], bytes]
        # In the queue:
        self.arrival = self.wait_seconds = 0.0
        self.model_request: Request | None = None
        self.values: list[Tensor] = []  # of the first `rows_done` rows
        self.rows_done = self.batch_rows = 0  # rows in the next batch
        self.is_dropped = False  # the client has disconnected, or the timeout has passed
        self.is_isolated = False  # computed alone, because a process died in a batch with it
        self.result: bytes | BaseException | None = None
        self.future: asyncio.Future[bytes]  # result, for the event loop

    @property
    def rows_left(self) -> int:
        """Number of rows that are not computed yet."""
        return (len(self.model_request.rows) if self.model_request else self.rows) - self.rows_done

    def try_prepare(self) -> None:
        """Encode the texts, or store the answer or the error."""
        try:
            prepared = self.prepare()
        except Exception as error:
            self.result = error
        else:
            if isinstance(prepared, bytes):
                self.result = prepared
            else:
                self.model_request = prepared

    def try_finish(self) -> None:
        """Store the answer, or an error in making it."""
        assert self.model_request is not None
        try:
            values = torch.cat(self.values) if len(self.values) > 1 else self.values[0]
            self.result = self.serialize(self.model_request.format(values))
        except Exception as error:
            self.result = error


class Batcher:
    """Queue of requests and one thread per engine; `observe` gets the rows and the seconds of each batch."""

    def __init__(self, engines: Sequence[Engine], settings: Settings, observe: Callable[[int, float], None]):
        self.engines, self.observe = engines, observe
        self.max_batch, self.max_queue = settings.max_batch, settings.max_queue
        self.max_wait = settings.max_wait_ms / 1000
        self.queue: deque[HttpRequest] = deque()
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.engine_replaced = threading.Condition(lock)  # for threads whose engine is not ready
        self.running: dict[int, float] = {}  # start time of the batch of each busy thread
        self.rows_waiting = 0
        self.last_arrival = 0.0
        self.is_exclusive = self.stopping = False
        self.row_seconds = 0.0  # moving average
        self.threads = [
            threading.Thread(target=self._work, args=[number], name=f"nse-worker-{number}", daemon=True)
            for number in range(len(engines))
        ]
        for thread in self.threads:
            thread.start()

    def stop(self, seconds: float) -> bool:
        """Compute the waiting requests and end the threads; return whether that was done in time."""
        end = time.monotonic() + seconds
        with self.changed:
            self.stopping = True
            self.wake_threads()
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)

    def wake_threads(self) -> None:
        """Make every thread check for work, for example after its engine was replaced."""
        with self.changed:
            self.changed.notify_all()
            self.engine_replaced.notify_all()

    def submit(self, request: HttpRequest) -> None:
        """Add a request to the queue, or refuse it if the queue is full."""
        with self.changed:
            if len(self.queue) >= self.max_queue:
                seconds = math.ceil(self.rows_waiting * self.row_seconds / len(self.threads))
                seconds = min(MAX_RETRY_AFTER, max(1, seconds))
                message = f"too many requests are waiting: try again in {seconds} s"
                raise HTTPError(429, "busy", message, {"Retry-After": str(seconds)})
            self.loop = asyncio.get_running_loop()
            request.future = self.loop.create_future()
            request.arrival = self.last_arrival = time.monotonic()
            before = self.rows_waiting
            self._push(request)
            # A thread that collects a batch is woken when the batch is full, not by every request.
            if not before or before < self.max_batch <= self.rows_waiting or request.group is None:
                self.changed.notify()

    def drop(self, request: HttpRequest) -> None:
        """Remove a request that no longer needs an answer."""
        with self.changed:
            request.is_dropped = True
            if request in self.queue:
                self.queue.remove(request)
                self.rows_waiting -= request.rows_left
                self.changed.notify()

    def find_ready_threads(self) -> set[int]:
        """Return the threads whose engine is ready."""
        return {number for number, engine in enumerate(self.engines) if engine.ready}

    def is_overdue(self, seconds: float) -> bool:
        """Return whether every ready thread has been computing one batch for longer than this."""
        now = time.monotonic()
        overdue = {number for number, start in dict(self.running).items() if now - start > seconds}
        return bool(overdue) and (self.is_exclusive or overdue >= self.find_ready_threads())

    def _push(self, request: HttpRequest) -> None:
        self.queue.append(request)
        self.rows_waiting += request.rows_left

    def _pop(self) -> HttpRequest:
        request = self.queue.popleft()
        self.rows_waiting -= request.rows_left
        request.batch_rows = min(self.max_batch, request.rows_left)
        request.wait_seconds = request.wait_seconds or time.monotonic() - request.arrival
        return request

    def _work(self, number: int) -> None:
        """Compute batches until the server stops."""
        while batch := self._wait_for_batch(number):
            start, rows = time.monotonic(), sum(request.batch_rows for request in batch)
            try:
                self._process(batch, self.engines[number])
            except BaseException as error:  # the thread must survive
                for request in batch:
                    request.result = error
            seconds = time.monotonic() - start
            with self.changed:
                del self.running[number]
                self.is_exclusive = False
                self.row_seconds += 0.1 * (seconds / rows - self.row_seconds)
                for request in batch:
                    if request.result is None and not request.is_dropped:
                        self._push(request)
                self.changed.notify_all()
            self.observe(rows, seconds)
            with suppress(RuntimeError):  # the event loop is closed after a shutdown
                self.loop.call_soon_threadsafe(set_results, [request for request in batch if request.result])

    def _wait_for_batch(self, number: int) -> list[HttpRequest]:
        """Wait for the next batch of a thread; return an empty one when the thread should end."""
        with self.changed:
            idle_since = time.monotonic()
            while self.queue or not self.stopping:
                if not self.engines[number].ready:
                    self.engine_replaced.wait()  # not `changed`: its notifications are for ready threads
                elif not self.queue or self.is_exclusive or (self.queue[0].group is None and self.running):
                    self.changed.wait()
                elif (seconds := self._compute_wait(idle_since)) > 0:
                    self.changed.wait(seconds)
                else:
                    batch = self._collect()
                    self.is_exclusive = batch[0].group is None
                    self.running[number] = time.monotonic()
                    if self.queue:
                        self.changed.notify()
                    return batch
        return []

    def _compute_wait(self, idle_since: float) -> float:
        """Return how many seconds to wait for more requests."""
        if self.stopping or self.rows_waiting >= self.max_batch or self.queue[0].group is None:
            return 0.0
        start = max(self.queue[0].arrival, idle_since)
        end = min(start + self.max_wait, max(start, self.last_arrival) + self.max_wait * IDLE_FRACTION)
        return end - time.monotonic()

    def _collect(self) -> list[HttpRequest]:
        """Take the first requests that fit into a batch, and leave an equal share to every idle thread."""
        batch = [self._pop()]
        is_alone = batch[0].group is None or batch[0].is_isolated
        idle_threads = len(self.find_ready_threads() - self.running.keys()) or 1
        share = math.ceil((self.rows_waiting + batch[0].rows_left) / idle_threads)
        room = 0 if is_alone else min(self.max_batch, max(MIN_SPLIT, share)) - batch[0].batch_rows
        while self.queue and self.queue[0].group == batch[0].group and not self.queue[0].is_isolated:
            room -= self.queue[0].rows_left
            if room < 0:
                break
            batch.append(self._pop())
        return batch

    def _process(self, batch: Sequence[HttpRequest], engine: Engine) -> None:
        """Encode, compute and answer a batch; a request with rows left goes back to the queue."""
        for request in batch:
            if not request.is_dropped and not request.model_request:
                request.try_prepare()
            request.batch_rows = min(request.batch_rows, request.rows_left)
        valid = [r for r in batch if r.model_request and not r.result and not r.is_dropped]
        if valid:
            self._compute(valid, engine)
        for request in valid:
            if not request.rows_left and not request.result:
                request.try_finish()

    def _compute(self, batch: Sequence[HttpRequest], engine: Engine) -> None:
        """Compute the next rows of some requests, together or, after an error, one by one."""
        model_requests = [request.model_request for request in batch if request.model_request]
        first, pairs = model_requests[0], zip(batch, model_requests, strict=True)
        rows = [row for r, m in pairs for row in m.rows[r.rows_done : r.rows_done + r.batch_rows]]
        try:
            values = engine.compute(first.output, rows, first.beam, self.max_batch)
        except EngineDiedError as error:
            for request in batch:  # retried alone; a request that kills a process then fails by itself
                request.result = error if error.delivered and len(batch) == 1 else None
                request.is_isolated = request.is_isolated or error.delivered
        except Exception as error:
            if len(batch) == 1:
                batch[0].result = error
                return
            for request in batch:
                self._compute([request], engine)
        else:
            parts = values.split([request.batch_rows for request in batch])
            for request, part in zip(batch, parts, strict=True):
                request.values.append(part)
                request.rows_done += request.batch_rows


def set_results(requests: Sequence[HttpRequest]) -> None:
    """Set the futures of computed requests."""
    for request in requests:
        future, result = request.future, request.result
        if future.done():
            continue
        if isinstance(result, bytes):
            future.set_result(result)
        else:
            future.set_exception(result if isinstance(result, Exception) else RuntimeError(repr(result)))
