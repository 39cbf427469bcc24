"""The command line: thin. Exit 0 done, 1 a bug, 2 the user's mistake (told without a traceback)."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import nse
from nse.cli import ask, bench, data, explore, serve, train
from nse.cli.fixes import describe_error
from nse.cli.output import open_standard_streams, warn
from nse.errors import InputError, NSEError

app = typer.Typer(
    name="nse",
    help="Neural Semantic Encoders: train, look inside, measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(data.app, name="data")


class OptionNamingCommand(TyperCommand):
    """Command whose errors name an option where they named an argument: `--max-batch: ...`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        options = {param.name: param.opts[0] for param in self.params if param.opts[0].startswith("--")}
        try:
            return super().invoke(ctx)
        except InputError as error:
            argument, colon, rest = str(error).partition(": ")
            if not colon or argument not in options:
                raise
            raise InputError(f"{options[argument]}: {rest}", error.fix) from None


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
    *(serve.export, explore.explore, serve.serve, train.table, bench.bench),
):
    app.command(cls=OptionNamingCommand)(command)


def main() -> None:
    """Entry point: turns the user's mistakes into a message and exit 2."""
    open_standard_streams()
    warnings.showwarning = lambda message, *_: warn(f"warning: {message}")  # without the line of the source
    if os.environ.get("RANK", "0") != "0":  # the first process of torchrun says it
        warnings.simplefilter("ignore", FutureWarning)
    try:
        try:
            app()
        finally:  # what cannot be printed is told here, not as Python ends
            sys.stdout.flush()
    except NSEError as error:
        with suppress(OSError):  # of a terminal that was closed
            print(f"nse: {describe_error(error)}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        print("nse: interrupted", file=sys.stderr)
        sys.exit(130)
    except typer.Exit as ended:  # nobody reads on
        sys.exit(ended.exit_code)
