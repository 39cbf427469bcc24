"""The memory step by step (appendix A of the paper): a table for each word, the slot just written marked."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from nse.viz.drawing import ACCENT, LINE, printable
from nse.viz.trace import Access, MemoryTrace, Reading

WRITTEN = "#f3dbe2"
"""Behind the slot that was just written; the paper has a light red."""


class Step(NamedTuple):
    """The memory after a step.

    Attributes:
        t: Which step; 0 is before the first.
        word: What was read; nothing before the first.
        slots: What every slot holds.
        written: Which of them was just written; `None` before the first.
        weight: How much of it.
        itself: How much the word's own slot was read, where that was more.
    """

    t: int
    word: str
    slots: list[str]
    written: int | None = None
    weight: float = 0.0
    itself: float | None = None

    @property
    def heading(self) -> str:
        """The line above the slots."""
        return f"input: {self.word}"

    @property
    def note(self) -> str:
        """How sure the step was, in a line."""
        if self.written is None:
            return "before the first word"
        told = f"z = {self.weight:.2f}"
        return told if self.itself is None else f"{told}, own slot {self.itself:.2f}"


def steps(reading: Reading, memory: Access) -> Iterator[Step]:
    """The memory before the first step and after each."""
    states = reading.states(memory)
    yield Step(0, "", next(states))
    for t, slots in enumerate(states):
        written, best = memory.composed[t], memory.read[t]
        itself = None if best == written else float(memory.keys[t, best])
        yield Step(t + 1, reading.words[t], slots, written, memory.weights[t], itself)


def terminal(trace: MemoryTrace) -> RenderableType:
    """The tables of all readings, for `rich.print`."""
    found: list[RenderableType] = []
    for reading in trace.readings:
        for memory in reading.memories:
            tables = [_terminal_table(step) for step in steps(reading, memory)]
            found += [Text(f"\n{reading.title(memory)}", style="bold"), Columns(tables, padding=(0, 1))]
    return Group(*found)


def _terminal_table(step: Step) -> Table:
    shown = Table(caption=step.note, header_style="italic")
    shown.add_column(Text(printable(f"t={step.t} {step.heading}")))
    for number, slot in enumerate(step.slots):
        style = Style(reverse=True, bold=True) if number == step.written else Style()
        shown.add_row(Text(printable(slot)), style=style)
    return shown


def html(trace: MemoryTrace) -> str:
    """The tables of all readings, as a piece of HTML that brings its own looks."""
    found = []
    for reading in trace.readings:
        for memory in reading.memories:
            tables = "".join(_html_table(step) for step in steps(reading, memory))
            flow = '<div style="display:flex;flex-wrap:wrap;gap:8px;align-items:flex-start">'
            found.append(f"<h4>{escape(printable(reading.title(memory)))}</h4>{flow}{tables}</div>")
    return "".join(found)


def _html_table(step: Step) -> str:
    cell = f"text-align:left;padding:1px 6px;border:1px solid {LINE}"
    rows = []
    for number, slot in enumerate(step.slots):
        mark = f";background:{WRITTEN};color:{ACCENT}" if number == step.written else ""
        rows.append(f'<tr><td style="{cell}{mark}">{escape(printable(slot))}</td></tr>')
    head = f"t={step.t} {escape(printable(step.heading))}"
    return (
        f'<table style="border-collapse:collapse;font-size:12px"><caption style="caption-side:bottom">'
        f'{escape(step.note)}</caption><thead><tr><th style="{cell}">{head}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def latex(trace: MemoryTrace) -> str:
    """The tables of all readings, as a LaTeX document that compiles by itself.

    Take the tables out of it for a paper of your own: they need the package xcolor with its option table.
    """
    found = [
        r"\documentclass[a4paper,landscape]{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage[margin=12mm]{geometry}",
        r"\usepackage[table]{xcolor}",
        rf"\definecolor{{written}}{{HTML}}{{{WRITTEN[1:].upper()}}}",
        r"\setlength{\parindent}{0pt}",
        r"\begin{document}",
    ]
    for reading in trace.readings:
        for memory in reading.memories:
            found += [rf"\section*{{{of_latex(reading.title(memory))}}}", r"\raggedright\tiny"]
            found += [_latex_table(step) for step in steps(reading, memory)]
            found += [r"\par\normalsize"]
    return "\n".join([*found, r"\end{document}", ""])


def _latex_table(step: Step) -> str:
    rows = []
    for number, slot in enumerate(step.slots):
        mark = r"\cellcolor{written}" if number == step.written else ""
        rows.append(
            rf"{{}}{mark}{of_latex(slot)} \\"
        )  # {}: or a [ would belong to the end of the line before
    head = rf"\textit{{t={step.t}}} \\ \textit{{{of_latex(step.heading)}}} \\ \hline"
    return "\n".join(
        [r"\begin{tabular}[t]{|p{28mm}|}", r"\hline", head, *rows, r"\hline", r"\end{tabular}\hspace{2mm}"]
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",  # two of them are no dash
    "'": "'{}",
    "…": r"\ldots{}",
}


def of_latex(text: str) -> str:
    """A text as LaTeX prints it; a letter that its standard fonts lack, by its number."""
    return "".join(_LATEX.get(letter) or _letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if " " <= letter <= "~" or (
        letter.isalpha() and "\u00c0" <= letter <= "\u017f" and letter not in "ĸŉſĿŀħĦŧŦ"
    ):
        return letter
    return rf"\texttt{{U+{ord(letter):04X}}}"
