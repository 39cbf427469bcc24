"""Word associations as tables for a terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nse.viz.drawing import clip_word, make_printable
from nse.viz.heat import describe_extremes
from nse.viz.trace import Access, MemoryTrace, Reading

SHADES = " ░▒▓█"

HEADINGS = ("word", "composed with", "z", "own slot")


def render_associations(trace: MemoryTrace, width: int) -> RenderableType:
    """Make a table for each memory of each reading, for a terminal of this width."""
    return Group(*(make_table(reading, memory, width) for reading, memory in trace.accesses()))


def make_table(reading: Reading, memory: Access, width: int) -> Table:
    """List the slot that each word was composed with, and its whole key z if the terminal is wide enough."""
    words, slots = ([clip_word(word) for word in row] for row in (reading.words, memory.slots))
    table = Table(
        title=Text(f"\n{make_printable(reading.title(memory))}"),
        caption=Text(make_printable(describe_extremes(memory))),
        title_justify="left",
        caption_justify="left",
    )
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=True, justify="right" if heading in HEADINGS[2:] else "left")
    rows = []
    for t, (slot, best) in enumerate(zip(memory.composed, memory.read, strict=True)):
        own_weight = "" if slot == best else f"{memory.keys[t, best]:.2f}"
        rows.append([words[t], slots[slot], f"{memory.keys[t, slot]:.2f}", own_weight])
    widths = [max(map(cell_len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    if has_room := sum(widths) + 3 * (len(widths) + 1) + 3 * len(slots) <= width:
        table.add_column(Text(" ".join(slot[:2].ljust(2) for slot in slots)), no_wrap=True)
    for row, weights in zip(rows, memory.keys, strict=True):
        shades = [" ".join(shade(float(weight / weights.max())) for weight in weights)] if has_room else []
        table.add_row(*map(Text, (*row, *shades)))
    return table


def shade(weight: float) -> str:
    """Return a block as dark as a weight from 0 to 1."""
    level = min(int(weight * len(SHADES)), len(SHADES) - 1)
    return SHADES[max(level, 0)] * 2
