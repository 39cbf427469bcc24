"""The heat map of z: a row for each step, a column for each slot, and below it the sum of each column."""

from __future__ import annotations

from nse.viz.drawing import Drawing, clip_word, estimate_width
from nse.viz.trace import Access, MemoryTrace, Reading

CELL, FONT, MARGIN, TITLE, BARS = 19.0, 15.0, 12.0, 30.0, 46.0
"""Size of a cell, font size, margin, height of the title, height of the bars."""

MIN_WEIGHT = 0.004
"""Smallest weight that is drawn: smaller ones would be invisible."""


def render_svg(trace: MemoryTrace) -> str:
    """Draw the heat maps of all memories of all readings, one below the other, as an SVG file."""
    accesses = trace.accesses()
    sizes = [measure_map(*access) for access in accesses]
    description = " ".join(f"{memory.name}: {describe_extremes(memory)}." for _, memory in accesses)
    drawing = Drawing(sizes, "Weight z of each slot at each step", description)
    for access, (_, height) in zip(accesses, sizes, strict=True):
        with drawing.draw_part(height):
            draw_map(drawing, *access)
    return drawing.to_svg()


def measure_labels(reading: Reading, memory: Access) -> tuple[float, float]:
    """Measure the width of the words on the left, and the height of the slanted words above."""
    left = max(estimate_width(clip_word(word), FONT) for word in reading.words)
    above = max(estimate_width(clip_word(word), FONT) for word in memory.slots)
    return left + MARGIN + 8, above * 0.87 + TITLE + 16


def measure_map(reading: Reading, memory: Access) -> tuple[float, float]:
    """Return width and height of the map of one memory."""
    left, above = measure_labels(reading, memory)
    slant = estimate_width(clip_word(memory.slots[-1]), FONT) * 0.5
    texts = (reading.title(memory), describe_extremes(memory))
    text_width = max(estimate_width(text, FONT) for text in texts) + 2 * MARGIN
    width = max(left + CELL * len(memory.slots) + slant + MARGIN, text_width)
    return width, above + CELL * len(reading.words) + BARS + TITLE + MARGIN


def draw_map(drawing: Drawing, reading: Reading, memory: Access) -> None:
    """Draw the map of one memory."""
    left, above = measure_labels(reading, memory)
    width, height = CELL * len(memory.slots), CELL * len(reading.words)
    drawing.draw_text(MARGIN, 18, reading.title(memory), "title")
    for n, slot in enumerate(memory.slots):
        drawing.draw_text(left + CELL * (n + 0.6), above - 6, clip_word(slot), "start", degrees=-60)
    for t, word in enumerate(reading.words):
        drawing.draw_text(left - 8, above + CELL * t + 14, clip_word(word), "end")
        for n, weight in enumerate(memory.keys[t]):
            if weight >= MIN_WEIGHT:
                with drawing.draw_group(f"{word} → {memory.slots[n]} {weight:.2f}"):
                    x, y = left + CELL * n, above + CELL * t
                    drawing.draw_box(x, y, CELL - 1, CELL - 1, "cell", float(weight))
    drawing.draw_box(left - 0.5, above - 0.5, width, height, "frame")
    drawing.draw_text(left - 8, above + height + 24, "total", "caption end")
    totals = memory.accessed
    for n, total in enumerate(totals):
        bar = max((BARS - 14) * float(total) / float(totals.max()), 0.5)
        with drawing.draw_group(f"{memory.slots[n]} {total:.2f}"):
            drawing.draw_box(left + CELL * n, above + height + 6, CELL - 1, bar, "cell", 0.6)
    drawing.draw_text(MARGIN, above + height + BARS + 12, describe_extremes(memory), "caption")


def describe_extremes(memory: Access, count: int = 3) -> str:
    """List the most and the least accessed slots in one line."""
    totals = memory.accessed
    slots = [f"{clip_word(memory.slots[slot])} ({totals[slot]:.2f})" for slot in memory.order()]
    if len(slots) < 2:
        return f"accessed: {slots[0]}"
    count = max(1, min(count, len(slots) // 2))
    return f"most accessed: {', '.join(slots[:count])}; least: {', '.join(reversed(slots[-count:]))}"
