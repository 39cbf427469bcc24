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
from nse.data.records import BadLineError, Format, Problem, Source, guess_format, read_records
from nse.data.splits import Rows
from nse.errors import DataError, suggest

LISTED = 20
"""So many columns, or labels, are listed where one is not found."""

RIGHT = {"1": 1, "true": 1, "yes": 1, "0": 0, "false": 0, "no": 0}
"""What a candidate may be labelled with, in any case, and whether it is right."""

MOST_WORDS = 1_000
"""On a side of a translation: what is longer is no sentence, and one such line would pad all others."""

FEW = 10
"""In no more rows than this no label need occur twice."""


class Table(NamedTuple):
    """The columns of a file that were asked for."""

    file: Path
    lines: list[int]  # on which each row begins, from 1
    columns: dict[str, list[str]]  # by what each is for, such as text or label: a text for each row


class Mistakes:
    """What is wrong with a file: the first thing, and how many lines are wrong."""

    def __init__(self, file: Path):
        self.file, self.first, self.count = file, "", 0

    def add(self, line: int, what: object) -> None:
        """Count one more line."""
        self.first = self.first or f"{self.file}: line {line}: {what}"
        self.count += 1

    def tell(self) -> None:
        """Raise what was found, if anything."""
        if self.count:
            more = f" ({self.count - 1:,} more wrong in this file)" if self.count > 1 else ""
            raise DataError(f"{self.first}{more}")


