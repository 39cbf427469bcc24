"""Fault 6: SIGTERM, SIGHUP or Ctrl-C in training: the step is finished, the state saved, the code right."""

import os
import pty
import re
import select
import signal
import sys
import threading
import time

import pytest

from faults.made_runs import ENVIRONMENT, checkpoint, end, start_run, wait_for_file, words
from nse.train.signals import StopRequest, catch_signals


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_saves_a_checkpoint_and_exits_with_its_code(tmp_path, number, code):
    folder = tmp_path / "run"
    process = start_run(folder, "train.epochs=2000", recipe="logic/bow")
    wait_for_file(process, folder / "checkpoint.pt")
    exit_code, message = end(process, number)
    assert exit_code == code
    last = message.strip().split("\n")[-1]
    stopped = re.fullmatch(
        r"nse: stopped; the last checkpoint is from step (\d+); --resume continues the run", last
    )
    assert stopped, message
    assert "Traceback" not in message
    assert checkpoint(folder)["step"] == int(stopped[1])
    assert not (folder / "result.json").exists()


def test_closing_the_terminal_saves_a_checkpoint(tmp_path):
    """The system sends SIGHUP, and every word to the terminal fails from then on."""
    folder = tmp_path / "run"
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, *words(folder, "train.epochs=2000", recipe="logic/bow")]
        os.execve(sys.executable, command, ENVIRONMENT)
    end = time.monotonic() + 60
    while not (folder / "checkpoint.pt").exists():
        assert time.monotonic() < end
        if select.select([terminal], [], [], 0.01)[0]:
            os.read(terminal, 1000)
    os.close(terminal)
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 129
    assert checkpoint(folder)["cursor"]  # inside an epoch: it was saved for the signal
    assert not (folder / "result.json").exists()


def test_an_ignored_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup starts a program
    try:
        with catch_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.exit_code == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_are_caught_inside_the_block_only():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with catch_signals() as stop:
        assert stop.exit_code == 0
        signal.raise_signal(signal.SIGTERM)
        assert stop.exit_code == 143
        signal.raise_signal(signal.SIGTERM)
        assert stop.exit_code == 143
    assert [signal.getsignal(number) for number in numbers] == before
    with pytest.raises(ZeroDivisionError), catch_signals():
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_second_ctrl_c_stops_immediately():
    with catch_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    patient = StopRequest(ignore_repeats=True)  # torchrun passes on what the terminal has sent already
    patient.handle_signal(signal.SIGINT)
    patient.handle_signal(signal.SIGINT)
    assert patient.exit_code == 130


def test_signals_are_not_caught_in_another_thread():
    exit_codes = []

    def listen():
        with catch_signals() as stop:
            exit_codes.append(stop.exit_code)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert exit_codes == [0]
