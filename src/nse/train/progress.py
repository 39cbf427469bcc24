"""How far a run is: a bar with the time left in a terminal, a line per epoch elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from torch import Tensor

EVERY = 20  # steps between two looks at the loss, which on a GPU wait for it


class Progress:
    """Shows runs one after the other, on a console.

    Args:
        console: Where to; standard error by default, so that results can be piped.
    """

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True)
        self.name = ""
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._note = ""

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, steps: int) -> None:
        """A run of so many steps starts."""
        self._task = self._bar.add_task(self.name, total=steps, note="")

    def step(self, epoch: int, step: int, loss: Tensor) -> None:
        """One more step is done."""
        assert self._task is not None
        if self.console.is_terminal and step % EVERY == 0:
            note = f"epoch {epoch} · loss {loss.item():.3f}{self._note}"
            self._bar.update(self._task, completed=step, note=note)

    def epoch(self, epoch: int, dev: float) -> None:
        """One more epoch is done."""
        self._note = f" · dev {100 * dev:.1f}%"
        if not self.console.is_terminal:
            self.console.print(f"{self.name}: epoch {epoch}, dev {100 * dev:.1f}%", highlight=False)

    def end(self) -> None:
        """The run is over."""
        assert self._task is not None
        self._bar.update(self._task, completed=self._bar.tasks[self._task].total)
        self._note = ""
