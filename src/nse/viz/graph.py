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

from nse.viz.drawing import Drawing, path_text, points_text, shortened, width_of
from nse.viz.trace import NOWHERE, Access, MemoryTrace, Reading

FONT, BOX, GAP, PORT, TRACK, CHANNEL, TITLE, MARGIN = 15.0, 26.0, 14.0, 7.0, 15.0, 96.0, 30.0, 12.0
"""Sizes: of letters, the height of a word, between words, between two arcs at a word, between two tracks,
between two rows of words, of a title, and around everything."""

ARROW = 5.0
"""Of an arrow's head: its length, and twice its half width."""


@dataclass
class Node:
    """A word in a row: what is shown, its middle, and its width."""

    word: str
    x: float
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
    """A reading laid out: one panel, or one for each shared memory if there are more."""
    own, shared = reading.own, reading.shared
    if not shared:
        return [laid_out(reading, own, None)]
    return [laid_out(reading, own if number == 0 else None, memory) for number, memory in enumerate(shared)]


def laid_out(reading: Reading, own: Access | None, shared: Access | None) -> Panel:
    """A panel of a row of words, of their arcs to each other and to the slots of a shared memory."""
    about = reading.own  # also where its arcs are in another panel, words stand in the order of the text
    places = about.own if about else tuple(range(len(reading.words)))
    found = arcs(own, places, "below" if shared else "above") if own else []
    found += arcs(shared, places, "across") if shared else []
    inside, across = ([arc for arc in found if (arc.kind == "across") == kind] for kind in (False, True))
    at_words = Counter(end for arc in inside for end in (arc.source, arc.target))
    panel = Panel(
        title=reading.name,
        caption=f"memory of {shared.name}" if shared else "",
        words=row(about.slots if about else reading.words, at_words),
        slots=row(shared.slots, Counter(arc.target for arc in across)) if shared else [],
        arcs=found,
        shared=shared,
    )
    settle(panel, inside, across)
    return panel


def row(words: Sequence[str], arcs: Mapping[int, int]) -> list[Node]:
    """Words side by side from the left margin on, each with room for so many arcs."""
    nodes, x = [], MARGIN
    for place, word in enumerate(words):
        shown = shortened(word)
        width = max(width_of(shown, FONT) + 10.0, 22.0, arcs.get(place, 0) * PORT)
        nodes.append(Node(shown, x + width / 2, width))
        x += width + GAP
    return nodes


def arcs(memory: Access, places: Sequence[int], kind: Literal["above", "below", "across"]) -> list[Arc]:
    """An arc for each step."""
    return [
        Arc(t, place, slot, weight, slot != best, kind)
        for t, (place, slot, best, weight) in enumerate(
            zip(places, memory.composed, memory.read, memory.weights, strict=True)
        )
        if place != NOWHERE
    ]


def settle(panel: Panel, inside: Sequence[Arc], across: Sequence[Arc]) -> None:
    """Give every arc its ends and its track, and the panel its size."""
    spread(panel.words, inside)
    spread_across(panel, across)
    tracks = give_tracks(inside)
    for one, other in ((panel.words, panel.slots), (panel.slots, panel.words)):
        if one and other and span(one) < span(other):  # the shorter row in the middle
            move(one, (span(other) - span(one)) / 2, panel)
    rows = max(span(panel.words), span(panel.slots)) + 2 * MARGIN
    titles = caption_at(panel) + width_of(panel.caption, FONT) + MARGIN
    room = tracks * TRACK + 2 * ARROW if inside else 0.0
    above = room if inside and inside[0].kind == "above" else 0.0
    below = room - above
    panel.slots_y = TITLE
    panel.words_y = TITLE + (BOX + CHANNEL if panel.slots else above)
    panel.size = (max(rows, titles), panel.words_y + BOX + below + MARGIN)


def caption_at(panel: Panel) -> float:
    """Where the caption begins: behind the title, which is bold."""
    return MARGIN + 1.08 * width_of(panel.title, FONT) + 12.0


