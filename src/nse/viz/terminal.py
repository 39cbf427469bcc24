"""What each word was composed with, for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nse.viz.heat import extremes, headline
from nse.viz.tables import printable
from nse.viz.trace import Access, MemoryTrace, Reading

SHADES = " ░▒▓█"

WIDEST = 30
"""Slots whose weights are shown side by side; of more, a terminal has no room."""


def associations(trace: MemoryTrace) -> RenderableType:
    """A table for each memory of each reading."""
    tables = [table(reading, memory) for reading in trace.readings for memory in reading.memories]
    return Group(*tables)


def table(reading: Reading, memory: Access) -> Table:
    """A line for each word: the slot it was composed with, and how what it read was spread over all slots."""
    shown = Table(
        title=Text(f"\n{printable(headline(reading, memory))}"),
        caption=Text(printable(extremes(memory))),
        title_justify="left",
        caption_justify="left",
    )
    shown.add_column("word")
    shown.add_column("composed with")
    shown.add_column("z", justify="right")
    shown.add_column("own slot", justify="right")
    if few := len(memory.slots) <= WIDEST:
        shown.add_column(Text(" ".join(printable(slot)[:2].ljust(2) for slot in memory.slots)), no_wrap=True)
    for t, (word, slot, best) in enumerate(zip(reading.words, memory.composed, memory.read, strict=True)):
        weights = memory.keys[t]
        itself = "" if slot == best else f"{weights[best]:.2f}"
        shades = [" ".join(shade(float(each) / float(weights.max())) for each in weights)] if few else []
        cells = [printable(word), printable(memory.slots[slot]), f"{weights[slot]:.2f}", itself, *shades]
        shown.add_row(*map(Text, cells))
    return shown


def shade(weight: float) -> str:
    """A weight from 0 to 1 as a block, empty to full."""
    step = min(int(weight * len(SHADES)), len(SHADES) - 1)
    return SHADES[max(step, 0)] * 2