def read_table(file: Path, texts: Mapping[str, str], marks: Mapping[str, str]) -> Table:
    """Read the rows of a file, each whole.

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
    for line, record in _read_records(file, wanted):
        try:
            if isinstance(record, Problem):
                raise BadLineError(record.why)
            row = [_value(column, record, role in marks) for role, column in wanted.items()]
        except BadLineError as wrong:
            mistakes.add(line, wrong)
            continue
        table.lines.append(line)
        for values, value in zip(table.columns.values(), row, strict=True):
            values.append(value)
    mistakes.tell()
    if not table.lines:
        raise DataError(f"{file}: holds no rows")
    return table


def _value(column: str, record: Mapping[str, object], is_mark: bool) -> str:
    """Read a text, or a mark, which may be a number; `BadLineError` says what is wrong with another value."""
    value, expected = record.get(column), "a text or a number" if is_mark else "a text"
    if not isinstance(value, str | int | float if is_mark else str) or value in (inf, -inf) or value != value:
        got = json.dumps(record[column])[:40] if column in record else "nothing"
        raise BadLineError(f"{column}: expected {expected}, got {got}")
    text = value if isinstance(value, str) else json.dumps(value)
    if not text.strip():
        raise BadLineError(f"{column} is empty")
    if is_mark and not text.strip().isprintable():
        raise BadLineError(f"{column}: {text.strip()[:40]!r} holds what cannot be printed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadLineError(f"{column}: holds half of a surrogate pair") from None
    if "\0" in text:
        raise BadLineError(f"{column}: holds a NUL")
    return text.strip() if is_mark else text


def _read_records(file: Path, wanted: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any] | Problem]]:
    """Read records that have the columns that are wanted, of JSON the first one at least."""
    form = guess_format(file)
    if form == Format.text:
        ends = ".jsonl, .json, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it"
        raise DataError(f"{file}: expected a name that ends in {ends}")
    checked = form != Format.jsonl
    with Source(file) as source:
        for line, record in read_records(source, form, lambda there, _: _check_columns(file, wanted, there)):
            if not isinstance(record, Problem):
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
    lacked = " and no ".join(
        f"{column} (did you mean {near[role]}?)" if near[role] else column for role, column in missing.items()
    )
    shown = ", ".join(name[:40] for name in there[:LISTED]) + (", ..." if len(there) > LISTED else "")
    other = len(there) == 1 and any(sign in there[0] for sign in ",;\t")
    alone = " (.csv has commas between columns, .tsv tabs)" if other else ""
    typed = ",".join(f"{role}={near[role] or 'COLUMN'}" for role in missing)
    raise DataError(
        f"{file}: there is no column {lacked}; there are: {shown}{alone}; name them with --columns {typed}"
    )


def find_labels(table: Table) -> tuple[str, ...]:
    """List the labels that occur, in the order of the alphabet."""
    labels = tuple(sorted(set(table.columns["label"])))
    if len(labels) < 2:
        raise DataError(f"{table.file}: every row has the label {labels[0]}; there is nothing to tell apart")
    if len(labels) == len(table.lines) > FEW:
        raise DataError(
            f"{table.file}: every row has a label of its own, as {labels[0]!r}; is it that column?"
        )
    if why := check_labels(labels):
        raise DataError(f"{table.file}: labels: {why}; is it that column?")
    return labels


def read_labelled(table: Table, labels: Sequence[str]) -> Rows:
    """Make rows of texts with one of these labels each."""
    shown = ", ".join(labels[:LISTED]) + (", ..." if len(labels) > LISTED else "")
    known = {label: number for number, label in enumerate(labels)}
    numbers = _number_labels(
        table, known.get, lambda label: f"the label {label!r} is not one that was trained on: {shown}"
    )
    texts = {role: texts for role, texts in table.columns.items() if role != "label"}
    return Rows(texts, numbers, len(numbers))


def read_candidates(table: Table) -> Rows:
    """Make rows of candidates; those with the same group, or else the same question, belong together."""
    labels = _number_labels(
        table,
        lambda label: RIGHT.get(label.lower()),
        lambda label: f"the label is {label!r}; expected 1 for a right answer or 0 for a wrong one",
    )
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(key, len(numbers)) for key in _keys(table)]
    texts = {role: table.columns[role] for role in ("question", "answer")}
    return Rows(texts, labels, len(labels), groups)


def _number_labels(
    table: Table, number: Callable[[str], int | None], refusal: Callable[[str], str]
) -> list[int]:
    mistakes = Mistakes(table.file)
    numbers = [number(label) for label in table.columns["label"]]
    for line, label, found in zip(table.lines, table.columns["label"], numbers, strict=True):
        if found is None:
            mistakes.add(line, refusal(label[:40]))
    mistakes.tell()
    return [found for found in numbers if found is not None]


def read_translations(
    table: Table, source: Callable[[str], list[str]], target: Callable[[str], list[str]]
) -> Rows:
    """Make rows of sentences and their translations, in words with a space between."""
    mistakes = Mistakes(table.file)
    texts: dict[str, list[str]] = {"source": [], "target": []}
    for line, *pair in zip(table.lines, table.columns["source"], table.columns["target"], strict=True):
        for role, tokenize, text in zip(texts, (source, target), pair, strict=True):
            words = tokenize(text)
            if not words:
                mistakes.add(line, f"the {role} has no words")
            elif len(words) > MOST_WORDS:
                why = f"has {len(words):,} words, more than {MOST_WORDS:,}: break it up"
                mistakes.add(line, f"the {role} {why}")
            texts[role].append(" ".join(words))
    mistakes.tell()
    return Rows(texts, [0] * len(table.lines), len(table.lines), tokenized=True)


def hold_out(table: Table, rows: Rows, share: float) -> tuple[Rows, Rows]:
    """Split rows into those to train on and those held out, the same ones whatever the order of the file.

    Rows of one question, of one source sentence, or of the very same texts stay together, so that nothing
    that is trained on is held out too.
    """
    keys = _keys(table)
    drawn = sorted(set(keys), key=lambda key: hashlib.sha256(key.encode()).digest())
    if len(drawn) < 2:
        raise DataError(f"{table.file}: all rows are alike, so that none can be held out: give --dev FILE")
    held = set(drawn[: min(max(1, round(share * len(drawn))), len(drawn) - 1)])
    kept, out = (
        _select(rows, [n for n, key in enumerate(keys) if (key in held) == wanted])
        for wanted in (False, True)
    )
    return kept, out


def _keys(table: Table) -> list[str]:
    """Give what rows that belong together have in common."""
    columns = table.columns
    alone = next((columns[role] for role in ("group", "question", "source") if role in columns), None)
    texts = (column for role, column in columns.items() if role != "label")
    return alone or ["\0".join(row) for row in zip(*texts, strict=True)]


def _select(rows: Rows, index: Sequence[int]) -> Rows:
    """Select rows, their groups numbered anew."""
    numbers: dict[int, int] = {}
    groups = rows.groups and [numbers.setdefault(rows.groups[n], len(numbers)) for n in index]
    texts = {name: [texts[n] for n in index] for name, texts in rows.texts.items()}
    return Rows(texts, [rows.labels[n] for n in index], len(index), groups, rows.tokenized)
