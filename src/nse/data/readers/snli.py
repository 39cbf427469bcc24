"""Read the Stanford Natural Language Inference corpus, as published (section 4.1 of the paper)."""

from __future__ import annotations

from pathlib import Path

from nse.data.records import get_text, parse_object
from nse.data.sources import SPLITS, DataFile, Rows, find_files, parse_lines

LABELS = ("entailment", "contradiction", "neutral")
ARCHIVE = "snli_1.0.zip"
NO_LABEL = "-"  # the annotators did not agree


def find_sources(folder: Path) -> dict[str, DataFile]:
    """Find each split, in the data folder or in its folder `snli_1.0/`."""
    names = {split: f"snli_1.0_{split}.jsonl" for split in SPLITS}
    folders = [folder / "snli_1.0", folder]
    archives = [path / ARCHIVE for path in folders]
    return find_files("snli", names, folders, "", archives, ("fetch", "snli", str(folder)))


def read(folder: Path) -> dict[str, Rows]:
    """Read the three splits, without the rows on whose label the annotators did not agree."""
    splits = {}
    for split, file in find_sources(folder).items():
        rows = list(parse_lines(file, _parse_row))
        kept = [row for row in rows if row is not None]
        texts = {"premise": [row[1] for row in kept], "hypothesis": [row[2] for row in kept]}
        splits[split] = Rows(texts, [row[0] for row in kept], len(rows))
    return splits


def _parse_row(line: str) -> tuple[int, str, str] | None:
    """Parse the label, premise and hypothesis of a line; return None if it has no label."""
    row = parse_object(line)
    label, premise, hypothesis = (get_text(row, key) for key in ("gold_label", "sentence1", "sentence2"))
    if label == NO_LABEL:
        return None
    if label not in LABELS:
        raise ValueError(f"gold_label: expected one of {', '.join(LABELS)} or {NO_LABEL}, got {label[:40]!r}")
    return LABELS.index(label), premise, hypothesis
