"""The page in a browser: run, walk through the steps, point, share, download."""

import json
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest

import nse
from nse.viz import report
from nse.viz.trace import MemoryTrace
from serve.running import run_server
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator
from viz.made_traces import NASTY, own, random_trace, shared, trace

expect = pytest.importorskip("playwright.sync_api").expect

PREMISE = "A little child sits quietly on a hand built rock wall in autumn."
HYPOTHESIS = "A child is sitting outdoors."
SIXTY = " ".join(["Two dogs play in the cold snow near a red house ,"] * 5) + " and a man sleeps ."


def run_model(page, *texts):
    """Type texts and run the model."""
    for number, text in enumerate(texts):
        page.locator("textarea").nth(number).fill(text)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#busy")).to_be_empty()
    page.locator("#graph svg").wait_for()


def count_arcs(page):
    """Count the visible arcs, one for each step so far."""
    return page.locator("#graph .arc:not(.later)").count()


def read_slots(page):
    """Return the contents of the slots, as the table shows them."""
    return page.locator("#slots tbody td:nth-child(2)").all_inner_texts()


def test_the_page_shows_prediction_and_memory_of_a_text(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        [row] = nse.load("snli").predict([(PREMISE, HYPOTHESIS)])
        first = page.locator("#prediction dt").first.inner_text()
        assert first == row["label"]
        shares = page.locator("#prediction dd:not(:has(.bar))").all_inner_texts()
        assert shares == [f"{100 * p:.1f}%" for p in sorted(row["probabilities"].values(), reverse=True)]
        reading = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0]
        assert count_arcs(page) == len(reading.words)
        assert read_slots(page) == reading.final(reading.memories[0])
        page.get_by_label("hypothesis", exact=True).check()
        assert count_arcs(page) == len(HYPOTHESIS.split()) + 2  # a start word and a period


def test_the_form_starts_with_an_example_and_offers_others(open_page, address):
    with open_page(address) as page:
        expect(page.locator("textarea").first).not_to_be_empty()
        page.locator("#examples button").nth(2).click()
        page.locator("#graph svg").wait_for()
        assert page.locator("textarea").first.input_value() == "Two dogs play in the snow."


def test_arrow_keys_move_through_the_steps(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        reading = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0]
        states = list(reading.states(reading.memories[0]))
        page.get_by_role("button", name="Go to the start").click()
        assert (count_arcs(page), read_slots(page)) == (0, states[0])
        for t in (1, 2, 3):
            page.keyboard.press("ArrowRight")
            assert (count_arcs(page), read_slots(page)) == (t, states[t])
            assert (
                page.locator("#step-text")
                .inner_text()
                .startswith(f"Step {t} of 15: “{reading.words[t - 1]}”")
            )
            assert (
                page.locator("#slots tr.written td:nth-child(2)").inner_text()
                == states[t][reading.memories[0].composed[t - 1]]
            )
        page.keyboard.press("ArrowLeft")
        assert (count_arcs(page), read_slots(page)) == (2, states[2])
        slider = page.get_by_role("slider", name="Step")
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert count_arcs(page) == 3
        assert slider.get_attribute("aria-valuetext") == page.locator("#step-text").inner_text()
        page.keyboard.press("End")
        assert count_arcs(page) == 15
        page.locator("textarea").first.focus()
        page.keyboard.press("ArrowLeft")  # moves only the cursor in the text
        assert count_arcs(page) == 15


def test_play_shows_a_step_after_the_other_until_paused(open_page, address):
    with open_page(address) as page:
        page.clock.install()
        run_model(page, PREMISE, HYPOTHESIS)
        page.get_by_role("button", name="Play", exact=True).click()
        assert count_arcs(page) == 0  # starts again
        page.clock.run_for(2000)
        assert count_arcs(page) == 2
        page.get_by_role("button", name="Pause").click()
        page.clock.run_for(5000)
        assert count_arcs(page) == 2
        page.get_by_role("button", name="Play", exact=True).click()
        page.clock.run_for(30_000)
        assert count_arcs(page) == 15
        assert page.get_by_role("button", name="Play", exact=True).is_visible()  # stopped at the end


