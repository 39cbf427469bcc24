"""The lines of a file or of standard input, numbered, each as soon as it is there."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from nse.errors import DataError

LONGEST = 1 << 20
"""Bytes of a line: no text comes near, and a file without line breaks does not fill the memory."""

COMPRESSED: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),  # type: ignore[dict-item, return-value]
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
"""How files with these endings are opened."""


class Problem(NamedTuple):
    """Why a line cannot be read or answered, or a record of several lines."""

    number: int
    why: str
    lines: int = 1


class Source:
    """A file, opened at once, or standard input, which stays open.

    Args:
        file: Which; standard input for `None` and for "-".

    Attributes:
        name: What to call it.
        steady: Whether it is a file that is there already, not a pipe or a terminal that somebody writes to.
        size: In bytes, where it is steady.

    Raises:
        DataError: It cannot be opened.
    """

    def __init__(self, file: Path | None):
        self.is_input = file is None or file == Path("-")
        self.name = "standard input" if self.is_input else str(file)
        if self.is_input and sys.stdin is None:
            raise DataError("standard input is closed: give texts or --file, or leave out <&-")
        try:
            self._raw = sys.stdin.buffer if self.is_input else open(str(file), "rb")  # noqa: SIM115
        except OSError as error:
            raise self._refused(error) from None
        ending = Path(self.name).suffix
        self._handle = COMPRESSED[ending](self._raw) if ending in COMPRESSED else self._raw
        self.steady, self.size = self._measured()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_input:
            self._raw.close()

    def position(self) -> int:
        """How many bytes of a steady source were taken so far."""
        return self._raw.tell() if self.steady else 0

    def lines(self) -> Iterator[tuple[int, bytes | Problem]]:
        """Its lines without what ends them, numbered from 1; one that is too long is a problem.

        Raises:
            DataError: It cannot be read on.
        """
        number = 0
        try:
            while line := self._handle.readline(LONGEST + 2):
                number += 1
                content = line.removesuffix(b"\n").removesuffix(b"\r")
                if len(content) > LONGEST:
                    while line and not line.endswith(b"\n"):
                        line = self._handle.readline(LONGEST)
                    yield number, Problem(number, f"is longer than {LONGEST:,} bytes; break it up")
                else:
                    yield number, content.removeprefix(BOM_UTF8) if number == 1 else content
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._refused(error) from None

    def _measured(self) -> tuple[bool, int]:
        try:
            found = os.fstat(self._raw.fileno())
        except (io.UnsupportedOperation, OSError):  # standard input of a test
            return False, 0
        return stat.S_ISREG(found.st_mode), found.st_size

    def _refused(self, error: Exception) -> DataError:
        return DataError(f"{self.name}: cannot be read: {getattr(error, 'strerror', None) or error}")
