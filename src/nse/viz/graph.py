"""The word association graph (figure 2 of the paper): which word was composed with which slot.

`panels` lays a trace out; `svg`, `dot` and `nse.viz.figures.graph` draw it. Every word is a node. In a row of
words with their own slots an arc leads from each word to the slot that it was composed with. Slots of a
shared memory are a second row of words, and arcs lead across. Arcs run in tracks: no two share a stretch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from nse.viz.drawing import Corners, Drawing, Path, path_text, points_text, shortened, width_of
from nse.viz.trace import NOWHERE, Access, MemoryTrace, Reading

FONT, BOX, GAP, PORT, TRACK, CHANNEL, TITLE, MARGIN = 15.0, 26.0, 14.0, 7.0, 15.0, 96.0, 30.0, 12.0
"""Sizes: of letters, the height of a word, between words, between two arcs at a word, between two tracks,
between two rows of words, of a title, and around everything."""

ARROW = 5.0
"""Of an arrow's head: its length, and twice its half width."""


@dataclass
class Node:
    """A word in a row."""

    word: str  # as it is shown
    x: float  # its middle
    width: float


@dataclass
class Arc:
    """From an input word to a slot."""

    step: int  # t, from 0
    source: int  # the place of the word in its row
    target: int  # the place of the slot in its row
    weight: float  # z of the slot
    second: bool  # whether the word's own slot was read more, and this is the second best
    kind: Literal["above", "below", "across"]  # in one row above or below it, or across two rows
    start: float = 0.0  # where it leaves its word
    end: float = 0.0  # where it reaches the slot
    track: int = 0  # how far from its row it runs; nothing for one that goes across


@dataclass
class Panel:
    """A reading, or a part of one, laid out."""

    title: str
    caption: str  # whose memory the upper row is; empty if there is none
    words: list[Node]
    slots: list[Node] = field(default_factory=list)  # of a shared memory, above; empty if there is none
    arcs: list[Arc] = field(default_factory=list)
    size: tuple[float, float] = (0.0, 0.0)  # width and height
    words_y: float = 0.0  # the top of the row of words
    slots_y: float = 0.0
    shared: Access | None = None  # the memory whose slots they are


def panels(reading: Reading) -> list[Panel]:
    """Lay a reading out: one panel, or one for each shared memory if there are more."""
    return [make_panel(reading, n == 0, memory) for n, memory in enumerate(reading.shared or (None,))]


def make_panel(reading: Reading, is_first: bool, shared: Access | None) -> Panel:
    """Lay out a row of words, in the first panel their arcs to each other, and those to a shared memory."""
    own = reading.own
    places = own.own if own else tuple(range(len(reading.words)))
    inside = arcs(own, places, "below" if shared else "above") if own and is_first else []
    across = arcs(shared, places, "across") if shared else []
    at_words = Counter(end for arc in inside for end in (arc.source, arc.target))
    panel = Panel(
        title=reading.name,
        caption=f"memory of {shared.name}" if shared else "",
        words=row(own.slots if own else reading.words, at_words),
        slots=row(shared.slots, Counter(arc.target for arc in across)) if shared else [],
        arcs=sorted(inside + across, key=lambda arc: arc.weight),
        shared=shared,
    )
    settle(panel, inside)
    return panel


def row(words: Sequence[str], arcs: Mapping[int, int]) -> list[Node]:
    """Put words side by side from the left margin on, each with room for so many arcs."""
    nodes, x = [], MARGIN
    for place, word in enumerate(words):
        shown = shortened(word)
        width = max(width_of(shown, FONT) + 10.0, 22.0, arcs.get(place, 0) * PORT)
        nodes.append(Node(shown, x + width / 2, width))
        x += width + GAP
    return nodes


def arcs(memory: Access, places: Sequence[int], kind: Literal["above", "below", "across"]) -> list[Arc]:
    """Make an arc for each step."""
    steps = enumerate(zip(places, memory.composed, memory.read, memory.weights, strict=True))
    found = (Arc(t, place, slot, z, slot != best, kind) for t, (place, slot, best, z) in steps)
    return [arc for arc in found if arc.source != NOWHERE]


