"""The memory step by step (appendix A of the paper): a table for each word, with the written slot marked."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from nse.viz.drawing import ACCENT, LINE, make_printable
from nse.viz.trace import Access, MemoryTrace, Reading

WRITTEN = "#f3dbe2"
"""Background of the written slot, as in the paper."""


class MemoryStep(NamedTuple):
    """Memory after a step."""

    t: int  # 0 is before the first step
    heading: str
    slots: list[str]  # contents of each slot
    written: int | None = None  # slot that the step wrote
    note: str = "before the first word"


def list_steps(reading: Reading, memory: Access) -> Iterator[MemoryStep]:
    """Yield the memory before the first step and after each step."""
    states = reading.states(memory)
    yield MemoryStep(0, "input: ", next(states))
    for t, slots in enumerate(states):
        written, best = memory.composed[t], memory.read[t]
        own_slot = "" if best == written else f", own slot {memory.keys[t, best]:.2f}"
        note = f"z = {memory.weights[t]:.2f}{own_slot}"
        yield MemoryStep(t + 1, f"input: {reading.words[t]}", slots, written, note)


def render_terminal(trace: MemoryTrace) -> RenderableType:
    """Make the tables of all readings, for `rich.print`."""
    parts: list[RenderableType] = []
    for reading, memory in trace.accesses():
        tables = [_make_terminal_table(step) for step in list_steps(reading, memory)]
        parts += [Text(f"\n{reading.title(memory)}", style="bold"), Columns(tables, padding=(0, 1))]
    return Group(*parts)


def _make_terminal_table(step: MemoryStep) -> Table:
    table = Table(caption=step.note, header_style="italic")
    table.add_column(Text(make_printable(f"t={step.t} {step.heading}")))
    for number, slot in enumerate(step.slots):
        style = Style(reverse=True, bold=True) if number == step.written else Style()
        table.add_row(Text(make_printable(slot)), style=style)
    return table


def render_html(trace: MemoryTrace) -> str:
    """Write the tables of all readings as HTML with inline styles."""
    parts, flow = [], '<div style="display:flex;flex-wrap:wrap;gap:8px;align-items:flex-start">'
    for reading, memory in trace.accesses():
        tables = "".join(_make_html_table(step) for step in list_steps(reading, memory))
        parts.append(f"<h4>{escape(make_printable(reading.title(memory)))}</h4>{flow}{tables}</div>")
    return "".join(parts)


def _make_html_table(step: MemoryStep) -> str:
    cell = f"text-align:left;padding:1px 6px;border:1px solid {LINE}"
    rows = []
    for number, slot in enumerate(step.slots):
        mark = f";background:{WRITTEN};color:{ACCENT}" if number == step.written else ""
        rows.append(f'<tr><td style="{cell}{mark}">{escape(make_printable(slot))}</td></tr>')
    heading = f"t={step.t} {escape(make_printable(step.heading))}"
    return (
        f'<table style="border-collapse:collapse;font-size:12px"><caption style="caption-side:bottom">'
        f'{escape(step.note)}</caption><thead><tr><th style="{cell}">{heading}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def render_latex(trace: MemoryTrace) -> str:
    """Write the tables of all readings as a complete LaTeX document.

    The tables need the package xcolor with its option table.
    """
    packages = "[T1]{fontenc}", "[utf8]{inputenc}", "[margin=12mm]{geometry}", "[table]{xcolor}"
    lines = [
        r"\documentclass[a4paper,landscape]{article}",
        *(rf"\usepackage{package}" for package in packages),
        rf"\definecolor{{written}}{{HTML}}{{{WRITTEN[1:].upper()}}}",
        r"\setlength{\parindent}{0pt}",
        r"\begin{document}",
    ]
    for reading, memory in trace.accesses():
        lines += [rf"\section*{{{escape_latex(reading.title(memory))}}}", r"\raggedright\tiny"]
        lines += [*map(_make_latex_table, list_steps(reading, memory)), r"\par\normalsize"]
    return "\n".join([*lines, r"\end{document}", ""])


def _make_latex_table(step: MemoryStep) -> str:
    rows = []
    for number, slot in enumerate(step.slots):
        mark = r"\cellcolor{written}" if number == step.written else ""
        rows.append(rf"{{}}{mark}{escape_latex(slot)} \\")  # {}: a leading [ would be an argument of \\
    heading = rf"\textit{{t={step.t}}} \\ \textit{{{escape_latex(step.heading)}}} \\ \hline"
    begin, end = r"\begin{tabular}[t]{|p{28mm}|}", r"\end{tabular}\hspace{2mm}"
    return "\n".join([begin, r"\hline", heading, *rows, r"\hline", end])


_NAMES = ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar", "quotedbl", "asciigrave")
_LATEX = {letter: rf"\text{name}{{}}" for letter, name in zip('\\~^<>|"`', _NAMES, strict=True)}
_LATEX |= {letter: rf"\{letter}" for letter in "{}$&#_%"}
_LATEX |= {"-": "-{}", "'": "'{}", "…": r"\ldots{}"}  # -{}-{} is not joined into a dash


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX; letters that its standard fonts lack become their code points."""
    return "".join(_LATEX.get(letter) or _escape_letter(letter) for letter in text)


def _escape_letter(letter: str) -> str:
    is_western = letter.isalpha() and "\u00c0" <= letter <= "\u017f" and letter not in "ĸŉſĿŀħĦŧŦ"
    return letter if " " <= letter <= "~" or is_western else rf"\texttt{{U+{ord(letter):04X}}}"
