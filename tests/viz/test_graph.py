"""The association graph: where arcs run, and what is written."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from nse.viz import graph
from nse.viz.drawing import width_of
from nse.viz.trace import Access, Reading
from viz.made_traces import NASTY, PAPER, PAPER_ARCS, own, random_trace, shared, trace

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    """The words that a picture shows, its title and tips aside."""
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_an_arc_leads_from_each_word_to_its_slot():
    [panel] = graph.panels(own(PAPER, PAPER_ARCS))
    assert [(arc.source, arc.target) for arc in panel.arcs] == list(enumerate(PAPER_ARCS))
    assert not any(arc.second for arc in panel.arcs)
    assert {arc.kind for arc in panel.arcs} == {"above"}


def test_a_second_best_is_marked():
    [panel] = graph.panels(own(["a", "b"], z=np.array([[0.9, 0.1], [0.4, 0.6]])))
    assert [(arc.target, arc.second) for arc in panel.arcs] == [(1, True), (0, True)]
    assert graph.svg(trace(own(["a", "b"], z=np.array([[0.9, 0.1], [0.4, 0.6]])))).count("second") >= 2


def stretches(panel):
    """The level parts of arcs (track, from, to), and where their upright parts stand."""
    inside = [arc for arc in panel.arcs if arc.kind != "across"]
    level = [(arc.track, *sorted((arc.start, arc.end))) for arc in inside]
    upright = [end for arc in inside for end in (arc.start, arc.end)]
    return level, upright


@pytest.mark.parametrize("words", [1, 2, 5, 14, 40, 60])
@pytest.mark.parametrize("seed", range(4))
def test_no_two_arcs_share_a_stretch(words, seed):
    for slots in (None, 9):
        for panel in graph.panels(random_trace(words, seed, slots).readings[0]):
            level, upright = stretches(panel)
            for (track, left, right), (other, start, end) in combinations(level, 2):
                assert track != other or right < start or end < left
            assert all(abs(x - y) > 0.5 for x, y in combinations(upright, 2))
            across = [arc for arc in panel.arcs if arc.kind == "across"]
            assert len({arc.end for arc in across}) == len(across)


@pytest.mark.parametrize("words", [5, 40])
def test_words_do_not_touch_and_all_is_inside(words):
    for panel in graph.panels(random_trace(words, slots=12).readings[0]):
        width, height = panel.size
        for row in (panel.words, panel.slots):
            edges = [(node.x - node.width / 2, node.x + node.width / 2) for node in row]
            assert edges[0][0] >= 0
            assert edges[-1][1] <= width
            assert all(before[1] + 5 < after[0] for before, after in pairwise(edges))
        for arc in panel.arcs:
            found = graph.line(panel, arc)
            ys = [value for _, at in found.path for value in at[1::2]] + [y for _, y in found.head]
            xs = [value for _, at in found.path for value in at[0::2]]
            assert 0 <= min(xs) <= max(xs) <= width
            assert graph.TITLE <= min(ys) <= max(ys) <= height


def test_many_arcs_at_one_word_have_room():
    [panel] = graph.panels(own(["a"] * 40, [0] * 40))
    node = panel.words[0]
    ends = sorted(arc.end for arc in panel.arcs if arc.target == 0)
    assert all(after - before >= graph.PORT - 0.01 for before, after in pairwise(ends))
    assert node.x - node.width / 2 <= ends[0] <= ends[-1] <= node.x + node.width / 2


def test_a_short_row_has_room_for_its_title_and_caption():
    one = shared(["a"], ["b"], [0], [0], name="question, for candidate 1")
    [panel] = graph.panels(one)
    wanted = width_of(panel.title, graph.FONT) + width_of(panel.caption, graph.FONT)
    assert panel.size[0] > wanted + 3 * graph.MARGIN


def test_a_picture_styles_itself_alone():
    """In a notebook its style sheet is that of the whole page."""
    [style] = re.findall(r"<style>(.*?)</style>", graph.svg(trace(own(["a", "b"]))))
    for rule in style.removesuffix("}").split("}"):
        assert all(selector.startswith(".nse ") for selector in rule.split("{")[0].split(","))


def test_near_arcs_lie_inside_far_ones():
    [panel] = graph.panels(own(["a", "b", "c", "d"], [3, 2, 1, 0]))
    track = {arc.step: arc.track for arc in panel.arcs}
    assert max(track[1], track[2]) < min(track[0], track[3])


def test_shared_slots_are_a_second_row_with_arcs_across():
    reading = shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1])
    [panel] = graph.panels(reading)
    assert [node.word for node in panel.slots] == ["a", "little", "child"]
    assert [node.word for node in panel.words] == ["kid", "sits"]
    across = [arc for arc in panel.arcs if arc.kind == "across"]
    assert [(arc.source, arc.target) for arc in across] == [(0, 2), (1, 1)]
    assert {arc.kind for arc in panel.arcs if arc not in across} == {"below"}
    for arc in across:
        [(_, start), (_, curve)] = graph.line(panel, arc).path
        assert start == (panel.words[arc.source].x, panel.words_y)
        assert panel.slots_y + graph.BOX <= curve[-1] < panel.words_y
    shown = texts(graph.svg(trace(reading)))
    assert shown[:2] == ["hypothesis", "memory of premise"]


def test_more_shared_memories_have_a_panel_each():
    first, second = Access("one", ("x", "y"), [[0.2, 0.8]]), Access("two", ("z",), [[1.0]])
    mine = Access("mine", ("w",), [[1.0]], (0,))
    found = graph.panels(Reading("mine", ("w",), (mine, first, second)))
    assert [panel.caption for panel in found] == ["memory of one", "memory of two"]
    assert [len(panel.arcs) for panel in found] == [2, 1]


def test_a_text_read_backwards_stands_in_its_order():
    z = np.array([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.1, 0.8, 0.1]])  # steps c, b, a; slots a, b, c
    reading = Reading("back", ("c", "b", "a"), (Access("back", ("a", "b", "c"), z, (2, 1, 0)),))
    [panel] = graph.panels(reading)
    assert [node.word for node in panel.words] == ["a", "b", "c"]
    assert [(arc.source, arc.target) for arc in panel.arcs] == [(2, 1), (1, 2), (0, 1)]


def test_svg_is_xml_whatever_the_words_are():
    one = trace(own(NASTY))
    picture = graph.svg(one)
    assert "<script>" not in picture
    shown = texts(picture)
    assert "<script>alert(1)</scrip…" in shown  # as text, and cut
    assert "a\ufffdb" in shown  # what would turn the line round does not
    assert graph.svg(one) == picture


def test_svg_tells_the_picture_in_words():
    root = ElementTree.fromstring(graph.svg(trace(own(["a", "b"], [1, 0]))))
    assert root.find(f"{SVG}title").text == "Word associations by the memory of made-up"
    assert root.find(f"{SVG}desc").text == "premise, memory of premise: a to b, b to a."
    tips = [each.text for each in root.iter(f"{SVG}title")]
    assert "a → b 0.60" in tips


def test_an_endless_word_does_not_make_an_endless_picture():
    [panel] = graph.panels(own(["x" * 10_000_000, "b"]))
    assert panel.size[0] < 400


def test_dot_is_what_graphviz_takes():
    words = ['say "hi"', "back\\slash", "b"]
    text = graph.dot(trace(own(words, [2, 2, 0]), shared(["c"], ["d", "e"], [0], [1])))
    assert text.startswith("digraph associations {")
    assert text.count("{") == text.count("}")
    assert r'label="say \"hi\""' in text
    assert r'label="back\\slash"' in text
    assert "r0w0 -> r0w2 [label=" in text
    assert "r0w0 -> r0w1 -> r0w2 [style=invis, constraint=true" in text  # in the order of the text
    assert "r1w0 [style=invis" not in text  # a word alone is seen
    assert "r1w0 -> r1m0_1 [label=" in text
    assert "style=dashed" in graph.dot(trace(own(["a", "b"], z=np.array([[0.9, 0.1], [0.1, 0.9]]))))
