"""The memory step by step: in a terminal, as HTML and as LaTeX."""

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from nse.viz import notebook, tables
from viz.made_traces import NASTY, PAPER, PAPER_ARCS, own, random_trace, shared, trace


def print_wide(tables, width=300):
    console = Console(file=io.StringIO(), width=width, color_system="truecolor", force_terminal=True)
    console.print(tables)
    return console.file.getvalue()


def strip_colours(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_the_tables_are_those_of_the_paper():
    reading = own(PAPER, PAPER_ARCS)
    steps = list(tables.list_steps(reading, reading.memories[0]))
    assert len(steps) == 15
    assert steps[0].written is None
    assert steps[0].note == "before the first word"
    assert (steps[4].t, steps[4].heading, steps[4].written) == (4, "input: child", 5)
    assert steps[4].slots[5] == "(child (little quietly))"
    assert steps[4].note == "z = 0.60"


def test_a_step_that_read_its_own_slot_most_has_a_note():
    reading = own(["a", "b"], z=np.array([[0.9, 0.1], [0.9, 0.1]]))
    first, second = list(tables.list_steps(reading, reading.memories[0]))[1:]
    assert first.note == "z = 0.10, own slot 0.90"
    assert second.note == "z = 0.90"


def test_a_terminal_marks_the_written_slot():
    text = print_wide(tables.render_terminal(trace(own(["little", "child"], [1, 0]))))
    assert "t=1 input: little" in strip_colours(text)
    [line] = [line for line in text.split("\n") if "(little child)" in line][:1]
    marked = re.findall(r"\x1b\[[\d;]*7m([^\x1b]*)", line)  # 7: reverse
    assert any("(little child)" in each for each in marked)


def test_markup_and_escapes_in_words_are_not_interpreted_by_a_terminal():
    text = print_wide(tables.render_terminal(trace(own(["[red]x[/red]", "a\x1b[2Jb", "\u202e"]))))
    assert "\x1b[2J" not in text
    assert "[red]x[/red]" in strip_colours(text)
    assert "\u202e" not in text


class Cells(HTMLParser):
    """Collects texts, and fails on scripts and event handlers."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "img", "iframe")
        assert not any(name.startswith("on") for name, _ in attributes)

    def handle_data(self, data):
        self.texts.append(data)


def test_html_escapes_the_words():
    parser = Cells()
    parser.feed(tables.render_html(trace(own(NASTY), shared(["a"], ["b", "c"], [0], [1]))))
    assert "<script>alert(1)</script>" in parser.texts
    assert "hypothesis, memory of premise" in parser.texts
    assert "(a c)" in parser.texts


def test_a_notebook_shows_prediction_and_pictures():
    one = trace(own(["a", "b"]))
    shown = one._repr_html_()
    assert shown == notebook.render_html(one)
    assert shown.count("<svg") == 2
    assert "yes 75.0%, no 25.0%" in shown
    parser = Cells()
    parser.feed(trace(own(NASTY))._repr_html_())
    assert "<script>alert(1)</scrip…" in parser.texts


def test_a_notebook_leaves_out_very_long_tables():
    assert len(random_trace(250)._repr_html_()) < 12_000_000 / 2
    assert "Too long for a notebook" in random_trace(250)._repr_html_()


def test_a_ranking_and_a_translation_are_written_in_one_line():
    ranking = [{"rank": 1, "number": 2, "text": "b", "score": -0.5, "probability": 0.4}]
    assert notebook.format_prediction(trace(own(["a"]), prediction={"ranking": ranking})) == "1. b (-0.50)"
    translation = {"translation": "ein hund", "words": ["ein", "hund"]}
    assert notebook.format_prediction(trace(own(["a", "b"]), prediction=translation)) == "ein hund"


def test_latex_commands_in_words_are_escaped():
    assert tables.escape_latex(r"\x{y}$&#_%~^") == (
        r"\textbackslash{}x\{y\}\$\&\#\_\%\textasciitilde{}\textasciicircum{}"
    )
    assert tables.escape_latex("é--中") == r"é-{}-{}\texttt{U+4E2D}"


def test_latex_marks_the_written_slot():
    text = tables.render_latex(trace(own(["little", "child"], [1, 0])))
    assert r"\cellcolor{written}(little child) \\" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("words", [PAPER, [*NASTY, *"`'\"|<>~…ßøłœ†€\t"], [f"w{n}" for n in range(60)]])
def test_latex_compiles(words, tmp_path):
    (tmp_path / "memory.tex").write_text(tables.render_latex(trace(own(words))), "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "memory.tex"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=200)
    assert answer.returncode == 0, answer.stdout[-2000:].decode("utf-8", "replace")
    assert (tmp_path / "memory.pdf").stat().st_size > 1000