def test_pointing_at_a_word_shows_only_its_arcs(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        memory = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0].memories[0]
        seen = """[...document.querySelectorAll('#graph .arc')]
            .filter((each) => getComputedStyle(each).visibility === 'visible').length"""
        assert page.evaluate(seen) == 15
        slot = memory.slots.index("autumn")
        touching = sum(slot in (source, target) for source, target in enumerate(memory.composed))
        word = page.locator("#graph .node", has_text=re.compile("^autumn$"))
        word.hover()
        assert page.evaluate(seen) == touching
        page.mouse.move(0, 0)
        assert page.evaluate(seen) == 15
        word.focus()
        assert page.evaluate(seen) == touching


def test_a_click_on_a_word_shows_the_history_of_its_slot(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        reading = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0]
        memory = reading.memories[0]
        slot = memory.slots.index("autumn")
        steps = [t for t, composed in enumerate(memory.composed) if composed == slot]
        page.locator("#graph .node", has_text=re.compile("^autumn$")).click()
        lines = page.locator("#history li").all_inner_texts()
        assert lines[0] == "Start: autumn"
        assert [line.split(": ", 1)[1] for line in lines[1:]] == [
            reading.compositions(memory)[t] for t in steps
        ]
        page.keyboard.press("Escape")
        assert not page.locator("#history").is_visible()
        opener = page.locator("#slots button", has_text=re.compile("^autumn$"))
        opener.press("Enter")
        assert page.locator("#history li").all_inner_texts() == lines
        page.get_by_role("button", name="Close history").click()
        assert not page.locator("#history").is_visible()
        expect(opener).to_be_focused()


