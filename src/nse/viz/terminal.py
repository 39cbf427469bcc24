"""What each word was composed with, for a terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nse.viz.drawing import printable, shortened
from nse.viz.heat import extremes
from nse.viz.trace import Access, MemoryTrace, Reading

SHADES = " ░▒▓█"

HEADINGS = ("word", "composed with", "z", "own slot")


def associations(trace: MemoryTrace, width: int) -> RenderableType:
    """Make a table for each memory of each reading, for a terminal of this width."""
    return Group(*(table(reading, memory, width) for reading, memory in trace.accesses()))


def table(reading: Reading, memory: Access, width: int) -> Table:
    """Write for each word the slot it was composed with, and if there is room how its read was spread."""
    words, slots = ([shortened(word) for word in each] for each in (reading.words, memory.slots))
    shown = Table(
        title=Text(f"\n{printable(reading.title(memory))}"),
        caption=Text(printable(extremes(memory))),
        title_justify="left",
        caption_justify="left",
    )
    for heading in HEADINGS:
        shown.add_column(heading, no_wrap=True, justify="right" if heading in HEADINGS[2:] else "left")
    cells = []
    for t, (slot, best) in enumerate(zip(memory.composed, memory.read, strict=True)):
        itself = "" if slot == best else f"{memory.keys[t, best]:.2f}"
        cells.append([words[t], slots[slot], f"{memory.keys[t, slot]:.2f}", itself])
    widest = [max(map(cell_len, column)) for column in zip(HEADINGS, *cells, strict=True)]
    if spread := sum(widest) + 3 * (len(widest) + 1) + 3 * len(slots) <= width:  # if there is room for them
        shown.add_column(Text(" ".join(slot[:2].ljust(2) for slot in slots)), no_wrap=True)
    for row, weights in zip(cells, memory.keys, strict=True):
        shades = [" ".join(shade(float(each / weights.max())) for each in weights)] if spread else []
        shown.add_row(*map(Text, (*row, *shades)))
    return shown


def shade(weight: float) -> str:
    """Show a weight from 0 to 1 as a block, empty to full."""
    step = min(int(weight * len(SHADES)), len(SHADES) - 1)
    return SHADES[max(step, 0)] * 2
