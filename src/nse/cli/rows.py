"""From lines to rows: texts by the names that a model has for them, from JSON Lines, TSV, CSV or plain text.

A line that is no row becomes a `BadLine` with its number, and those after it are read on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nse.data.records import (
    BadLine,
    BadLineError,
    Format,
    LineSource,
    UnclosedQuote,
    decode_line,
    name_json_type,
    read_records,
)
from nse.errors import DataError, InputError, NSEError

CHUNK = 2048  # rows that are asked at a time: the more, the more alike are lengths computed together
CHARACTERS = 1 << 20  # of the texts of a chunk, which has fewer rows where they are long: memory is bounded
SHOWN = 200  # characters of a text that are shown to a person


class Row(NamedTuple):
    """A line, or a record of several lines."""

    number: int  # of its first line, from 1
    texts: tuple[str, ...]  # in the order of the columns
    id: str | int | float | None = None  # what the file calls it, if anything
    place: int = 0  # which of the candidates of its line it is, from 1; 0 where a line is one row


Read = Row | BadLine
Item = TypeVar("Item", bound=Row | BadLine | list[Row | BadLine])


class Columns(NamedTuple):
    """Where the texts of a row are found."""

    names: tuple[str, ...]  # what is wanted, in the order in which it is wanted
    keys: Mapping[str, str] = {}  # what each is called in the file, where it is not called by its name
    id: str | None = None  # the column of what rows are called; `None` means `id`, where there is one
    listed: str = ""  # the key of a list in the place of the last column, which makes several rows of a line
    every: bool = False  # whether each line of plain text is a row as it is, even a blank one

    def find_key(self, name: str, there: Collection[str]) -> str:
        """Find what a column is called among those that are there; a single one may be called `text` too."""
        own = self.keys.get(name, name)
        is_text = own not in there and "text" in there and len(self.names) == 1 and not self.keys
        return "text" if is_text else own

    def show_option(self) -> str:
        """Show how to name them."""
        return ",".join(f"{name}=COLUMN" for name in self.names)


@dataclass(frozen=True)
class Input:
    """The input of a command: texts that were typed, or the rows of a file or of standard input."""

    command: str
    texts: Sequence[str]
    file: Path | None
    form: Format | None
    columns: str | None
    id: str | None
    what: str = "texts"

    def __post_init__(self) -> None:
        """Refuse options of which nothing would come."""
        if self.texts and self.file:
            raise InputError(f"{self.command}: give either {self.what}, or --file, not both")
        options = {"--format": self.form, "--columns": self.columns, "--id": self.id}
        typed = [name for name, value in options.items() if value is not None]
        if self.texts and typed:
            raise InputError(f"{self.command}: {', '.join(typed)}: only a file or standard input has such")


def parse_keys(given: str | None, columns: Columns) -> Columns:
    """Parse what columns are called as a person says it: `premise=sentence1,hypothesis=sentence2`."""
    one = len(columns.names) == 1
    known = [name for name in (*columns.names, columns.listed, "text" if one else "") if name]
    keys: dict[str, str] = {}
    for pair in given.split(",") if given is not None else []:
        own, sign, key = (part.strip() for part in pair.partition("="))
        if not (own and sign and key):
            raise InputError(f"--columns: expected {columns.show_option()}, got {given!r}")
        if own not in known:
            raise InputError(f"--columns: expected one of {', '.join(known)} before =, got {own!r}")
        keys[columns.names[0] if own == "text" else own] = key
    return columns._replace(keys=keys)


def read_rows(source: LineSource, form: Format, columns: Columns) -> Iterator[Read]:
    """Read the rows of a source, in order; what cannot be parsed is a problem in its place."""
    if form == Format.text and (columns.id is not None or columns.keys):
        raise InputError(f"{source.name}: plain text has no columns: leave out --columns and --id")
    if form == Format.text:
        return parse_records(source.name, source.read_lines(), partial(parse_text, columns))
    if form != Format.jsonl:
        columns = columns._replace(listed="")
    values = read_records(source, form, partial(check_header, columns, source.name))
    return parse_records(source.name, values, partial(parse_value, columns))


def parse_records(
    name: str, numbered: Iterable[tuple[int, Any]], parse: Callable[[int, Any], Iterable[Row]]
) -> Iterator[Read]:
    """Parse numbered lines or objects, each by itself."""
    for number, record in numbered:
        if isinstance(record, UnclosedQuote):
            raise DataError(f"{name}: line {number}: {record.why}")
        if isinstance(record, BadLine):
            yield record
            continue
        try:
            yield from parse(number, record)
        except BadLineError as wrong:
            yield BadLine(number, str(wrong))


def parse_text(columns: Columns, number: int, line: bytes) -> Iterator[Row]:
    """Parse a line of plain text, which has tabs between several texts."""
    text, several = decode_line(line), len(columns.names)
    if columns.every:
        yield Row(number, (text,))
    elif text.strip():
        texts = tuple(part.strip() for part in (text.split("\t") if several > 1 else [text]))
        if len(texts) != several:
            wanted = " and ".join(columns.names)
            raise BadLineError(f"expected {wanted} with a tab between, got {len(texts)} of {several}")
        yield Row(number, texts)


def parse_value(columns: Columns, number: int, value: dict[str, Any]) -> Iterator[Row]:
    """Parse an object, which is several rows where it has a list of candidates."""
    name, names = find_id(value, columns), columns.names
    listed = columns.keys.get(columns.listed, columns.listed)
    if listed and listed in value:
        first = [find_text(value, columns.find_key(wanted, value)) for wanted in names[:-1]]
        for place, text in enumerate(find_texts(value, listed), start=1):
            yield Row(number, (*first, text), name, place)
    elif len(names) > 1 and "texts" in value and not any(wanted in value for wanted in names):
        texts = find_texts(value, "texts")
        if len(texts) != len(names):
            raise BadLineError(f"'texts': expected {len(names)}, {' and '.join(names)}, got {len(texts)}")
        yield Row(number, texts, name)
    else:
        yield Row(number, tuple(find_text(value, columns.find_key(wanted, value)) for wanted in names), name)


def find_text(value: dict[str, Any], key: str) -> str:
    """Find a text of an object."""
    if key not in value:
        there = ", ".join(repr(name) for name in list(value)[:8]) or "none"
        raise BadLineError(f"there is no key {key!r} (there are {there}); name it with --columns")
    if not isinstance(value[key], str):
        raise BadLineError(f"{key!r}: expected a text, got {name_json_type(value[key])}")
    return str(value[key])


def find_texts(value: dict[str, Any], key: str) -> tuple[str, ...]:
    """Find the texts of a list in an object."""
    texts = value[key]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadLineError(f"{key!r}: expected a list of texts")
    return tuple(texts)


def find_id(value: dict[str, Any], columns: Columns) -> str | int | float | None:
    """Find what an object calls itself: a text or a number that can be written again."""
    key = columns.id or "id"
    name = value.get(key)
    if name is None:
        if columns.id is not None:
            raise BadLineError(f"there is no {key!r}, which --id asks for")
        return None
    if isinstance(name, bool) or not isinstance(name, (str, int, float)):
        raise BadLineError(f"{key!r}: expected a text or a number, got {name_json_type(name)}")
    try:
        json.dumps(name, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise BadLineError(f"{key!r}: is NaN, infinite, or holds half of a character") from None
    return name


def check_header(columns: Columns, name: str, header: list[str], number: int) -> None:
    """Refuse a header in which a column is missing or stands twice."""
    where = f"{name}: line {number}"
    keys = [columns.find_key(wanted, header) for wanted in columns.names]
    for key in keys + ([columns.id] if columns.id is not None else []):
        if key not in header:
            there = f"there is no column {key!r} in the header (there are {fit_line(', '.join(header))})"
            raise DataError(f"{where}: {there}; name yours: --columns {columns.show_option()}")
        if header.count(key) > 1:
            raise DataError(f"{where}: there are {header.count(key)} columns {key!r} in the header")


def split_chunks(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """Collect rows, or lists of rows that stay together; those before a mistake come before it is raised."""
    chunk: list[Item] = []
    count = letters = 0
    mistake: NSEError | None = None
    try:
        for item in items:
            chunk.append(item)
            rows = item if isinstance(item, list) else [item]
            count += len(rows)
            letters += sum(len(text) for row in rows if isinstance(row, Row) for text in row.texts)
            if count >= size or letters >= CHARACTERS:
                yield chunk
                chunk, count, letters = [], 0, 0
    except NSEError as error:
        mistake = error
    if chunk:
        yield chunk
    if mistake:
        raise mistake


def group_candidates(rows: Iterable[Read]) -> Iterator[list[Read]]:
    """Collect rows with the same question that follow each other, and those of one line."""
    key: tuple[str, int] | None = None

    def find_key(row: Read) -> tuple[str, int] | None:  # a problem goes with those before it
        nonlocal key
        if isinstance(row, Row):
            key = row.texts[0], row.number if row.place else 0
        return key

    return (list(group) for _, group in groupby(rows, find_key))


def stop_at_problem(items: Iterable[Read]) -> Iterator[Read]:
    """Pass rows on up to the first problem, that one too: what comes after it is not waited for."""
    for item in items:
        yield item
        if isinstance(item, BadLine):
            return


def fit_line(text: str) -> str:
    """Cut a text to fit a line, with nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:SHOWN])
    return f"{line}..." if len(text) > SHOWN else line