def test_a_share_link_restores_texts_and_step(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        page.get_by_label("hypothesis", exact=True).check()
        for _ in range(3):
            page.get_by_role("button", name="Previous word").click()
        link = page.locator("#link").input_value()
        assert link == page.url
        before = (read_slots(page), page.locator("#step-text").inner_text())
        assert parse_qs(urlsplit(link).fragment)["text"] == [PREMISE, HYPOTHESIS]
    with open_page(link) as page:
        page.locator("#graph svg").wait_for()
        assert (read_slots(page), page.locator("#step-text").inner_text()) == before
        assert page.locator("textarea").nth(1).input_value() == HYPOTHESIS
        page.get_by_role("button", name="Copy link").click()
        expect(page.locator("#share-status")).not_to_be_empty()


def click_download(page, name):
    """Click a download button; return the name of the file and its content."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_json_and_svg_can_be_downloaded(open_page, address):
    with open_page(address) as page:
        run_model(page, PREMISE, HYPOTHESIS)
        name, content = click_download(page, "Download JSON")
        assert name == "nse-snli.json"
        expected = nse.load("snli").trace(PREMISE, HYPOTHESIS)
        assert MemoryTrace.from_json(content).to_json() == expected.to_json()
        name, content = click_download(page, "Download SVG")
        assert name == "nse-snli.svg"
        root = ElementTree.fromstring(content)
        words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert words[1:] == list(nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0].words)
        paths = list(root.iter("{http://www.w3.org/2000/svg}path"))
        assert len(paths) == 15
        assert {path.get("stroke") for path in paths} == {"rgb(138, 28, 59)"}  # colours of the page
        weights = sorted(nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0].memories[0].weights)
        widths = sorted(float(path.get("stroke-width").removesuffix("px")) for path in paths)
        assert widths == pytest.approx(
            [1.2 + 1.3 * weight for weight in weights], abs=0.01
        )  # the current step is not marked
        assert (
            root.find("{http://www.w3.org/2000/svg}title").text == "Word associations by the memory of snli"
        )
        assert page.locator("#graph .arc.now").count() == 1


def measure_brightness(page, selector="body", style="backgroundColor"):
    colour = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{style}")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_the_theme_follows_the_system_and_the_button(open_page, address):
    with open_page(address, color_scheme="dark") as page:
        run_model(page, PREMISE, HYPOTHESIS)
        assert measure_brightness(page) < 40 < 200 < measure_brightness(page, "#graph text", "fill")
        page.get_by_role("button", name="Dark mode").click()
        assert measure_brightness(page, "#graph text", "fill") < 60 < 200 < measure_brightness(page)
    with open_page(address, color_scheme="light") as page:
        page.get_by_role("button", name="Dark mode").click()
        assert measure_brightness(page) < 40


@pytest.mark.parametrize("width", [320, 375])
def test_the_page_fits_a_phone(open_page, address, width):
    with open_page(address, viewport={"width": width, "height": 700}, has_touch=True) as page:
        run_model(page, SIXTY, HYPOTHESIS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = """[...document.querySelectorAll('button, textarea, input')].filter((each) => {
            const box = each.getBoundingClientRect();
            return box.width && (box.left < 0 || box.right > innerWidth) && !each.closest('.scroll');
        }).length"""
        assert page.evaluate(outside) == 0
        small = """[...document.querySelectorAll('#form button, #player button')]
            .filter((each) => each.getBoundingClientRect().height < 40).length"""
        assert page.evaluate(small) == 0  # large enough to touch
        for label in (".link", ".slider"):  # labels stay on one line
            lines = """(each) => {
                const words = document.createRange();
                words.selectNodeContents(each.firstChild);
                return words.getClientRects().length;
            }"""
            assert page.locator(label).evaluate(lines) == 1


def test_scripts_in_a_text_are_shown_as_text(open_page, address):
    nasty = "<script>alert(1)</script> <img src=x onerror=alert(2)> {{7*7}} \u202e"
    with open_page(address) as page:
        run_model(page, nasty, "a <b>bold</b> dog")
        assert page.locator("script").count() == 1
        assert page.locator("main img").count() == 0
        words = nse.load("snli").trace(nasty, "a").texts[0].words
        assert "script" in words
        inside = page.locator("#graph .node text").all_text_contents()
        assert {word for word in words if word.isprintable()} <= {*inside}


def test_sixty_words_do_not_overlap(open_page, address):
    with open_page(address) as page:
        run_model(page, SIXTY, HYPOTHESIS)
        words = len(nse.load("snli").trace(SIXTY, HYPOTHESIS).readings[0].words)
        assert words >= 60
        assert page.locator("#graph .node").count() == count_arcs(page) == words
        boxes = page.locator("#graph .node rect").evaluate_all(
            "n => n.map(r => [r.x.baseVal.value, r.width.baseVal.value])"
        )
        assert all(x + width < after for (x, width), (after, _) in pairwise(boxes))
        fits = """[...document.querySelectorAll('#graph .node')].every((each) =>
            each.querySelector('text').getComputedTextLength()
            <= each.querySelector('rect').width.baseVal.value)"""
        assert page.evaluate(fits)


def test_the_graph_scrolls_to_the_current_word(open_page, address):
    with open_page(address, viewport={"width": 375, "height": 700}) as page:
        run_model(page, SIXTY, HYPOTHESIS)
        assert page.locator("#graph").evaluate("each => each.scrollLeft") == 0
        page.get_by_role("button", name="Go to the start").click()
        before = page.evaluate("scrollY")
        for _ in range(30):
            page.get_by_role("button", name="Next word").click()
        seen = """(word) => {
            const at = word.getBoundingClientRect();
            const frame = word.closest('#graph').getBoundingClientRect();
            return at.left >= frame.left && at.right <= frame.right;
        }"""
        assert page.locator("#graph .node.from").evaluate(seen)
        assert page.evaluate("scrollY") == before


def test_errors_are_shown_with_what_to_do(open_page, address):
    with open_page(address, expected=["status of 413", "status of 400"]) as page:
        page.locator("textarea").nth(1).fill("")
        page.get_by_role("button", name="Run", exact=True).click()
        page.locator("#form").evaluate("form => { form.noValidate = true; }")
        page.get_by_role("button", name="Run", exact=True).click()
        assert page.get_by_role("alert").inner_text() == "Hypothesis is empty. Type at least one word."
        page.locator("textarea").nth(1).fill("x " * 4000)
        page.locator("textarea").nth(0).fill("y" * 70_000)
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text(re.compile(r"^Text 1 has .*: shorten it\.$"))
        run_model(page, PREMISE, HYPOTHESIS)
        assert not page.get_by_role("alert").is_visible()


def test_a_stopped_server_is_reported_and_the_last_results_stay(open_page, tmp_path):
    folder, gone = save_sentence_model(tmp_path / "mine"), ["ERR_CONNECTION_REFUSED"]
    with run_server(folder) as (url, server), open_page(url, expected=gone) as page:
        run_model(page, "a good film")
        server.terminate()
        server.wait(timeout=20)
        page.locator("textarea").fill("a bad film")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("alert").wait_for()
        assert page.get_by_role("alert").inner_text() == (
            "The server does not respond. Check that it is running, then press Run again. "
            "The results below are for the previous text."
        )
        assert read_slots(page)


def test_an_invalid_share_link_is_ignored(open_page, address):
    for fragment in ("#step=99&reading=7", "#text=a&text=b&step=-3&memory=x", "#%%%", "#text=only+one"):
        with open_page(f"{address}/{fragment}", expected=["status of 400"]) as page:
            page.locator("textarea").first.wait_for()
            expect(page.locator("#busy")).to_be_empty()


def test_only_the_last_of_two_requests_is_shown(open_page, address):
    with open_page(address) as page:
        page.locator("#examples button").first.wait_for()
        slow = []
        page.route("**/v1/trace", lambda route: route.continue_() if slow else slow.append(route))
        page.locator("#examples button").nth(0).click()
        expect(page.locator("#busy")).not_to_be_empty()
        page.locator("#examples button").nth(1).click()
        page.locator("#graph svg").wait_for()
        expect(page.locator("#busy")).to_be_empty()
        assert page.locator("#graph .node").nth(1).text_content() == "Three"
        assert "Three" in page.url
        assert not page.get_by_role("alert").is_visible()


def test_back_and_forward_restore_earlier_texts(open_page, address):
    with open_page(address) as page:
        run_model(page, "Two dogs play.", "They sleep.")
        page.keyboard.press("ArrowLeft")
        run_model(page, "A man sleeps.", "He runs.")
        page.go_back()
        expect(page.locator("#graph .node").nth(1)).to_have_text("Two")
        assert page.locator("textarea").first.input_value() == "Two dogs play."
        page.go_forward()
        expect(page.locator("#graph .node").nth(1)).to_have_text("A")
        page.goto(page.url + "&step=2")  # edited by hand
        expect(page.locator("#step-text")).to_contain_text("Step 2 of")


def test_the_skip_link_moves_the_focus_but_not_the_address(open_page, address):
    with open_page(address) as page:
        page.locator("#examples button").first.wait_for()
        page.locator("#skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("textarea").first).to_be_focused()
        run_model(page, "Two dogs play.", "They sleep.")
        before = page.url
        page.locator("#skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_be_focused()
        assert page.url == before


def test_running_by_keyboard_keeps_the_focus(open_page, address):
    with open_page(address) as page:
        page.locator("#examples button").first.wait_for()
        page.locator("#run").focus()
        page.keyboard.press("Enter")
        page.locator("#graph svg").wait_for()
        expect(page.locator("#run")).to_be_focused()


def test_a_long_word_does_not_widen_the_page(open_page, address):
    for width in (1200, 320):
        with open_page(address, viewport={"width": width, "height": 700}) as page:
            run_model(page, "x" * 5000, "y" * 300)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_right_to_left_words_keep_their_position(open_page, tmp_path):
    one = trace(own(["שלום", "dog", "עולם", "a‍b"], [1, 2, 1, 0]))
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    with open_page(f"file://{tmp_path}/report.html") as page:
        page.locator("#graph svg").wait_for()
        shown = "⁨עולם⁩ (⁨שלום⁩ dog)"
        assert read_slots(page)[1] == f"({shown})"
        assert page.locator("#graph .node text").all_text_contents()[3] == "a‍b"
        _, content = click_download(page, "Download JSON")
        assert json.loads(content) == one.as_dict()


def test_a_ranking_model_shows_question_and_candidates(open_page, tmp_path):
    with run_server(save_ranking_model(tmp_path / "mine")) as (url, _), open_page(url) as page:
        run_model(page, "who runs ?", "a dog runs .\n\nthe cat sleeps .")
        assert page.locator("#prediction li").count() == 2
        page.get_by_label("question, for candidate 2").check()
        assert page.locator("#graph .caption").text_content() == "memory of candidate 2"
        assert page.locator("#graph .arc.across").count() == 3
        link = page.url
        page.get_by_label("candidate 2", exact=True).last.check()  # the memory of the candidate, in the table
        assert len(read_slots(page)) == 4
    assert parse_qs(urlsplit(link).fragment)["text"] == ["who runs ?", "a dog runs .", "the cat sleeps ."]


def test_a_translator_and_a_document_model_show_all_readings(open_page, tmp_path):
    with run_server(save_translator(tmp_path / "mine", directions=2)) as (url, _), open_page(url) as page:
        run_model(page, "the dog runs .")
        assert page.locator("#prediction .translation").count() == 1
        page.get_by_label("translation", exact=True).check()
        assert page.locator("#graph .caption").count() == 2
    with run_server(save_document_model(tmp_path / "documents")) as (url, _), open_page(url) as page:
        run_model(page, "A good film. The cat sleeps, the dog runs.")
        assert [label.strip() for label in page.locator("#readings label").all_inner_texts()] == [
            "sentence 1",
            "sentence 2",
            "document",
        ]


TRACES = [
    random_trace(5),
    random_trace(40, slots=11),
    trace(own(NASTY)),
    trace(shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1])),
]


@pytest.mark.parametrize("one", TRACES)
def test_the_page_draws_the_graph_as_python_lays_it_out(open_page, tmp_path, one):
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    panels = one.as_dict()["readings"][0]["graph"]
    with open_page(f"file://{tmp_path}/report.html") as page:
        page.locator("#graph svg").wait_for()

        def attributes(shape, name):
            return page.locator(f"#graph {shape}").evaluate_all(
                f"all => all.map(one => one.getAttribute('{name}'))"
            )

        arcs = [arc for panel in panels for arc in panel["arcs"]]
        assert attributes(".arc path", "d") == [arc["path"] for arc in arcs]
        assert attributes(".arc polygon", "points") == [arc["head"] for arc in arcs]
        rows = [row for panel in panels for row in panel["rows"]]
        assert attributes(".node text", "x") == [f"{x:g}" for row in rows for x in row["x"]]
        assert page.locator("#graph .node text").all_text_contents() == [
            w for row in rows for w in row["words"]
        ]
        width = float(page.locator("#graph svg").get_attribute("width"))
        assert width == pytest.approx(max(panel["width"] for panel in panels))


def test_a_page_file_works_offline(open_page, tmp_path):
    one = trace(own([*NASTY, "</script>"]), shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1]))
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    requests = []
    with open_page("about:blank", offline=True) as page:
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"file://{tmp_path}/report.html")
        page.locator("#graph svg").wait_for()
        assert not page.locator("#form").is_visible()
        page.keyboard.press("ArrowLeft")
        assert count_arcs(page) == len(NASTY)
        page.get_by_label("hypothesis", exact=True).first.check()
        assert page.locator("#graph .arc").count() == 4
        _, content = click_download(page, "Download JSON")
        assert json.loads(content) == one.as_dict()
        link = page.url
    assert [url for url in requests if not url.startswith(("file://", "blob:", "data:"))] == []
    with open_page(link) as page:
        page.locator("#graph svg").wait_for()
        assert page.get_by_label("hypothesis", exact=True).first.is_checked()


def test_the_page_loads_under_100_kb_from_its_server_only(open_page, address):
    sizes = {}
    with open_page("about:blank") as page:
        page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
        page.goto(address)
        expect(page.locator("textarea").first).not_to_be_empty()
    assert len(sizes) >= len(report.FILES)
    assert all(url.startswith((address, "data:")) for url in sizes)
    assert sum(sizes.values()) < 100_000
