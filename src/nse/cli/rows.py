"""From lines to rows: texts by the names that a model has for them, from JSON Lines, TSV, CSV or plain text.

A line that is no row becomes a `Problem` with its number, and those after it are read on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from nse.cli.people import shown
from nse.data.records import (
    BadLineError,
    Format,
    OpenQuote,
    Problem,
    Source,
    decode_line,
    json_type,
    parse_object,
    split_csv,
    split_tsv,
)
from nse.errors import DataError, InputError, NSEError

Item = TypeVar("Item")

CHUNK = 2048
"""Rows that are asked at a time: the more, the more alike are the lengths that are computed together."""

CHARACTERS = 1 << 20
"""Of the texts of a chunk, which has fewer rows where they are long: this bounds the memory."""


class Row(NamedTuple):
    """A line, or a record of several lines.

    Attributes:
        number: Of its first line, from 1.
        texts: In the order of the columns.
        id: What the file calls it, if anything.
        place: Which of the candidates of its line it is, from 1; 0 where a line is one row.
    """

    number: int
    texts: tuple[str, ...]
    id: str | int | float | None = None
    place: int = 0


class Columns(NamedTuple):
    """Where the texts of a row are found.

    Attributes:
        names: What is wanted, in the order in which it is wanted.
        keys: What each is called in the file, where it is not called by its name.
        id: The column of what rows are called; `None` means `id`, where there is one.
        listed: The key of a list in the place of the last column, which makes several rows of a line.
    """

    names: tuple[str, ...]
    keys: Mapping[str, str] = {}
    id: str | None = None
    listed: str = ""

    def called(self, name: str, there: Collection[str]) -> str:
        """What a column is called among those that are there; a single one may be called `text` as well."""
        own = self.keys.get(name, name)
        is_text = own not in there and "text" in there and len(self.names) == 1 and not self.keys
        return "text" if is_text else own


def columns_of(names: Sequence[str], given: str | None, name: str | None, listed: str = "") -> Columns:
    """Columns as a person names them: `premise=sentence1,hypothesis=sentence2`.

    Raises:
        InputError: That is not what was typed, or a name is none of the model's.
    """
    known = (*names, *([listed] if listed else []), *(["text"] if len(names) == 1 else []))
    keys: dict[str, str] = {}
    for each in given.split(",") if given is not None else []:
        own, sign, key = (part.strip() for part in each.partition("="))
        if not (own and sign and key):
            example = ",".join(f"{name}=COLUMN" for name in names)
            raise InputError(f"--columns: expected {example}, got {given!r}")
        if own not in known:
            raise InputError(f"--columns: expected one of {', '.join(known)} before =, got {own!r}")
        keys[names[0] if own == "text" else own] = key
    return Columns(tuple(names), keys, name, listed)


def rows(source: Source, form: Format, columns: Columns, every: bool = False) -> Iterator[Row | Problem]:
    """The rows of a source, in order.

    Args:
        source: Where to read them.
        form: How they are written.
        columns: What to look for.
        every: Of plain text: every line is a row as it is, blank ones too; else blank ones are passed over,
            and spaces around texts do not count.

    Raises:
        DataError: The source cannot be read, or its header does not have the columns.
    """
    if form == Format.csv:
        return from_table(source, split_csv(source.lines()), columns)
    if form == Format.tsv:
        return from_table(source, split_tsv(source.lines()), columns)
    if form == Format.jsonl:
        return from_json_lines(source.lines(), columns)
    if columns.id is not None or columns.keys:
        raise InputError(f"{source.name}: plain text has no columns: leave out --columns and --id")
    return from_text(source.lines(), columns, every)


def from_text(
    lines: Iterable[tuple[int, bytes | Problem]], columns: Columns, every: bool
) -> Iterator[Row | Problem]:
    """A row of each line; of several texts, with tabs between."""
    several = len(columns.names)
    for number, line in lines:
        if isinstance(line, Problem):
            yield line
            continue
        try:
            text = decode_line(line)
        except BadLineError as wrong:
            yield Problem(number, str(wrong))
            continue
        if every:
            yield Row(number, (text,))
        elif text.strip():
            texts = tuple(part.strip() for part in text.split("\t")) if several > 1 else (text.strip(),)
            if len(texts) == several:
                yield Row(number, texts)
            else:
                wanted = " and ".join(columns.names)
                yield Problem(number, f"expected {wanted} with a tab between, got {len(texts)} of {several}")


def from_json_lines(
    lines: Iterable[tuple[int, bytes | Problem]], columns: Columns
) -> Iterator[Row | Problem]:
    """A row of each object."""
    for number, line in lines:
        if isinstance(line, Problem):
            yield line
        elif line.strip():
            try:
                yield from from_object(number, parse_object(line), columns)
            except BadLineError as wrong:
                yield Problem(number, str(wrong))


def from_object(number: int, value: dict[str, Any], columns: Columns) -> Iterator[Row]:
    """The row of an object, or the rows where it has a list of candidates."""
    name, names = id_of(value, columns), columns.names
    listed = columns.keys.get(columns.listed, columns.listed)
    if listed and listed in value:
        first = [text_of(value, columns.called(each, value)) for each in names[:-1]]
        for place, text in enumerate(texts_of(value, listed), start=1):
            yield Row(number, (*first, text), name, place)
    elif len(names) > 1 and "texts" in value and not any(each in value for each in names):
        texts = texts_of(value, "texts")
        if len(texts) != len(names):
            raise BadLineError(f"'texts': expected {len(names)}, {' and '.join(names)}, got {len(texts)}")
        yield Row(number, texts, name)
    else:
        yield Row(number, tuple(text_of(value, columns.called(each, value)) for each in names), name)


def text_of(value: dict[str, Any], key: str) -> str:
    """A text of an object."""
    if key not in value:
        there = ", ".join(repr(name) for name in list(value)[:8]) or "none"
        raise BadLineError(f"there is no key {key!r} (there are {there}); name it with --columns")
    if not isinstance(value[key], str):
        raise BadLineError(f"{key!r}: expected a text, got {json_type(value[key])}")
    return str(value[key])


def texts_of(value: dict[str, Any], key: str) -> tuple[str, ...]:
    """The texts of a list in an object."""
    found = value[key]
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise BadLineError(f"{key!r}: expected a list of texts")
    return tuple(found)


def id_of(value: dict[str, Any], columns: Columns) -> str | int | float | None:
    """What an object calls itself: a text or a number that can be written again."""
    found = value.get(columns.id or "id")
    if found is None:
        if columns.id is not None:
            raise BadLineError(f"there is no {columns.id!r}, which --id asks for")
        return None
    if isinstance(found, bool) or not isinstance(found, (str, int, float)):
        raise BadLineError(f"{columns.id or 'id'!r}: expected a text or a number, got {json_type(found)}")
    try:
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        what = "is NaN, infinite, or holds half of a character"
        raise BadLineError(f"{columns.id or 'id'!r}: {what}") from None
    return found


def from_table(
    source: Source, records: Iterator[tuple[int, list[str] | Problem]], columns: Columns
) -> Iterator[Row | Problem]:
    """The rows under a header."""
    header: list[str] | None = None
    for number, fields in records:
        if isinstance(fields, Problem):
            if isinstance(fields, OpenQuote):
                raise DataError(f"{source.name}: line {number}: {fields.why}")
            if header is None:
                raise DataError(f"{source.name}: line {number}: the header {fields.why}")
            yield fields
        elif not any(fields):
            continue  # a blank line
        elif header is None:
            header = [field.strip() for field in fields]
            places, name = found_in(header, columns, f"{source.name}: line {number}")
        elif len(fields) != len(header):
            why = f"expected {len(header)} fields, as in the header, got {len(fields)}"
            yield Problem(number, why, 1 + sum(field.count("\n") for field in fields))
        else:
            texts = tuple(fields[place] for place in places)
            yield Row(number, texts, None if name is None else fields[name])


def found_in(header: list[str], columns: Columns, where: str) -> tuple[list[int], int | None]:
    """Where in a header the columns are, and that of what rows are called."""
    called = [columns.called(name, header) for name in columns.names]
    wanted = called + ([columns.id] if columns.id is not None else [])
    if missing := [name for name in wanted if name not in header]:
        there = shown(", ".join(header))
        how = ",".join(f"{name}=COLUMN" for name in columns.names)
        raise DataError(
            f"{where}: there is no column {missing[0]!r} in the header (there are {there}); "
            f"name yours: --columns {how}"
        )
    if twice := [name for name in wanted if header.count(name) > 1]:
        raise DataError(f"{where}: there are {header.count(twice[0])} columns {twice[0]!r} in the header")
    name = columns.id or "id"
    return [header.index(each) for each in called], header.index(name) if name in header else None


def one(item: Any) -> Sequence[Row | Problem]:
    """The row of an item that is one."""
    return (item,)


def in_chunks(
    items: Iterable[Item], size: int = CHUNK, rows_of: Callable[[Item], Sequence[Row | Problem]] = one
) -> Iterator[list[Item]]:
    """So many rows at a time, fewer if they are long; those before a mistake come before it is told.

    Args:
        items: Rows, or groups of them that stay together.
        size: How many rows.
        rows_of: Those of an item.
    """
    some: list[Item] = []
    count = letters = 0
    try:
        for item in items:
            some.append(item)
            for row in rows_of(item):
                count += 1
                letters += sum(map(len, row.texts)) if isinstance(row, Row) else 0
            if count >= size or letters >= CHARACTERS:
                yield some
                some, count, letters = [], 0, 0
    except NSEError:
        if some:
            yield some
        raise
    if some:
        yield some


def up_to_a_problem(items: Iterable[Row | Problem]) -> Iterator[Row | Problem]:
    """Rows up to the first problem, that one too: what comes after it is not waited for."""
    for item in items:
        yield item
        if isinstance(item, Problem):
            return
