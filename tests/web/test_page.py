"""The page as a person uses it: type, read, walk, point, share, take along."""

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
from serve.running import running
from small_models import document_model, ranking_model, sentence_model, translator
from viz.made_traces import NASTY, own, random_trace, shared, trace

expect = pytest.importorskip("playwright.sync_api").expect

PREMISE = "A little child sits quietly on a hand built rock wall in autumn."
HYPOTHESIS = "A child is sitting outdoors."
SIXTY = " ".join(["Two dogs play in the cold snow near a red house ,"] * 5) + " and a man sleeps ."


def read(page, *texts):
    """Type texts and read them."""
    for number, text in enumerate(texts):
        page.locator("textarea").nth(number).fill(text)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#busy")).to_be_empty()
    page.locator("#graph svg").wait_for()


def shown(page):
    """Steps whose arcs are drawn."""
    return page.locator("#graph .arc:not(.later)").count()


def holds(page):
    """What the slots hold, as the table shows them."""
    return page.locator("#slots tbody td:nth-child(2)").all_inner_texts()


def test_type_and_predict(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        [row] = nse.load("snli").predict([(PREMISE, HYPOTHESIS)])
        first = page.locator("#prediction dt").first.inner_text()
        assert first == row["label"]
        shares = page.locator("#prediction dd:not(:has(.bar))").all_inner_texts()
        assert shares == [
            f"{100 * each:.1f}%" for each in sorted(row["probabilities"].values(), reverse=True)
        ]
        found = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0]
        assert shown(page) == len(found.words)
        assert holds(page) == found.final(found.memories[0])
        page.get_by_label("hypothesis", exact=True).check()
        assert shown(page) == len(HYPOTHESIS.split()) + 2  # a start word and a period


def test_it_starts_with_an_example_and_has_more_to_click(opened, address):
    with opened(address) as page:
        expect(page.locator("textarea").first).not_to_be_empty()
        page.locator("#examples button").nth(2).click()
        page.locator("#graph svg").wait_for()
        assert page.locator("textarea").first.input_value() == "Two dogs play in the snow."


def test_arrow_keys_walk(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        found = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0]
        states = list(found.states(found.memories[0]))
        page.get_by_role("button", name="Before the first word").click()
        assert (shown(page), holds(page)) == (0, states[0])
        for t in (1, 2, 3):
            page.keyboard.press("ArrowRight")
            assert (shown(page), holds(page)) == (t, states[t])
            assert page.locator("#now").inner_text().startswith(f"Step {t} of 15: “{found.words[t - 1]}”")
            assert (
                page.locator("#slots tr.written td:nth-child(2)").inner_text()
                == states[t][found.memories[0].composed[t - 1]]
            )
        page.keyboard.press("ArrowLeft")
        assert (shown(page), holds(page)) == (2, states[2])
        slider = page.get_by_role("slider", name="Step")
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert shown(page) == 3
        assert slider.get_attribute("aria-valuetext") == page.locator("#now").inner_text()
        page.keyboard.press("End")
        assert shown(page) == 15
        page.locator("textarea").first.focus()
        page.keyboard.press("ArrowLeft")  # moves the cursor in the text, and nothing else
        assert shown(page) == 15


def test_play_and_pause(opened, address):
    with opened(address) as page:
        page.clock.install()
        read(page, PREMISE, HYPOTHESIS)
        page.get_by_role("button", name="Play", exact=True).click()
        assert shown(page) == 0  # from the start again
        page.clock.run_for(2000)
        assert shown(page) == 2
        page.get_by_role("button", name="Pause").click()
        page.clock.run_for(5000)
        assert shown(page) == 2
        page.get_by_role("button", name="Play", exact=True).click()
        page.clock.run_for(30_000)
        assert shown(page) == 15
        assert page.get_by_role("button", name="Play", exact=True).is_visible()  # it stopped by itself


def test_pointing_at_a_word_shows_its_arcs_alone(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        found = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0].memories[0]
        seen = """[...document.querySelectorAll('#graph .arc')]
            .filter((each) => getComputedStyle(each).visibility === 'visible').length"""
        assert page.evaluate(seen) == 15
        place = found.slots.index("autumn")
        touching = sum(place in (source, target) for source, target in enumerate(found.composed))
        word = page.locator("#graph .node", has_text=re.compile("^autumn$"))
        word.hover()
        assert page.evaluate(seen) == touching
        page.mouse.move(0, 0)
        assert page.evaluate(seen) == 15
        word.focus()  # a keyboard does the same
        assert page.evaluate(seen) == touching


