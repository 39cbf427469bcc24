"""Requests of several people, computed together: a bounded queue, and threads that empty it.

The event loop hands jobs in and never waits; threads take what waits, as many texts as fit into a batch, read
them, compute or let a process compute, and hand the answers back. Whatever goes wrong with a batch, its jobs
are tried one by one, so that a text on which the model fails costs nobody else an answer.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from nse.errors import NSEError
from nse.inference.model import Model
from nse.inference.requests import Request
from nse.serve.worker import DiedError, Engine

LONGEST_RETRY = 60
"""Seconds after which somebody who was refused is told to come back, at the most."""


QUIET = 0.2
"""The share of the longest wait after which, if nobody came, nobody else is waited for."""

FEW = 4
"""Texts that are not shared out among threads: so few take less work together than apart."""


class FullError(Exception):
    """No more requests may wait.

    Args:
        seconds: When there may be room again.
    """

    def __init__(self, seconds: int):
        super().__init__(f"no room for {seconds} s")
        self.seconds = seconds


class Job:
    """A request that waits for the model.

    Args:
        group: Jobs of the same group are computed together; one without a group alone, and nothing beside it.
        rows: How many texts it has.
        work: Of a group: reads the texts. Alone: does everything, and gives the answer.
        answer: Of a group: from what the question tells to the answer.

    Attributes:
        future: The answer, once it is there.
        arrived: When it began to wait, by the clock of `time.monotonic`.
        waited: How many seconds it did, before anything of it was computed.
        by_itself: Whether it is computed with no other, because a process died at it.
    """

    def __init__(
        self,
        group: Hashable | None,
        rows: int,
        work: Callable[[], Any],
        answer: Callable[[Any], bytes] | None = None,
    ):
        self.group, self.rows, self.work, self.answer = group, rows, work, answer
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.arrived, self.waited = time.monotonic(), 0.0
        self.gone = self.by_itself = False
        self.asked: Request | None = None
        self.parts: list[Any] = []
        self.done = 0

    @property
    def left(self) -> int:
        """How many texts are not computed yet."""
        return self.rows - self.done

    def read(self) -> None:
        """Read the texts."""
        if self.asked is None:
            self.asked = self.work()
            self.rows = len(self.asked.rows)

    def take(self, found: Any) -> None:
        """Keep what was computed of the next rows."""
        self.parts.append(found)
        self.done += len(found)

    def told(self) -> bytes:
        """The answer, of everything that was computed."""
        assert self.asked is not None
        assert self.answer is not None
        return self.answer(self.asked.format(torch.cat(self.parts)))


Outcome = tuple[Job, bytes | BaseException]

Batch = Sequence[tuple[Job, int]]
"""Jobs, and how many rows of each."""

Compute = Callable[[Model, Request, int], Tensor]
"""Does the work of `nse.Model.compute`."""


class Batcher:
    """The queue and the threads that compute.

    Args:
        loaded: The model.
        max_batch: Texts at a time.
        max_wait: Seconds that a job waits for others to join it, at the most: as long as they keep coming.
        max_queue: Jobs that may wait.
        workers: Threads. On a CPU one for each core, each computing on one core; on another device one.
        engines: The process of each thread, if it lets one compute.
        observe: Called with the size of a batch and how many seconds it took.
    """

    def __init__(
        self,
        loaded: Model,
        max_batch: int,
        max_wait: float,
        max_queue: int,
        workers: int = 1,
        engines: Sequence[Engine] = (),
        observe: Callable[[int, float], None] = lambda rows, seconds: None,
    ):
        self.loaded, self.observe = loaded, observe
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait, max_queue
        self.queue: deque[Job] = deque()
        self.engines: Sequence[Engine | None] = engines or [None] * workers
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.replaced = threading.Condition(lock)  # for threads whose process is being replaced
        self.running: dict[int, float] = {}  # of each thread that computes: since when
        self.rows_waiting = 0
        self.latest = 0.0  # when the last job came
        self.alone = self.stopping = False
        self.row_seconds = 0.0  # how long a row takes, of late
        self.threads = [
            threading.Thread(
                target=self._work, args=[number, engine], name=f"nse-worker-{number}", daemon=True
            )
            for number, engine in enumerate(self.engines)
        ]

    def start(self) -> None:
        """Begin to compute."""
        for thread in self.threads:
            thread.start()

    def stop(self, seconds: float) -> bool:
        """Compute what still waits, and end; whether that was done in time."""
        end = time.monotonic() + seconds
        with self.changed:
            self.stopping = True
            self.look_again()
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)

    def look_again(self) -> None:
        """Let every thread see whether there is a job for it, as when its process was replaced."""
        with self.changed:
            self.changed.notify_all()
            self.replaced.notify_all()

    def submit(self, job: Job) -> None:
        """Let a job wait.

        Raises:
            FullError: Too many wait already.
        """
        with self.changed:
            if len(self.queue) >= self.max_queue:
                raise FullError(self._retry_after())
            before, self.latest = self.rows_waiting, job.arrived
            self._push(job)
            # A thread that gathers a batch is woken when it is full, and not by every job on the way.
            if not before or before < self.max_batch <= before + job.rows or job.group is None:
                self.changed.notify()

    def drop(self, job: Job) -> None:
        """Forget a job that nobody waits for any more."""
        with self.changed:
            job.gone = True
            if job in self.queue:
                self.queue.remove(job)
                self.rows_waiting -= job.left
                self.changed.notify()

    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self.queue)

    def computing(self) -> int:
        """How many threads compute."""
        return len(self.running)

    def alive(self) -> bool:
        """Whether jobs are being computed, or would be."""
        return all(thread.is_alive() for thread in self.threads)

    def longest(self) -> float:
        """For how many seconds the oldest batch has been computed."""
        return max((time.monotonic() - since for since in list(self.running.values())), default=0.0)

    def find_able(self) -> list[int]:
        """List the threads that can compute: all but those whose process is being replaced."""
        return [number for number, engine in enumerate(self.engines) if engine is None or engine.ready]

    def is_late(self, seconds: float) -> bool:
        """Whether every thread that can compute has been at one batch for longer than this."""
        running, now = dict(self.running), time.monotonic()
        late = [number for number, since in running.items() if now - since > seconds]
        return bool(late) and (self.alone or set(late) >= set(self.find_able()))

    def _push(self, job: Job) -> None:
        self.queue.append(job)
        self.rows_waiting += job.left

    def _pop(self) -> Job:
        job = self.queue.popleft()
        self.rows_waiting -= job.left
        return job

    def _retry_after(self) -> int:
        """In how many seconds what waits now will be computed, as far as the last batches tell."""
        seconds = self.rows_waiting * self.row_seconds / len(self.threads)
        return min(LONGEST_RETRY, max(1, math.ceil(seconds)))

    def _work(self, me: int, engine: Engine | None) -> None:
        compute = engine.computed if engine else Model.compute
        while batch := self._next(me, engine):
            begun = time.monotonic()
            rows = sum(size for _, size in batch)
            try:
                done, unfinished = self._computed(batch, compute)
            except BaseException as error:  # whatever it is, the next batch is computed
                done, unfinished = [(job, error) for job, _ in batch], []
            seconds = time.monotonic() - begun
            with self.changed:
                del self.running[me]
                self.alone = False
                self.row_seconds += 0.1 * (seconds / rows - self.row_seconds)
                for job in unfinished:
                    if not job.gone:
                        self._push(job)
                self.changed.notify_all()
            self.observe(rows, seconds)
            deliver(done)

    def _next(self, me: int, engine: Engine | None) -> list[tuple[Job, int]]:
        """Wait for jobs; gives them and how many rows of each to compute, or none when it is time to end."""
        with self.changed:
            free = time.monotonic()
            while True:
                if self.stopping and not self.queue:
                    return []
                if engine and not engine.ready:  # others are to be woken by a job, and not this thread
                    self.replaced.wait()
                    continue
                if not self.queue or self.alone:
                    self.changed.wait()
                    continue
                first = self.queue[0]
                if first.group is None:
                    if self.running:  # which notify when they are done
                        self.changed.wait()
                        continue
                    self.alone, found = True, [(self._pop(), 1)]
                else:
                    left = self._patience(max(first.arrived, free))
                    if left > 0 and not self.stopping and self.rows_waiting < self.max_batch:
                        self.changed.wait(left)
                        continue
                    found = self._gathered(first.group)
                if self.queue:
                    self.changed.notify()  # there is enough for another thread
                now = time.monotonic()
                self.running[me] = now
                for job, _ in found:
                    job.waited = job.waited or now - job.arrived
                return found

    def _patience(self, since: float) -> float:
        """For how many seconds more to wait for others: while they keep coming, but not for ever."""
        end = min(since + self.max_wait, max(since, self.latest) + self.max_wait * QUIET)
        return end - time.monotonic()

    def _gathered(self, group: Hashable) -> list[tuple[Job, int]]:
        """The first jobs of the queue that fit into a batch; of one larger than a batch, a part.

        Where other threads are idle, it is no more than leaves as much for each of them.
        """
        found: list[tuple[Job, int]] = []
        idle = len(set(self.find_able()) - self.running.keys()) or 1
        room = min(self.max_batch, max(FEW, math.ceil(self.rows_waiting / idle)))
        while room > 0 and self.queue and self.queue[0].group == group:
            job = self.queue[0]
            if found and (job.left > room or job.by_itself):
                break
            size = min(self.max_batch, job.left)
            found.append((self._pop(), size))
            room = 0 if job.by_itself else room - size
        return found

    def _computed(self, batch: Batch, compute: Compute) -> tuple[list[Outcome], list[Job]]:
        """What came of jobs, and those of which more is to be computed."""
        outcomes: list[Outcome] = []
        good: list[tuple[Job, int]] = []
        for job, size in batch:
            if job.gone:
                continue
            try:
                if job.group is None:
                    outcomes.append((job, job.work()))
                else:
                    job.read()
                    good.append((job, min(size, job.left)))
            except Exception as error:
                outcomes.append((job, error))
        unfinished = []
        for job, failure in self._compute(good, compute):
            if failure is None and job.left:
                unfinished.append(job)
                continue
            try:
                outcomes.append((job, failure or job.told()))
            except Exception as error:
                outcomes.append((job, error))
        return outcomes, unfinished

    def _compute(self, batch: Batch, compute: Compute) -> list[tuple[Job, Exception | None]]:
        """Compute the next rows of jobs; together, and where that fails one by one."""
        if not batch:
            return []
        rows: list[Any] = []
        for job, size in batch:
            assert job.asked is not None
            rows += job.asked.rows[job.done : job.done + size]
        asked = batch[0][0].asked
        assert asked is not None
        try:
            found: Any = compute(self.loaded, asked._replace(rows=rows), self.max_batch)
        except DiedError as died:
            if died.delivered and len(batch) == 1:
                return [(batch[0][0], died)]
            for job, _ in batch:  # they wait once more; if one of them was the cause, it will fail alone
                job.by_itself = job.by_itself or died.delivered
            return [(job, None) for job, _ in batch]
        except Exception as error:
            if len(batch) > 1:
                return [one for each in batch for one in self._compute([each], compute)]
            return [(batch[0][0], error)]
        start = 0
        for job, size in batch:
            job.take(found[start : start + size])
            start += size
        return [(job, None) for job, _ in batch]


def deliver(outcomes: Sequence[Outcome]) -> None:
    """Hand answers to those who wait for them, each in its own event loop."""
    for loop in {job.future.get_loop() for job, _ in outcomes}:
        some = [(job.future, result) for job, result in outcomes if job.future.get_loop() is loop]
        with suppress(RuntimeError):  # the loop is closed: the server has stopped, and nobody waits
            loop.call_soon_threadsafe(settle, some)


def settle(answers: Sequence[tuple[asyncio.Future[bytes], bytes | BaseException]]) -> None:
    """Set results, where somebody still waits."""
    for future, result in answers:
        if future.done():
            continue
        if isinstance(result, BaseException):
            error = result if isinstance(result, NSEError | Exception) else RuntimeError(repr(result))
            future.set_exception(error)
        else:
            future.set_result(result)
