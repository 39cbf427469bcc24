"""Documents by Tang, Qin and Liu (2015), as published: Yelp 13 and IMDB (section 4.4 of the paper).

A line is user, product, rating and text, with two tabs between them. The text is in words already, and
`<sssss>` stands between its sentences. If no line of a file has this mark, its texts are taken for raw ones
and split by rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nse.data.sources import SPLITS, DataFile, Rows, describe_search, find_file, parse_lines
from nse.errors import DataError
from nse.text.sentence_splitter import split_sentences

LABELS = {"yelp13": tuple("12345"), "imdb": (*"123456789", "10")}
# How files are called: the 348,415 documents of 2015's EMNLP paper, or as in other copies of IMDB.
NAMES = {"yelp13": ["yelp-2013-{}.txt.ss"], "imdb": ["imdb-{}.txt.ss", "imdb.{}.txt.ss"]}
ARCHIVE = "emnlp-2015-data.7z"
MARK = "<sssss>"
# Whatever some program takes for the end of a line: here only the line feed ends a sentence.
_SPACES = str.maketrans(dict.fromkeys("\t\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def find_sources(data: str, folder: Path) -> dict[str, DataFile]:
    """Find each split of a set under the names under which most are there: two copies are never mixed."""
    places = [folder / data, folder / ARCHIVE.removesuffix(".7z"), folder]
    tries = [
        {split: file for split in SPLITS if (file := find_file(places, name.format(split)))}
        for name in NAMES[data]
    ]
    best = max(tries, key=len)
    if missing := [split for split in SPLITS if split not in best]:
        name = NAMES[data][tries.index(best)].format(missing[0])
        advice = f"get {ARCHIVE} from its authors and unpack it in {folder}"
        raise DataError(f"{data}: no {describe_search(name, places)}; {advice}")
    return best


def read(data: str, folder: Path, raw: bool = False) -> dict[str, Rows]:
    """Read the documents of a set, those without a word too; a document's sentences are its lines.

    Where `raw`, texts stay as they are, which is enough to count them.
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
    """Parse label and text of a line."""
    fields = line.split("\t\t", 3)
    if len(fields) != 4:
        wanted = "user, product, rating and text with two tabs between them"
        raise ValueError(f"expected {wanted}, got {len(fields)} fields")
    rating = fields[2].strip()
    if rating not in labels:
        raise ValueError(f"rating: expected a whole number from 1 to {labels[-1]}, got {rating[:40]!r}")
    return labels.index(rating), fields[3]


def _split_marked(text: str) -> list[str]:
    """Split at the marks, and drop what has no word; a no-break space may be inside one."""
    pieces = (piece.split(" ") for piece in text.translate(_SPACES).split(MARK))
    found = (" ".join(word for word in piece if word) for piece in pieces)
    return [sentence for sentence in found if sentence]
