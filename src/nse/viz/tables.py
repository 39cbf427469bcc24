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
    """The memory after a step."""

    t: int  # 0 is before the first
    heading: str  # the line above the slots
    slots: list[str]  # what each holds
    written: int | None = None  # which of them was just written
    note: str = "before the first word"  # how sure the step was, in a line


def steps(reading: Reading, memory: Access) -> Iterator[Step]:
    """Give the memory before the first step and after each."""
    states = reading.states(memory)
    yield Step(0, "input: ", next(states))
    for t, slots in enumerate(states):
        written, best = memory.composed[t], memory.read[t]
        itself = "" if best == written else f", own slot {memory.keys[t, best]:.2f}"
        note = f"z = {memory.weights[t]:.2f}{itself}"
        yield Step(t + 1, f"input: {reading.words[t]}", slots, written, note)


def terminal(trace: MemoryTrace) -> RenderableType:
    """Make the tables of all readings, for `rich.print`."""
    found: list[RenderableType] = []
    for reading, memory in trace.accesses():
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
    """Write the tables of all readings, as a piece of HTML that brings its own looks."""
    found, flow = [], '<div style="display:flex;flex-wrap:wrap;gap:8px;align-items:flex-start">'
    for reading, memory in trace.accesses():
        tables = "".join(_html_table(step) for step in steps(reading, memory))
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
    """Write the tables of all readings, as a LaTeX document that compiles by itself.

    Take the tables out of it for a paper of your own: they need the package xcolor with its option table.
    """
    packages = "[T1]{fontenc}", "[utf8]{inputenc}", "[margin=12mm]{geometry}", "[table]{xcolor}"
    found = [
        r"\documentclass[a4paper,landscape]{article}",
        *(rf"\usepackage{package}" for package in packages),
        rf"\definecolor{{written}}{{HTML}}{{{WRITTEN[1:].upper()}}}",
        r"\setlength{\parindent}{0pt}",
        r"\begin{document}",
    ]
    for reading, memory in trace.accesses():
        found += [rf"\section*{{{of_latex(reading.title(memory))}}}", r"\raggedright\tiny"]
        found += [*map(_latex_table, steps(reading, memory)), r"\par\normalsize"]
    return "\n".join([*found, r"\end{document}", ""])


def _latex_table(step: Step) -> str:
    rows = []
    for number, slot in enumerate(step.slots):
        mark = r"\cellcolor{written}" if number == step.written else ""
        rows.append(rf"{{}}{mark}{of_latex(slot)} \\")  # {}: or a [ would belong to the line before
    head = rf"\textit{{t={step.t}}} \\ \textit{{{of_latex(step.heading)}}} \\ \hline"
    begin, end = r"\begin{tabular}[t]{|p{28mm}|}", r"\end{tabular}\hspace{2mm}"
    return "\n".join([begin, r"\hline", head, *rows, r"\hline", end])


_NAMES = ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar", "quotedbl", "asciigrave")
_LATEX = {letter: rf"\text{name}{{}}" for letter, name in zip('\\~^<>|"`', _NAMES, strict=True)}
_LATEX |= {letter: rf"\{letter}" for letter in "{}$&#_%"}
_LATEX |= {"-": "-{}", "'": "'{}", "…": r"\ldots{}"}  # two - are no dash


def of_latex(text: str) -> str:
    """Write a text as LaTeX prints it; a letter that its standard fonts lack, by its number."""
    return "".join(_LATEX.get(letter) or _letter(letter) for letter in text)


def _letter(letter: str) -> str:
    is_western = letter.isalpha() and "\u00c0" <= letter <= "\u017f" and letter not in "ĸŉſĿŀħĦŧŦ"
    return letter if " " <= letter <= "~" or is_western else rf"\texttt{{U+{ord(letter):04X}}}"
