"""Fault 6: SIGTERM or Ctrl-C in training: the step is finished, the state saved, the exit code right."""

import re
import signal
import threading

import pytest

from faults.made_runs import checkpoint, end, started, wait_for
from nse.train.signals import Stop, heard


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_exits(tmp_path, number, code):
    folder = tmp_path / "run"
    process = started(folder, "train.epochs=2000", recipe="logic/bow")
    wait_for(process, folder / "checkpoint.pt")
    found, told = end(process, number)
    assert found == code
    last = told.strip().split("\n")[-1]
    stopped = re.fullmatch(
        r"nse: stopped; the checkpoint at step (\d+) is good; run again with --resume", last
    )
    assert stopped, told
    assert "Traceback" not in told
    assert checkpoint(folder)["step"] == int(stopped[1])
    assert not (folder / "result.json").exists()


def test_signals_are_noted_inside_only():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with heard() as stop:
        assert stop.code == 0
        signal.raise_signal(signal.SIGTERM)
        assert stop.code == 143
        signal.raise_signal(signal.SIGTERM)
        assert stop.code == 143
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    with pytest.raises(ZeroDivisionError), heard():
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_ctrl_c_stops_at_once():
    with heard() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    patient = Stop(patient=True)  # torchrun passes on what the terminal has sent already
    patient.ask(signal.SIGINT)
    patient.ask(signal.SIGINT)
    assert patient.code == 130


def test_another_thread_hears_nothing_and_breaks_nothing():
    found = []

    def listen():
        with heard() as stop:
            found.append(stop.code)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [0]
