"""The heat map, and the most and least accessed slots."""

import re
from xml.etree import ElementTree

import numpy as np

from nse.viz import heat
from viz.made_traces import NASTY, own, random_trace, shared, trace

SVG = "{http://www.w3.org/2000/svg}"


def test_a_cell_is_as_dark_as_its_weight():
    picture = heat.render_svg(trace(own(["a", "b"], z=np.array([[0.25, 0.75], [1.0, 0.0]]))))
    root = ElementTree.fromstring(picture)
    cells = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "cell"]
    assert [each.get("fill-opacity") for each in cells[:3]] == [
        "0.250",
        "0.750",
        None,
    ]  # full opacity is the default
    assert len(cells) == 3 + 2  # the cell of weight 0 is left out; two bars
    tips = re.findall(r"<title>(.*?)</title>", picture)
    assert "a → b 0.75" in tips


def test_the_bars_show_how_much_each_slot_was_accessed():
    root = ElementTree.fromstring(
        heat.render_svg(trace(own(["a", "b"], z=np.array([[0.25, 0.75], [0.5, 0.5]]))))
    )
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("fill-opacity") == "0.600"]
    one, other = (float(each.get("height")) for each in bars)
    assert abs(one / other - 0.75 / 1.25) < 0.02


def test_each_memory_has_a_map():
    root = ElementTree.fromstring(heat.render_svg(trace(shared(["a", "b"], ["x", "y", "z"], [1, 0], [2, 2]))))
    titles = [each.text for each in root.iter(f"{SVG}text") if each.get("class") == "title"]
    assert titles == ["hypothesis", "hypothesis, memory of premise"]


def test_the_most_and_least_accessed_slots_are_listed():
    memory = own(["a", "b", "c", "d"], z=np.array([[0.1, 0.2, 0.3, 0.4]] * 4)).memories[0]
    assert heat.describe_extremes(memory) == "most accessed: d (1.60), c (1.20); least: a (0.40), b (0.80)"
    assert heat.describe_extremes(own(["a"], [0], peak=1.0).memories[0]) == "accessed: a (1.00)"


def test_everything_is_inside_the_picture():
    for one in (trace(own(NASTY)), random_trace(40, slots=60), trace(own(["a"], [0], peak=1.0))):
        root = ElementTree.fromstring(heat.render_svg(one))
        width, height = float(root.get("width")), float(root.get("height"))
        for group in root.iter(f"{SVG}rect"):
            if group.get("class") in ("cell", "frame"):
                assert float(group.get("x")) + float(group.get("width")) <= width
                assert float(group.get("y")) + float(group.get("height")) <= height
