"""A process that computes: what it gives, what goes wrong in it, and how it ends."""

import os
import signal

import pytest
import torch

import nse
from nse import asking
from nse.computing import computed
from nse.errors import RunError
from nse.serve import engine as engines
from nse.serve.engine import DiedError, Engine
from test_api import SENTENCES, sentence_model
from test_translate import translator


@pytest.fixture
def started():
    """Starts engines, and ends them."""
    found = []

    def start(folder):
        model = nse.load(folder).quick
        found.append(Engine(model))
        return found[-1], model

    yield start
    for each in found:
        each.end()
        assert not each.process.is_alive()


def test_it_gives_what_this_process_would(started, tmp_path):
    engine, model = started(sentence_model(tmp_path / "mine"))
    for asked in (asking.labels(model, SENTENCES), asking.vectors(model, SENTENCES)):
        torch.testing.assert_close(engine.computed(model, asked, 4), computed(model, asked, 4))
    engine, model = started(translator(tmp_path / "translator"))
    asked = asking.translations(model, ["a dog runs", "the cat"], beam=2)
    assert engine.computed(model, asked, 4) == computed(model, asked, 4)


@pytest.mark.parametrize("error", [RunError("no such number"), MemoryError("/secret")])
def test_what_goes_wrong_in_it_comes_back(error, started, tmp_path, monkeypatch):
    def wrong(*given):
        raise error

    monkeypatch.setattr(engines, "computed", wrong)
    engine, model = started(sentence_model(tmp_path / "mine"))
    with pytest.raises(type(error), match=str(error)) as told:
        engine.computed(model, asking.labels(model, SENTENCES), 4)
    notes = "".join(getattr(told.value, "__notes__", []))
    assert ("in wrong" in notes) == isinstance(error, MemoryError)  # where it was, of what nobody expected


def test_one_that_dies_is_followed_by_another(started, tmp_path):
    engine, model = started(sentence_model(tmp_path / "mine"))
    asked, first = asking.labels(model, SENTENCES), engine.process.pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(DiedError, match="exit code -9"):
        engine.computed(model, asked, 4)
    torch.testing.assert_close(engine.computed(model, asked, 4), computed(model, asked, 4))
    assert engine.process.pid != first


def test_only_a_model_on_a_cpu_is_computed_elsewhere(tmp_path):
    model = nse.load(sentence_model(tmp_path / "mine")).quick
    assert engines.separate(model)
    assert not engines.separate(model._replace(model=model.model.to("meta")))
