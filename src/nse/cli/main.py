"""Command line of nse. Exit codes: 0 for success, 1 for a bug, 2 for a user's mistake."""

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
    help="Neural Semantic Encoders: train, apply, serve and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(data.app, name="data")


class OptionNamingCommand(TyperCommand):
    """Command whose errors name an option where they named an argument: `--max-batch: ...`."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, without a type for flags in the help text."""
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = " "  # or Typer shows <bool>, as if a flag took a value
        return params

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
    """Print the version and exit."""
    if wanted:
        typer.echo(f"nse {nse.__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural Semantic Encoders: train, apply, serve and look inside."""


for command in (
    *(train.demo, train.recipes, train.train, train.evaluate),
    *(ask.predict, ask.encode, ask.rank, ask.translate),
    *(serve.export, explore.explore, serve.serve, train.table, bench.bench),
):
    app.command(cls=OptionNamingCommand)(command)


def main() -> None:
    """Run the command line; print a user's mistake as one message and exit with 2."""
    open_standard_streams()
    warnings.showwarning = lambda message, *_: warn(f"warning: {message}")  # without the line of the source
    if os.environ.get("RANK", "0") != "0":  # the first process of torchrun says it
        warnings.simplefilter("ignore", FutureWarning)
    try:
        try:
            app()
        finally:  # so that an error is raised here, not when Python ends
            sys.stdout.flush()
    except NSEError as error:
        with suppress(OSError):  # the terminal may be closed
            print(f"nse: {describe_error(error)}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        print("nse: interrupted", file=sys.stderr)
        sys.exit(130)
    except typer.Exit as error:  # of a broken pipe, while flushing
        sys.exit(error.exit_code)
