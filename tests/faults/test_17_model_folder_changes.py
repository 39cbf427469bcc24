"""Fault 17: the model folder changes or goes while a server runs: all answers are the loaded model's."""

import os
import shutil
import signal
import time

import pytest

import nse
from faults.test_13_shutdown import gone
from serve.running import list_children, read_events, read_metric, run_server, send
from small_models import save_sentence_model

TEXTS = {"texts": ["a good film", "the bad dog sleeps .", "who runs ?"]}
TRACE = {"texts": ["a good film"]}
ASKS = [("/v1/predict", TEXTS), ("/v1/encode", TEXTS), ("/v1/trace", TRACE), ("/v1/model",)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, the folder of its model, and what it answers at first."""
    folder = save_sentence_model(tmp_path_factory.mktemp("models") / "mine", size=20)
    with run_server(folder) as (address, server):
        yield address, server, folder, answers(address)


def answers(address):
    """Status and content of the answer to each question."""
    result = [send(address, *ask) for ask in ASKS]
    return [(status, content) for status, _, content in result]


def replace(folder):
    """Put a model of the same sizes there, as a training run does whenever it gets better."""
    save_sentence_model(folder, size=20, seed=1)


def break_weights(folder):
    """Cut the weights off, as an interrupted copy does."""
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(100)


@pytest.mark.parametrize("change", [replace, break_weights, shutil.rmtree])
def test_answers_are_of_the_loaded_model_after_its_folder_changed(change, served):
    address, server, folder, before = served
    assert [status for status, _ in before] == [200] * len(ASKS)
    count = read_metric(address, "nse_engines_replaced")
    change(folder)
    killed = engines(server)
    assert len(killed) == 1
    for engine in killed:
        os.kill(engine, signal.SIGKILL)
    assert gone(killed)
    for _ in range(2):
        assert answers(address) == before
    until(lambda: read_metric(address, "nse_engines") == 1)
    assert read_metric(address, "nse_engines_replaced") == count + 1
    assert answers(address) == before
    assert send(address, "/health/ready")[0] == 200
    assert not read_events(server, "error", seconds=0)


def until(true, seconds=60):
    """Wait for what another process brings about."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def engines(server):
    """The processes of a server that compute."""
    return [pid for pid in list_children(server.pid) if "resource_tracker" not in command_of(pid)]


def command_of(pid):
    """The words that a process was started with."""
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def test_another_model_gives_other_answers(tmp_path):
    folder = save_sentence_model(tmp_path / "mine", size=20)
    before = nse.load(folder).predict(TEXTS["texts"])
    replace(folder)
    assert nse.load(folder).predict(TEXTS["texts"]) != before
