"""Accessibility of the page: axe-core, keyboard, screen reader."""

import sys
from pathlib import Path

import pytest

from nse.viz import report
from viz.made_traces import shared, trace
from web.test_page import HYPOTHESIS, PREMISE, run_model

AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"

RUN = "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"


def run_axe(page):
    """Return the violations that axe-core finds."""
    page.evaluate(AXE.read_text("utf-8"))
    return [
        (each["impact"], each["id"], node["target"]) for each in page.evaluate(RUN) for node in each["nodes"]
    ]


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: make test brings it by npm")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 375])
def test_the_page_has_no_accessibility_violations(open_page, address, scheme, width):
    with open_page(address, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.locator("#examples button").first.wait_for()
        assert run_axe(page) == []
        run_model(page, PREMISE, HYPOTHESIS)
        page.keyboard.press("ArrowLeft")
        page.locator("#slots button").first.click()
        assert run_axe(page) == []
        page.locator("#form").evaluate("form => { form.noValidate = true; }")
        page.locator("textarea").first.fill("")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("alert").wait_for()
        assert run_axe(page) == []


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: make test brings it by npm")
def test_a_page_file_has_no_accessibility_violations(open_page, tmp_path):
    one = trace(shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1]))
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    with open_page(f"file://{tmp_path}/report.html") as page:
        page.locator("#graph svg").wait_for()
        assert run_axe(page) == []


def test_tab_reaches_every_control(open_page, address):
    with open_page(address) as page:
        run_model(page, "Two dogs play.", "They sleep.")
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


def test_a_word_has_its_arcs_as_label(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        labels = page.locator("#graph .node").evaluate_all(
            "nodes => nodes.map(n => n.getAttribute('aria-label'))"
        )
        assert "autumn: composed with built, read by on, read by sits" in [
            f"{label.split(':')[0]}: {', '.join(sorted(label.split(': ')[1].split(', ')))}"
            for label in labels
        ]
