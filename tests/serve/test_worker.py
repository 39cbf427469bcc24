"""A process that computes: what it gives, what goes wrong in it, how it is replaced and how it ends."""

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
def started():
    """Starts engines, and ends them."""
    found = []

    def start(folder):
        model = nse.load(folder)
        found.append(EngineProcess(model))
        return found[-1], model

    yield start
    stop_engines(found, 5)
    for each in found:
        assert not each.process.is_alive()


def until(true, seconds=60):
    """Wait for what another thread brings about."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def parts(question):
    """What is sent of a question: no texts."""
    return question.output, question.rows, question.beam, 4


def test_it_gives_what_this_process_would(started, tmp_path):
    engine, model = started(save_sentence_model(tmp_path / "mine"))
    for verb in ("predict", "encode"):
        asked = parts(model.request(verb, SENTENCES))
        torch.testing.assert_close(engine.compute(*asked), Engine(model).compute(*asked))
    engine, model = started(save_translator(tmp_path / "translator"))
    asked = parts(model.request("translate", ["a dog runs", "the cat"], beam=2))
    assert torch.equal(engine.compute(*asked), Engine(model).compute(*asked))


@pytest.mark.parametrize("error", [RunError("no such number"), MemoryError("/secret")])
def test_what_goes_wrong_in_it_comes_back(error, started, tmp_path, monkeypatch):
    def wrong(*given):
        raise error

    monkeypatch.setattr(worker, "compute_request", wrong)
    engine, model = started(save_sentence_model(tmp_path / "mine"))
    with pytest.raises(type(error), match=str(error)) as told:
        engine.compute(*parts(model.request("predict", SENTENCES)))
    notes = "".join(getattr(told.value, "__notes__", []))
    assert ("in wrong" in notes) == isinstance(error, MemoryError)  # where it was, of what nobody expected


def test_one_that_dies_is_followed_by_another(started, tmp_path, monkeypatch):
    """Though nobody asked; and where it cannot be started at first, it is tried again, and noted once."""
    engine, model = started(save_sentence_model(tmp_path / "mine"))
    asked, first, lines, seen = parts(model.request("predict", SENTENCES)), engine.process.pid, [], []
    before, dumps, failures = engine.compute(*asked), worker.pickle.dumps, [MemoryError()] * 2
    monkeypatch.setattr(worker, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(worker.pickle, "dumps", lambda each: fail(failures) or dumps(each))
    log = Log(lines.append)
    engine.watch(60, log, lambda: seen.append(engine.ready))
    os.kill(first, signal.SIGKILL)
    until(lambda: seen == [False, True])
    assert torch.equal(engine.compute(*asked), before)  # to the last bit
    assert engine.replaced == 1
    log.flush()
    told = [json.loads(line) for line in b"".join(lines).splitlines()]
    assert [line["event"] for line in told] == ["engine_lost", "error", "engine_replaced"]
    assert (told[0]["process"], told[0]["code"], told[0]["reason"]) == (first, -9, "died")
    assert told[1]["error"] == "MemoryError"
    assert told[2]["tries"] == 3


def fail(failures):
    if failures:
        raise failures.pop()


def test_what_it_did_not_die_of_can_be_told(started, tmp_path):
    engine, model = started(save_sentence_model(tmp_path / "mine"))
    engine.process.kill()
    engine.process.join()
    for _ in range(2):  # once at the line, and once because it is known
        with pytest.raises(EngineDiedError) as died:
            engine.compute(*parts(model.request("predict", SENTENCES)))
        assert not died.value.delivered
        assert not engine.ready


def test_an_idle_one_that_hangs_is_noticed(started, tmp_path, monkeypatch):
    engine, _ = started(save_sentence_model(tmp_path / "mine"))
    assert not engine._hangs(10)
    monkeypatch.setattr(worker, "GRACE_PERIOD", 0.1)
    os.kill(engine.process.pid, signal.SIGSTOP)
    assert engine._hangs(0.1)
    os.kill(engine.process.pid, signal.SIGCONT)


def test_those_that_hang_end_in_time(started, tmp_path):
    model = save_sentence_model(tmp_path / "mine")
    several = [started(model)[0] for _ in range(3)]
    for each in several:
        os.kill(each.process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    stop_engines(several, 0.5)
    assert time.monotonic() - begun < 3


def test_only_a_model_on_a_cpu_is_computed_elsewhere(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    engines = make_engines(model, 2)
    assert [type(engine) for engine in engines] == [EngineProcess] * 2
    stop_engines(engines, 5)
    assert [type(engine) for engine in make_engines(model.with_module(model.module.to("meta")), None)] == [
        Engine
    ]
