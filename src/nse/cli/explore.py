"""The command that looks inside a model: explore."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nse.cli.ask import Beam, Device, Strict, Where
from nse.cli.printing import put
from nse.errors import InputError, explain_errors
from nse.files import make_sure, write
from nse.viz.trace import MemoryTrace

MODEL = typer.Argument(help="A shipped model's name, a run or a model folder.")


def explore(
    model: Annotated[str, MODEL],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="What the model takes, each in quotes: a sentence, a premise and a hypothesis, or a "
            "question and its candidates.",
            show_default=False,
        ),
    ],
    svg: Annotated[Path | None, typer.Option(help="Write the association graph, as SVG.")] = None,
    heat: Annotated[
        Path | None, typer.Option(help="Write the heat map of what each step read, as SVG.")
    ] = None,
    dot: Annotated[
        Path | None, typer.Option(help="Write the association graph in Graphviz's language.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with everything in it, which works from disk.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Write the memory step by step, as a LaTeX document.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the trace, as JSON; - is standard output.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Print the memory step by step as well.")] = False,
    beam: Beam = None,
    strict: Strict = False,
    device: Where = Device.auto,
) -> None:
    """Show what the memory of a model did with a text: which word was composed with which.

    Prints it, or writes what the options ask for.
    """
    from nse.viz import graph, report, tables
    from nse.viz import heat as maps

    given: list[tuple[Path | None, Callable[[MemoryTrace], str]]] = [
        (svg, graph.svg),
        (heat, maps.svg),
        (dot, graph.dot),
        (html, report.html),
        (latex, tables.latex),
        (json, MemoryTrace.to_json),
    ]
    named = [file for file, _ in given if file]
    if twice := {file for file in named if named.count(file) > 1}:
        raise InputError(f"explore: {min(twice)} is named twice; give each picture its own file")
    files = {file: made for file, made in given if file}
    for file in files:
        if file != Path("-"):
            writable(file)
    from nse.inference import api
    from nse.inference import folder as hub

    found = api.trace(hub.load(model, device.value), *texts, beam=beam, strict=strict)
    aside = Path("-") in files  # what is not the trace goes elsewhere
    for file, made in files.items():
        if file == Path("-"):
            put(made(found))
        else:
            write_output(file, made(found))
            print(f"{file}", file=sys.stderr if aside else sys.stdout)
    if not files or steps:
        show(found, steps, Console(stderr=aside))


def writable(file: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    with explain_errors(f"{file} cannot be written"):
        make_sure(file)


def write_output(file: Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        RunError: It cannot be written.
    """
    with explain_errors(f"{file} cannot be written"):
        write(file, text)


def show(trace: MemoryTrace, steps: bool, console: Console) -> None:
    """Print what the model says and which words were composed."""
    from nse.viz import tables, terminal
    from nse.viz.drawing import printable
    from nse.viz.notebook import said

    console.print(f"{trace.model['name']}: {printable(said(trace))}", markup=False, highlight=False)
    console.print(terminal.associations(trace, console.width))
    if steps:
        console.print(tables.terminal(trace))