def settle(panel: Panel, inside: Sequence[Arc]) -> None:
    """Give every arc its ends and its track, and the panel its size."""
    rows = panel.words, panel.slots
    spans = [nodes[-1].x + nodes[-1].width / 2 - MARGIN if nodes else 0.0 for nodes in rows]
    for nodes, own in zip(rows, spans, strict=True):
        for node in nodes if min(spans) else ():  # of two rows the shorter one in the middle
            node.x += (max(spans) - own) / 2
    spread(panel)
    room = give_tracks(inside) * TRACK + 2 * ARROW if inside else 0.0
    titles = caption_at(panel) + width_of(panel.caption, FONT) + MARGIN
    above, below = (0.0, room) if panel.slots else (room, 0.0)
    panel.slots_y, panel.words_y = TITLE, TITLE + (BOX + CHANNEL if panel.slots else above)
    panel.size = (max(max(spans) + 2 * MARGIN, titles), panel.words_y + BOX + below + MARGIN)


def caption_at(panel: Panel) -> float:
    """Tell where the caption begins: behind the title, which is bold."""
    return MARGIN + 1.08 * width_of(panel.title, FONT) + 12.0


def spread(panel: Panel) -> None:
    """Put ends of arcs side by side at each word; those to near words lie inside those to far ones."""
    ends: dict[tuple[int, int], list[tuple[tuple[int, ...], Arc, str]]] = defaultdict(
        list
    )  # by row and place
    for arc in panel.arcs:
        if arc.kind == "across":
            arc.start = panel.words[arc.source].x
            ends[1, arc.target].append(((arc.source,), arc, "end"))
            continue
        for here, other, end in ((arc.source, arc.target, "start"), (arc.target, arc.source, "end")):
            key = (0, -other, -arc.step) if other < here else (2, -other, arc.step)
            if here == other:  # a word alone: a loop
                key = (1, 0, 0 if end == "start" else 1)
            ends[0, here].append((key, arc, end))
    for (row, place), found in ends.items():
        middle = (panel.words, panel.slots)[row][place].x
        for at, (_, arc, end) in enumerate(sorted(found, key=lambda each: each[0])):
            setattr(arc, end, middle + (at - (len(found) - 1) / 2) * PORT)


def give_tracks(inside: Sequence[Arc]) -> int:
    """Give arcs, short ones first, the lowest track where they meet no other; return how many there are."""
    taken: list[list[tuple[float, float]]] = []
    for arc in sorted(inside, key=lambda arc: (abs(arc.end - arc.start), arc.step)):
        left, right = sorted((arc.start, arc.end))
        for track, others in enumerate(taken):
            if all(right + 3 < start or end + 3 < left for start, end in others):
                arc.track = track
                break
        else:
            arc.track = len(taken)
            taken.append([])
        taken[arc.track].append((left, right))
    return len(taken)


class Line(NamedTuple):
    """An arc to be drawn."""

    path: Path
    head: Corners  # three of them


def line(panel: Panel, arc: Arc) -> Line:
    """Draw how an arc runs."""
    if arc.kind == "across":
        top, bottom = panel.slots_y + BOX + ARROW, panel.words_y
        middle = (top + bottom) / 2
        curve = (arc.start, middle, arc.end, middle, arc.end, top)
        return Line([("M", (arc.start, bottom)), ("C", curve)], head(arc.end, top, -1))
    sign, base = (-1.0, panel.words_y) if arc.kind == "above" else (1.0, panel.words_y + BOX)
    y, end = base + sign * (2 * ARROW + arc.track * TRACK), base + sign * ARROW
    way, bend = 1.0 if arc.end > arc.start else -1.0, min(6.0, abs(arc.end - arc.start) / 2)
    path: Path = [
        ("M", (arc.start, base)),
        ("L", (arc.start, y - sign * bend)),
        ("Q", (arc.start, y, arc.start + way * bend, y)),
        ("L", (arc.end - way * bend, y)),
        ("Q", (arc.end, y, arc.end, y - sign * bend)),
        ("L", (arc.end, end)),
    ]
    return Line(path, head(arc.end, end, -sign))


def head(x: float, y: float, way: float) -> Corners:
    """Draw an arrow's head that points down (1) or up (-1) from here."""
    return ((x - ARROW / 2, y), (x + ARROW / 2, y), (x, y + way * ARROW))


