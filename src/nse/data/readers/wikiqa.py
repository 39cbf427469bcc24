"""Read WikiQA, questions and candidate answers, as published (section 4.2 of the paper)."""

from __future__ import annotations

from pathlib import Path

from nse.data.sources import SPLITS, DataFile, Rows, find_files, parse_lines
from nse.errors import DataError

LABELS = ("wrong", "right")
ARCHIVE = "WikiQACorpus.zip"
HEADER = ["QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label"]


def find_sources(folder: Path) -> dict[str, DataFile]:
    """Find each split, in the data folder or in its folder `WikiQACorpus/`."""
    names = {split: f"WikiQA-{split}.tsv" for split in SPLITS}
    folders = [folder / "WikiQACorpus", folder]
    archives = [path / ARCHIVE for path in folders]
    return find_files("wikiqa", names, folders, "", archives, ("fetch", "wikiqa", str(folder)))


def read(folder: Path) -> dict[str, Rows]:
    """Read the three splits, also questions without a right answer."""
    return {split: _read_split(file) for split, file in find_sources(folder).items()}


def _read_split(file: DataFile) -> Rows:
    """Read the rows of one file; those of a question form a group."""
    groups: dict[str, int] = {}
    header: list[str] = []

    def parse(line: str) -> tuple[str, str, int, int]:
        fields = line.split("\t")  # a quote is a character like any other
        if len(fields) != len(HEADER):
            raise ValueError(f"expected {len(HEADER)} fields between tabs, got {len(fields)}")
        if not header:
            if fields != HEADER:
                raise ValueError(f"expected the header {', '.join(HEADER)}, got {', '.join(fields)[:80]!r}")
            header.extend(fields)
            return "", "", 0, 0
        identity, question, _, _, _, answer, label = fields
        if label not in ("0", "1"):
            raise ValueError(f"Label: expected 0 or 1, got {label[:40]!r}")
        group = groups.setdefault(identity, len(groups))
        if group != len(groups) - 1:
            wrong = f"expected the rows of a question together, but {identity[:40]} returns"
            raise ValueError(f"QuestionID: {wrong}")
        return question, answer, int(label), group

    rows = list(parse_lines(file, parse))[1:]
    if not header:
        raise DataError(f"{file}: is empty; remove it and get it again")
    texts = {"question": [row[0] for row in rows], "answer": [row[1] for row in rows]}
    return Rows(texts, [row[2] for row in rows], len(rows), [row[3] for row in rows])
