"""Stop requests: SIGTERM, SIGHUP and Ctrl-C let a run finish its step, save a checkpoint and exit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from nse.console import handle_signals
from nse.errors import NSEError


class TrainingInterrupted(NSEError):  # noqa: N818, it is no error
    """Raised when a signal stops a run, after its checkpoint was saved."""

    def __init__(self, code: int, message: str = "", fix: tuple[str, ...] = ()):
        super().__init__(message, fix)
        self.code = code  # exit code: 143 for SIGTERM, 130 for Ctrl-C, 129 for SIGHUP


class StopRequest:
    """Signal that asks a run to stop; `exit_code` is 0 until one arrives."""

    def __init__(self, ignore_repeats: bool = False) -> None:
        # Under torchrun one Ctrl-C arrives twice: from the terminal and from torchrun.
        self.exit_code, self.ignore_repeats = 0, ignore_repeats

    def handle_signal(self, number: int, frame: FrameType | None = None) -> None:
        """Record a signal; raise KeyboardInterrupt on a second Ctrl-C."""
        if self.exit_code and number == signal.SIGINT and not self.ignore_repeats:
            raise KeyboardInterrupt
        self.exit_code = self.exit_code or 128 + number


@contextmanager
def catch_signals(ignore_repeats: bool = False) -> Iterator[StopRequest]:
    """Record signals in the block instead of ending the program; an ignored SIGHUP stays ignored."""
    stop = StopRequest(ignore_repeats)
    with handle_signals(stop.handle_signal, "SIGTERM", "SIGINT", "SIGHUP"):
        yield stop


def ignore_sigterm() -> None:
    """Ignore SIGTERM from now on, so that this process can print its error before it ends."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
