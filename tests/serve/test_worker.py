"""Worker processes: results, errors, replacement and shutdown."""

import json
import os
import signal
import time

import pytest
import torch

import nse
from nse.errors import RunError
from nse.serve import worker
from nse.serve.observe import Log
from nse.serve.worker import Engine, EngineDiedError, EngineProcess, make_engines, stop_engines
from small_models import SENTENCES, save_sentence_model, save_translator


@pytest.fixture
def start_engine():
    """Start engines, and stop them after the test."""
    engines = []

    def start(folder):
        model = nse.load(folder)
        engines.append(EngineProcess(model))
        return engines[-1], model

    yield start
    stop_engines(engines, 5)
    for engine in engines:
        assert not engine.process.is_alive()


def wait_until(condition, seconds=60):
    """Wait for a condition that another thread fulfils."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def get_arguments(request):
    """Return the arguments of `Engine.compute` for a request."""
    return request.output, request.rows, request.beam, 4


def test_a_worker_process_gives_the_same_result(start_engine, tmp_path):
    engine, model = start_engine(save_sentence_model(tmp_path / "mine"))
    for verb in ("predict", "encode"):
        arguments = get_arguments(model.request(verb, SENTENCES))
        torch.testing.assert_close(engine.compute(*arguments), Engine(model).compute(*arguments))
    engine, model = start_engine(save_translator(tmp_path / "translator"))
    arguments = get_arguments(model.request("translate", ["a dog runs", "the cat"], beam=2))
    assert torch.equal(engine.compute(*arguments), Engine(model).compute(*arguments))


@pytest.mark.parametrize("error", [RunError("no such number"), MemoryError("/secret")])
def test_an_error_in_a_worker_process_is_raised_in_the_server(error, start_engine, tmp_path, monkeypatch):
    def wrong(*args):
        raise error

    monkeypatch.setattr(worker, "compute_request", wrong)
    engine, model = start_engine(save_sentence_model(tmp_path / "mine"))
    with pytest.raises(type(error), match=str(error)) as info:
        engine.compute(*get_arguments(model.request("predict", SENTENCES)))
    notes = "".join(getattr(info.value, "__notes__", []))
    assert ("in wrong" in notes) == isinstance(error, MemoryError)  # unexpected errors carry a traceback


def test_a_dead_process_is_replaced_with_retries_logged_once(start_engine, tmp_path, monkeypatch):
    engine, model = start_engine(save_sentence_model(tmp_path / "mine"))
    arguments = get_arguments(model.request("predict", SENTENCES))
    first, lines, seen = engine.process.pid, [], []
    before, dumps, failures = engine.compute(*arguments), worker.pickle.dumps, [MemoryError()] * 2
    monkeypatch.setattr(worker, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(worker.pickle, "dumps", lambda each: fail(failures) or dumps(each))
    log = Log(lines.append)
    engine.watch(60, log, lambda: seen.append(engine.ready))
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: seen == [False, True])
    assert torch.equal(engine.compute(*arguments), before)  # to the last bit
    assert engine.replaced == 1
    log.flush()
    events = [json.loads(line) for line in b"".join(lines).splitlines()]
    assert [line["event"] for line in events] == ["engine_lost", "error", "engine_replaced"]
    assert (events[0]["process"], events[0]["code"], events[0]["reason"]) == (first, -9, "died")
    assert events[1]["error"] == "MemoryError"
    assert events[2]["tries"] == 3


def fail(failures):
    if failures:
        raise failures.pop()


def test_a_dead_process_reports_that_a_request_was_not_delivered(start_engine, tmp_path):
    engine, model = start_engine(save_sentence_model(tmp_path / "mine"))
    engine.process.kill()
    engine.process.join()
    for _ in range(2):  # at the pipe, then known
        with pytest.raises(EngineDiedError) as died:
            engine.compute(*get_arguments(model.request("predict", SENTENCES)))
        assert not died.value.delivered
        assert not engine.ready


def test_a_hanging_idle_process_is_detected(start_engine, tmp_path, monkeypatch):
    engine, _ = start_engine(save_sentence_model(tmp_path / "mine"))
    assert not engine._hangs(10)
    monkeypatch.setattr(worker, "GRACE_PERIOD", 0.1)
    os.kill(engine.process.pid, signal.SIGSTOP)
    assert engine._hangs(0.1)
    os.kill(engine.process.pid, signal.SIGCONT)


def test_hanging_processes_are_stopped_in_time(start_engine, tmp_path):
    model = save_sentence_model(tmp_path / "mine")
    several = [start_engine(model)[0] for _ in range(3)]
    for each in several:
        os.kill(each.process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    stop_engines(several, 0.5)
    assert time.monotonic() - begun < 3


def test_only_models_on_a_cpu_get_worker_processes(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    engines = make_engines(model, 2)
    assert [type(engine) for engine in engines] == [EngineProcess] * 2
    stop_engines(engines, 5)
    model.module.to("meta")
    assert [type(engine) for engine in make_engines(model, None)] == [Engine]