def span(nodes: Sequence[Node]) -> float:
    """From the left of the first word to the right of the last."""
    return nodes[-1].x + nodes[-1].width / 2 - MARGIN if nodes else 0.0


def move(nodes: Sequence[Node], by: float, panel: Panel) -> None:
    """Move a row to the right, and the ends of arcs with it."""
    for node in nodes:
        node.x += by
    for arc in panel.arcs:
        if nodes is panel.words:
            arc.start += by
        if (nodes is panel.words) == (arc.kind != "across"):
            arc.end += by


def spread(nodes: Sequence[Node], inside: Sequence[Arc]) -> None:
    """Ends of arcs side by side at each word, so that those to near words lie inside those to far ones."""
    ends: dict[int, list[tuple[tuple[int, int, int], Arc, bool]]] = defaultdict(list)
    for arc in inside:
        for here, other, leaves in ((arc.source, arc.target, True), (arc.target, arc.source, False)):
            if here == other:  # a word alone: a loop
                key = (1, 0, 0 if leaves else 1)
            elif other < here:
                key = (0, -other, -arc.step)
            else:
                key = (2, -other, arc.step)
            ends[here].append((key, arc, leaves))
    for place, found in ends.items():
        found.sort(key=lambda each: each[0])
        for x, (_, arc, leaves) in zip(ports(nodes[place], len(found)), found, strict=True):
            if leaves:
                arc.start = x
            else:
                arc.end = x


def spread_across(panel: Panel, across: Sequence[Arc]) -> None:
    """Ends of arcs between two rows: side by side at each slot."""
    reached: dict[int, list[Arc]] = defaultdict(list)
    for arc in across:
        arc.start = panel.words[arc.source].x
        reached[arc.target].append(arc)
    for place, found in reached.items():
        found.sort(key=lambda arc: arc.source)
        for x, arc in zip(ports(panel.slots[place], len(found)), found, strict=True):
            arc.end = x


def ports(node: Node, count: int) -> list[float]:
    """Where so many arcs touch a word: around its middle."""
    return [node.x + (at - (count - 1) / 2) * PORT for at in range(count)]


def give_tracks(inside: Sequence[Arc]) -> int:
    """Short arcs first, each the lowest track where it meets no other; returns how many there are."""
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


Path = list[tuple[Literal["M", "L", "Q", "C"], tuple[float, ...]]]
"""A line: move, straight on, or along a curve, each with its points, as SVG calls them."""


class Line(NamedTuple):
    """An arc to be drawn: its path, and the three corners of its head."""

    path: Path
    head: tuple[tuple[float, float], ...]


def line(panel: Panel, arc: Arc) -> Line:
    """How an arc runs."""
    if arc.kind == "across":
        top, bottom = panel.slots_y + BOX + ARROW, panel.words_y
        middle = (top + bottom) / 2
        curve = (arc.start, middle, arc.end, middle, arc.end, top)
        return Line([("M", (arc.start, bottom)), ("C", curve)], head(arc.end, top, -1))
    sign = -1.0 if arc.kind == "above" else 1.0
    base = panel.words_y if arc.kind == "above" else panel.words_y + BOX
    y = base + sign * (2 * ARROW + arc.track * TRACK)
    end = base + sign * ARROW
    way = 1.0 if arc.end > arc.start else -1.0
    bend = min(6.0, abs(arc.end - arc.start) / 2)
    path: Path = [
        ("M", (arc.start, base)),
        ("L", (arc.start, y - sign * bend)),
        ("Q", (arc.start, y, arc.start + way * bend, y)),
        ("L", (arc.end - way * bend, y)),
        ("Q", (arc.end, y, arc.end, y - sign * bend)),
        ("L", (arc.end, end)),
    ]
    return Line(path, head(arc.end, end, -sign))


def head(x: float, y: float, way: float) -> tuple[tuple[float, float], ...]:
    """An arrow's head that points down (1) or up (-1) from here."""
    return ((x - ARROW / 2, y), (x + ARROW / 2, y), (x, y + way * ARROW))


