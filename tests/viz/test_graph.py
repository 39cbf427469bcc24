"""The association graph: layout and files."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from nse.viz import graph
from nse.viz.drawing import estimate_width
from nse.viz.trace import Access, Reading
from viz.made_traces import NASTY, PAPER, PAPER_ARCS, own, random_trace, shared, trace

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    """Visible words of a picture."""
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_an_arc_leads_from_each_word_to_its_slot():
    [panel] = graph.lay_out(own(PAPER, PAPER_ARCS))
    assert [(arc.source, arc.target) for arc in panel.arcs] == list(enumerate(PAPER_ARCS))
    assert not any(arc.second for arc in panel.arcs)
    assert {arc.kind for arc in panel.arcs} == {"above"}


def test_a_second_best_arc_is_dashed():
    [panel] = graph.lay_out(own(["a", "b"], z=np.array([[0.9, 0.1], [0.4, 0.6]])))
    assert [(arc.target, arc.second) for arc in panel.arcs] == [(1, True), (0, True)]
    assert graph.render_svg(trace(own(["a", "b"], z=np.array([[0.9, 0.1], [0.4, 0.6]])))).count("second") >= 2


def segments(panel):
    """Horizontal segments of arcs (track, left, right), and x of the vertical ones."""
    inside = [arc for arc in panel.arcs if arc.kind != "across"]
    level = [(arc.track, *sorted((arc.start, arc.end))) for arc in inside]
    upright = [end for arc in inside for end in (arc.start, arc.end)]
    return level, upright


@pytest.mark.parametrize("words", [1, 2, 5, 14, 40, 60])
@pytest.mark.parametrize("seed", range(4))
def test_arcs_do_not_overlap(words, seed):
    for slots in (None, 9):
        for panel in graph.lay_out(random_trace(words, seed, slots).readings[0]):
            level, upright = segments(panel)
            for (track, left, right), (other, start, end) in combinations(level, 2):
                assert track != other or right < start or end < left
            assert all(abs(x - y) > 0.5 for x, y in combinations(upright, 2))
            across = [arc for arc in panel.arcs if arc.kind == "across"]
            assert len({arc.end for arc in across}) == len(across)


@pytest.mark.parametrize("words", [5, 40])
def test_words_do_not_touch_and_everything_is_inside_the_picture(words):
    for panel in graph.lay_out(random_trace(words, slots=12).readings[0]):
        width, height = panel.size
        for row in (panel.words, panel.slots):
            edges = [(node.x - node.width / 2, node.x + node.width / 2) for node in row]
            assert edges[0][0] >= 0
            assert edges[-1][1] <= width
            assert all(before[1] + 5 < after[0] for before, after in pairwise(edges))
        for arc in panel.arcs:
            shape = graph.shape_arc(panel, arc)
            ys = [value for _, at in shape.path for value in at[1::2]] + [y for _, y in shape.head]
            xs = [value for _, at in shape.path for value in at[0::2]]
            assert 0 <= min(xs) <= max(xs) <= width
            assert graph.TITLE <= min(ys) <= max(ys) <= height


def test_a_word_is_wide_enough_for_all_its_arcs():
    [panel] = graph.lay_out(own(["a"] * 40, [0] * 40))
    node = panel.words[0]
    ends = sorted(arc.end for arc in panel.arcs if arc.target == 0)
    assert all(after - before >= graph.PORT - 0.01 for before, after in pairwise(ends))
    assert node.x - node.width / 2 <= ends[0] <= ends[-1] <= node.x + node.width / 2


def test_a_panel_is_wide_enough_for_its_title_and_caption():
    one = shared(["a"], ["b"], [0], [0], name="question, for candidate 1")
    [panel] = graph.lay_out(one)
    text_width = estimate_width(panel.title, graph.FONT) + estimate_width(panel.caption, graph.FONT)
    assert panel.size[0] > text_width + 3 * graph.MARGIN


def test_the_style_of_a_picture_does_not_apply_to_the_rest_of_a_notebook():
    [style] = re.findall(r"<style>(.*?)</style>", graph.render_svg(trace(own(["a", "b"]))))
    for rule in style.removesuffix("}").split("}"):
        assert all(selector.startswith(".nse ") for selector in rule.split("{")[0].split(","))


def test_short_arcs_lie_inside_long_ones():
    [panel] = graph.lay_out(own(["a", "b", "c", "d"], [3, 2, 1, 0]))
    track = {arc.step: arc.track for arc in panel.arcs}
    assert max(track[1], track[2]) < min(track[0], track[3])


def test_slots_of_a_shared_memory_are_a_second_row():
    reading = shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1])
    [panel] = graph.lay_out(reading)
    assert [node.word for node in panel.slots] == ["a", "little", "child"]
    assert [node.word for node in panel.words] == ["kid", "sits"]
    across = [arc for arc in panel.arcs if arc.kind == "across"]
    assert [(arc.source, arc.target) for arc in across] == [(0, 2), (1, 1)]
    assert {arc.kind for arc in panel.arcs if arc not in across} == {"below"}
    for arc in across:
        [(_, start), (_, curve)] = graph.shape_arc(panel, arc).path
        assert start == (panel.words[arc.source].x, panel.words_y)
        assert panel.slots_y + graph.BOX <= curve[-1] < panel.words_y
    shown = texts(graph.render_svg(trace(reading)))
    assert shown[:2] == ["hypothesis", "memory of premise"]


def test_each_of_several_shared_memories_has_a_panel():
    first, second = Access("one", ("x", "y"), [[0.2, 0.8]]), Access("two", ("z",), [[1.0]])
    mine = Access("mine", ("w",), [[1.0]], (0,))
    panels = graph.lay_out(Reading("mine", ("w",), (mine, first, second)))
    assert [panel.caption for panel in panels] == ["memory of one", "memory of two"]
    assert [len(panel.arcs) for panel in panels] == [2, 1]


def test_a_text_that_is_read_backwards_is_shown_in_its_order():
    z = np.array([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.1, 0.8, 0.1]])  # steps c, b, a; slots a, b, c
    reading = Reading("back", ("c", "b", "a"), (Access("back", ("a", "b", "c"), z, (2, 1, 0)),))
    [panel] = graph.lay_out(reading)
    assert [node.word for node in panel.words] == ["a", "b", "c"]
    assert [(arc.source, arc.target) for arc in panel.arcs] == [(2, 1), (1, 2), (0, 1)]


def test_svg_escapes_the_words():
    one = trace(own(NASTY))
    picture = graph.render_svg(one)
    assert "<script>" not in picture
    shown = texts(picture)
    assert "<script>alert(1)</scrip…" in shown
    assert "a\ufffdb" in shown  # a right-to-left override is replaced
    assert graph.render_svg(one) == picture


def test_svg_describes_the_arcs_in_words():
    root = ElementTree.fromstring(graph.render_svg(trace(own(["a", "b"], [1, 0]))))
    assert root.find(f"{SVG}title").text == "Word associations by the memory of made-up"
    assert root.find(f"{SVG}desc").text == "premise, memory of premise: a to b, b to a."
    tips = [each.text for each in root.iter(f"{SVG}title")]
    assert "a → b 0.60" in tips


def test_a_long_word_is_clipped():
    [panel] = graph.lay_out(own(["x" * 10_000_000, "b"]))
    assert panel.size[0] < 400


def test_dot_quotes_words_and_keeps_their_order():
    words = ['say "hi"', "back\\slash", "b"]
    text = graph.render_dot(trace(own(words, [2, 2, 0]), shared(["c"], ["d", "e"], [0], [1])))
    assert text.startswith("digraph associations {")
    assert text.count("{") == text.count("}")
    assert r'label="say \"hi\""' in text
    assert r'label="back\\slash"' in text
    assert "r0w0 -> r0w2 [label=" in text
    assert "r0w0 -> r0w1 -> r0w2 [style=invis, constraint=true" in text
    assert "r1w0 [style=invis" not in text  # a row of one word is not hidden
    assert "r1w0 -> r1m0_1 [label=" in text
    assert "style=dashed" in graph.render_dot(trace(own(["a", "b"], z=np.array([[0.9, 0.1], [0.1, 0.9]]))))
