"""The heat map of z: which slots (columns) each step (rows) read, and how much each slot was read in all."""

from __future__ import annotations

from nse.viz.drawing import Drawing, shortened, width_of
from nse.viz.trace import Access, MemoryTrace, Reading

CELL, FONT, MARGIN, TITLE, BARS = 19.0, 15.0, 12.0, 30.0, 46.0
"""Sizes: of a cell, of letters, around everything, of a title, of the bars below."""

UNSEEN = 0.004
"""Cells of less than this are not drawn: nobody would see them."""


def svg(trace: MemoryTrace) -> str:
    """Draw the heat map of every memory of every reading, one below the other, as an SVG file."""
    found = trace.accesses()
    sizes = [size(*access) for access in found]
    about = " ".join(f"{memory.name}: {extremes(memory)}." for _, memory in found)
    drawing = Drawing(sizes, "What each step read", about)
    for access, (_, height) in zip(found, sizes, strict=True):
        with drawing.part(height):
            draw(drawing, *access)
    return drawing.text()


def margins(reading: Reading, memory: Access) -> tuple[float, float]:
    """Measure the room that the words on the left and those above need."""
    left = max(width_of(shortened(word), FONT) for word in reading.words)
    above = max(width_of(shortened(word), FONT) for word in memory.slots)
    return left + MARGIN + 8, above * 0.87 + TITLE + 16


def size(reading: Reading, memory: Access) -> tuple[float, float]:
    """Measure the map of one memory."""
    left, above = margins(reading, memory)
    slanted = width_of(shortened(memory.slots[-1]), FONT) * 0.5
    width = left + CELL * len(memory.slots) + slanted + MARGIN
    told = max(width_of(reading.title(memory), FONT), width_of(extremes(memory), FONT)) + 2 * MARGIN
    return max(width, told), above + CELL * len(reading.words) + BARS + TITLE + MARGIN


def draw(drawing: Drawing, reading: Reading, memory: Access) -> None:
    """Draw the map of one memory."""
    left, above = margins(reading, memory)
    wide, high = CELL * len(memory.slots), CELL * len(reading.words)
    drawing.write(MARGIN, 18, reading.title(memory), "title")
    for at, slot in enumerate(memory.slots):
        drawing.write(left + CELL * (at + 0.6), above - 6, shortened(slot), "start", turn=-60)
    for t, word in enumerate(reading.words):
        drawing.write(left - 8, above + CELL * t + 14, shortened(word), "end")
        for at, weight in enumerate(memory.keys[t]):
            if weight >= UNSEEN:
                with drawing.group(f"{word} → {memory.slots[at]} {weight:.2f}"):
                    drawing.box(left + CELL * at, above + CELL * t, CELL - 1, CELL - 1, "cell", float(weight))
    drawing.box(left - 0.5, above - 0.5, wide, high, "frame")
    drawing.write(left - 8, above + high + 24, "in all", "caption end")
    accessed = memory.accessed
    for at, share in enumerate(accessed):
        tall = (BARS - 14) * float(share) / float(accessed.max())
        with drawing.group(f"{memory.slots[at]} {share:.2f}"):
            drawing.box(left + CELL * at, above + high + 6, CELL - 1, max(tall, 0.5), "cell", 0.6)
    drawing.write(MARGIN, above + high + BARS + 12, extremes(memory), "caption")


def extremes(memory: Access, count: int = 3) -> str:
    """Name the most and the least accessed slots, in a line."""
    accessed = memory.accessed
    told = [f"{shortened(memory.slots[slot])} ({accessed[slot]:.2f})" for slot in memory.order()]
    count = max(1, min(count, len(told) // 2))
    if len(told) < 2:
        return f"accessed: {told[0]}"
    return f"most accessed: {', '.join(told[:count])}; least: {', '.join(reversed(told[-count:]))}"
