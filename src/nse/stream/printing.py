"""Answers to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

import typer

from nse.errors import RunError
from nse.stream.writing import Answer

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
        # What is left in the buffer would fail once more at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(BROKEN_PIPE) from None
        raise RunError(f"standard output cannot be written: {error.strerror}") from None
