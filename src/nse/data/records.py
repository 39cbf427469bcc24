"""Read the lines and records of a file or of standard input, numbered, each as soon as it arrives."""

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
from nse.files import COMPRESSED, READ_ERRORS, decompress

MAX_LINE_BYTES = 1 << 20  # so that a file without line breaks does not fill the memory


class BadLine(NamedTuple):
    """Line, or record of several lines, that cannot be read or processed, and why."""

    number: int
    why: str
    lines: int = 1


def number_lines(handle: IO[bytes]) -> Iterator[tuple[int, bytes | BadLine]]:
    """Yield lines without line breaks, numbered from 1; one that is too long becomes a `BadLine`."""
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
    """Open file, or standard input (`None` or "-"), which is never closed.

    `is_regular` is false for a pipe or a terminal, whose size is unknown.
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
        except (io.UnsupportedOperation, OSError):  # standard input without a file
            self.is_regular, self.size = False, 0

    def __enter__(self) -> LineSource:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_stdin:
            self._raw.close()

    @property
    def bytes_read(self) -> int:
        """Number of bytes read so far of a regular file, else 0."""
        return self._raw.tell() if self.is_regular else 0

    def read_lines(self) -> Iterator[tuple[int, bytes | BadLine]]:
        """Yield its lines, numbered; raise `DataError` if reading fails."""
        try:
            yield from number_lines(self._handle)
        except READ_ERRORS as error:
            raise self._make_error(error) from None

    def _make_error(self, error: Exception) -> DataError:
        return DataError(f"{self.name}: cannot be read: {getattr(error, 'strerror', None) or error}")


class Format(StrEnum):
    """Format of a file of rows."""

    jsonl = "jsonl"
    tsv = "tsv"
    csv = "csv"
    text = "text"


FORMATS = dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.jsonl)
FORMATS |= {".tsv": Format.tsv, ".csv": Format.csv}  # others are text

JSON_TYPES = {"NoneType": "null", "bool": "a boolean", "str": "a text", "list": "a list"}
JSON_TYPES |= {"dict": "an object", "int": "a number", "float": "a number"}


class UnclosedQuote(BadLine):
    """Quote of a CSV that is not closed; the lines after it may be part of its text."""


class BadLineError(ValueError):
    """Raised when a line cannot be parsed as a row."""


def guess_format(file: Path | None) -> Format:
    """Return the format by the file's name; standard input is text."""
    if file is None:
        return Format.text
    plain = file.with_suffix("") if file.suffix in COMPRESSED else file
    return FORMATS.get(plain.suffix.lower(), Format.text)


def decode_line(line: bytes) -> str:
    """Decode a line as UTF-8 without NUL."""
    if b"\0" in line:
        raise BadLineError("holds a NUL, as UTF-16 and binary files do; write it as UTF-8")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadLineError("is not UTF-8") from None


def split_tabs(line: bytes) -> list[str]:
    """Split a line at tabs; quotes have no meaning."""
    return decode_line(line).split("\t")


def parse_object(line: bytes | str) -> dict[str, Any]:
    """Parse the JSON object of a line."""
    text = line if isinstance(line, str) else decode_line(line)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadLineError(f"is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, deep nesting
        raise BadLineError(f"is not JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        got = name_json_type(value)
        raise BadLineError(f"expected a JSON object, got {got}; write one object on each line")
    return value


Lines = Iterable[tuple[int, bytes | BadLine]]
Parsed = TypeVar("Parsed")


def parse_rows(lines: Lines, parse: Callable[[bytes], Parsed]) -> Iterator[tuple[int, Parsed | BadLine]]:
    """Parse each line that is not blank; a wrong one becomes a `BadLine`."""
    for number, line in lines:
        if isinstance(line, BadLine):
            yield number, line
        elif line.strip():
            try:
                yield number, parse(line)
            except BadLineError as error:
                yield number, BadLine(number, str(error))


def split_csv(lines: Lines) -> Iterator[tuple[int, list[str] | BadLine]]:
    """Yield the records of a CSV, of several lines if a quoted text has line breaks.

    Stops after an `UnclosedQuote`, where the next row may begin anywhere.
    """
    problems: list[str] = []
    size = quotes = 0  # of a record
    ended = False

    def decode_lines() -> Iterator[str]:
        nonlocal size, quotes, ended
        for _, line in lines:
            if isinstance(line, BadLine):
                problems.append(line.why)
                yield "\n"
                continue
            size += len(line)
            if size > MAX_LINE_BYTES:
                raise csv.Error(f"not closed for {MAX_LINE_BYTES:,} bytes")
            quotes += line.count(b'"')
            try:
                yield decode_line(line) + "\n"
            except BadLineError as error:  # reported for the whole record, whose quotes still count
                problems.append(str(error))
                yield line.decode("utf-8", "replace") + "\n"
        ended = True

    reader = csv.reader(decode_lines(), strict=True)
    while True:
        number = reader.line_num + 1
        problems.clear()
        size = quotes = 0
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if quotes % 2 or ended or reader.line_num > number:
                advice = "close it, or double it if it is part of a text"
                yield number, UnclosedQuote(number, f"a quote is perhaps not closed: {error}; {advice}")
                return
            problems.append(f"is not CSV: {error}")
            fields = []
        yield number, BadLine(number, problems[0], reader.line_num + 1 - number) if problems else fields


def read_records(
    source: LineSource, form: Format, check_header: Callable[[list[str], int], object]
) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Yield records with their first line: JSON objects, or rows as dictionaries by a checked header."""
    lines = source.read_lines()
    if form == Format.jsonl:
        yield from parse_rows(lines, parse_object)
        return
    header: list[str] = []
    rows = split_csv(lines) if form == Format.csv else parse_rows(lines, split_tabs)
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
    """Return the text of a record under a key; raise `BadLineError` for any other value."""
    text = record.get(key)
    if not isinstance(text, str):
        shown = json.dumps(record[key])[:40] if key in record else "nothing"
        raise BadLineError(f"{key}: expected {expected}, got {shown}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadLineError(f"{key}: holds half of a surrogate pair") from None
    return text
