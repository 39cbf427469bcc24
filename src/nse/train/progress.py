"""Progress of a run: a bar with the remaining time in a terminal, a line per epoch elsewhere."""

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
from nse.train.train_step import EpochSums

REFRESH_STEPS = 20


class FaultTolerantStream:
    """Text stream that ignores write errors, because a run outlives its terminal."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self.stream, name)


class Progress:
    """Progress display of one run after another, by default on standard error."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(file=cast(IO[str], FaultTolerantStream(sys.stderr)))
        self.name = ""
        steps = MofNCompleteColumn(table_column=Column(no_wrap=True))
        self._bar = make_bar(steps, TextColumn("{task.fields[note]}"), console=self.console)
        self._task: TaskID | None = None
        self._note = ""
        self._total_steps = self._first_step = 0
        self._start_time = 0.0

    @classmethod
    def silent(cls) -> Progress:
        """Return a display that shows nothing."""
        return cls(Console(quiet=True))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def start_run(self, total_steps: int, steps_done: int = 0) -> None:
        """Start the bar of a run, of which a resumed one has taken some steps already."""
        self._total_steps, self._first_step, self._start_time = total_steps, steps_done, time.perf_counter()
        self._bar.start()  # not before: only rank 0 has a bar
        self._task = self._bar.add_task(self.name, total=total_steps, completed=steps_done, note="")

    def show_step(self, epoch: int, step: int, sums: EpochSums, speed: float) -> None:
        """Show a step: means over the epoch so far, and examples per second."""
        assert self._task is not None
        if self.console.is_terminal and step % REFRESH_STEPS == 0 and sums.examples:
            loss, accuracy = sums.loss / sums.examples, 100 * sums.correct / sums.examples
            figures = f"loss {loss:.3f} · {accuracy:.1f}%{self._note} · {speed:,.0f}/s"
            self._bar.update(self._task, completed=step, note=f"epoch {epoch} · {figures}")

    def show_epoch(self, row: dict[str, Any]) -> None:
        """Show an epoch by its row of metrics."""
        self._note = f" · dev {100 * row['dev']:.1f}%"
        if not self.console.is_terminal:
            seconds = time.perf_counter() - self._start_time
            seconds_per_step = seconds / max(row["step"] - self._first_step, 1)
            left = timedelta(seconds=round(seconds_per_step * (self._total_steps - row["step"])))
            self.print_line(
                f"epoch {row['epoch']}, loss {row['loss']:.3f}, train {100 * row['train']:.1f}%, "
                f"dev {100 * row['dev']:.1f}%, {row['examples_per_second']:,.0f} examples/s, {left} left"
            )

    def print_line(self, text: str) -> None:
        """Print a line about the run."""
        self.console.print(f"{self.name}: {text}" if self.name else text, highlight=False, soft_wrap=True)

    def finish_run(self) -> None:
        """Complete the bar of the run."""
        assert self._task is not None
        self._bar.update(self._task, completed=self._total_steps)
        self._note = ""
