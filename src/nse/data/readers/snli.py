"""The Stanford Natural Language Inference corpus, as published (section 4.1 of the paper)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nse.data.splits import Rows
from nse.errors import DataError
from nse.text.published import Source, find_each, lines

SPLITS = ("train", "dev", "test")
LABELS = ("entailment", "contradiction", "neutral")
ARCHIVE = "snli_1.0.zip"
NO_LABEL = "-"  # the annotators did not agree


def sources(folder: Path) -> dict[str, Source]:
    """Where each split lies, in a data folder or in `snli_1.0/` in it; `DataError` says what is missing."""
    names = {split: f"snli_1.0_{split}.jsonl" for split in SPLITS}
    otherwise = f"{ARCHIVE}; type `nse data fetch snli --data {folder}`"
    return find_each("snli", names, [folder / "snli_1.0", folder], [ARCHIVE], otherwise)


def read(folder: Path) -> dict[str, Rows]:
    """The three splits. Rows on whose label the annotators did not agree are dropped."""
    return {split: read_split(source) for split, source in sources(folder).items()}


def read_split(source: Source) -> Rows:
    """The labelled rows of one file."""
    texts: dict[str, list[str]] = {"premise": [], "hypothesis": []}
    labels: list[int] = []
    number = 0
    for number, line in lines(source):
        try:
            label, premise, hypothesis = _row(line)
        except ValueError as error:
            raise DataError(f"{source}: line {number}: {error}") from None
        if label is not None:
            labels.append(label)
            texts["premise"].append(premise)
            texts["hypothesis"].append(hypothesis)
    return Rows(texts, labels, read=number)


def _row(line: bytes) -> tuple[int | None, str, str]:
    """Label, premise and hypothesis of a line; `ValueError` says what is wrong with it."""
    row = _loaded(line)
    label, premise, hypothesis = (_text(row, key) for key in ("gold_label", "sentence1", "sentence2"))
    if label == NO_LABEL:
        return None, premise, hypothesis
    if label not in LABELS:
        raise ValueError(f"gold_label: expected one of {', '.join(LABELS)} or {NO_LABEL}, got {label[:40]!r}")
    return LABELS.index(label), premise, hypothesis


def _loaded(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {str(error)[:80]}") from None
    if not isinstance(row, dict):
        raise ValueError("expected a JSON object with gold_label, sentence1 and sentence2")
    return row


def _text(row: dict[str, Any], key: str) -> str:
    text = row.get(key)
    if not isinstance(text, str):
        raise ValueError(f"{key}: expected a text, got {json.dumps(text)[:40] if key in row else 'nothing'}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{key}: holds half of a surrogate pair") from None
    return text
