"""Show a progress bar, and end cleanly on a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], Any], *names: str) -> Iterator[None]:
    """Call a handler for these signals inside the block; outside of the main thread nothing is changed.

    Signals that the system lacks are left out, and an ignored SIGHUP stays ignored, as under nohup. In the
    end the old handlers come back, unless somebody has set others in between.
    """
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # which alone may hear signals
        numbers = []
    hangup = getattr(signal, "SIGHUP", None)
    heard = [each for each in numbers if each != hangup or signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, old)


def exit_by_signal(number: int, frame: FrameType | None = None) -> None:
    """End the program on a signal as an error does, so that nothing half is left behind."""
    raise SystemExit(128 + number)


def make_bar(*columns: ProgressColumn, console: Console | None = None) -> Progress:
    """Make a progress bar: a text, the bar, the given columns and the time left.

    It shows nothing where the console, standard error by default, is no terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = console or Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    time = TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
    shown = (text, BarColumn(), *columns, time, TextColumn("left"))
    return Progress(*shown, console=console, disable=not console.is_terminal)
