"""The command line: thin. Exit 0 done, 1 a bug, 2 the user's mistake (told without a traceback)."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import nse
from nse.cli import ask, data, explore, options, serve, train
from nse.cli.output import check_output, open_standard_streams, print_json, write_output
from nse.errors import NSEError

app = typer.Typer(
    name="nse",
    help="Neural Semantic Encoders: train, look inside, measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(data.app, name="data")


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"nse {nse.__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural Semantic Encoders: train, look inside, measure."""


for command in (
    *(train.demo, train.recipes, train.train, train.evaluate),
    *(ask.predict, ask.encode, ask.rank, ask.translate),
    *(serve.export, explore.explore, serve.serve, train.table),
):
    app.command()(command)


@app.command()
def bench(
    device: Annotated[
        options.Device, typer.Option(help="Where to measure; auto is a CUDA device where there is one.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the rows to this JSON file as well.")] = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes, to see that everything works.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads, on the CPU.", min=1)] = 2,
    as_json: options.Json = False,
) -> None:
    """Time the backends side by side, after checking that they agree."""
    from rich.console import Console

    from nse import bench as benchmark

    if out:  # minutes of measuring are not lost to a place that cannot be written
        check_output(out)

    def save(report: dict[str, Any], file: Path | None) -> None:
        if file:
            write_output(file, json.dumps(report, indent=1, allow_nan=False) + "\n")

    # Stays where a run is interrupted; beside a device or a FIFO there is no place for it.
    unfinished = out.with_suffix(".unfinished.json") if out and (out.is_file() or not out.exists()) else None
    report = benchmark.run(
        quick=quick,
        threads=threads,
        log=Console(stderr=True),
        device=device,
        save=lambda so_far: save(so_far, unfinished),
    )
    save(report, out)
    if unfinished:
        unfinished.unlink(missing_ok=True)
    if as_json:
        print_json(report)
    else:
        Console().print(benchmark.table(report))


def main() -> None:
    """Entry point: turns the user's mistakes into a message and exit 2."""
    open_standard_streams()
    try:
        try:
            app()
        finally:  # what cannot be printed is told here, not as Python ends
            sys.stdout.flush()
    except NSEError as error:
        with suppress(OSError):  # of a terminal that was closed
            print(f"nse: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        print("nse: interrupted", file=sys.stderr)
        sys.exit(130)
    except typer.Exit as ended:  # nobody reads on
        sys.exit(ended.exit_code)
