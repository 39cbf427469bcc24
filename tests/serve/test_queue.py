"""The batcher by itself: what is computed together, in which order, and what is let in."""

import asyncio
import threading
import time

import pytest
import torch

from nse.errors import InputError, RunError
from nse.inference.inputs import Request
from nse.serve.errors import HTTPError
from nse.serve.queue import Batcher, HttpRequest
from nse.serve.settings import Settings
from nse.serve.worker import EngineDiedError


class Model:
    """In the place of a model: notes batches, and computes only while the gate is open."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.wrong = {}
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def compute(self, what, rows, beam, batch):
        assert len(rows) <= batch
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.batches.append([row[0] for row in rows])
        try:
            assert self.gate.wait(10)
            for row in rows:
                if row[0] in self.wrong:
                    raise self.wrong[row[0]]
            return torch.tensor([[float(row[0])] for row in rows])
        finally:
            with self.lock:
                self.at_once -= 1


class Engine:
    """In the place of a thread or a process: it can be away, and die of what it is asked."""

    def __init__(self, model, ready=True):
        self.model, self.ready, self.deaths = model, ready, []

    def compute(self, *question):
        assert self.ready
        if self.deaths:
            raise self.deaths.pop(0)
        return self.model.compute(*question)


@pytest.fixture
def model():
    found = Model()
    yield found
    found.gate.set()


def job(*numbers, group="scores"):
    """A request that is answered by its own numbers."""
    made = HttpRequest({"path": "/", "method": "POST", "headers": []}, None, 60)
    made.group, made.rows = group, len(numbers)
    rows = [[number] for number in numbers]
    made.prepare = lambda: Request("scores", rows, lambda found: found.flatten().tolist())
    made.serialize = lambda rows: repr([int(row) for row in rows]).encode()
    return made


def run(model, story, workers=1, engines=(), **settings):
    """Let a story happen beside a batcher."""
    limits = Settings(**{"max_batch": 8, "max_wait_ms": 0.0, "max_queue": 100, "timeout": 1e6, **settings})
    made = Batcher(engines or [Engine(model)] * workers, limits, lambda rows, seconds: None)
    try:
        return asyncio.run(asyncio.wait_for(story(made), 20))
    finally:
        model.gate.set()
        assert made.stop(10)


async def until(true):
    while not true():
        await asyncio.sleep(0.001)


async def busy(made, model):
    """Let the only thread be at work, so that what comes now has to wait."""
    model.gate.clear()
    first = job(0)
    made.submit(first)
    await until(lambda: model.batches)
    return first


def test_what_waits_is_computed_together_in_its_order(model):
    async def story(made):
        await busy(made, model)
        jobs = [job(1, 2), job(3), job(4, 5, 6)]
        for each in jobs:
            made.submit(each)
        model.gate.set()
        assert [await each.future for each in jobs] == [b"[1, 2]", b"[3]", b"[4, 5, 6]"]

    run(model, story)
    assert model.batches == [[0], [1, 2, 3, 4, 5, 6]]


def test_a_batch_is_not_too_large_and_a_large_request_lets_others_by(model):
    async def story(made):
        await busy(made, model)
        large, jobs = job(*range(10, 30)), [job(1), job(2, 3, 4, 5, 6, 7, 8)]
        for each in [large, *jobs]:
            made.submit(each)
        assert made.rows_waiting == 28
        model.gate.set()
        assert await large.future == repr(list(range(10, 30))).encode()
        assert [await each.future for each in jobs] == [b"[1]", b"[2, 3, 4, 5, 6, 7, 8]"]
        assert made.rows_waiting == len(made.queue) == 0

    run(model, story)
    whole = [*range(10, 30)]
    assert model.batches == [[0], whole[:8], list(range(1, 9)), whole[8:16], whole[16:]]


def test_other_groups_are_computed_apart(model):
    async def story(made):
        await busy(made, model)
        jobs = [job(1), job(2, group="vectors"), job(3, group="vectors"), job(4)]
        for each in jobs:
            made.submit(each)
        model.gate.set()
        await asyncio.gather(*(each.future for each in jobs))

    run(model, story)
    assert model.batches == [[0], [1], [2, 3], [4]]


def test_nothing_is_computed_beside_what_wants_to_be_alone(model):
    seen = []

    async def story(made):
        def alone():
            seen.append(model.at_once)
            time.sleep(0.01)
            seen.append(model.at_once)
            return b"alone"

        jobs = [job(number, group=None if number % 4 == 1 else "scores") for number in range(40)]
        for each in jobs:
            each.prepare = each.prepare if each.group else alone
        for each in jobs:
            made.submit(each)
        assert (await asyncio.gather(*(each.future for each in jobs))).count(b"alone") == 10

    run(model, story, workers=4, max_batch=1)
    assert seen == [0] * 20
    assert model.most_at_once > 1


def test_a_request_waits_for_others_but_not_for_ever(model):
    async def story(made):
        first, second = job(1), job(2)
        made.submit(first)
        await asyncio.sleep(0.01)
        made.submit(second)
        await asyncio.gather(first.future, second.future)

    run(model, story, max_wait_ms=500)
    assert model.batches == [[1, 2]]


def test_a_full_batch_does_not_wait(model):
    async def story(made):
        jobs = [job(*range(10, 15)), job(*range(20, 23))]
        for each in jobs:
            made.submit(each)
        await asyncio.gather(*(each.future for each in jobs))

    run(model, story, max_wait_ms=3_600_000)
    assert model.batches == [[*range(10, 15), *range(20, 23)]]


def test_too_many_are_refused_and_told_when_to_come_back(model):
    async def story(made):
        first = await busy(made, model)
        jobs = [job(number) for number in range(1, 4)]
        for each in jobs:
            made.submit(each)
        made.row_seconds = 2.5
        with pytest.raises(HTTPError, match="try again in 8 s") as full:
            made.submit(job(9))
        assert (full.value.status, full.value.headers) == (429, {"Retry-After": "8"})
        made.row_seconds = 0.0
        with pytest.raises(HTTPError, match="try again in 1 s"):
            made.submit(job(9))
        assert len(made.queue) == 3
        model.gate.set()
        await asyncio.gather(first.future, *(each.future for each in jobs))
        later = job(10)
        made.submit(later)
        assert await later.future == b"[10]"

    run(model, story, max_queue=3)


def test_what_nobody_waits_for_is_not_computed(model):
    async def story(made):
        await busy(made, model)
        one, two, three = job(1), job(2), job(*range(10, 30))
        for each in (one, two, three):
            made.submit(each)
        made.drop(one)
        assert len(made.queue) == 2
        model.gate.set()
        assert await two.future == b"[2]"
        await until(lambda: [*range(10, 18)] in model.batches)
        made.drop(three)
        last = job(4)
        made.submit(last)
        await last.future
        await until(lambda: made.rows_waiting == 0)

    run(model, story)
    computed = [row for batch in model.batches for row in batch]
    assert 1 not in computed
    assert computed.count(2) == 1


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), MemoryError(), RunError("NaN")])
def test_a_failure_is_told_to_the_one_who_caused_it(model, error):
    model.wrong = {2: error}

    async def story(made):
        await busy(made, model)
        jobs = [job(1), job(2), job(3)]
        for each in jobs:
            made.submit(each)
        model.gate.set()
        return await asyncio.gather(*(each.future for each in jobs), return_exceptions=True)

    one, two, three = run(model, story)
    assert (one, three) == (b"[1]", b"[3]")
    assert two is error
    assert model.batches == [[0], [1, 2, 3], [1], [2], [3]]


def test_what_cannot_be_read_or_told_costs_nobody_else(model):
    def unreadable():
        raise InputError("no text")

    async def story(made):
        await busy(made, model)
        jobs = [job(2), job(1), job(5)]
        jobs[0].prepare = unreadable
        jobs[2].serialize = lambda rows: rows["no such thing"]
        for each in jobs:
            made.submit(each)
        model.gate.set()
        return await asyncio.gather(*(each.future for each in jobs), return_exceptions=True)

    one, two, three = run(model, story)
    assert isinstance(one, InputError)
    assert two == b"[1]"
    assert isinstance(three, TypeError)


def test_a_thread_outlives_everything(model):
    async def story(made):
        for error in (SystemExit(3), KeyboardInterrupt(), GeneratorExit()):
            model.wrong = {7: error}
            failing = job(7)
            made.submit(failing)
            with pytest.raises(RuntimeError, match=type(error).__name__):
                await failing.future
            assert made.threads[0].is_alive()
        good = job(1)
        made.submit(good)
        assert await good.future == b"[1]"

    run(model, story)


@pytest.mark.parametrize("deadly", [True, False])
def test_those_a_process_died_at_are_computed_by_themselves(deadly, model):
    """And the one that it died of, again alone, is told so."""
    died, engine = EngineDiedError("it died"), Engine(model)
    model.wrong = {2: died} if deadly else {}
    engine.deaths = [] if deadly else [died]

    async def story(made):
        jobs = [job(1), job(2), job(3)]
        with made.changed:  # so that they come at once
            for each in jobs:
                made.submit(each)
        found = await asyncio.gather(*(each.future for each in jobs), return_exceptions=True)
        assert found == [b"[1]", died if deadly else b"[2]", b"[3]"]

    run(model, story, engines=[engine])
    assert model.batches == [[1, 2, 3]] * deadly + [[1], [2], [3]]


def test_what_a_process_did_not_die_of_is_computed_by_the_next(model):
    engine = Engine(model)
    engine.deaths = [EngineDiedError("it died", delivered=False)] * 2

    async def story(made):
        first = job(1)
        made.submit(first)
        assert await first.future == b"[1]"

    run(model, story, engines=[engine])


def test_a_thread_without_its_process_takes_no_job(model):
    away, here = Engine(model, ready=False), Engine(model)

    async def story(made):
        for number in range(20):  # whichever thread is woken
            each = job(number)
            made.submit(each)
            assert await each.future == f"[{number}]".encode()
        assert made.find_ready_threads() == {1}
        here.ready = False
        waiting = job(20)
        made.submit(waiting)
        assert not made.find_ready_threads()
        away.ready = True
        made.wake_threads()
        assert await waiting.future == b"[20]"
        away.ready = False

    run(model, story, engines=[away, here])  # and it ends, though both are away


def test_it_is_late_if_every_thread_that_can_compute_is(model):
    engines = [Engine(model), Engine(model), Engine(model, ready=False)]

    async def story(made):
        model.gate.clear()
        jobs = [job(1), job(2)]
        for number, each in enumerate(jobs, start=1):
            assert not made.is_overdue(0)
            made.submit(each)
            await until(lambda number=number: len(model.batches) == number)
        assert made.is_overdue(0)
        assert not made.is_overdue(60)
        engines[2].ready = True
        assert not made.is_overdue(0)
        model.gate.set()
        await asyncio.gather(*(each.future for each in jobs))

    run(model, story, engines=engines, max_batch=1)


def test_stopping_computes_what_waits(model):
    async def story(made):
        await busy(made, model)
        jobs = [job(number) for number in range(1, 6)]
        for each in jobs:
            made.submit(each)
        assert len(made.running) == 1
        assert made.is_overdue(0)
        assert not made.stop(0.01)  # it still computes
        model.gate.set()
        return await asyncio.gather(*(each.future for each in jobs))

    assert run(model, story) == [b"[1]", b"[2]", b"[3]", b"[4]", b"[5]"]
