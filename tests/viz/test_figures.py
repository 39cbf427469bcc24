"""The pictures by matplotlib: the same arcs, the same maps."""

import pytest

from nse import InputError
from nse.viz import figures, graph
from viz.made_traces import NASTY, own, random_trace, shared, trace


def test_the_graph_has_every_arc_and_every_word(tmp_path):
    one = trace(shared(["a", "b"], ["x", "y", "z"], [1, 0], [2, 2]), own(["c", "d", "e"]))
    picture = figures.graph(one)
    panels = [panel for reading in one.readings for panel in graph.panels(reading)]
    for axes, panel in zip(picture.axes, panels, strict=True):
        kinds = [type(each).__name__ for each in axes.patches]
        assert kinds.count("PathPatch") == kinds.count("Polygon") == len(panel.arcs)
        words = {each.get_text() for each in axes.texts}
        assert {node.word for node in (*panel.words, *panel.slots)} <= words
    figures.save(picture, tmp_path / "graph.pdf")
    assert (tmp_path / "graph.pdf").read_bytes().startswith(b"%PDF")


def test_the_map_is_the_keys(tmp_path):
    one = random_trace(7, slots=4)
    picture = figures.heat(one)
    for axes, memory in zip(picture.axes, one.readings[0].memories, strict=True):
        assert (axes.images[0].get_array() == memory.keys).all()
        assert [each.get_text() for each in axes.get_xticklabels()] == list(memory.slots)
    figures.save(picture, tmp_path / "heat.png")
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_a_dollar_is_a_dollar(tmp_path):
    for draw in (figures.graph, figures.heat):
        figures.save(draw(trace(own(NASTY))), tmp_path / "nasty.png")  # $x_1^2$ is no formula


def test_without_matplotlib_it_says_what_to_type(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'neural-semantic-encoders\[figures\]'"):
        figures.graph(trace(own(["a", "b"])))
