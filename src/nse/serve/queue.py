"""Requests of several people, computed together: a bounded queue, and threads that empty it.

Whatever goes wrong with a batch, its requests are tried one by one, so that a text on which the model fails
costs nobody else an answer.
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

from nse.inference.requests import Answers, Request
from nse.serve.errors import Problem
from nse.serve.settings import Settings
from nse.serve.worker import DiedError, Engine

LONGEST_RETRY = 60  # seconds after which somebody who was refused is told to come back, at the most
QUIET = 0.2  # share of the longest wait after which, if nobody came, nobody else is waited for
NAME = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # what a client may call a request
FEW = 4  # texts that are not shared out among threads: so few take less work together than apart


class HttpRequest:
    """One request over HTTP, from its first line to its answer: made once, and all that is known of it."""

    def __init__(self, scope: Scope, receive: Receive, timeout: float):
        self.scope, self.receive = scope, receive
        self.path, self.method, self.headers = scope["path"], scope["method"], dict(scope["headers"])
        sent = self.headers.get(b"x-request-id", b"")
        self.name = (sent if NAME.fullmatch(sent) else b"%016x" % getrandbits(64)).decode()
        self.begun = time.monotonic()
        self.deadline = self.begun + timeout
        self.error = ""  # the word for what went wrong
        # What is asked:
        self.rows, self.texts = 0, list[str]()  # how many texts or pairs; and all texts of them
        self.group: Hashable = None  # of those that are computed together; without one, nothing beside it
        self.read: Callable[[], Request | bytes]  # reads the texts; without a group, gives the answer
        self.write: Callable[[Answers], bytes]
        # What comes of it:
        self.arrived = self.waited = 0.0  # when it began to wait for the model; for how many seconds
        self.question: Request | None = None  # what was read
        self.values: list[Tensor] = []  # what was computed of its first rows
        self.done = self.size = 0  # how many these are; how many are computed next
        self.gone = False  # whether nobody waits for it any more
        self.by_itself = False  # whether it is computed with no other, because a process died at it
        self.outcome: bytes | BaseException | None = None
        self.future: asyncio.Future[bytes]  # has the outcome in the event loop

    @property
    def left(self) -> int:
        """How many rows are not computed yet."""
        return (len(self.question.rows) if self.question else self.rows) - self.done

    def attempt(self, action: Callable[[], Request | bytes]) -> None:
        """Do something, of which a question, an answer or an error comes."""
        try:
            result = action()
        except Exception as error:
            self.outcome = error
        else:
            self.question = self.question if isinstance(result, bytes) else result
            self.outcome = result if isinstance(result, bytes) else None

    def finish(self) -> bytes:
        """Make the answer of everything that was computed."""
        assert self.question is not None
        values = torch.cat(self.values) if len(self.values) > 1 else self.values[0]  # mostly it is one
        return self.write(self.question.format(values))


class Batcher:
    """The queue, and a thread for each engine; `observe` is told of each batch its size and its seconds."""

    def __init__(self, engines: Sequence[Engine], settings: Settings, observe: Callable[[int, float], None]):
        self.engines, self.observe = engines, observe
        self.max_batch, self.max_queue = settings.max_batch, settings.max_queue
        self.max_wait = settings.max_wait_ms / 1000
        self.queue: deque[HttpRequest] = deque()
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.replaced = threading.Condition(lock)  # for threads whose engine is being replaced
        self.running: dict[int, float] = {}  # of each thread that computes: since when
        self.rows_waiting = 0
        self.latest = 0.0  # when the last request came
        self.alone = self.stopping = False
        self.row_seconds = 0.0  # how long a row takes, of late
        self.threads = [
            threading.Thread(target=self._work, args=[number], name=f"nse-worker-{number}", daemon=True)
            for number in range(len(engines))
        ]
        for thread in self.threads:
            thread.start()

    def stop(self, seconds: float) -> bool:
        """Compute what still waits, and end; tells whether that was done in time."""
        end = time.monotonic() + seconds
        with self.changed:
            self.stopping = True
            self.look_again()
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)

    def look_again(self) -> None:
        """Let every thread see whether there is work for it, as when its engine was replaced."""
        with self.changed:
            self.changed.notify_all()
            self.replaced.notify_all()

    def submit(self, request: HttpRequest) -> None:
        """Let a request wait, or refuse it where too many wait already."""
        with self.changed:
            if len(self.queue) >= self.max_queue:
                seconds = math.ceil(self.rows_waiting * self.row_seconds / len(self.threads))
                wait = min(LONGEST_RETRY, max(1, seconds))  # as far as the last batches tell
                message = f"too many requests wait already: come back in {wait} s"
                raise Problem(429, "busy", message, {"Retry-After": str(wait)})
            self.loop = asyncio.get_running_loop()
            request.future = self.loop.create_future()
            request.arrived = self.latest = time.monotonic()
            before = self.rows_waiting
            self._push(request)
            # A thread that gathers a batch is woken when it is full, and not by every request on the way.
            if not before or before < self.max_batch <= self.rows_waiting or request.group is None:
                self.changed.notify()

    def drop(self, request: HttpRequest) -> None:
        """Forget a request that nobody waits for any more."""
        with self.changed:
            request.gone = True
            if request in self.queue:
                self.queue.remove(request)
                self.rows_waiting -= request.left
                self.changed.notify()

    def find_able(self) -> set[int]:
        """Find the threads that can compute: all but those whose engine is being replaced."""
        return {number for number, engine in enumerate(self.engines) if engine.ready}

    def is_late(self, seconds: float) -> bool:
        """Tell whether every thread that can compute has been at one batch for longer than this."""
        now = time.monotonic()
        late = {number for number, since in dict(self.running).items() if now - since > seconds}
        return bool(late) and (self.alone or late >= self.find_able())

    def _push(self, request: HttpRequest) -> None:
        self.queue.append(request)
        self.rows_waiting += request.left

    def _pop(self) -> HttpRequest:
        request = self.queue.popleft()
        self.rows_waiting -= request.left
        request.size = min(self.max_batch, request.left)
        request.waited = request.waited or time.monotonic() - request.arrived
        return request

    def _work(self, me: int) -> None:
        while batch := self._next(me):
            begun, rows = time.monotonic(), sum(request.size for request in batch)
            try:
                self._answer(batch, self.engines[me])
            except BaseException as error:  # whatever it is, the next batch is computed
                for request in batch:
                    request.outcome = error
            seconds = time.monotonic() - begun
            with self.changed:
                del self.running[me]
                self.alone = False
                self.row_seconds += 0.1 * (seconds / rows - self.row_seconds)
                for request in batch:
                    if request.outcome is None and not request.gone:
                        self._push(request)
                self.changed.notify_all()
            self.observe(rows, seconds)
            with suppress(RuntimeError):  # the loop is closed: the server has stopped, and nobody waits
                self.loop.call_soon_threadsafe(settle, [request for request in batch if request.outcome])

    def _next(self, me: int) -> list[HttpRequest]:
        """Wait for requests that are to be computed together; there are none when it is time to end."""
        with self.changed:
            free = time.monotonic()
            while self.queue or not self.stopping:
                if not self.engines[me].ready:  # others are to be woken by a request, and not this thread
                    self.replaced.wait()
                elif not self.queue or self.alone or (self.queue[0].group is None and self.running):
                    self.changed.wait()  # those that compute notify when they are done
                elif (wait := self._patience(free)) > 0:
                    self.changed.wait(wait)
                else:
                    batch = self._gather()
                    self.alone = batch[0].group is None
                    self.running[me] = time.monotonic()
                    if self.queue:
                        self.changed.notify()  # there is enough for another thread
                    return batch
        return []

    def _patience(self, free: float) -> float:
        """For how many seconds more to wait for others: while they keep coming, but not for ever."""
        if self.stopping or self.rows_waiting >= self.max_batch or self.queue[0].group is None:
            return 0.0
        since = max(self.queue[0].arrived, free)
        end = min(since + self.max_wait, max(since, self.latest) + self.max_wait * QUIET)
        return end - time.monotonic()

    def _gather(self) -> list[HttpRequest]:
        """Gather the first requests that fit into a batch, leaving as much for each thread that is idle."""
        batch = [self._pop()]
        alone = batch[0].group is None or batch[0].by_itself
        idle = len(self.find_able() - self.running.keys()) or 1
        share = math.ceil((self.rows_waiting + batch[0].left) / idle)
        room = 0 if alone else min(self.max_batch, max(FEW, share)) - batch[0].size
        while self.queue and self.queue[0].group == batch[0].group and not self.queue[0].by_itself:
            room -= self.queue[0].left
            if room < 0:
                break
            batch.append(self._pop())
        return batch

    def _answer(self, batch: Sequence[HttpRequest], engine: Engine) -> None:
        """Read, compute and answer; a request of which rows are left waits once more."""
        for request in batch:
            if not request.gone and not request.question:
                request.attempt(request.read)
            request.size = min(request.size, request.left)
        good = [request for request in batch if request.question and not request.outcome and not request.gone]
        if good:
            self._compute(good, engine)
        for request in good:
            if not request.left and not request.outcome:
                request.attempt(request.finish)

    def _compute(self, batch: Sequence[HttpRequest], engine: Engine) -> None:
        """Compute the next rows of requests; together, and where that fails one by one."""
        questions = [request.question for request in batch if request.question]
        parts = zip(batch, questions, strict=True)
        rows = [row for each, asked in parts for row in asked.rows[each.done : each.done + each.size]]
        try:
            values = engine.compute(questions[0].what, rows, questions[0].beam, self.max_batch)
        except DiedError as died:
            for request in batch:  # they wait once more; if one of them was the cause, it will fail alone
                request.outcome = died if died.delivered and len(batch) == 1 else None
                request.by_itself = request.by_itself or died.delivered
        except Exception as error:
            if len(batch) == 1:
                batch[0].outcome = error
                return
            for request in batch:
                self._compute([request], engine)
        else:
            for request, part in zip(batch, values.split([each.size for each in batch]), strict=True):
                request.values.append(part)
                request.done += request.size


def settle(requests: Sequence[HttpRequest]) -> None:
    """Set results, where somebody still waits."""
    for request in requests:
        future, outcome = request.future, request.outcome
        if future.done():
            continue
        if isinstance(outcome, bytes):
            future.set_result(outcome)
        else:
            future.set_exception(outcome if isinstance(outcome, Exception) else RuntimeError(repr(outcome)))
