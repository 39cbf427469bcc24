"""A user's own file: every line is looked at before anything is done, and becomes a row of a split.

How rows are written in JSON lines, TSV and CSV is known to `nse.data.records`.
"""

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

MAX_LISTED = 20  # columns, or labels, that are listed where one is not found
MARKS = ("label", "group")  # roles of columns that are no texts
FEW = 10  # in no more rows than this no label need occur twice

Check = Callable[[dict[str, str]], None]


class Table(NamedTuple):
    """The rows of a file."""

    file: Path
    columns: dict[str, list[str]]  # by what each is for, such as text or label
    keys: list[str]  # what rows that belong together have in common, as it is written


def read_table(file: Path, wanted: Mapping[str, str], check: Check = lambda _: None) -> Table:
    """Read the rows of a file, each whole; `DataError` names the first line that is wrong, and counts others.

    Args:
        file: Whose name ends in .jsonl, .json, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it.
        wanted: The column of each role; a text must not be blank, a mark may also be a number.
        check: Refuses the texts of a row, by role, with `BadLineError`, or changes them.
    """
    table = Table(file, {role: [] for role in wanted}, [])
    alone = next((role for role in ("group", "question", "source") if role in wanted), None)
    mistakes: list[str] = []
    for line, record in _read_records(file, wanted):
        try:
            if isinstance(record, BadLine):
                raise BadLineError(record.why)
            row = {role: _read_value(column, record, role in MARKS) for role, column in wanted.items()}
            texts = (value for role, value in row.items() if role != "label")
            key = row[alone] if alone else "\0".join(texts)
            check(row)
        except BadLineError as wrong:
            mistakes.append(f"line {line}: {wrong}" if not mistakes else "")
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


def _read_value(column: str, record: Mapping[str, object], is_mark: bool) -> str:
    """Read a text, or a mark, which may be a number; `BadLineError` says what is wrong with another value."""
    value = record.get(column)
    if is_mark and isinstance(value, int | float) and value == value and value not in (inf, -inf):
        record = {column: json.dumps(value)}
    text = get_text(record, column, "a text or a number" if is_mark else "a text")
    if not text.strip():
        raise BadLineError(f"{column} is empty")
    if is_mark and not text.strip().isprintable():
        raise BadLineError(f"{column}: {text.strip()[:40]!r} holds what cannot be printed")
    if "\0" in text:
        raise BadLineError(f"{column}: holds a NUL")
    return text.strip() if is_mark else text


def _read_records(file: Path, wanted: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Read records that have the columns that are wanted, of JSON the first one at least."""
    form = guess_format(file)
    if form == Format.text:
        ends = ".jsonl, .json, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it"
        raise DataError(f"{file}: expected a name that ends in {ends}")
    checked = form != Format.jsonl
    with LineSource(file) as source:
        for line, record in read_records(source, form, lambda there, _: _check_columns(file, wanted, there)):
            if not isinstance(record, BadLine):
                checked = checked or _check_columns(file, wanted, list(record))
            yield line, record


def _check_columns(file: Path, wanted: Mapping[str, str], there: Sequence[str]) -> bool:
    """Refuse a file in which a column is not found, or found twice."""
    if twice := [column for column in wanted.values() if there.count(column) > 1]:
        raise DataError(f"{file}: there is more than one column {twice[0]}; give each a name of its own")
    missing = {role: column for role, column in wanted.items() if column not in there}
    if not missing:
        return True
    near = {role: suggest(column, there) for role, column in missing.items()}
    advice = {role: f" (did you mean {name}?)" if name else "" for role, name in near.items()}
    lacked = " and no ".join(column + advice[role] for role, column in missing.items())
    shown = ", ".join(name[:40] for name in there[:MAX_LISTED]) + (", ..." if len(there) > MAX_LISTED else "")
    other = len(there) == 1 and any(sign in there[0] for sign in ",;\t")
    alone = " (.csv has commas between columns, .tsv tabs)" if other else ""
    typed = ",".join(f"{role}={near[role] or 'COLUMN'}" for role in missing)
    wrong = f"there is no column {lacked}; there are: {shown}{alone}"
    raise DataError(f"{file}: {wrong}", ("columns", typed))


def list_labels(table: Table) -> tuple[str, ...]:
    """List the labels that occur, in the order of the alphabet."""
    labels = tuple(sorted(set(table.columns["label"])))
    if len(labels) < 2:
        raise DataError(f"{table.file}: every row has the label {labels[0]}; there is nothing to tell apart")
    if len(labels) == len(table.columns["label"]) > FEW:
        own = f"every row has a label of its own, as {labels[0]!r}"
        raise DataError(f"{table.file}: {own}; is it that column?")
    if why := check_labels(labels):
        raise DataError(f"{table.file}: labels: {why}; is it that column?")
    return labels


def make_rows(table: Table, numbers: Mapping[str, int]) -> Rows:
    """Make rows with the numbers of their labels; those of one question belong together."""
    columns, places = table.columns, dict[str, int]()
    texts = {role: texts for role, texts in columns.items() if role not in MARKS}
    labels = [numbers[label] for label in columns.get("label", ())] or [0] * len(table.keys)
    groups = [places.setdefault(key, len(places)) for key in table.keys] if "question" in columns else None
    return Rows(texts, labels, len(table.keys), groups, tokenized="target" in columns)


def hold_out(table: Table, rows: Rows, share: float) -> tuple[Rows, Rows]:
    """Split rows into those to train on and those held out, the same ones whatever the order of the file.

    Rows of one question, of one source sentence, or of the very same texts stay together, so that nothing
    that is trained on is held out too.
    """
    drawn = sorted(set(table.keys), key=lambda key: hashlib.sha256(key.encode()).digest())
    if len(drawn) < 2:
        raise DataError(f"{table.file}: all rows are alike, so that none can be held out", ("dev",))
    held = set(drawn[: min(max(1, round(share * len(drawn))), len(drawn) - 1)])
    kept = [n for n, key in enumerate(table.keys) if key not in held]
    return _select(rows, kept), _select(rows, [n for n, key in enumerate(table.keys) if key in held])


def _select(rows: Rows, index: Sequence[int]) -> Rows:
    """Select rows, their groups numbered anew."""
    numbers: dict[int, int] = {}
    groups = rows.groups and [numbers.setdefault(rows.groups[n], len(numbers)) for n in index]
    texts = {name: [texts[n] for n in index] for name, texts in rows.texts.items()}
    return Rows(texts, [rows.labels[n] for n in index], len(index), groups, rows.tokenized)