def panel_as_dict(reading: Reading, panel: Panel) -> dict[str, Any]:
    """Write a panel as plain values, for the page to draw."""
    rows = [(reading.own, panel.words_y, panel.words)]
    if panel.slots:
        rows.append((panel.shared, panel.slots_y, panel.slots))
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
        ],
        "arcs": [
            {
                **{
                    name: getattr(arc, name)
                    for name in ("step", "source", "target", "weight", "second", "kind")
                },
                "path": path_text((drawn := line(panel, arc)).path),
                "head": points_text(drawn.head),
            }
            for arc in sorted(panel.arcs, key=lambda arc: arc.weight)
        ],
    }


def strength(weight: float) -> float:
    """How dark an arc is drawn, from 0 to 1: a faint one is still seen."""
    return 0.35 + 0.65 * min(max(weight, 0.0), 1.0)


def thickness(weight: float) -> float:
    """Of an arc's line, in pixels."""
    return 1.2 + 1.3 * weight


def svg(trace: MemoryTrace) -> str:
    """The graph of every reading, one below the other, as an SVG file. Text stays text."""
    found = [panel for reading in trace.readings for panel in panels(reading)]
    width = max(panel.size[0] for panel in found)
    drawing = Drawing(width, sum(panel.size[1] for panel in found), title(trace), describe(trace))
    y = 0.0
    for panel in found:
        with drawing.group(y):
            draw(drawing, panel)
        y += panel.size[1]
    return drawing.text()


def draw(drawing: Drawing, panel: Panel) -> None:
    """One panel."""
    drawing.write(MARGIN, 18, panel.title, "title")
    if panel.caption:
        drawing.write(caption_at(panel), 18, panel.caption, "caption")
    for arc in sorted(panel.arcs, key=lambda arc: arc.weight):
        found = line(panel, arc)
        with drawing.group(
            kind=f"arc {arc.kind}{' second' if arc.second else ''}", opacity=strength(arc.weight)
        ):
            target = (panel.slots if arc.kind == "across" else panel.words)[arc.target]
            drawing.tip(f"{panel.words[arc.source].word} → {target.word} {arc.weight:.2f}")
            drawing.path(found.path, thickness(arc.weight))
            drawing.polygon(found.head)
    for y, nodes in ((panel.words_y, panel.words), (panel.slots_y, panel.slots)):
        for node in nodes:
            drawing.box(node.x - node.width / 2, y, node.width, BOX)
            drawing.write(node.x, y + 18, node.word, "word")


def title(trace: MemoryTrace) -> str:
    """What a picture shows, in a line."""
    return f"Word associations by the memory of {trace.model.get('name', 'a model')}"


def describe(trace: MemoryTrace) -> str:
    """A picture in words, for who cannot see it."""
    told = []
    for reading in trace.readings:
        for memory in reading.memories:
            pairs = (
                f"{word} to {memory.slots[slot]}"
                for word, slot in zip(reading.words, memory.composed, strict=True)
            )
            told.append(f"{reading.name}, memory of {memory.name}: {', '.join(pairs)}.")
    return " ".join(told)


def dot(trace: MemoryTrace) -> str:
    """The graph in the language of Graphviz, words from top to bottom: there it keeps arcs apart best."""
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
        places = own.own if own else range(len(reading.words))
        for memory in reading.memories:
            target = "w" if memory is own else f"m{reading.shared.index(memory)}_"
            for arc in arcs(memory, tuple(places), "across"):
                style = ", style=dashed" if arc.second else ""
                edge = f"r{r}w{arc.source} -> r{r}{target}{arc.target}"
                width = f"{0.5 + 2 * arc.weight:.2f}"
                lines.append(f'    {edge} [label="{arc.weight:.2f}", penwidth={width}{style}];')
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def quoted(text: str) -> str:
    """A text as a string of DOT."""
    escaped = shortened(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
