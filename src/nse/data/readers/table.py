"""Read a user's own file: check every line, and make it a row of a split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from nse.config import check_labels
from nse.data.records import BadLine, BadLineError, Format, LineSource, get_text, guess_format, read_records
from nse.data.sources import Rows
from nse.errors import DataError, suggest

MAX_LISTED = 20  # columns or labels in an error message
NOT_TEXTS = ("label", "group")  # roles of columns, which may also hold numbers
FEW_ROWS = 10  # so few rows may each have a label of their own

Check = Callable[[dict[str, str]], None]


class Table(NamedTuple):
    """Rows of a file."""

    file: Path
    columns: dict[str, list[str]]  # by role, such as text or label
    keys: list[str]  # the same for rows that must stay together


def read_table(file: Path, roles: Mapping[str, str], check: Check = lambda _: None) -> Table:
    """Read the rows of a file; raise `DataError` with the first wrong line and the number of others.

    Args:
        file: Path that ends in .jsonl, .json, .tsv or .csv, perhaps followed by .gz, .xz or .bz2.
        roles: Column of each role. Texts must not be blank; labels and groups may also be numbers.
        check: Raises `BadLineError` for a wrong row, given as texts by role, or changes it.
    """
    table = Table(file, {role: [] for role in roles}, [])
    key_role = next((role for role in ("group", "question", "source") if role in roles), None)
    mistakes: list[str] = []
    for line, record in _read_records(file, roles):
        try:
            if isinstance(record, BadLine):
                raise BadLineError(record.why)
            row = {role: _read_value(column, record, role in NOT_TEXTS) for role, column in roles.items()}
            texts = (value for role, value in row.items() if role != "label")
            key = row[key_role] if key_role else "\0".join(texts)
            check(row)
        except BadLineError as error:
            mistakes.append(f"line {line}: {error}" if not mistakes else "")
            continue
        table.keys.append(key)
        for role, value in row.items():
            table.columns[role].append(value)
    if mistakes:
        more = f" ({len(mistakes) - 1:,} more wrong in this file)" if len(mistakes) > 1 else ""
        raise DataError(f"{file}: {mistakes[0]}{more}")
    if not table.keys:
        raise DataError(f"{file}: holds no rows")
    return table


def _read_value(column: str, record: Mapping[str, object], may_be_number: bool) -> str:
    """Return a value of a record as text; raise `BadLineError` if it is blank or of another type."""
    value = record.get(column)
    if may_be_number and isinstance(value, int | float) and value == value and value not in (inf, -inf):
        record = {column: json.dumps(value)}
    text = get_text(record, column, "a text or a number" if may_be_number else "a text")
    if not text.strip():
        raise BadLineError(f"{column} is empty")
    if may_be_number and not text.strip().isprintable():
        raise BadLineError(f"{column}: {text.strip()[:40]!r} holds characters that cannot be printed")
    if "\0" in text:
        raise BadLineError(f"{column}: holds a NUL")
    return text.strip() if may_be_number else text


def _read_records(file: Path, roles: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Yield records; raise `DataError` if the header, or the first JSON object, lacks a column."""
    form = guess_format(file)
    if form == Format.text:
        ends = ".jsonl, .json, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it"
        raise DataError(f"{file}: expected a name that ends in {ends}")
    checked = form != Format.jsonl
    with LineSource(file) as source:
        for line, record in read_records(source, form, lambda names, _: _check_columns(file, roles, names)):
            if not isinstance(record, BadLine):
                checked = checked or _check_columns(file, roles, list(record))
            yield line, record


def _check_columns(file: Path, roles: Mapping[str, str], columns: Sequence[str]) -> bool:
    """Raise if a column is missing or there twice."""
    if repeated := [column for column in roles.values() if columns.count(column) > 1]:
        raise DataError(f"{file}: there is more than one column {repeated[0]}; give each a name of its own")
    missing = {role: column for role, column in roles.items() if column not in columns}
    if not missing:
        return True
    near = {role: suggest(column, columns) for role, column in missing.items()}
    advice = {role: f" (did you mean {name}?)" if name else "" for role, name in near.items()}
    names = " and no ".join(column + advice[role] for role, column in missing.items())
    shown = ", ".join(name[:40] for name in columns[:MAX_LISTED])
    shown += ", ..." if len(columns) > MAX_LISTED else ""
    if len(columns) == 1 and any(sign in columns[0] for sign in ",;\t"):
        shown += " (.csv has commas between columns, .tsv tabs)"
    typed = ",".join(f"{role}={near[role] or 'COLUMN'}" for role in missing)
    raise DataError(f"{file}: there is no column {names}; there are: {shown}", ("columns", typed))


def list_labels(table: Table) -> tuple[str, ...]:
    """List the labels that occur, alphabetically."""
    labels = tuple(sorted(set(table.columns["label"])))
    if len(labels) < 2:
        raise DataError(f"{table.file}: every row has the label {labels[0]}; a classifier needs two")
    if len(labels) == len(table.columns["label"]) > FEW_ROWS:
        wrong = f"every row has a label of its own, such as {labels[0]!r}"
        raise DataError(f"{table.file}: {wrong}; is it the right column?")
    if why := check_labels(labels):
        raise DataError(f"{table.file}: labels: {why}; is it the right column?")
    return labels


def make_rows(table: Table, numbers: Mapping[str, int]) -> Rows:
    """Make rows with the indices of their labels; rows with the same question form a group."""
    columns, questions = table.columns, dict[str, int]()
    texts = {role: texts for role, texts in columns.items() if role not in NOT_TEXTS}
    labels = [numbers[label] for label in columns.get("label", ())] or [0] * len(table.keys)
    groups = None
    if "question" in columns:
        groups = [questions.setdefault(key, len(questions)) for key in table.keys]
    return Rows(texts, labels, len(table.keys), groups, tokenized="target" in columns)


def hold_out(table: Table, rows: Rows, fraction: float) -> tuple[Rows, Rows]:
    """Split rows into a training set and a dev set, which do not depend on the order of the file.

    Rows of the same question or source sentence, or with the same texts, stay together, so that no training
    text is in the dev set.
    """
    keys = sorted(set(table.keys), key=lambda key: hashlib.sha256(key.encode()).digest())
    if len(keys) < 2:
        raise DataError(f"{table.file}: all rows are alike, so that none can be held out", ("dev",))
    dev = set(keys[: min(max(1, round(fraction * len(keys))), len(keys) - 1)])
    kept = [n for n, key in enumerate(table.keys) if key not in dev]
    return _select(rows, kept), _select(rows, [n for n, key in enumerate(table.keys) if key in dev])


def _select(rows: Rows, index: Sequence[int]) -> Rows:
    """Select rows, and number their groups anew."""
    numbers: dict[int, int] = {}
    groups = rows.groups and [numbers.setdefault(rows.groups[n], len(numbers)) for n in index]
    texts = {name: [texts[n] for n in index] for name, texts in rows.texts.items()}
    return Rows(texts, [rows.labels[n] for n in index], len(index), groups, rows.tokenized)
