"""Read the documents of Tang, Qin and Liu (2015), as published: Yelp 13 and IMDB (section 4.4 of the paper).

A line is user, product, rating and text, separated by two tabs. The text is tokenized, with `<sssss>` between
sentences. If no line of a file has this mark, its texts are split into sentences by rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nse.data.sources import SPLITS, DataFile, Rows, describe_search, find_file, parse_lines
from nse.errors import DataError
from nse.text.sentence_splitter import split_sentences

LABELS = {"yelp13": tuple("12345"), "imdb": (*"123456789", "10")}
# File names in the archive of the EMNLP paper (348,415 documents of IMDB), and in other copies.
NAMES = {"yelp13": ["yelp-2013-{}.txt.ss"], "imdb": ["imdb-{}.txt.ss", "imdb.{}.txt.ss"]}
ARCHIVE = "emnlp-2015-data.7z"
MARK = "<sssss>"
# Every character that some program reads as the end of a line: here only the line feed ends a sentence.
_SPACES = str.maketrans(dict.fromkeys("\t\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def find_sources(data: str, folder: Path) -> dict[str, DataFile]:
    """Find each split, all by the same naming scheme: two copies of a data set are never mixed."""
    folders = [folder / data, folder / ARCHIVE.removesuffix(".7z"), folder]
    copies = [
        {split: file for split in SPLITS if (file := find_file(folders, name.format(split)))}
        for name in NAMES[data]
    ]
    files = max(copies, key=len)
    if missing := [split for split in SPLITS if split not in files]:
        name = NAMES[data][copies.index(files)].format(missing[0])
        advice = f"get {ARCHIVE} from its authors and unpack it in {folder}"
        raise DataError(f"{data}: no {describe_search(name, folders)}; {advice}")
    return files


def read(data: str, folder: Path, raw: bool = False) -> dict[str, Rows]:
    """Read the documents, also empty ones, with one sentence per line.

    With `raw`, texts are not split into sentences, which is enough to count documents.
    """
    return {split: _read_split(file, LABELS[data], raw) for split, file in find_sources(data, folder).items()}


def _read_split(file: DataFile, labels: Sequence[str], raw: bool) -> Rows:
    rows = list(parse_lines(file, partial(_parse_row, labels=labels)))
    if not rows:
        raise DataError(f"{file}: is empty; remove it and get it again")
    texts = [text for _, text in rows]
    if not raw:
        split = _split_marked if any(MARK in text for text in texts) else split_sentences
        texts = ["\n".join(split(text)) for text in texts]
    return Rows({"document": texts}, [label for label, _ in rows], len(rows))


def _parse_row(line: str, labels: Sequence[str]) -> tuple[int, str]:
    """Parse the label and the text of a line."""
    fields = line.split("\t\t", 3)
    if len(fields) != 4:
        wanted = "user, product, rating and text with two tabs between them"
        raise ValueError(f"expected {wanted}, got {len(fields)} fields")
    rating = fields[2].strip()
    if rating not in labels:
        raise ValueError(f"rating: expected a whole number from 1 to {labels[-1]}, got {rating[:40]!r}")
    return labels.index(rating), fields[3]


def _split_marked(text: str) -> list[str]:
    """Split at the marks and drop empty sentences; a no-break space may be part of a word."""
    pieces = (piece.split(" ") for piece in text.translate(_SPACES).split(MARK))
    sentences = (" ".join(word for word in piece if word) for piece in pieces)
    return [sentence for sentence in sentences if sentence]
