"""Progress bars and signal handlers."""

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
    """Handle these signals in the block, if it runs in the main thread.

    Signals that the system lacks are skipped, and an ignored SIGHUP stays ignored (nohup). The old handlers
    are restored, unless others were set meanwhile.
    """
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        numbers = []
    hangup = getattr(signal, "SIGHUP", None)
    numbers = [n for n in numbers if n != hangup or signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, old)


def exit_by_signal(number: int, frame: FrameType | None = None) -> None:
    """Raise `SystemExit` for a signal, so that files are cleaned up."""
    raise SystemExit(128 + number)


def make_bar(*columns: ProgressColumn, console: Console | None = None) -> Progress:
    """Make a progress bar with a description, these columns and the time left.

    It is disabled if the console, standard error by default, is not a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = console or Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    time = TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
    all_columns = (text, BarColumn(), *columns, time, TextColumn("left"))
    return Progress(*all_columns, console=console, disable=not console.is_terminal)
