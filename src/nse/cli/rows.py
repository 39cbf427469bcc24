"""Parse rows of texts from JSON Lines, TSV, CSV or plain text.

A line that cannot be parsed becomes a `BadLine`, and reading goes on after it.
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

CHUNK = 2048  # rows that are sorted by length and computed together
MAX_CHUNK_CHARACTERS = 1 << 20  # bounds the memory of a chunk of long texts
MAX_SHOWN = 200  # characters of a text on the terminal


class Row(NamedTuple):
    """Texts of a line, or of a record of several lines."""

    number: int  # of its first line, from 1
    texts: tuple[str, ...]  # in the order of the schema
    id: str | int | float | None = None
    candidate: int = 0  # position among the candidates of its line, from 1; 0 if the line is one row


RowOrBadLine = Row | BadLine
Item = TypeVar("Item", bound=Row | BadLine | list[Row | BadLine])


class RowSchema(NamedTuple):
    """Names of the texts of a row, and where they are in a file."""

    names: tuple[str, ...]  # of the texts, in order
    keys: Mapping[str, str] = {}  # columns of the texts, if they have other names
    id: str | None = None  # column of the id; `None` means `id`, if there is such a column
    list_key: str = ""  # key of a list of candidates, instead of the last text
    keeps_blank: bool = False  # makes a row of every line of plain text, even a blank one

    def find_key(self, name: str, columns: Collection[str]) -> str:
        """Find the column of a text; a single text may be in the column `text`."""
        key = self.keys.get(name, name)
        is_text = key not in columns and "text" in columns and len(self.names) == 1 and not self.keys
        return "text" if is_text else key

    def show_option(self) -> str:
        """Show a value for --columns."""
        return ",".join(f"{name}=COLUMN" for name in self.names)


@dataclass(frozen=True)
class CommandInput:
    """Input of a command: typed texts, or the rows of a file or of standard input."""

    command: str
    texts: Sequence[str]
    file: Path | None
    form: Format | None
    columns: str | None
    id: str | None
    noun: str = "texts"

    def __post_init__(self) -> None:
        """Raise an `InputError` for options that contradict each other."""
        if self.texts and self.file:
            raise InputError(f"{self.command}: give either {self.noun}, or --file, not both")
        options = {"--format": self.form, "--columns": self.columns, "--id": self.id}
        typed = [name for name, value in options.items() if value is not None]
        if self.texts and typed:
            raise InputError(f"{self.command}: {', '.join(typed)}: only for a file or standard input")


def parse_keys(option: str | None, schema: RowSchema) -> RowSchema:
    """Parse column names such as `premise=sentence1,hypothesis=sentence2` into a schema."""
    one = len(schema.names) == 1
    known = [name for name in (*schema.names, schema.list_key, "text" if one else "") if name]
    keys: dict[str, str] = {}
    for pair in option.split(",") if option is not None else []:
        name, sign, key = (part.strip() for part in pair.partition("="))
        if not (name and sign and key):
            raise InputError(f"--columns: expected {schema.show_option()}, got {option!r}")
        if name not in known:
            raise InputError(f"--columns: expected one of {', '.join(known)} before =, got {name!r}")
        keys[schema.names[0] if name == "text" else name] = key
    return schema._replace(keys=keys)


def read_rows(source: LineSource, form: Format, schema: RowSchema) -> Iterator[RowOrBadLine]:
    """Read the rows of a source in order; a line that cannot be parsed is a `BadLine`."""
    if form == Format.text and (schema.id is not None or schema.keys):
        raise InputError(f"{source.name}: plain text has no columns: leave out --columns and --id")
    if form == Format.text:
        return parse_records(source.name, source.read_lines(), partial(parse_text, schema))
    if form != Format.jsonl:
        schema = schema._replace(list_key="")
    values = read_records(source, form, partial(check_header, schema, source.name))
    return parse_records(source.name, values, partial(parse_value, schema))


def parse_records(
    name: str, numbered: Iterable[tuple[int, Any]], parse: Callable[[int, Any], Iterable[Row]]
) -> Iterator[RowOrBadLine]:
    """Parse numbered lines or records, each into any number of rows."""
    for number, record in numbered:
        if isinstance(record, UnclosedQuote):
            raise DataError(f"{name}: line {number}: {record.why}")
        if isinstance(record, BadLine):
            yield record
            continue
        try:
            yield from parse(number, record)
        except BadLineError as error:
            yield BadLine(number, str(error))


def parse_text(schema: RowSchema, number: int, line: bytes) -> Iterator[Row]:
    """Parse a line of plain text; several texts are separated by tabs."""
    text, count = decode_line(line), len(schema.names)
    if schema.keeps_blank:
        yield Row(number, (text,))
    elif text.strip():
        texts = tuple(part.strip() for part in (text.split("\t") if count > 1 else [text]))
        if len(texts) != count:
            names = " and ".join(schema.names)
            raise BadLineError(f"expected {names} with a tab between, got {len(texts)} of {count}")
        yield Row(number, texts)


def parse_value(schema: RowSchema, number: int, value: dict[str, Any]) -> Iterator[Row]:
    """Parse a record into a row, or into a row for each candidate of its list."""
    row_id, names = find_id(value, schema), schema.names
    list_key = schema.keys.get(schema.list_key, schema.list_key)
    if list_key and list_key in value:
        first = [find_text(value, schema.find_key(name, value)) for name in names[:-1]]
        for candidate, text in enumerate(find_texts(value, list_key), start=1):
            yield Row(number, (*first, text), row_id, candidate)
    elif len(names) > 1 and "texts" in value and not any(name in value for name in names):
        texts = find_texts(value, "texts")
        if len(texts) != len(names):
            raise BadLineError(f"'texts': expected {len(names)}, {' and '.join(names)}, got {len(texts)}")
        yield Row(number, texts, row_id)
    else:
        yield Row(number, tuple(find_text(value, schema.find_key(name, value)) for name in names), row_id)


def find_text(value: dict[str, Any], key: str) -> str:
    """Return the text of a key."""
    if key not in value:
        keys = ", ".join(repr(name) for name in list(value)[:8]) or "none"
        raise BadLineError(f"there is no key {key!r} (there are {keys}); name it with --columns")
    if not isinstance(value[key], str):
        raise BadLineError(f"{key!r}: expected a text, got {name_json_type(value[key])}")
    return str(value[key])


def find_texts(value: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the texts of a list."""
    texts = value[key]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadLineError(f"{key!r}: expected a list of texts")
    return tuple(texts)


