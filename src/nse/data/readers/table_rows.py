"""From the columns of a user's own files to the rows of each split: labels, questions, what is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from nse.config import check_labels
from nse.data.readers.table import Mistakes, Table
from nse.data.splits import Rows
from nse.errors import DataError

RIGHT = {"1": 1, "true": 1, "yes": 1, "0": 0, "false": 0, "no": 0}
"""What a candidate may be labelled with, in any case, and whether it is right."""

MOST_WORDS = 1_000
"""On a side of a translation: what is longer is no sentence, and one such line would pad all others."""

FEW = 10
"""In no more rows than this no label need occur twice."""

Split = Callable[[str], list[str]]
"""From a text to its words."""


def labels_of(table: Table) -> tuple[str, ...]:
    """The labels that occur, in the order of the alphabet."""
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


def labelled(table: Table, labels: Sequence[str]) -> Rows:
    """Texts with one of these labels each."""
    numbers, mistakes = {label: number for number, label in enumerate(labels)}, Mistakes(table.file)
    shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
    for line, label in zip(table.lines, table.columns["label"], strict=True):
        if label not in numbers:
            mistakes.add(line, f"the label {label[:40]!r} is not one that was trained on: {shown}")
    mistakes.tell()
    texts = {role: texts for role, texts in table.columns.items() if role != "label"}
    return Rows(texts, [numbers[label] for label in table.columns["label"]], len(table.lines))


def ranked(table: Table) -> Rows:
    """Candidates, right or wrong; those with the same group, or else the same question, belong together."""
    labels, mistakes = [], Mistakes(table.file)
    for line, label in zip(table.lines, table.columns["label"], strict=True):
        right = RIGHT.get(label.lower())
        if right is None:
            mistakes.add(
                line, f"the label is {label[:40]!r}; expected 1 for a right answer or 0 for a wrong one"
            )
        labels.append(right or 0)
    mistakes.tell()
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(key, len(numbers)) for key in _keys(table)]
    texts = {role: table.columns[role] for role in ("question", "answer")}
    return Rows(texts, labels, len(labels), groups)


def translated(table: Table, source: Split, target: Split) -> Rows:
    """Sentences and their translations, in words with a space between."""
    mistakes = Mistakes(table.file)
    texts: dict[str, list[str]] = {"source": [], "target": []}
    for line, *pair in zip(table.lines, table.columns["source"], table.columns["target"], strict=True):
        for (role, words), split, text in zip(texts.items(), (source, target), pair, strict=True):
            found = split(text)
            if not found:
                mistakes.add(line, f"the {role} has no words")
            elif len(found) > MOST_WORDS:
                mistakes.add(
                    line, f"the {role} has {len(found):,} words, more than {MOST_WORDS:,}: break it up"
                )
            words.append(" ".join(found))
    mistakes.tell()
    return Rows(texts, [0] * len(table.lines), len(table.lines), tokenized=True)


def held_out(table: Table, rows: Rows, share: float) -> tuple[Rows, Rows]:
    """The rows to train on, and those held out, the same ones whatever the order of the file.

    Rows of one question, of one source sentence, or of the very same texts stay together, so that nothing
    that is trained on is held out too.
    """
    keys = _keys(table)
    drawn = sorted(set(keys), key=lambda key: hashlib.sha256(key.encode()).digest())
    if len(drawn) < 2:
        raise DataError(f"{table.file}: all rows are alike, so that none can be held out: give --dev FILE")
    held = set(drawn[: min(max(1, round(share * len(drawn))), len(drawn) - 1)])
    parts = ([n for n, key in enumerate(keys) if (key in held) == wanted] for wanted in (False, True))
    kept, out = (_selected(rows, part) for part in parts)
    return kept, out


def _keys(table: Table) -> list[str]:
    """What rows that belong together have in common."""
    columns = table.columns
    alone = next((columns[role] for role in ("group", "question", "source") if role in columns), None)
    texts = (column for role, column in columns.items() if role != "label")
    return alone or ["\0".join(row) for row in zip(*texts, strict=True)]


def _selected(rows: Rows, index: Sequence[int]) -> Rows:
    """Some of the rows, their groups numbered anew."""
    numbers: dict[int, int] = {}
    groups = rows.groups and [numbers.setdefault(rows.groups[n], len(numbers)) for n in index]
    texts = {name: [texts[n] for n in index] for name, texts in rows.texts.items()}
    return Rows(texts, [rows.labels[n] for n in index], len(index), groups, rows.tokenized)
