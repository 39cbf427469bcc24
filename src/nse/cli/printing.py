"""Answers to standard output, and standard streams that are closed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from io import TextIOWrapper
from typing import Any, NoReturn, TextIO

import typer

from nse.cli.writing import Answer
from nse.errors import RunError

BROKEN_PIPE = 141
"""The exit code of a program that a broken pipe ended, as shells tell it."""


class Printer:
    """Prints answers to standard output.

    Args:
        told: From answers to lines.
    """

    def __init__(self, told: Callable[[Sequence[Answer]], Iterable[str]]):
        self.told, self.stream = told, sys.stdout  # kept, for Ray's words go elsewhere

    def write(self, rows: Sequence[Answer]) -> None:
        """Print some more."""
        put("\n".join(self.told(rows)), self.stream)

    def close(self) -> None:
        """There is nothing to end."""


def put(line: str, stream: TextIO | None = None) -> None:
    """Print a line in UTF-8, whatever the terminal says it takes, at once; end quietly if nobody reads on."""
    stream = stream or sys.stdout
    try:
        stream.buffer.write(f"{line}\n".encode())
        stream.buffer.flush()
    except OSError as error:
        give_up(stream, error)


def give_up(stream: TextIO, error: OSError) -> NoReturn:
    """Say why a stream cannot be written; end quietly if nobody reads on."""
    # What is left in the buffer would fail once more at the end of the program.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if isinstance(error, BrokenPipeError):
        raise typer.Exit(BROKEN_PIPE) from None
    if error.errno == errno.EBADF:
        raise RunError("standard output is closed, and there is something to print: leave out >&-") from None
    raise RunError(f"standard output cannot be written: {error.strerror}") from None


class Output(TextIOWrapper):
    """Standard output whose errors are told in a line, whoever prints."""

    def write(self, text: str, /) -> int:
        """Print a text."""
        try:
            return super().write(text)
        except OSError as error:
            give_up(self, error)

    def flush(self) -> None:
        """Write what is left to print."""
        try:
            super().flush()
        except OSError as error:
            give_up(self, error)


def open_standard_streams() -> None:
    """Prepare the standard streams of the program, of which some may be closed.

    The null device is opened in the place of a closed stream, so that no other file takes its number. What is
    then printed to standard output fails; what is printed to standard error is lost, as whoever closed it
    wants; standard input stays `None`.
    """
    if sys.stdin is None:
        open_null(os.O_WRONLY)
    if sys.stdout is sys.__stdout__:  # or a test has put its own in the place
        usual = sys.__stdout__
        stream = open(usual.fileno() if usual else open_null(os.O_RDONLY), "wb", closefd=False)  # noqa: SIM115
        if isinstance(usual, TextIOWrapper):
            how: dict[str, Any] = {"errors": usual.errors, "line_buffering": usual.line_buffering}
            sys.stdout = Output(stream, usual.encoding, write_through=usual.write_through, **how)
        else:
            sys.stdout = Output(stream, "utf-8", "backslashreplace")
    if sys.stderr is None:
        sys.stderr = open(  # noqa: SIM115
            open_null(os.O_WRONLY), "w", encoding="utf-8", errors="backslashreplace", closefd=False
        )


def open_null(mode: int) -> int:
    """Open the null device, for other programs that are started as well; returns its number."""
    number = os.open(os.devnull, mode)  # the lowest that is free: that of a stream that is closed
    os.set_inheritable(number, True)
    return number
