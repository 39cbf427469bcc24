"""The command that looks inside a model: explore."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from nse.cli import options
from nse.cli.output import check_output, print_line, write_output
from nse.errors import InputError


def explore(
    model: options.Model,
    texts: Annotated[
        list[str],
        Argument(
            metavar="TEXT...",
            help="What the model takes, each in quotes: a sentence, a premise and a hypothesis, or a "
            "question and its candidates.",
        ),
    ],
    svg: Annotated[Path | None, Option(help="Write the association graph, as SVG.")] = None,
    heat: Annotated[Path | None, Option(help="Write the heat map of what each step read, as SVG.")] = None,
    dot: Annotated[Path | None, Option(help="Write the association graph in Graphviz's language.")] = None,
    html: Annotated[
        Path | None, Option(help="Write a page with everything in it, which works from disk.")
    ] = None,
    latex: Annotated[Path | None, Option(help="Write the memory step by step, as a LaTeX document.")] = None,
    json: Annotated[Path | None, Option(help="Write the trace, as JSON; - is standard output.")] = None,
    steps: Annotated[bool, Option("--steps", help="Print the memory step by step as well.")] = False,
    beam: options.Beam = None,
    strict: options.Strict = False,
    device: options.Where = "auto",
) -> None:
    """Show what the memory of a model did with a text: which word was composed with which.

    Prints it, or writes what the options ask for.
    """
    from rich.console import Console

    from nse import load
    from nse.viz import graph, report, tables, terminal
    from nse.viz import heat as maps
    from nse.viz.drawing import make_printable
    from nse.viz.notebook import format_prediction
    from nse.viz.trace import MemoryTrace

    pictures: list[tuple[Path | None, Callable[[MemoryTrace], str]]] = [
        *((svg, graph.render_svg), (heat, maps.render_svg), (dot, graph.render_dot)),
        *((html, report.render_html), (latex, tables.render_latex), (json, MemoryTrace.to_json)),
    ]
    files = [file for file, _ in pictures if file]
    if twice := {file for file in files if files.count(file) > 1}:
        raise InputError(f"explore: {min(twice)} is named twice; give each picture its own file")
    standard = Path("-")
    for named in files:
        if named != standard:
            check_output(named)
    trace = load(model, device).trace(*texts, beam=beam, strict=strict)
    aside = standard in files  # what is not the trace goes elsewhere
    for file, make in pictures:
        if file == standard:
            print_line(make(trace))
        elif file:
            write_output(file, make(trace))
            print(file, file=sys.stderr if aside else sys.stdout)
    console = Console(stderr=aside)
    if not files or steps:
        answer = make_printable(format_prediction(trace))
        console.print(f"{trace.model['name']}: {answer}", markup=False, highlight=False)
        console.print(terminal.render_associations(trace, console.width))
    if steps:
        console.print(tables.render_terminal(trace))
