"""The command line: thin. Exit 0 done, 1 a bug, 2 the user's mistake (told without a traceback)."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import nse
from nse.errors import NSEError, RunError
from nse.files import make_sure, write

app = typer.Typer(
    name="nse",
    help="Neural Semantic Encoders: train, look inside, measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the recipe, such as train.rate=1e-3. Repeatable.",
    ),
]


class Device(StrEnum):
    """Where `nse bench` measures."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"nse {nse.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural Semantic Encoders: train, look inside, measure."""


@app.command()
def demo(
    quick: Annotated[bool, typer.Option(help="Tiny sizes, to see that everything works.")] = False,
    seed: Annotated[int | None, typer.Option(help="Another random start.")] = None,
    as_json: Json = False,
) -> None:
    """Train an NSE, an LSTM and a bag of words on the built-in corpus, and show what the memory did."""
    from nse.train.demo import demo as run  # imports lightning, which takes seconds
    from nse.train.progress import Progress

    console = Console(stderr=as_json)
    with Progress() as progress:
        rows = run(console, progress, quick, seed)
    if as_json:
        print_json(rows)


@app.command()
def recipes(as_json: Json = False) -> None:
    """List the recipes, each an experiment that `nse train` can run."""
    from nse.tasks.recipe import headline
    from nse.tasks.recipe import recipes as found

    rows = [{"recipe": name, "about": headline(file)} for name, file in found().items()]
    if as_json:
        print_json(rows)
        return
    table = Table("recipe", "about")
    for row in rows:
        table.add_row(row["recipe"], row["about"])
    Console().print(table)


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's name, such as logic/nse, or the path of a TOML file.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the run; runs/RECIPE by default.")
    ] = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Train one model by its recipe into a new folder."""
    from nse.tasks import load_recipe
    from nse.train.progress import Progress
    from nse.train.run import train as run

    loaded = load_recipe(recipe, assignments or ())
    folder = out or Path("runs") / recipe.removesuffix(".toml").replace("/", "-")
    with Progress() as progress:
        result = run(recipe, loaded, folder, progress)
    if as_json:
        print_json(result)
        return
    Console().print(
        f"test {100 * result['accuracy']:.1f}%, unseen {100 * result['accuracy_unseen']:.1f}%, "
        f"best epoch {result['epoch']}, {result['parameters']:,} parameters, {result['seconds']:.0f} s: "
        f"{folder}",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def bench(
    device: Annotated[
        Device, typer.Option(help="Where to measure; auto is a CUDA device where there is one.")
    ] = Device.auto,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this JSON file as well.")] = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes, to see that everything works.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads, on the CPU.", min=1)] = 2,
    as_json: Json = False,
) -> None:
    """Time the backends side by side, after checking that they agree."""
    from nse import bench as benchmark

    if out:  # minutes of measuring are not lost to a place that cannot be written
        try:
            make_sure(out)
        except OSError as error:
            raise RunError(f"{out} cannot be written: {error.strerror}") from None

    def save(report: dict[str, Any], file: Path | None) -> None:
        if file:
            write(file, json.dumps(report, indent=1, allow_nan=False) + "\n")

    unfinished = out.with_suffix(".unfinished.json") if out else None  # stays where a run is interrupted
    report = benchmark.run(
        quick=quick,
        threads=threads,
        log=Console(stderr=True),
        device=device.value,
        save=lambda so_far: save(so_far, unfinished),
    )
    save(report, out)
    if unfinished:
        unfinished.unlink(missing_ok=True)
    if as_json:
        print_json(report)
    else:
        Console().print(benchmark.table(report))


def print_json(value: Any) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def main() -> None:
    """Entry point: turns the user's mistakes into a message and exit 2."""
    try:
        app()
    except NSEError as error:
        print(f"nse: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("nse: interrupted", file=sys.stderr)
        sys.exit(130)
