"""A user's own file, every column that is wanted at once: all lines are looked at before anything is done.

How rows are written in JSON lines, TSV and CSV is known to `nse.data.records`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from nse.data.records import (
    BadLineError,
    Format,
    Problem,
    Source,
    guess_format,
    parse_object,
    split_csv,
    split_tsv,
)
from nse.errors import DataError, suggest

LISTED = 20
"""So many columns are listed where one is not found."""

Record = tuple[int, Mapping[str, object]]
"""The line on which a row begins, and its values by column."""


class Table(NamedTuple):
    """The columns of a file that were asked for.

    Attributes:
        file: Where it was read.
        lines: On which line each row begins, from 1.
        columns: By what each is for, such as text or label: a text for each row.
    """

    file: Path
    lines: list[int]
    columns: dict[str, list[str]]


class Mistakes:
    """What is wrong with a file: the first thing, and how many lines are wrong."""

    def __init__(self, file: Path):
        self.file, self.first, self.count = file, "", 0

    def add(self, line: int, what: object) -> None:
        """One more line is wrong."""
        self.first = self.first or f"{self.file}: line {line}: {what}"
        self.count += 1

    def tell(self) -> None:
        """Raise what was found, if anything."""
        if self.count:
            more = f" ({self.count - 1:,} more wrong in this file)" if self.count > 1 else ""
            raise DataError(f"{self.first}{more}")


def read(file: Path, texts: Mapping[str, str], marks: Mapping[str, str]) -> Table:
    """The rows of a file, each whole.

    Args:
        file: Whose name ends in .jsonl, .json, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it.
        texts: The column of each text, by what it is for: texts must not be blank.
        marks: Likewise of labels and the like: these may also be numbers or truth values in JSON, and lose
            the white space around them.

    Raises:
        DataError: The file cannot be read, lacks a column, has no rows, or some are not right.
    """
    mistakes, wanted = Mistakes(file), {**texts, **marks}
    table = Table(file, [], {role: [] for role in wanted})
    for line, record in _records(file, wanted, mistakes):
        try:
            row = [(_text if role in texts else _mark)(column, record) for role, column in wanted.items()]
        except ValueError as error:
            mistakes.add(line, error)
            continue
        table.lines.append(line)
        for values, value in zip(table.columns.values(), row, strict=True):
            values.append(value)
    mistakes.tell()
    if not table.lines:
        raise DataError(f"{file}: holds no rows")
    return table


def _text(column: str, record: Mapping[str, object]) -> str:
    """A text; `ValueError` says what is wrong with another value."""
    text = record.get(column)
    if not isinstance(text, str):
        raise ValueError(f"{column}: expected a text, got {_shown(column, record)}")
    if not text.strip():
        raise ValueError(f"{column} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{column}: holds half of a surrogate pair") from None
    if "\0" in text:
        raise ValueError(f"{column}: holds a NUL")
    return text


def _mark(column: str, record: Mapping[str, object]) -> str:
    """A label and the like as a text; `ValueError` says what is wrong with another value."""
    value = record.get(column)
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not isfinite(value)):
        raise ValueError(f"{column}: expected a text or a number, got {_shown(column, record)}")
    mark = value.strip() if isinstance(value, str) else json.dumps(value)
    if not mark:
        raise ValueError(f"{column} is empty")
    if not mark.isprintable():
        raise ValueError(f"{column}: {mark[:40]!r} holds what cannot be printed")
    return mark


def _shown(column: str, record: Mapping[str, object]) -> str:
    return json.dumps(record[column])[:40] if column in record else "nothing"


def _records(file: Path, wanted: Mapping[str, str], mistakes: Mistakes) -> Iterator[Record]:
    """The rows of a file by the columns that are wanted."""
    form = guess_format(file)
    if form == Format.text:
        ends = ".jsonl, .json, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it"
        raise DataError(f"{file}: expected a name that ends in {ends}")
    with Source(file) as source:
        if form == Format.jsonl:
            yield from _objects(file, source.lines(), wanted, mistakes)
        else:
            cut = split_csv if form == Format.csv else split_tsv
            yield from _under_header(file, cut(source.lines()), wanted, mistakes)


def _objects(
    file: Path, lines: Iterable[tuple[int, bytes | Problem]], wanted: Mapping[str, str], mistakes: Mistakes
) -> Iterator[Record]:
    """A JSON object on each line; the first one has every column that is wanted."""
    first = True
    for number, line in lines:
        if isinstance(line, Problem):
            mistakes.add(number, line.why)
            continue
        if not line.strip():
            continue
        try:
            record = parse_object(line)
        except BadLineError as wrong:
            mistakes.add(number, wrong)
            continue
        if first:
            _refuse_missing(file, wanted, list(record))
            first = False
        yield number, record


def _under_header(
    file: Path,
    rows: Iterable[tuple[int, list[str] | Problem]],
    wanted: Mapping[str, str],
    mistakes: Mistakes,
) -> Iterator[Record]:
    """Rows by the columns that the first one names; those with nothing in them are blank lines."""
    header: list[str] = []
    places: dict[str, int] = {}
    for line, fields in rows:
        if isinstance(fields, Problem):
            if not header:
                raise DataError(f"{file}: line {line}: {fields.why}")
            mistakes.add(line, fields.why)
        elif not any(fields):
            continue
        elif not header:
            header = [field.strip() for field in fields]
            _refuse_missing(file, wanted, header)
            places = {column: header.index(column) for column in wanted.values()}
        elif len(fields) != len(header):
            mistakes.add(line, f"expected {len(header)} fields, as the header has, got {len(fields)}")
        else:
            yield line, {column: fields[place] for column, place in places.items()}


def _refuse_missing(file: Path, wanted: Mapping[str, str], there: Sequence[str]) -> None:
    """Refuse a file in which a column is not found, or found twice."""
    if twice := [column for column in wanted.values() if there.count(column) > 1]:
        raise DataError(f"{file}: there is more than one column {twice[0]}; give each a name of its own")
    missing = {role: column for role, column in wanted.items() if column not in there}
    if not missing:
        return
    near = {role: suggest(column, there) for role, column in missing.items()}
    asked = [
        f"{column} (did you mean {near[role]}?)" if near[role] else column for role, column in missing.items()
    ]
    shown = ", ".join(name[:40] for name in there[:LISTED]) + (", ..." if len(there) > LISTED else "")
    typed = ",".join(f"{role}={near[role] or 'COLUMN'}" for role in missing)
    other = len(there) == 1 and any(sign in there[0] for sign in ",;\t")
    alone = " (.csv has commas between columns, .tsv tabs)" if other else ""
    raise DataError(
        f"{file}: there is no column {' and no '.join(asked)}; there are: {shown}{alone}; "
        f"name them with --columns {typed}"
    )