def test_a_slot_has_a_history(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        reading = nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0]
        memory = reading.memories[0]
        slot = memory.slots.index("autumn")
        steps = [t for t, place in enumerate(memory.composed) if place == slot]
        page.locator("#graph .node", has_text=re.compile("^autumn$")).click()
        told = page.locator("#history li").all_inner_texts()
        assert told[0] == "At first: autumn"
        assert [line.split(": ", 1)[1] for line in told[1:]] == [
            reading.compositions(memory)[t] for t in steps
        ]
        page.keyboard.press("Escape")
        assert not page.locator("#history").is_visible()
        opener = page.locator("#slots button", has_text=re.compile("^autumn$"))
        opener.press("Enter")
        assert page.locator("#history li").all_inner_texts() == told
        page.get_by_role("button", name="Close the history").click()
        assert not page.locator("#history").is_visible()
        expect(opener).to_be_focused()


def test_a_link_brings_the_state_back(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        page.get_by_label("hypothesis", exact=True).check()
        for _ in range(3):
            page.get_by_role("button", name="One word back").click()
        link = page.locator("#link").input_value()
        assert link == page.url
        before = (holds(page), page.locator("#now").inner_text())
        assert parse_qs(urlsplit(link).fragment)["text"] == [PREMISE, HYPOTHESIS]
    with opened(link) as page:
        page.locator("#graph svg").wait_for()
        assert (holds(page), page.locator("#now").inner_text()) == before
        assert page.locator("textarea").nth(1).input_value() == HYPOTHESIS
        page.get_by_role("button", name="Copy the link").click()
        expect(page.locator("#done")).not_to_be_empty()


def downloaded(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_downloads(opened, address):
    with opened(address) as page:
        read(page, PREMISE, HYPOTHESIS)
        name, content = downloaded(page, "Download JSON")
        assert name == "nse-snli.json"
        found = nse.load("snli").trace(PREMISE, HYPOTHESIS)
        assert MemoryTrace.from_json(content).to_json() == found.to_json()
        name, content = downloaded(page, "Download SVG")
        assert name == "nse-snli.svg"
        root = ElementTree.fromstring(content)
        words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        assert words[1:] == list(nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0].words)
        paths = list(root.iter("{http://www.w3.org/2000/svg}path"))
        assert len(paths) == 15
        assert {each.get("stroke") for each in paths} == {"rgb(138, 28, 59)"}  # it brings its colours along
        weights = sorted(nse.load("snli").trace(PREMISE, HYPOTHESIS).readings[0].memories[0].weights)
        thick = sorted(float(each.get("stroke-width").removesuffix("px")) for each in paths)
        assert thick == pytest.approx([1.2 + 1.3 * each for each in weights], abs=0.01)  # the last no more
        assert (
            root.find("{http://www.w3.org/2000/svg}title").text == "Word associations by the memory of snli"
        )
        assert page.locator("#graph .arc.now").count() == 1


def brightness(page, selector="body", what="backgroundColor"):
    colour = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{what}")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_light_and_dark(opened, address):
    with opened(address, color_scheme="dark") as page:
        read(page, PREMISE, HYPOTHESIS)
        assert brightness(page) < 40 < 200 < brightness(page, "#graph text", "fill")
        page.get_by_role("button", name="Dark").click()
        assert brightness(page, "#graph text", "fill") < 60 < 200 < brightness(page)
    with opened(address, color_scheme="light") as page:
        page.get_by_role("button", name="Dark").click()
        assert brightness(page) < 40


@pytest.mark.parametrize("width", [320, 375])
def test_phone_width(opened, address, width):
    with opened(address, viewport={"width": width, "height": 700}, has_touch=True) as page:
        read(page, SIXTY, HYPOTHESIS)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = """[...document.querySelectorAll('button, textarea, input')].filter((each) => {
            const box = each.getBoundingClientRect();
            return box.width && (box.left < 0 || box.right > innerWidth) && !each.closest('.scroll');
        }).length"""
        assert page.evaluate(outside) == 0
        small = """[...document.querySelectorAll('#ask button, #player button')]
            .filter((each) => each.getBoundingClientRect().height < 40).length"""
        assert page.evaluate(small) == 0  # a finger meets them
        for label in (".link", ".slider"):  # their words stay on one line
            lines = """(each) => {
                const words = document.createRange();
                words.selectNodeContents(each.firstChild);
                return words.getClientRects().length;
            }"""
            assert page.locator(label).evaluate(lines) == 1


def test_a_script_in_a_text_is_a_text(opened, address):
    nasty = "<script>alert(1)</script> <img src=x onerror=alert(2)> {{7*7}} \u202e"
    with opened(address) as page:
        read(page, nasty, "a <b>bold</b> dog")
        assert page.locator("script").count() == 1
        assert page.locator("main img").count() == 0
        words = nse.load("snli").trace(nasty, "a").texts[0].words
        assert "script" in words
        inside = page.locator("#graph .node text").all_text_contents()
        assert {word for word in words if word.isprintable()} <= {*inside}


def test_sixty_words(opened, address):
    with opened(address) as page:
        read(page, SIXTY, HYPOTHESIS)
        words = len(nse.load("snli").trace(SIXTY, HYPOTHESIS).readings[0].words)
        assert words >= 60
        assert page.locator("#graph .node").count() == shown(page) == words
        boxes = page.locator("#graph .node rect").evaluate_all(
            "n => n.map(r => [r.x.baseVal.value, r.width.baseVal.value])"
        )
        assert all(x + width < after for (x, width), (after, _) in pairwise(boxes))
        fits = """[...document.querySelectorAll('#graph .node')].every((each) =>
            each.querySelector('text').getComputedTextLength()
            <= each.querySelector('rect').width.baseVal.value)"""
        assert page.evaluate(fits)


def test_the_word_that_is_read_is_in_sight(opened, address):
    with opened(address, viewport={"width": 375, "height": 700}) as page:
        read(page, SIXTY, HYPOTHESIS)
        assert page.locator("#graph").evaluate("each => each.scrollLeft") == 0
        page.get_by_role("button", name="Before the first word").click()
        before = page.evaluate("scrollY")
        for _ in range(30):
            page.get_by_role("button", name="One word on").click()
        seen = """(word) => {
            const at = word.getBoundingClientRect();
            const frame = word.closest('#graph').getBoundingClientRect();
            return at.left >= frame.left && at.right <= frame.right;
        }"""
        assert page.locator("#graph .node.from").evaluate(seen)
        assert page.evaluate("scrollY") == before


def test_errors_say_what_to_do(opened, address):
    with opened(address, expected=["status of 413", "status of 400"]) as page:
        page.locator("textarea").nth(1).fill("")
        page.get_by_role("button", name="Read", exact=True).click()
        page.locator("#ask").evaluate("form => { form.noValidate = true; }")
        page.get_by_role("button", name="Read", exact=True).click()
        assert page.get_by_role("alert").inner_text() == "Hypothesis is empty: type at least one word."
        page.locator("textarea").nth(1).fill("x " * 4000)
        page.locator("textarea").nth(0).fill("y" * 70_000)
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("shorten it")
        read(page, PREMISE, HYPOTHESIS)
        assert not page.get_by_role("alert").is_visible()


def test_the_server_is_gone(opened, tmp_path):
    folder, gone = sentence_model(tmp_path / "mine"), ["ERR_CONNECTION_REFUSED"]
    with running(folder) as (found, server), opened(found, expected=gone) as page:
        read(page, "a good film")
        server.terminate()
        server.wait(timeout=20)
        page.locator("textarea").fill("a bad film")
        page.get_by_role("button", name="Read", exact=True).click()
        page.get_by_role("alert").wait_for()
        told = page.get_by_role("alert").inner_text()
        assert told.startswith("The server does not answer. Start it again, then press Read.")
        assert told.endswith("What is shown below is of the text before.")
        assert holds(page)  # what was read is still there


def test_a_link_that_means_nothing_does_no_harm(opened, address):
    for told in ("#step=99&reading=7", "#text=a&text=b&step=-3&memory=x", "#%%%", "#text=only+one"):
        with opened(f"{address}/{told}", expected=["status of 400"]) as page:
            page.locator("textarea").first.wait_for()
            expect(page.locator("#busy")).to_be_empty()


def test_the_last_question_counts(opened, address):
    with opened(address) as page:
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


def test_back_and_forward(opened, address):
    with opened(address) as page:
        read(page, "Two dogs play.", "They sleep.")
        page.keyboard.press("ArrowLeft")
        read(page, "A man sleeps.", "He runs.")
        page.go_back()
        expect(page.locator("#graph .node").nth(1)).to_have_text("Two")
        assert page.locator("textarea").first.input_value() == "Two dogs play."
        page.go_forward()
        expect(page.locator("#graph .node").nth(1)).to_have_text("A")
        page.goto(page.url + "&step=2")  # edited by hand
        expect(page.locator("#now")).to_contain_text("Step 2 of")


def test_a_link_to_the_answer_leaves_the_address_alone(opened, address):
    with opened(address) as page:
        page.locator("#examples button").first.wait_for()
        page.locator("#skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("textarea").first).to_be_focused()
        read(page, "Two dogs play.", "They sleep.")
        before = page.url
        page.locator("#skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_be_focused()
        assert page.url == before


def test_reading_by_keyboard_keeps_the_focus(opened, address):
    with opened(address) as page:
        page.locator("#examples button").first.wait_for()
        page.locator("#read").focus()
        page.keyboard.press("Enter")
        page.locator("#graph svg").wait_for()
        expect(page.locator("#read")).to_be_focused()


def test_an_endless_word_does_not_make_an_endless_page(opened, address):
    for width in (1200, 320):
        with opened(address, viewport={"width": width, "height": 700}) as page:
            read(page, "x" * 5000, "y" * 300)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_words_from_right_to_left_keep_their_place(opened, tmp_path):
    one = trace(own(["שלום", "dog", "עולם", "a‍b"], [1, 2, 1, 0]))
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    with opened(f"file://{tmp_path}/report.html") as page:
        page.locator("#graph svg").wait_for()
        shown = "⁨עולם⁩ (⁨שלום⁩ dog)"
        assert holds(page)[1] == f"({shown})"
        assert page.locator("#graph .node text").all_text_contents()[3] == "a‍b"
        _, content = downloaded(page, "Download JSON")
        assert json.loads(content) == one.as_dict()


def test_a_question_with_candidates(opened, tmp_path):
    with running(ranking_model(tmp_path / "mine")) as (found, _), opened(found) as page:
        read(page, "who runs ?", "a dog runs .\n\nthe cat sleeps .")
        assert page.locator("#prediction li").count() == 2
        page.get_by_label("question, for candidate 2").check()
        assert page.locator("#graph .caption").text_content() == "memory of candidate 2"
        assert page.locator("#graph .arc.across").count() == 3
        link = page.url
        page.get_by_label("candidate 2", exact=True).last.check()  # the memory of the candidate, in the table
        assert len(holds(page)) == 4
    assert parse_qs(urlsplit(link).fragment)["text"] == ["who runs ?", "a dog runs .", "the cat sleeps ."]


def test_a_translation_and_a_document(opened, tmp_path):
    with running(translator(tmp_path / "mine", directions=2)) as (found, _), opened(found) as page:
        read(page, "the dog runs .")
        assert page.locator("#prediction .translation").count() == 1
        page.get_by_label("translation", exact=True).check()
        assert page.locator("#graph .caption").count() == 2
    with running(document_model(tmp_path / "documents")) as (found, _), opened(found) as page:
        read(page, "A good film. The cat sleeps, the dog runs.")
        assert [each.strip() for each in page.locator("#readings label").all_inner_texts()] == [
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
def test_the_page_draws_the_graph_as_python_lays_it_out(opened, tmp_path, one):
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    panels = one.as_dict()["readings"][0]["graph"]
    with opened(f"file://{tmp_path}/report.html") as page:
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


def test_a_report_works_from_disk_and_offline(opened, tmp_path):
    one = trace(own([*NASTY, "</script>"]), shared(["kid", "sits"], ["a", "little", "child"], [1, 0], [2, 1]))
    (tmp_path / "report.html").write_text(report.render_html(one), "utf-8")
    requests = []
    with opened("about:blank", offline=True) as page:
        page.on("request", lambda each: requests.append(each.url))
        page.goto(f"file://{tmp_path}/report.html")
        page.locator("#graph svg").wait_for()
        assert not page.locator("#ask").is_visible()
        page.keyboard.press("ArrowLeft")
        assert shown(page) == len(NASTY)
        page.get_by_label("hypothesis", exact=True).first.check()
        assert page.locator("#graph .arc").count() == 4
        _, content = downloaded(page, "Download JSON")
        assert json.loads(content) == one.as_dict()
        link = page.url
    assert [url for url in requests if not url.startswith(("file://", "blob:", "data:"))] == []
    with opened(link) as page:
        page.locator("#graph svg").wait_for()
        assert page.get_by_label("hypothesis", exact=True).first.is_checked()


def test_the_whole_page_is_under_a_hundred_kilobytes(opened, address):
    sizes = {}
    with opened("about:blank") as page:
        page.on("response", lambda each: sizes.update({each.url: len(each.body())}))
        page.goto(address)
        expect(page.locator("textarea").first).not_to_be_empty()
    assert len(sizes) >= len(report.FILES)
    assert all(url.startswith((address, "data:")) for url in sizes)
    assert sum(sizes.values()) < 100_000
