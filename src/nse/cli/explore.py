"""Command that shows what a model's memory did: explore."""

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
    model: options.ModelName,
    texts: Annotated[
        list[str],
        Argument(
            metavar="TEXT...",
            help="Input of the model, each text in quotes: a sentence, a premise and a hypothesis, or a "
            "question and its candidates.",
        ),
    ],
    svg: Annotated[Path | None, Option(help="Write the association graph as SVG.")] = None,
    heat: Annotated[Path | None, Option(help="Write a heat map of the memory reads as SVG.")] = None,
    dot: Annotated[Path | None, Option(help="Write the association graph for Graphviz.")] = None,
    html: Annotated[
        Path | None, Option(help="Write a web page with all pictures, which opens from disk.")
    ] = None,
    latex: Annotated[Path | None, Option(help="Write the memory step by step as a LaTeX document.")] = None,
    json: Annotated[Path | None, Option(help="Write the trace as JSON; - is standard output.")] = None,
    steps: Annotated[bool, Option("--steps", help="Print the memory step by step.")] = False,
    beam: options.Beam = None,
    strict: options.Strict = False,
    device: options.DeviceOption = "auto",
) -> None:
    """Show which words the memory of a model composed with each other.

    Prints a picture, or writes the files that are given as options.
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
        raise InputError(f"explore: {min(twice)} is named twice; choose another file for each output")
    standard = Path("-")
    for file in files:
        if file != standard:
            check_output(file)
    trace = load(model, device).trace(*texts, beam=beam, strict=strict)
    stdout_taken = standard in files
    for path, render in pictures:
        if path == standard:
            print_line(render(trace))
        elif path:
            write_output(path, render(trace))
            print(path, file=sys.stderr if stdout_taken else sys.stdout)
    console = Console(stderr=stdout_taken)
    if not files or steps:
        answer = make_printable(format_prediction(trace))
        console.print(f"{trace.model['name']}: {answer}", markup=False, highlight=False)
        console.print(terminal.render_associations(trace, console.width))
    if steps:
        console.print(tables.render_terminal(trace))
