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

LONGEST = 1 << 20  # bytes of a line: a file without line breaks does not fill the memory


class Problem(NamedTuple):
    """Why a line cannot be read or answered, or a record of several lines."""

    number: int
    why: str
    lines: int = 1


def number_lines(handle: IO[bytes]) -> Iterator[tuple[int, bytes | Problem]]:
    """Number lines from 1, without what ends them; one that is too long is a problem."""
    number = 0
    while line := handle.readline(LONGEST + 2):
        number += 1
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(content) > LONGEST:
            while line and not line.endswith(b"\n"):
                line = handle.readline(LONGEST)
            yield number, Problem(number, f"is longer than {LONGEST:,} bytes; break it up")
        else:
            yield number, content.removeprefix(BOM_UTF8) if number == 1 else content


class Source:
    """A file, opened at once, or standard input (`None` or "-"), which stays open.

    It is steady if it is there already, not a pipe or a terminal that somebody writes to; then it has a size.
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
        self._handle = decompress(self._raw, self.name)
        try:
            status = os.fstat(self._raw.fileno())
            self.steady, self.size = stat.S_ISREG(status.st_mode), status.st_size
        except (io.UnsupportedOperation, OSError):  # standard input of a test
            self.steady, self.size = False, 0

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_input:
            self._raw.close()

    def position(self) -> int:
        """Tell how many bytes of a steady source were taken so far."""
        return self._raw.tell() if self.steady else 0

    def lines(self) -> Iterator[tuple[int, bytes | Problem]]:
        """Number its lines; `DataError` tells that it cannot be read on."""
        try:
            yield from number_lines(self._handle)
        except BROKEN as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> DataError:
        return DataError(f"{self.name}: cannot be read: {getattr(error, 'strerror', None) or error}")


class Format(StrEnum):
    """How rows are written in a file."""

    jsonl = "jsonl"
    tsv = "tsv"
    csv = "csv"
    text = "text"


ENDINGS = dict.fromkeys((".jsonl", ".ndjson", ".json"), Format.jsonl)
ENDINGS |= {".tsv": Format.tsv, ".csv": Format.csv}  # any other is text

WORDS = {"NoneType": "null", "bool": "a truth value", "int": "a number", "float": "a number", "str": "a text"}
WORDS |= {"list": "a list", "dict": "an object"}


class OpenQuote(Problem):
    """A quote of a CSV that is not closed; the lines after it cannot be told from its text."""


class BadLineError(ValueError):
    """A line is no row; says why."""


def guess_format(file: Path | None) -> Format:
    """Guess the format by a file's name; standard input is text."""
    if file is None:
        return Format.text
    plain = file.with_suffix("") if file.suffix in COMPRESSED else file
    return ENDINGS.get(plain.suffix.lower(), Format.text)


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
        raise BadLineError(f"expected a JSON object, got {json_type(value)}; write one object on each line")
    return value


Lines = Iterable[tuple[int, bytes | Problem]]
Parsed = TypeVar("Parsed")


def parse_each(lines: Lines, parse: Callable[[bytes], Parsed]) -> Iterator[tuple[int, Parsed | Problem]]:
    """Parse lines that are not blank, each by itself."""
    for number, line in lines:
        if isinstance(line, Problem):
            yield number, line
        elif line.strip():
            try:
                yield number, parse(line)
            except BadLineError as wrong:
                yield number, Problem(number, str(wrong))


def split_csv(lines: Lines) -> Iterator[tuple[int, list[str] | Problem]]:
    """Read records of CSV, of several lines where a quoted text has line breaks.

    Ends with an `OpenQuote` where a quote may not be closed: nobody knows then where the next row begins.
    """
    wrong: list[str] = []
    size = quotes = 0  # of a record
    ended = False

    def texts() -> Iterator[str]:
        nonlocal size, quotes, ended
        for _, line in lines:
            if isinstance(line, Problem):
                wrong.append(line.why)
                yield "\n"
                continue
            size += len(line)
            if size > LONGEST:
                raise csv.Error(f"not closed for {LONGEST:,} bytes")
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
                yield number, OpenQuote(number, f"a quote is perhaps not closed: {error}; {advice}")
                return
            wrong.append(f"is not CSV: {error}")
            fields = []
        yield number, Problem(number, wrong[0], reader.line_num + 1 - number) if wrong else fields


def read_records(
    source: Source, form: Format, check_header: Callable[[list[str], int], object]
) -> Iterator[tuple[int, dict[str, Any] | Problem]]:
    """Read JSON objects, or as such the rows under a header, which is checked; each with its first line."""
    lines = source.lines()
    if form == Format.jsonl:
        yield from parse_each(lines, parse_object)
        return
    header: list[str] = []
    rows = split_csv(lines) if form == Format.csv else parse_each(lines, split_tabs)
    for number, fields in rows:
        if isinstance(fields, Problem):
            if not header and not isinstance(fields, OpenQuote):
                raise DataError(f"{source.name}: line {number}: the header {fields.why}")
            yield number, fields
        elif not any(fields):
            continue  # a blank line
        elif not header:
            header = [field.strip() for field in fields]
            check_header(header, number)
        elif len(fields) != len(header):
            why = f"expected {len(header)} fields, as in the header, got {len(fields)}"
            yield number, Problem(number, why, 1 + sum(field.count("\n") for field in fields))
        else:
            yield number, dict(zip(header, fields, strict=True))


def json_type(value: Any) -> str:
    """Name the type of a JSON value."""
    return WORDS[type(value).__name__]


def check_text(record: Mapping[str, object], key: str, expected: str = "a text") -> str:
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
