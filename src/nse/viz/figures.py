"""The pictures as matplotlib figures, for papers and notebooks."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nse.errors import InputError
from nse.files import write_bytes
from nse.viz import graph as layout
from nse.viz.drawing import ACCENT, FAINT, INK, LINE, PAPER, shortened
from nse.viz.heat import extremes
from nse.viz.trace import MemoryTrace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCH = 96.0
"""Pixels of the layout."""


def figure(width: float, height: float) -> Figure:
    """Make an empty figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        message = "pictures need matplotlib: pip install 'neural-semantic-encoders[figures]'"
        raise InputError(message) from None
    return Figure(figsize=(width, height))


def graph(trace: MemoryTrace) -> Figure:
    """Draw the word association graph of every reading, as `nse.viz.graph.svg` lays it out."""
    found = [panel for reading in trace.readings for panel in layout.panels(reading)]
    width, height = max(panel.size[0] for panel in found), sum(panel.size[1] for panel in found)
    picture = figure(width / INCH, height / INCH)
    top = height
    for panel in found:
        wide, high = panel.size
        axes = picture.add_axes((0, (top - high) / height, wide / width, high / height))
        axes.set_xlim(0, wide)
        axes.set_ylim(high, 0)
        axes.axis("off")
        draw(axes, panel)
        top -= high
    return picture


def draw(axes: Axes, panel: layout.Panel) -> None:
    """Draw a panel."""
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path as Line

    codes = {"M": [Line.MOVETO], "L": [Line.LINETO], "Q": [Line.CURVE3] * 2, "C": [Line.CURVE4] * 3}
    words: dict[str, Any] = {"va": "center", "fontsize": 11, "color": INK, "parse_math": False}
    for arc in panel.arcs:
        found = layout.line(panel, arc)
        points = [at[i : i + 2] for _, at in found.path for i in range(0, len(at), 2)]
        path = Line(points, [code for letter, _ in found.path for code in codes[letter]])
        style, (opacity, width) = "--" if arc.second else "-", layout.looks(arc.weight)
        drawn = PathPatch(path, facecolor="none", edgecolor=ACCENT, linewidth=width * 0.75, linestyle=style)
        for patch in (drawn, Polygon(found.head, color=ACCENT, linewidth=0)):
            patch.set_alpha(opacity)
            axes.add_patch(patch)
    axes.text(layout.MARGIN, 13, panel.title, weight="bold", **words)
    if panel.caption:
        axes.text(layout.caption_at(panel), 13, panel.caption, **{**words, "color": FAINT})
    for y, nodes in ((panel.words_y, panel.words), (panel.slots_y, panel.slots)):
        for node in nodes:
            corner = (node.x - node.width / 2, y)
            box = FancyBboxPatch(corner, node.width, layout.BOX, boxstyle="round,pad=0,rounding_size=5")
            box.set(facecolor=PAPER, edgecolor=LINE)
            axes.add_patch(box)
            axes.text(node.x, y + layout.BOX / 2, node.word, ha="center", **words)


def heat(trace: MemoryTrace) -> Figure:
    """Draw the heat map of every memory of every reading: a row for each step, a column for each slot."""
    found = trace.accesses()
    heights = [0.22 * len(reading.words) + 1.8 for reading, _ in found]
    width = max(max(0.22 * len(memory.slots) for _, memory in found) + 3.0, 8.0)
    picture = figure(width, sum(heights))
    picture.set_layout_engine("constrained")
    rows = picture.subplots(len(found), 1, squeeze=False, height_ratios=heights)
    for [axes], (reading, memory) in zip(rows, found, strict=True):
        axes.imshow(memory.keys, cmap="PuRd", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        slots, words = (range(len(each)) for each in (memory.slots, reading.words))
        axes.set_xticks(slots, [shortened(word) for word in memory.slots], rotation=90, parse_math=False)
        axes.set_yticks(words, [shortened(word) for word in reading.words], parse_math=False)
        axes.set_title(reading.title(memory), loc="left", weight="bold", parse_math=False)
        axes.set_xlabel(extremes(memory), loc="left", fontsize=9, parse_math=False)
    return picture


def save(picture: Figure, file: Path | str) -> None:
    """Write a figure, whole or not at all; its name says how: .svg, .pdf or .png."""
    content = BytesIO()
    picture.savefig(content, format=Path(file).suffix.removeprefix("."), dpi=150)
    write_bytes(Path(file), content.getvalue())
