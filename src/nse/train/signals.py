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
    """A run was asked to stop, and has saved what it did."""

    def __init__(self, code: int, message: str = "", fix: tuple[str, ...] = ()):
        super().__init__(message, fix)
        self.code = code  # what to exit with: 143 for SIGTERM, 130 for Ctrl-C, 129 for SIGHUP


class Stop:
    """Whether somebody asked to stop: `code` is what to exit with, 0 while nobody asked."""

    def __init__(self, patient: bool = False) -> None:
        # Whether a second Ctrl-C is nothing new: torchrun passes on what the terminal has sent already.
        self.code, self.patient = 0, patient

    def ask(self, number: int, frame: FrameType | None = None) -> None:
        """Take note of a signal; a second Ctrl-C stops at once."""
        if self.code and number == signal.SIGINT and not self.patient:
            raise KeyboardInterrupt
        self.code = self.code or 128 + number


@contextmanager
def heard(patient: bool = False) -> Iterator[Stop]:
    """Note the signals in the block instead of ending the program; an ignored SIGHUP stays ignored."""
    stop = Stop(patient)
    with handle_signals(stop.ask, "SIGTERM", "SIGINT", "SIGHUP"):
        yield stop


def ignore_termination() -> None:
    """Ignore SIGTERM from now on: this process is about to end, and has something to say first."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
