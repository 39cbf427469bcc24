"""Answers as a person reads them, and how far a run is."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from nse.console import make_bar

SHOWN = 200
"""Characters of a text that are shown to a person."""


def describe_predictions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each prediction: its label, how sure the model is, the other labels, the text."""
    told = []
    for row in rows:
        sure = sorted(row["probabilities"].items(), key=lambda each: -each[1])
        label, *others = (f"{name} {100 * share:.1f}%" for name, share in sure)
        rest = f" ({', '.join(others)})" if others else ""
        text = " | ".join(shown(text) for text in row.get("texts", [row.get("text")]))
        told.append((f"{label}{rest}", f"{text}{missed(row)}"))
    width = max((len(label) for label, _ in told), default=0)
    return [f"{label:<{width}}  {text}" for label, text in told]


def describe_ranking(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each candidate: rank, score, number, text; above the best of each question a heading."""
    told = []
    for row in rows:
        if row["rank"] == 1:
            told += [shown(row["question"])] if "question" in row else []
            told.append(f"{'rank':>4}  {'score':>8}  {'line':>4}  sentence")
        place = f"{row['rank']:>4}  {row['score']:>8.4f}  {row['number']:>4}"
        told.append(f"{place}  {shown(row['text'])}{missed(row)}")
    return told


def missed(row: dict[str, Any]) -> str:
    """Which words had no say, if any."""
    unknown = f"{row['unknown']:,} of {row['words']:,} words unknown" if row["unknown"] else ""
    cut = f"{row['cut']:,} words cut" if row["cut"] else ""
    return f"  [{'; '.join(filter(None, (unknown, cut)))}]" if unknown or cut else ""


def shown(text: str) -> str:
    """A text on a line: not endless, and nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:SHOWN])
    return f"{line}..." if len(text) > SHOWN else line


class Progress:
    """A bar on standard error where that is a terminal and answers do not go there too; else nothing.

    Args:
        size: What there is to read, in bytes; 0 if nobody knows.
        aside: Whether answers are not printed to the same terminal.
    """

    def __init__(self, size: int, aside: bool):
        self.rows, self._started = 0, time.perf_counter()
        self._bar: Any = None
        if sys.stderr.isatty() and aside:
            from rich.progress import TextColumn

            self._bar = make_bar(TextColumn("{task.fields[note]}"))
            self._task = self._bar.add_task("", total=size or None, note="")

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, rows: int, position: int) -> None:
        """So many rows more are answered, and so many bytes are read in all."""
        self.rows += rows
        if self._bar:
            speed = self.rows / (time.perf_counter() - self._started)
            note = f"{self.rows:,} rows · {speed:,.0f}/s"
            self._bar.update(self._task, completed=position, note=note)

    def tell(self, line: str) -> None:
        """Say something on standard error, above the bar."""
        if self._bar:
            self._bar.console.print(f"nse: {line}", markup=False, highlight=False, soft_wrap=True)
        else:
            print(f"nse: {line}", file=sys.stderr)
