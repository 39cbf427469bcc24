"""The memory step by step: for a terminal, as HTML and as LaTeX that compiles."""

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


def printed(what, width=300):
    console = Console(file=io.StringIO(), width=width, color_system="truecolor", force_terminal=True)
    console.print(what)
    return console.file.getvalue()


def plain(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_steps_are_the_papers_tables():
    reading = own(PAPER, PAPER_ARCS)
    found = list(tables.steps(reading, reading.memories[0]))
    assert len(found) == 15
    assert found[0].written is None
    assert found[0].note == "before the first word"
    assert (found[4].t, found[4].heading, found[4].written) == (4, "input: child", 5)
    assert found[4].slots[5] == "(child (little quietly))"
    assert found[4].note == "z = 0.60"


def test_a_step_that_read_itself_says_so():
    reading = own(["a", "b"], z=np.array([[0.9, 0.1], [0.9, 0.1]]))
    first, second = list(tables.steps(reading, reading.memories[0]))[1:]
    assert first.note == "z = 0.10, own slot 0.90"
    assert second.note == "z = 0.90"


def test_the_terminal_marks_the_slot_just_written():
    text = printed(tables.terminal(trace(own(["little", "child"], [1, 0]))))
    assert "t=1 input: little" in plain(text)
    [line] = [line for line in text.split("\n") if "(little child)" in line][:1]
    marked = re.findall(r"\x1b\[[\d;]*7m([^\x1b]*)", line)  # 7: reverse
    assert any("(little child)" in each for each in marked)


def test_nothing_in_a_word_is_obeyed_by_a_terminal():
    text = printed(tables.terminal(trace(own(["[red]x[/red]", "a\x1b[2Jb", "\u202e"]))))
    assert "\x1b[2J" not in text
    assert "[red]x[/red]" in plain(text)
    assert "\u202e" not in text


class Cells(HTMLParser):
    """Collects texts, and refuses elements that nobody meant."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "img", "iframe")
        assert not any(name.startswith("on") for name, _ in attributes)

    def handle_data(self, data):
        self.found.append(data)


def test_html_has_every_slot_as_text():
    parser = Cells()
    parser.feed(tables.html(trace(own(NASTY), shared(["a"], ["b", "c"], [0], [1]))))
    assert "<script>alert(1)</script>" in parser.found
    assert "hypothesis, memory of premise" in parser.found
    assert "(a c)" in parser.found


def test_a_notebook_shows_it_all():
    one = trace(own(["a", "b"]))
    shown = one._repr_html_()
    assert shown == notebook.html(one)
    assert shown.count("<svg") == 2
    assert "yes 75.0%, no 25.0%" in shown
    parser = Cells()
    parser.feed(trace(own(NASTY))._repr_html_())
    assert "<script>alert(1)</scrip…" in parser.found


def test_a_notebook_is_spared_endless_tables():
    assert len(random_trace(250)._repr_html_()) < 12_000_000 / 2
    assert "Too long to show" in random_trace(250)._repr_html_()


def test_what_a_model_says_in_a_line():
    ranking = [{"rank": 1, "number": 2, "text": "b", "score": -0.5, "probability": 0.4}]
    assert notebook.said(trace(own(["a", "b"]), prediction={"ranking": ranking})) == "1. b (-0.50)"
    said = {"translation": "ein hund", "words": ["ein", "hund"]}
    assert notebook.said(trace(own(["a", "b"]), prediction=said)) == "ein hund"


def test_latex_escapes_what_it_would_obey():
    assert tables.of_latex(r"\x{y}$&#_%~^") == (
        r"\textbackslash{}x\{y\}\$\&\#\_\%\textasciitilde{}\textasciicircum{}"
    )
    assert tables.of_latex("é--中") == r"é-{}-{}\texttt{U+4E2D}"


def test_latex_marks_the_slot_just_written():
    text = tables.latex(trace(own(["little", "child"], [1, 0])))
    assert r"\cellcolor{written}(little child) \\" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("words", [PAPER, [*NASTY, *"`'\"|<>~…ßøłœ†€\t"], [f"w{n}" for n in range(60)]])
def test_latex_compiles(words, tmp_path):
    (tmp_path / "memory.tex").write_text(tables.latex(trace(own(words))), "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "memory.tex"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=200)
    assert answer.returncode == 0, answer.stdout[-2000:].decode("utf-8", "replace")
    assert (tmp_path / "memory.pdf").stat().st_size > 1000
