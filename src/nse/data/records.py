"""The lines and records of a file or of standard input, numbered, each as soon as it is there."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from nse.errors import DataError
from nse.files import BROKEN, COMPRESSED, decompress

MAX_LINE_BYTES = 1 << 20  # bytes of a line: a file without line breaks does not fill the memory


class BadLine(NamedTuple):
    """Why a line cannot be read or answered, or a record of several lines."""

    number: int
    why: str
    lines: int = 1


def number_lines(handle: IO[bytes]) -> Iterator[tuple[int, bytes | BadLine]]:
    """Number lines from 1, without what ends them; one that is too long is a problem."""
    number = 0
    while line := handle.readline(MAX_LINE_BYTES + 2):
        number += 1
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(content) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = handle.readline(MAX_LINE_BYTES)
            yield number, BadLine(number, f"is longer than {MAX_LINE_BYTES:,} bytes; break it up")
        else:
            yield number, content.removeprefix(BOM_UTF8) if number == 1 else content


class LineSource:
    """A file, opened at once, or standard input (`None` or "-"), which stays open.

    It is steady if it is there already, not a pipe or a terminal that somebody writes to; then it has a size.
    """

    def __init__(self, file: Path | None):
        self.is_stdin = file is None or file == Path("-")
        self.name = "standard input" if self.is_stdin else str(file)
        if self.is_stdin and sys.stdin is None:
            raise DataError("standard input is closed", ("input",))
        try:
            self._raw = sys.stdin.buffer if self.is_stdin else open(str(file), "rb")  # noqa: SIM115
        except OSError as error:
            raise self._make_error(error) from None
        self._handle = decompress(self._raw, self.name)
        try:
            status = os.fstat(self._raw.fileno())
            self.is_regular, self.size = stat.S_ISREG(status.st_mode), status.st_size
        except (io.UnsupportedOperation, OSError):  # standard input of a test
            self.is_regular, self.size = False, 0

    def __enter__(self) -> LineSource:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_stdin:
            self._raw.close()

    @property
    def bytes_read(self) -> int:
        """Tell how many bytes of a steady source were taken so far."""
        return self._raw.tell() if self.is_regular else 0

    def read_lines(self) -> Iterator[tuple[int, bytes | BadLine]]:
        """Number its lines; `DataError` tells that it cannot be read on."""
        try:
            yield from number_lines(self._handle)
        except BROKEN as error:
            raise self._make_error(error) from None

    def _make_error(self, error: Exception) -> DataError:
        return DataError(f"{self.name}: cannot be read: {getattr(error, 'strerror', None) or error}")


class Format(StrEnum):
    """How rows are written in a file."""

    jsonl = "jsonl"
    tsv = "tsv"
    csv = "csv"
    text = "text"


FORMATS = dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.jsonl)
FORMATS |= {".tsv": Format.tsv, ".csv": Format.csv}  # any other is text

JSON_TYPES = {
    "NoneType": "null",
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "str": "a text",
}
JSON_TYPES |= {"list": "a list", "dict": "an object"}


class UnclosedQuote(BadLine):
    """A quote of a CSV that is not closed; the lines after it cannot be told from its text."""


class BadLineError(ValueError):
    """A line is no row; says why."""


def guess_format(file: Path | None) -> Format:
    """Guess the format by a file's name; standard input is text."""
    if file is None:
        return Format.text
    plain = file.with_suffix("") if file.suffix in COMPRESSED else file
    return FORMATS.get(plain.suffix.lower(), Format.text)


def decode_line(line: bytes) -> str:
    """Decode a line."""
    if b"\0" in line:
        raise BadLineError("holds a NUL, as UTF-16 and files that are no text do; write it as UTF-8")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadLineError("is not UTF-8") from None


def split_tabs(line: bytes) -> list[str]:
    """Cut a line at tabs; a quote is a letter like any other."""
    return decode_line(line).split("\t")


