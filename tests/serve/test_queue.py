"""The batcher: which requests are computed together, in which order, and which are refused."""

import asyncio
import threading
import time

import pytest
import torch

from nse.errors import InputError, RunError
from nse.inference.inputs import Request
from nse.serve.http_errors import HTTPError
from nse.serve.queue import Batcher, HttpRequest
from nse.serve.settings import Settings
from nse.serve.worker import EngineDiedError


class Model:
    """Stand-in for a model: records batches, and computes only while the gate is open."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.errors = {}
        self.running = self.max_running = 0
        self.lock = threading.Lock()

    def compute(self, what, rows, beam, batch):
        assert len(rows) <= batch
        with self.lock:
            self.running += 1
            self.max_running = max(self.max_running, self.running)
            self.batches.append([row[0] for row in rows])
        try:
            assert self.gate.wait(10)
            for row in rows:
                if row[0] in self.errors:
                    raise self.errors[row[0]]
            return torch.tensor([[float(row[0])] for row in rows])
        finally:
            with self.lock:
                self.running -= 1


class Engine:
    """Stand-in for an engine, which can be away, or die."""

    def __init__(self, model, ready=True):
        self.model, self.ready, self.deaths = model, ready, []

    def compute(self, *question):
        assert self.ready
        if self.deaths:
            raise self.deaths.pop(0)
        return self.model.compute(*question)


@pytest.fixture
def model():
    model = Model()
    yield model
    model.gate.set()


def make_request(*numbers, group="scores"):
    """Make a request whose answer is its own numbers."""
    request = HttpRequest({"path": "/", "method": "POST", "headers": []}, None, 60)
    request.group, request.rows = group, len(numbers)
    rows = [[number] for number in numbers]
    request.prepare = lambda: Request("scores", rows, lambda values: values.flatten().tolist())
    request.serialize = lambda rows: repr([int(row) for row in rows]).encode()
    return request


def run(model, story, workers=1, engines=(), **settings):
    """Run a coroutine with a batcher."""
    limits = Settings(**{"max_batch": 8, "max_wait_ms": 0.0, "max_queue": 100, "timeout": 1e6, **settings})
    batcher = Batcher(engines or [Engine(model)] * workers, limits, lambda rows, seconds: None)
    try:
        return asyncio.run(asyncio.wait_for(story(batcher), 20))
    finally:
        model.gate.set()
        assert batcher.stop(10)


async def wait_until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def keep_busy(batcher, model):
    """Occupy the only thread, so that later requests wait."""
    model.gate.clear()
    first = make_request(0)
    batcher.submit(first)
    await wait_until(lambda: model.batches)
    return first


def test_waiting_requests_are_computed_together_in_order(model):
    async def story(batcher):
        await keep_busy(batcher, model)
        requests = [make_request(1, 2), make_request(3), make_request(4, 5, 6)]
        for request in requests:
            batcher.submit(request)
        model.gate.set()
        assert [await request.future for request in requests] == [b"[1, 2]", b"[3]", b"[4, 5, 6]"]

    run(model, story)
    assert model.batches == [[0], [1, 2, 3, 4, 5, 6]]


def test_a_large_request_is_split_and_others_are_computed_in_between(model):
    async def story(batcher):
        await keep_busy(batcher, model)
        large, requests = make_request(*range(10, 30)), [make_request(1), make_request(2, 3, 4, 5, 6, 7, 8)]
        for request in [large, *requests]:
            batcher.submit(request)
        assert batcher.rows_waiting == 28
        model.gate.set()
        assert await large.future == repr(list(range(10, 30))).encode()
        assert [await request.future for request in requests] == [b"[1]", b"[2, 3, 4, 5, 6, 7, 8]"]
        assert batcher.rows_waiting == len(batcher.queue) == 0

    run(model, story)
    whole = [*range(10, 30)]
    assert model.batches == [[0], whole[:8], list(range(1, 9)), whole[8:16], whole[16:]]


def test_different_groups_are_computed_in_different_batches(model):
    async def story(batcher):
        await keep_busy(batcher, model)
        vectors = [make_request(n, group="vectors") for n in (2, 3)]
        requests = [make_request(1), *vectors, make_request(4)]
        for request in requests:
            batcher.submit(request)
        model.gate.set()
        await asyncio.gather(*(request.future for request in requests))

    run(model, story)
    assert model.batches == [[0], [1], [2, 3], [4]]


def test_nothing_is_computed_during_a_request_without_a_group(model):
    seen = []

    async def story(batcher):
        def alone():
            seen.append(model.running)
            time.sleep(0.01)
            seen.append(model.running)
            return b"alone"

        requests = [make_request(number, group=None if number % 4 == 1 else "scores") for number in range(40)]
        for request in requests:
            request.prepare = request.prepare if request.group else alone
        for request in requests:
            batcher.submit(request)
        assert (await asyncio.gather(*(request.future for request in requests))).count(b"alone") == 10

    model.gate.wait = lambda _: not time.sleep(0.02)  # long enough for others to start meanwhile
    run(model, story, workers=4, max_batch=1)
    assert seen == [0] * 20
    assert model.max_running > 1


def test_a_request_waits_for_others_up_to_max_wait(model):
    async def story(batcher):
        first, second = make_request(1), make_request(2)
        batcher.submit(first)
        await asyncio.sleep(0.01)
        batcher.submit(second)
        await asyncio.gather(first.future, second.future)

    run(model, story, max_wait_ms=500)
    assert model.batches == [[1, 2]]


def test_a_full_batch_is_computed_without_waiting(model):
    async def story(batcher):
        requests = [make_request(*range(10, 15)), make_request(*range(20, 23))]
        for request in requests:
            batcher.submit(request)
        await asyncio.gather(*(request.future for request in requests))

    run(model, story, max_wait_ms=3_600_000)
    assert model.batches == [[*range(10, 15), *range(20, 23)]]


def test_a_full_queue_refuses_requests_with_retry_after(model):
    async def story(batcher):
        first = await keep_busy(batcher, model)
        requests = [make_request(number) for number in range(1, 4)]
        for request in requests:
            batcher.submit(request)
        batcher.row_seconds = 2.5
        with pytest.raises(HTTPError, match="try again in 8 s") as full:
            batcher.submit(make_request(9))
        assert (full.value.status, full.value.headers) == (429, {"Retry-After": "8"})
        batcher.row_seconds = 0.0
        with pytest.raises(HTTPError, match="try again in 1 s"):
            batcher.submit(make_request(9))
        assert len(batcher.queue) == 3
        model.gate.set()
        await asyncio.gather(first.future, *(request.future for request in requests))
        later = make_request(10)
        batcher.submit(later)
        assert await later.future == b"[10]"

    run(model, story, max_queue=3)


def test_dropped_requests_are_not_computed(model):
    async def story(batcher):
        await keep_busy(batcher, model)
        one, two, three = make_request(1), make_request(2), make_request(*range(10, 30))
        for request in (one, two, three):
            batcher.submit(request)
        batcher.drop(one)
        assert len(batcher.queue) == 2
        model.gate.set()
        assert await two.future == b"[2]"
        await wait_until(lambda: [*range(10, 18)] in model.batches)
        batcher.drop(three)
        last = make_request(4)
        batcher.submit(last)
        await last.future
        await wait_until(lambda: batcher.rows_waiting == 0)

    run(model, story)
    computed = [row for batch in model.batches for row in batch]
    assert 1 not in computed
    assert computed.count(2) == 1


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), MemoryError(), RunError("NaN")])
def test_an_error_fails_only_the_request_that_caused_it(model, error):
    model.errors = {2: error}

    async def story(batcher):
        await keep_busy(batcher, model)
        requests = [make_request(1), make_request(2), make_request(3)]
        for request in requests:
            batcher.submit(request)
        model.gate.set()
        return await asyncio.gather(*(request.future for request in requests), return_exceptions=True)

    one, two, three = run(model, story)
    assert (one, three) == (b"[1]", b"[3]")
    assert two is error
    assert model.batches == [[0], [1, 2, 3], [1], [2], [3]]


def test_a_request_that_cannot_be_prepared_or_serialized_fails_alone(model):
    def unreadable():
        raise InputError("no text")

    async def story(batcher):
        await keep_busy(batcher, model)
        requests = [make_request(2), make_request(1), make_request(5)]
        requests[0].prepare = unreadable
        requests[2].serialize = lambda rows: rows["no such thing"]
        for request in requests:
            batcher.submit(request)
        model.gate.set()
        return await asyncio.gather(*(request.future for request in requests), return_exceptions=True)

    one, two, three = run(model, story)
    assert isinstance(one, InputError)
    assert two == b"[1]"
    assert isinstance(three, TypeError)


def test_a_thread_survives_every_exception(model):
    async def story(batcher):
        for error in (SystemExit(3), KeyboardInterrupt(), GeneratorExit()):
            model.errors = {7: error}
            failing = make_request(7)
            batcher.submit(failing)
            with pytest.raises(RuntimeError, match=type(error).__name__):
                await failing.future
            assert batcher.threads[0].is_alive()
        good = make_request(1)
        batcher.submit(good)
        assert await good.future == b"[1]"

    run(model, story)


@pytest.mark.parametrize("deadly", [True, False])
def test_after_a_process_dies_its_requests_are_computed_one_by_one(deadly, model):
    died, engine = EngineDiedError("it died"), Engine(model)
    model.errors = {2: died} if deadly else {}
    engine.deaths = [] if deadly else [died]

    async def story(batcher):
        requests = [make_request(1), make_request(2), make_request(3)]
        with batcher.changed:  # they arrive together
            for request in requests:
                batcher.submit(request)
        answers = await asyncio.gather(*(request.future for request in requests), return_exceptions=True)
        assert answers == [b"[1]", died if deadly else b"[2]", b"[3]"]

    run(model, story, engines=[engine])
    assert model.batches == [[1, 2, 3]] * deadly + [[1], [2], [3]]


def test_a_request_that_did_not_reach_a_dead_process_is_computed_by_the_next(model):
    engine = Engine(model)
    engine.deaths = [EngineDiedError("it died", delivered=False)] * 2

    async def story(batcher):
        first = make_request(1)
        batcher.submit(first)
        assert await first.future == b"[1]"

    run(model, story, engines=[engine])


def test_a_thread_whose_process_is_away_takes_no_request(model):
    away, here = Engine(model, ready=False), Engine(model)

    async def story(batcher):
        for number in range(20):  # whichever thread wakes up
            request = make_request(number)
            batcher.submit(request)
            assert await request.future == f"[{number}]".encode()
        assert batcher.find_ready_threads() == {1}
        here.ready = False
        waiting = make_request(20)
        batcher.submit(waiting)
        assert not batcher.find_ready_threads()
        away.ready = True
        batcher.wake_threads()
        assert await waiting.future == b"[20]"
        away.ready = False

    run(model, story, engines=[away, here])  # stops although both are away


def test_the_batcher_is_overdue_if_every_ready_thread_is(model):
    engines = [Engine(model), Engine(model), Engine(model, ready=False)]

    async def story(batcher):
        model.gate.clear()
        requests = [make_request(1), make_request(2)]
        for number, request in enumerate(requests, start=1):
            assert not batcher.is_overdue(0)
            batcher.submit(request)
            await wait_until(lambda number=number: len(model.batches) == number)
        assert batcher.is_overdue(0)
        assert not batcher.is_overdue(60)
        engines[2].ready = True
        assert not batcher.is_overdue(0)
        model.gate.set()
        await asyncio.gather(*(request.future for request in requests))

    run(model, story, engines=engines, max_batch=1)


def test_stopping_computes_the_waiting_requests(model):
    async def story(batcher):
        await keep_busy(batcher, model)
        requests = [make_request(number) for number in range(1, 6)]
        for request in requests:
            batcher.submit(request)
        assert len(batcher.running) == 1
        assert batcher.is_overdue(0)
        assert not batcher.stop(0.01)  # still computing
        model.gate.set()
        return await asyncio.gather(*(request.future for request in requests))

    assert run(model, story) == [b"[1]", b"[2]", b"[3]", b"[4]", b"[5]"]
