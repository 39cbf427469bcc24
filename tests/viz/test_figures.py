"""The pictures as matplotlib figures."""

import pytest

from nse import InputError
from nse.viz import figures, graph
from viz.made_traces import NASTY, own, random_trace, shared, trace


def test_the_graph_has_every_arc_and_every_word(tmp_path):
    one = trace(shared(["a", "b"], ["x", "y", "z"], [1, 0], [2, 2]), own(["c", "d", "e"]))
    picture = figures.draw_graph(one)
    panels = [panel for reading in one.readings for panel in graph.lay_out(reading)]
    for axes, panel in zip(picture.axes, panels, strict=True):
        kinds = [type(each).__name__ for each in axes.patches]
        assert kinds.count("PathPatch") == kinds.count("Polygon") == len(panel.arcs)
        words = {each.get_text() for each in axes.texts}
        assert {node.word for node in (*panel.words, *panel.slots)} <= words
    figures.save_figure(picture, tmp_path / "graph.pdf")
    assert (tmp_path / "graph.pdf").read_bytes().startswith(b"%PDF")


def test_the_heat_map_shows_the_keys(tmp_path):
    one = random_trace(7, slots=4)
    picture = figures.draw_heat_map(one)
    for axes, memory in zip(picture.axes, one.readings[0].memories, strict=True):
        assert (axes.images[0].get_array() == memory.keys).all()
        assert [each.get_text() for each in axes.get_xticklabels()] == list(memory.slots)
    figures.save_figure(picture, tmp_path / "heat.png")
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_dollars_in_words_are_not_formulas(tmp_path):
    for draw in (figures.draw_graph, figures.draw_heat_map):
        figures.save_figure(draw(trace(own(NASTY))), tmp_path / "nasty.png")  # has $x_1^2$


def test_a_missing_matplotlib_is_reported_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'neural-semantic-encoders\[figures\]'"):
        figures.draw_graph(trace(own(["a", "b"])))