def parse_object(line: bytes | str) -> dict[str, Any]:
    """Parse the JSON object of a line."""
    text = line if isinstance(line, str) else decode_line(line)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadLineError(f"is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a list of lists of lists
        raise BadLineError(f"is not JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise BadLineError(
            f"expected a JSON object, got {name_json_type(value)}; write one object on each line"
        )
    return value


Lines = Iterable[tuple[int, bytes | BadLine]]
Parsed = TypeVar("Parsed")


def parse_filled_lines(
    lines: Lines, parse: Callable[[bytes], Parsed]
) -> Iterator[tuple[int, Parsed | BadLine]]:
    """Parse lines that are not blank, each by itself."""
    for number, line in lines:
        if isinstance(line, BadLine):
            yield number, line
        elif line.strip():
            try:
                yield number, parse(line)
            except BadLineError as wrong:
                yield number, BadLine(number, str(wrong))


def split_csv(lines: Lines) -> Iterator[tuple[int, list[str] | BadLine]]:
    """Read records of CSV, of several lines where a quoted text has line breaks.

    Ends with an `OpenQuote` where a quote may not be closed: nobody knows then where the next row begins.
    """
    wrong: list[str] = []
    size = quotes = 0  # of a record
    ended = False

    def texts() -> Iterator[str]:
        nonlocal size, quotes, ended
        for _, line in lines:
            if isinstance(line, BadLine):
                wrong.append(line.why)
                yield "\n"
                continue
            size += len(line)
            if size > MAX_LINE_BYTES:
                raise csv.Error(f"not closed for {MAX_LINE_BYTES:,} bytes")
            quotes += line.count(b'"')
            try:
                yield decode_line(line) + "\n"
            except BadLineError as error:  # told of the record that it is in, whose quotes still count
                wrong.append(str(error))
                yield line.decode("utf-8", "replace") + "\n"
        ended = True

    reader = csv.reader(texts(), strict=True)
    while True:
        number = reader.line_num + 1
        wrong.clear()
        size = quotes = 0
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if quotes % 2 or ended or reader.line_num > number:
                advice = "close it, or write it twice where it is a part of a text"
                yield number, UnclosedQuote(number, f"a quote is perhaps not closed: {error}; {advice}")
                return
            wrong.append(f"is not CSV: {error}")
            fields = []
        yield number, BadLine(number, wrong[0], reader.line_num + 1 - number) if wrong else fields


def read_records(
    source: LineSource, form: Format, check_header: Callable[[list[str], int], object]
) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Read JSON objects, or as such the rows under a header, which is checked; each with its first line."""
    lines = source.read_lines()
    if form == Format.jsonl:
        yield from parse_filled_lines(lines, parse_object)
        return
    header: list[str] = []
    rows = split_csv(lines) if form == Format.csv else parse_filled_lines(lines, split_tabs)
    for number, fields in rows:
        if isinstance(fields, BadLine):
            if not header and not isinstance(fields, UnclosedQuote):
                raise DataError(f"{source.name}: line {number}: the header {fields.why}")
            yield number, fields
        elif not any(fields):
            continue  # a blank line
        elif not header:
            header = [field.strip() for field in fields]
            check_header(header, number)
        elif len(fields) != len(header):
            why = f"expected {len(header)} fields, as in the header, got {len(fields)}"
            yield number, BadLine(number, why, 1 + sum(field.count("\n") for field in fields))
        else:
            yield number, dict(zip(header, fields, strict=True))


def name_json_type(value: Any) -> str:
    """Name the type of a JSON value."""
    return JSON_TYPES[type(value).__name__]


def get_text(record: Mapping[str, object], key: str, expected: str = "a text") -> str:
    """Return a text of a record; `BadLineError` says what is wrong with any other value."""
    text = record.get(key)
    if not isinstance(text, str):
        shown = json.dumps(record[key])[:40] if key in record else "nothing"
        raise BadLineError(f"{key}: expected {expected}, got {shown}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadLineError(f"{key}: holds half of a surrogate pair") from None
    return text