def panel_as_dict(reading: Reading, panel: Panel) -> dict[str, Any]:
    """Write a panel as plain values, for the page to draw."""
    rows = [(reading.own, panel.words_y, panel.words), (panel.shared, panel.slots_y, panel.slots)]
    named = ("step", "source", "target", "weight", "second", "kind")
    return {
        "title": panel.title,
        "caption": panel.caption,
        "caption_x": caption_at(panel),
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
                **{name: getattr(arc, name) for name in named},
                "path": path_text((drawn := line(panel, arc)).path),
                "head": points_text(drawn.head),
            }
            for arc in panel.arcs
        ],
    }


def looks(weight: float) -> tuple[float, float]:
    """Tell how dark an arc is, from 0 to 1 (a faint one is still seen), and how thick, in pixels."""
    return 0.35 + 0.65 * min(max(weight, 0.0), 1.0), 1.2 + 1.3 * weight


def svg(trace: MemoryTrace) -> str:
    """Draw the graph of every reading, one below the other, as an SVG file. Text stays text."""
    found = [panel for reading in trace.readings for panel in panels(reading)]
    title = f"Word associations by the memory of {trace.model.get('name', 'a model')}"
    drawing = Drawing([panel.size for panel in found], title, describe(trace))
    for panel in found:
        with drawing.part(panel.size[1]):
            draw(drawing, panel)
    return drawing.text()


def draw(drawing: Drawing, panel: Panel) -> None:
    """Draw a panel."""
    drawing.write(MARGIN, 18, panel.title, "title")
    if panel.caption:
        drawing.write(caption_at(panel), 18, panel.caption, "caption")
    for arc in panel.arcs:
        target = (panel.slots if arc.kind == "across" else panel.words)[arc.target]
        tip = f"{panel.words[arc.source].word} → {target.word} {arc.weight:.2f}"
        opacity, width = looks(arc.weight)
        with drawing.group(tip, f"arc {arc.kind}{' second' if arc.second else ''}", opacity):
            drawing.arrow(*line(panel, arc), width)
    for y, nodes in ((panel.words_y, panel.words), (panel.slots_y, panel.slots)):
        for node in nodes:
            drawing.box(node.x - node.width / 2, y, node.width, BOX)
            drawing.write(node.x, y + 18, node.word, "word")


def describe(trace: MemoryTrace) -> str:
    """Tell a picture in words, for who cannot see it."""
    told = []
    for reading, memory in trace.accesses():
        pairs = (f"{w} to {memory.slots[s]}" for w, s in zip(reading.words, memory.composed, strict=True))
        told.append(f"{reading.name}, memory of {memory.name}: {', '.join(pairs)}.")
    return " ".join(told)


def dot(trace: MemoryTrace) -> str:
    """Write the graph in the language of Graphviz, words from top to bottom: it keeps arcs apart best."""
    lines = ["digraph associations {", "  nodesep=0.6;", "  ranksep=0.15;"]
    lines += ['  node [shape=plaintext, fontname="sans-serif"];', "  edge [constraint=false, fontsize=9];"]
    for r, reading in enumerate(trace.readings):
        own = reading.own
        rows = {"w": own.slots if own else reading.words}
        rows |= {f"m{n}_": memory.slots for n, memory in enumerate(reading.shared)}
        lines += [f"  subgraph cluster_{r} {{", f"    label={quoted(reading.name)};"]
        for name, words in rows.items():
            nodes = [f"r{r}{name}{at}" for at in range(len(words))]
            lines += [f"    {node} [label={quoted(word)}];" for node, word in zip(nodes, words, strict=True)]
            if len(nodes) > 1:  # what keeps the words in their order
                lines.append(f"    {' -> '.join(nodes)} [style=invis, constraint=true, weight=100];")
        places = own.own if own else tuple(range(len(reading.words)))
        for memory in reading.memories:
            target = "w" if memory is own else f"m{reading.shared.index(memory)}_"
            for arc in arcs(memory, places, "across"):
                style = f"{0.5 + 2 * arc.weight:.2f}{', style=dashed' if arc.second else ''}"
                edge = f"r{r}w{arc.source} -> r{r}{target}{arc.target}"
                lines.append(f'    {edge} [label="{arc.weight:.2f}", penwidth={style}];')
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def quoted(text: str) -> str:
    """Quote a text as DOT does."""
    return '"' + shortened(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
