"""Everybody can use the page: axe-core finds nothing serious, and a keyboard reaches everything."""

import sys
from pathlib import Path

import pytest

from nse.viz import report
from viz.made_traces import shared, trace
from web.test_page import HYPOTHESIS, PREMISE, read

AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"

RUN = "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"


def faults(page):
    """What axe-core finds, by its name and where."""
    page.evaluate(AXE.read_text("utf-8"))
    return [
        (each["impact"], each["id"], node["target"]) for each in page.evaluate(RUN) for node in each["nodes"]
    ]


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: make test brings it by npm")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 375])
def test_axe_finds_nothing(opened, address, scheme, width):
    with opened(address, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.locator("#examples button").first.wait_for()
        assert faults(page) == []
        read(page, PREMISE, HYPOTHESIS)
        page.keyboard.press("ArrowLeft")
        page.locator("#slots button").first.click()
        assert faults(page) == []
        page.locator("#ask").evaluate("form => { form.noValidate = true; }")
        page.locator("textarea").first.fill("")
        page.get_by_role("button", name="Read", exact=True).click()
        page.get_by_role("alert").wait_for()
        assert faults(page) == []


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: make test brings it by npm")
def test_axe_finds_nothing_in_a_report(opened, tmp_path):
    one = trace(shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1]))
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    with opened(f"file://{tmp_path}/report.html") as page:
        page.locator("#graph svg").wait_for()
        assert faults(page) == []


def test_a_keyboard_reaches_everything(opened, address):
    with opened(address) as page:
        read(page, "Two dogs play.", "They sleep.")
        wanted = set(
            page.evaluate(
                """[...document.querySelectorAll(
                    'button, textarea, input:checked, input[type=range], #link, .node')]
                .filter((each) => each.getBoundingClientRect().width)
                .map((each, number) => (each.dataset.seen = String(number)))"""
            )
        )
        page.locator("h1").click()
        reached = set()
        for _ in range(len(wanted) + 15):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.dataset.seen ?? ''"))
        assert wanted <= reached


def test_a_word_tells_its_arcs_to_a_screen_reader(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        labels = page.locator("#graph .node").evaluate_all(
            "nodes => nodes.map(n => n.getAttribute('aria-label'))"
        )
        assert "autumn: composed with built, read by on, read by sits" in [
            f"{label.split(':')[0]}: {', '.join(sorted(label.split(': ')[1].split(', ')))}"
            for label in labels
        ]
