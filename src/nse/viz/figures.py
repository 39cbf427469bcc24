"""The pictures as matplotlib figures, for papers and notebooks."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nse.errors import InputError
from nse.files import write_bytes
from nse.viz import graph
from nse.viz.drawing import ACCENT, FAINT, INK, LINE, PAPER, clip_word
from nse.viz.heat import describe_extremes
from nse.viz.trace import MemoryTrace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCH = 96.0
"""Pixels of the layout per inch."""


def make_figure(width: float, height: float) -> Figure:
    """Make an empty figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        message = "pictures need matplotlib: pip install 'neural-semantic-encoders[figures]'"
        raise InputError(message) from None
    return Figure(figsize=(width, height))


def draw_graph(trace: MemoryTrace) -> Figure:
    """Draw the word association graph of every reading, with the layout of `nse.viz.graph`."""
    panels = [panel for reading in trace.readings for panel in graph.lay_out(reading)]
    width, height = max(panel.size[0] for panel in panels), sum(panel.size[1] for panel in panels)
    figure = make_figure(width / INCH, height / INCH)
    top = height
    for panel in panels:
        panel_width, panel_height = panel.size
        top -= panel_height
        axes = figure.add_axes((0, top / height, panel_width / width, panel_height / height))
        axes.set_xlim(0, panel_width)
        axes.set_ylim(panel_height, 0)
        axes.axis("off")
        draw_panel(axes, panel)
    return figure


def draw_panel(axes: Axes, panel: graph.Panel) -> None:
    """Draw a panel."""
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path as Line

    codes = {"M": [Line.MOVETO], "L": [Line.LINETO], "Q": [Line.CURVE3] * 2, "C": [Line.CURVE4] * 3}
    font: dict[str, Any] = {"va": "center", "fontsize": 11, "color": INK, "parse_math": False}
    for arc in panel.arcs:
        shape = graph.shape_arc(panel, arc)
        points = [at[i : i + 2] for _, at in shape.path for i in range(0, len(at), 2)]
        path = Line(points, [code for letter, _ in shape.path for code in codes[letter]])
        style, (opacity, width) = "--" if arc.second else "-", graph.style_arc(arc.weight)
        line = PathPatch(path, facecolor="none", edgecolor=ACCENT, linewidth=width * 0.75, linestyle=style)
        for patch in (line, Polygon(shape.head, color=ACCENT, linewidth=0)):
            patch.set_alpha(opacity)
            axes.add_patch(patch)
    axes.text(graph.MARGIN, 13, panel.title, weight="bold", **font)
    if panel.caption:
        axes.text(graph.find_caption_x(panel), 13, panel.caption, **{**font, "color": FAINT})
    for y, nodes in ((panel.words_y, panel.words), (panel.slots_y, panel.slots)):
        for node in nodes:
            corner = (node.x - node.width / 2, y)
            box = FancyBboxPatch(corner, node.width, graph.BOX, boxstyle="round,pad=0,rounding_size=5")
            box.set(facecolor=PAPER, edgecolor=LINE)
            axes.add_patch(box)
            axes.text(node.x, y + graph.BOX / 2, node.word, ha="center", **font)


def draw_heat_map(trace: MemoryTrace) -> Figure:
    """Draw the heat map of every memory of every reading: a row for each step, a column for each slot."""
    accesses = trace.accesses()
    heights = [0.22 * len(reading.words) + 1.8 for reading, _ in accesses]
    width = max(max(0.22 * len(memory.slots) for _, memory in accesses) + 3.0, 8.0)
    figure = make_figure(width, sum(heights))
    figure.set_layout_engine("constrained")
    subplots = figure.subplots(len(accesses), 1, squeeze=False, height_ratios=heights)
    for [axes], (reading, memory) in zip(subplots, accesses, strict=True):
        axes.imshow(memory.keys, cmap="PuRd", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        slots, words = ([clip_word(word) for word in row] for row in (memory.slots, reading.words))
        axes.set_xticks(range(len(slots)), slots, rotation=90, parse_math=False)
        axes.set_yticks(range(len(words)), words, parse_math=False)
        axes.set_title(reading.title(memory), loc="left", weight="bold", parse_math=False)
        axes.set_xlabel(describe_extremes(memory), loc="left", fontsize=9, parse_math=False)
    return figure


def save_figure(figure: Figure, file: Path | str) -> None:
    """Write a figure to a file atomically, in the format of its suffix: .svg, .pdf or .png."""
    content = BytesIO()
    figure.savefig(content, format=Path(file).suffix.removeprefix("."), dpi=150)
    write_bytes(Path(file), content.getvalue())
