"""The word association graph (figure 2 of the paper): which word was composed with which slot.

`lay_out` computes the positions; `render_svg`, `render_dot` and `nse.viz.figures.draw_graph` draw them. Every
word is a node, and an arc leads from each word to the slot that it was composed with. The slots of a shared
memory are a second row of nodes. Arcs run in tracks, so that no two of them overlap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from nse.viz.drawing import Corners, Drawing, SvgPath, clip_word, estimate_width, format_path, format_points
from nse.viz.trace import NOWHERE, Access, MemoryTrace, Reading

FONT, BOX, GAP, PORT, TRACK, CHANNEL, TITLE, MARGIN = 15.0, 26.0, 14.0, 7.0, 15.0, 96.0, 30.0, 12.0
"""Font size; height of a node; distances between nodes, arc ends, tracks and rows; title height; margin."""

ARROW = 5.0
"""Length and width of an arrowhead."""


@dataclass
class Node:
    """Word in a row."""

    word: str
    x: float  # centre
    width: float


@dataclass
class Arc:
    """Connection from an input word to a slot."""

    step: int  # t, from 0
    source: int  # index of the word in its row
    target: int  # index of the slot in its row
    weight: float  # z of the slot
    second: bool  # whether the word's own slot has a larger weight
    kind: Literal["above", "below", "across"]  # within a row, above or below it, or between the rows
    start: float = 0.0  # x at the word
    end: float = 0.0  # x at the slot
    track: int = 0  # distance from the row; unused for "across"


@dataclass
class Panel:
    """Layout of a reading, or of one of its shared memories."""

    title: str
    caption: str  # owner of the shared memory, or ""
    words: list[Node]
    slots: list[Node] = field(default_factory=list)  # upper row: slots of a shared memory
    arcs: list[Arc] = field(default_factory=list)
    size: tuple[float, float] = (0.0, 0.0)  # width and height
    words_y: float = 0.0  # top of the row of words
    slots_y: float = 0.0  # top of the row of slots
    shared: Access | None = None  # memory of the upper row


def lay_out(reading: Reading) -> list[Panel]:
    """Lay out a reading: one panel, or one for each shared memory if there are several."""
    return [make_panel(reading, n == 0, memory) for n, memory in enumerate(reading.shared or (None,))]


def make_panel(reading: Reading, is_first: bool, shared: Access | None) -> Panel:
    """Lay out a row of words with their arcs; only the first panel has arcs within the row."""
    own = reading.own
    sources = own.own if own else tuple(range(len(reading.words)))
    inside = make_arcs(own, sources, "below" if shared else "above") if own and is_first else []
    across = make_arcs(shared, sources, "across") if shared else []
    arc_counts = Counter(end for arc in inside for end in (arc.source, arc.target))
    panel = Panel(
        title=reading.name,
        caption=f"memory of {shared.name}" if shared else "",
        words=make_row(own.slots if own else reading.words, arc_counts),
        slots=make_row(shared.slots, Counter(arc.target for arc in across)) if shared else [],
        arcs=sorted(inside + across, key=lambda arc: arc.weight),
        shared=shared,
    )
    center_rows(panel)
    spread_ends(panel)
    tracks_height = assign_tracks(inside) * TRACK + 2 * ARROW if inside else 0.0
    top = BOX + CHANNEL if shared else tracks_height
    panel.slots_y, panel.words_y = TITLE, TITLE + top
    rows_width = max(node.x + node.width / 2 for node in (*panel.words, *panel.slots))
    titles_width = find_caption_x(panel) + estimate_width(panel.caption, FONT)
    height = panel.words_y + BOX + (tracks_height if shared else 0.0)
    panel.size = max(rows_width, titles_width) + MARGIN, height + MARGIN
    return panel


def make_row(words: Sequence[str], arc_counts: Mapping[int, int]) -> list[Node]:
    """Place words side by side, each wide enough for its arcs."""
    nodes, x = [], MARGIN
    for index, word in enumerate(words):
        text = clip_word(word)
        width = max(estimate_width(text, FONT) + 10.0, 22.0, arc_counts.get(index, 0) * PORT)
        nodes.append(Node(text, x + width / 2, width))
        x += width + GAP
    return nodes


def make_arcs(memory: Access, sources: Sequence[int], kind: Literal["above", "below", "across"]) -> list[Arc]:
    """Make the arc of each step whose word is in the row."""
    steps = enumerate(zip(sources, memory.composed, memory.read, memory.weights, strict=True))
    arcs = (Arc(t, source, slot, z, slot != best, kind) for t, (source, slot, best, z) in steps)
    return [arc for arc in arcs if arc.source != NOWHERE]


def center_rows(panel: Panel) -> None:
    """Move the shorter of two rows to the middle."""
    rows = [row for row in (panel.words, panel.slots) if row]
    ends = [row[-1].x + row[-1].width / 2 for row in rows]
    for row, end in zip(rows, ends, strict=True):
        for node in row:
            node.x += (max(ends) - end) / 2


def find_caption_x(panel: Panel) -> float:
    """Return where the caption begins: behind the title, which is bold."""
    return MARGIN + 1.08 * estimate_width(panel.title, FONT) + 12.0


def spread_ends(panel: Panel) -> None:
    """Place the arc ends of each word side by side, so that short arcs lie inside long ones."""
    ends: dict[tuple[int, int], list[tuple[tuple[int, ...], Arc, str]]] = defaultdict(list)
    for arc in panel.arcs:  # keys of `ends`: row and index in it
        if arc.kind == "across":
            arc.start = panel.words[arc.source].x
            ends[1, arc.target].append(((arc.source,), arc, "end"))
            continue
        for here, other, end in ((arc.source, arc.target, "start"), (arc.target, arc.source, "end")):
            order = (0, -other, -arc.step) if other < here else (2, -other, arc.step)
            if here == other:  # a text of one word: a loop
                order = (1, 0, 0 if end == "start" else 1)
            ends[0, here].append((order, arc, end))
    for (row, index), node_ends in ends.items():
        middle = (panel.words, panel.slots)[row][index].x
        for n, (_, arc, end) in enumerate(sorted(node_ends, key=lambda entry: entry[0])):
            setattr(arc, end, middle + (n - (len(node_ends) - 1) / 2) * PORT)


def assign_tracks(arcs: Sequence[Arc]) -> int:
    """Assign arcs, the shortest first, to the lowest free track; return the number of tracks."""
    tracks: list[list[tuple[float, float]]] = []
    for arc in sorted(arcs, key=lambda arc: (abs(arc.end - arc.start), arc.step)):
        left, right = sorted((arc.start, arc.end))
        is_free = (all(right + 3 < start or end + 3 < left for start, end in track) for track in tracks)
        arc.track = next((n for n, free in enumerate(is_free) if free), len(tracks))
        if arc.track == len(tracks):
            tracks.append([])
        tracks[arc.track].append((left, right))
    return len(tracks)


class ArcShape(NamedTuple):
    """Line of an arc and its arrowhead."""

    path: SvgPath
    head: Corners  # three of them


def shape_arc(panel: Panel, arc: Arc) -> ArcShape:
    """Compute the line of an arc."""
    if arc.kind == "across":
        top, bottom = panel.slots_y + BOX + ARROW, panel.words_y
        middle = (top + bottom) / 2
        curve = (arc.start, middle, arc.end, middle, arc.end, top)
        return ArcShape([("M", (arc.start, bottom)), ("C", curve)], shape_head(arc.end, top, -1))
    sign, base = (-1.0, panel.words_y) if arc.kind == "above" else (1.0, panel.words_y + BOX)
    y, end = base + sign * (2 * ARROW + arc.track * TRACK), base + sign * ARROW
    direction, bend = 1.0 if arc.end > arc.start else -1.0, min(6.0, abs(arc.end - arc.start) / 2)
    path: SvgPath = [
        ("M", (arc.start, base)),
        ("L", (arc.start, y - sign * bend)),
        ("Q", (arc.start, y, arc.start + direction * bend, y)),
        ("L", (arc.end - direction * bend, y)),
        ("Q", (arc.end, y, arc.end, y - sign * bend)),
        ("L", (arc.end, end)),
    ]
    return ArcShape(path, shape_head(arc.end, end, -sign))


def shape_head(x: float, y: float, direction: float) -> Corners:
    """Return the corners of an arrowhead that points down (1) or up (-1)."""
    return ((x - ARROW / 2, y), (x + ARROW / 2, y), (x, y + direction * ARROW))


def dump_panel(reading: Reading, panel: Panel) -> dict[str, Any]:
    """Convert a panel to plain values, which the page draws."""
    rows = [(reading.own, panel.words_y, panel.words), (panel.shared, panel.slots_y, panel.slots)]
    names = ("step", "source", "target", "weight", "second", "kind")
    return {
        "title": panel.title,
        "caption": panel.caption,
        "caption_x": find_caption_x(panel),
        "width": panel.size[0],
        "height": panel.size[1],
        "rows": [
            {
                "memory": reading.memories.index(memory) if memory else NOWHERE,
                "y": y,
                "words": [node.word for node in nodes],
                "x": [round(node.x, 1) for node in nodes],
                "widths": [round(node.width, 1) for node in nodes],
            }
            for memory, y, nodes in rows
            if nodes
        ],
        "arcs": [
            {
                **{name: getattr(arc, name) for name in names},
                "path": format_path((shape := shape_arc(panel, arc)).path),
                "head": format_points(shape.head),
            }
            for arc in panel.arcs
        ],
    }


def style_arc(weight: float) -> tuple[float, float]:
    """Return opacity and line width of an arc; the smallest weight is still visible."""
    return 0.35 + 0.65 * min(max(weight, 0.0), 1.0), 1.2 + 1.3 * weight


def render_svg(trace: MemoryTrace) -> str:
    """Draw the graphs of all readings, one below the other, as an SVG file."""
    panels = [panel for reading in trace.readings for panel in lay_out(reading)]
    title = f"Word associations by the memory of {trace.model.get('name', 'a model')}"
    drawing = Drawing([panel.size for panel in panels], title, describe_arcs(trace))
    for panel in panels:
        with drawing.draw_part(panel.size[1]):
            draw_panel(drawing, panel)
    return drawing.to_svg()


def draw_panel(drawing: Drawing, panel: Panel) -> None:
    """Draw a panel."""
    drawing.draw_text(MARGIN, 18, panel.title, "title")
    if panel.caption:
        drawing.draw_text(find_caption_x(panel), 18, panel.caption, "caption")
    for arc in panel.arcs:
        target = (panel.slots if arc.kind == "across" else panel.words)[arc.target]
        tooltip = f"{panel.words[arc.source].word} → {target.word} {arc.weight:.2f}"
        opacity, width = style_arc(arc.weight)
        with drawing.draw_group(tooltip, f"arc {arc.kind}{' second' if arc.second else ''}", opacity):
            drawing.draw_arrow(*shape_arc(panel, arc), width)
    for y, nodes in ((panel.words_y, panel.words), (panel.slots_y, panel.slots)):
        for node in nodes:
            drawing.draw_box(node.x - node.width / 2, y, node.width, BOX)
            drawing.draw_text(node.x, y + 18, node.word, "word")


def describe_arcs(trace: MemoryTrace) -> str:
    """List all arcs as text, for screen readers."""
    sentences = []
    for reading, memory in trace.accesses():
        pairs = (f"{w} to {memory.slots[s]}" for w, s in zip(reading.words, memory.composed, strict=True))
        sentences.append(f"{reading.name}, memory of {memory.name}: {', '.join(pairs)}.")
    return " ".join(sentences)


def render_dot(trace: MemoryTrace) -> str:
    """Write the graphs of all readings as a DOT file for Graphviz, with the words from top to bottom."""
    lines = ["digraph associations {", "  nodesep=0.6;", "  ranksep=0.15;"]
    lines += ['  node [shape=plaintext, fontname="sans-serif"];', "  edge [constraint=false, fontsize=9];"]
    for r, reading in enumerate(trace.readings):
        own = reading.own
        rows = {"w": own.slots if own else reading.words}
        rows |= {f"m{n}_": memory.slots for n, memory in enumerate(reading.shared)}
        lines += [f"  subgraph cluster_{r} {{", f"    label={quote_dot(reading.name)};"]
        for name, words in rows.items():
            nodes = [f"r{r}{name}{n}" for n in range(len(words))]
            lines += [
                f"    {node} [label={quote_dot(word)}];" for node, word in zip(nodes, words, strict=True)
            ]
            if len(nodes) > 1:  # invisible edges keep the words in order
                lines.append(f"    {' -> '.join(nodes)} [style=invis, constraint=true, weight=100];")
        sources = own.own if own else tuple(range(len(reading.words)))
        for memory in reading.memories:
            target = "w" if memory is own else f"m{reading.shared.index(memory)}_"
            for arc in make_arcs(memory, sources, "across"):
                style = f"{0.5 + 2 * arc.weight:.2f}{', style=dashed' if arc.second else ''}"
                edge = f"r{r}w{arc.source} -> r{r}{target}{arc.target}"
                lines.append(f'    {edge} [label="{arc.weight:.2f}", penwidth={style}];')
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def quote_dot(text: str) -> str:
    """Quote a text for DOT."""
    return '"' + clip_word(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
