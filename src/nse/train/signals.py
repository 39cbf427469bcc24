"""SIGTERM, SIGHUP and Ctrl-C ask a run to stop: it finishes its step, saves, and exits as a shell expects."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from nse.console import handle_signals
from nse.errors import NSEError


class Stopped(NSEError):  # noqa: N818, it is no error
    """A run was asked to stop, and has saved what it did.

    Attributes:
        code: What to exit with: 143 for SIGTERM, 130 for Ctrl-C, 129 for SIGHUP.
    """

    def __init__(self, code: int, message: str = ""):
        super().__init__(message)
        self.code = code


class Stop:
    """Whether somebody asked to stop.

    Args:
        patient: Whether a second Ctrl-C is nothing new. `torchrun` passes a Ctrl-C on to processes that have
            got it from the terminal already.

    Attributes:
        code: What to exit with; 0 while nobody asked.
    """

    def __init__(self, patient: bool = False) -> None:
        self.code, self.patient = 0, patient

    def ask(self, number: int, frame: FrameType | None = None) -> None:
        """Take note of a signal; a second Ctrl-C stops at once."""
        if self.code and number == signal.SIGINT and not self.patient:
            raise KeyboardInterrupt
        self.code = self.code or 128 + number


@contextmanager
def heard(patient: bool = False) -> Iterator[Stop]:
    """Inside, the signals are noted instead of ending the program; see `Stop` for `patient`.

    SIGHUP stays ignored where it is, as under nohup.
    """
    stop = Stop(patient)
    with handle_signals(stop.ask, "SIGTERM", "SIGINT", "SIGHUP"):
        yield stop


def ignore_termination() -> None:
    """From now on SIGTERM does nothing: this process is about to end, and has something to say first."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
