"""How far a run is: a bar with the time left in a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import IO, Any, TextIO, cast

from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TextColumn
from rich.table import Column

from nse.console import make_bar

EVERY = 20  # steps between two changes of the bar


class WhileItCan:
    """A text stream that drops what can no longer be written: a run outlives the terminal that watched it."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Bring what was written to its place."""
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the stream has."""
        return getattr(self.stream, name)


class Progress:
    """Shows runs one after the other on a console, by default on standard error, where no results are."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(file=cast(IO[str], WhileItCan(sys.stderr)))
        self.name = ""
        steps = MofNCompleteColumn(table_column=Column(no_wrap=True))
        self._bar = make_bar(steps, TextColumn("{task.fields[note]}"), console=self.console)
        self._task: TaskID | None = None
        self._note = ""
        self._total = self._first = 0
        self._started = 0.0

    @classmethod
    def silent(cls) -> Progress:
        """Make one that shows nothing."""
        return cls(Console(quiet=True))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def begin(self, steps: int, done: int = 0) -> None:
        """Begin a run of so many steps, or go on after those that are done."""
        self._total, self._first, self._started = steps, done, time.perf_counter()
        self._bar.start()  # only now: in all but one of many processes nothing begins
        self._task = self._bar.add_task(self.name, total=steps, completed=done, note="")

    def step(self, epoch: int, step: int, loss: float, accuracy: float, speed: float) -> None:
        """Show one more step, with figures of the epoch so far and the speed in examples a second."""
        assert self._task is not None
        if self.console.is_terminal and step % EVERY == 0:
            figures = f"loss {loss:.3f} · {100 * accuracy:.1f}%{self._note} · {speed:,.0f}/s"
            self._bar.update(self._task, completed=step, note=f"epoch {epoch} · {figures}")

    def epoch(self, row: dict[str, Any]) -> None:
        """Show one more epoch, by its row of metrics."""
        self._note = f" · dev {100 * row['dev']:.1f}%"
        if not self.console.is_terminal:
            taken = (time.perf_counter() - self._started) / max(row["step"] - self._first, 1)
            left = timedelta(seconds=round(taken * (self._total - row["step"])))  # if it goes on like this
            self.tell(
                f"epoch {row['epoch']}, loss {row['loss']:.3f}, train {100 * row['train']:.1f}%, "
                f"dev {100 * row['dev']:.1f}%, {row['examples_per_second']:,.0f} examples/s, {left} left"
            )

    def tell(self, text: str) -> None:
        """Say something about the run."""
        self.console.print(f"{self.name}: {text}" if self.name else text, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """End the run."""
        assert self._task is not None
        self._bar.update(self._task, completed=self._total)
        self._note = ""