def find_id(value: dict[str, Any], schema: RowSchema) -> str | int | float | None:
    """Return the id of a record: a text or a finite number."""
    key = schema.id or "id"
    row_id = value.get(key)
    if row_id is None:
        if schema.id is not None:
            raise BadLineError(f"there is no {key!r}, which --id names")
        return None
    if isinstance(row_id, bool) or not isinstance(row_id, (str, int, float)):
        raise BadLineError(f"{key!r}: expected a text or a number, got {name_json_type(row_id)}")
    try:
        json.dumps(row_id, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise BadLineError(f"{key!r}: is NaN, infinite, or holds half of a surrogate pair") from None
    return row_id


def check_header(schema: RowSchema, name: str, header: list[str], number: int) -> None:
    """Raise a `DataError` if a column is missing or occurs twice."""
    where = f"{name}: line {number}"
    keys = [schema.find_key(text_name, header) for text_name in schema.names]
    for key in keys + ([schema.id] if schema.id is not None else []):
        if key not in header:
            missing = f"there is no column {key!r} in the header (there are {fit_line(', '.join(header))})"
            raise DataError(f"{where}: {missing}; name yours: --columns {schema.show_option()}")
        if header.count(key) > 1:
            raise DataError(f"{where}: there are {header.count(key)} columns {key!r} in the header")


def split_chunks(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """Collect rows or groups into chunks; before an error is raised, the rows before it are yielded."""
    chunk: list[Item] = []
    count = characters = 0
    error: NSEError | None = None
    try:
        for item in items:
            chunk.append(item)
            rows = item if isinstance(item, list) else [item]
            count += len(rows)
            characters += sum(len(text) for row in rows if isinstance(row, Row) for text in row.texts)
            if count >= size or characters >= MAX_CHUNK_CHARACTERS:
                yield chunk
                chunk, count, characters = [], 0, 0
    except NSEError as raised:
        error = raised
    if chunk:
        yield chunk
    if error:
        raise error


def group_candidates(rows: Iterable[RowOrBadLine]) -> Iterator[list[RowOrBadLine]]:
    """Group consecutive rows with the same question; the candidates of one line are a group of their own."""
    key: tuple[str, int] | None = None

    def find_group(row: RowOrBadLine) -> tuple[str, int] | None:  # a bad line joins the group before it
        nonlocal key
        if isinstance(row, Row):
            key = row.texts[0], row.number if row.candidate else 0
        return key

    return (list(group) for _, group in groupby(rows, find_group))


def stop_at_bad_line(rows: Iterable[RowOrBadLine]) -> Iterator[RowOrBadLine]:
    """Yield rows up to the first bad line, included, without waiting for what follows."""
    for row in rows:
        yield row
        if isinstance(row, BadLine):
            return


def fit_line(text: str) -> str:
    """Truncate a text to a line, with spaces for control characters."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:MAX_SHOWN])
    return f"{line}..." if len(text) > MAX_SHOWN else line
