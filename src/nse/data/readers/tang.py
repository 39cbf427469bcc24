"""Documents by Tang, Qin and Liu (2015), as published: Yelp 13 and IMDB (section 4.4 of the paper).

A line is user, product, rating and text, with two tabs between them. The text is in words already, and
`<sssss>` stands between its sentences. If no line of a file has this mark, its texts are taken for raw ones
and split by rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nse.data.splits import Rows
from nse.errors import DataError
from nse.text.published import Source, find, lines
from nse.text.sentence_splitter import sentences

SPLITS = ("train", "dev", "test")
YELP_LABELS = ("1", "2", "3", "4", "5")
IMDB_LABELS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
ARCHIVE = "emnlp-2015-data.7z"
MARK = "<sssss>"

_BETWEEN = "\t\t"
_FIELDS = 4

# Whatever some program takes for the end of a line: here only the line feed ends a sentence.
_SPACES = str.maketrans(dict.fromkeys("\t\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def yelp_sources(folder: Path) -> dict[str, Source]:
    """Where each split of Yelp 13 lies; `DataError` says what is missing.

    Looked for in `yelp13/` and `emnlp-2015-data/` in a data folder, and in the data folder itself.
    """
    return _sources("yelp13", folder, ["yelp-2013-{}.txt.ss"])


def imdb_sources(folder: Path) -> dict[str, Source]:
    """Where each split of IMDB lies; `DataError` says what is missing.

    Looked for in `imdb/` and `emnlp-2015-data/` in a data folder, and in the data folder itself. The 348,415
    documents of 2015's EMNLP paper are in `imdb-train.txt.ss` and so on. Where they are not there,
    `imdb.train.txt.ss` and so on are taken, which other copies of the authors' data have.
    """
    return _sources("imdb", folder, ["imdb-{}.txt.ss", "imdb.{}.txt.ss"])


def read_yelp(folder: Path) -> dict[str, Rows]:
    """The three splits of Yelp 13, one to five stars; a document's sentences are its lines."""
    return {split: read_split(source, YELP_LABELS) for split, source in yelp_sources(folder).items()}


def read_imdb(folder: Path) -> dict[str, Rows]:
    """The three splits of IMDB, rated from one to ten; a document's sentences are its lines."""
    return {split: read_split(source, IMDB_LABELS) for split, source in imdb_sources(folder).items()}


def _sources(data: str, folder: Path, forms: Sequence[str]) -> dict[str, Source]:
    """The splits under the first form of names under which most are there: sets are never mixed."""
    places = [folder / data, folder / ARCHIVE.removesuffix(".7z"), folder]
    tries = [
        {split: source for split in SPLITS if (source := find(places, form.format(split)))} for form in forms
    ]
    best = max(tries, key=len)
    if missing := [split for split in SPLITS if split not in best]:
        name = forms[tries.index(best)].format(missing[0])
        raise DataError(
            f"{data}: no {name} in {places[0]}, {places[1]} or {places[2]}, plain, .gz or .xz; "
            f"get {ARCHIVE} from its authors and unpack it in {folder}"
        )
    return best


def read_split(source: Source, labels: Sequence[str]) -> Rows:
    """The documents of one file, those without a word too.

    Args:
        source: A document a line.
        labels: The ratings there are, in the order of their numbers.
    """
    texts: list[str] = []
    numbers: list[int] = []
    for number, line in lines(source):
        try:
            label, text = _row(line, labels)
        except ValueError as error:
            raise DataError(f"{source}: line {number}: {error}") from None
        numbers.append(label)
        texts.append(text)
    if not texts:
        raise DataError(f"{source}: is empty; remove it and get it again")
    split = _marked if any(MARK in text for text in texts) else sentences
    return Rows({"document": ["\n".join(split(text)) for text in texts]}, numbers, len(texts))


def _row(line: bytes, labels: Sequence[str]) -> tuple[int, str]:
    """Label and text of a line; `ValueError` says what is wrong with it."""
    try:
        fields = line.decode("utf-8").split(_BETWEEN, _FIELDS - 1)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if len(fields) != _FIELDS:
        raise ValueError(
            f"expected user, product, rating and text with two tabs between them, got {len(fields)} fields"
        )
    rating = fields[2].strip()
    if rating not in labels:
        raise ValueError(f"rating: expected a whole number from 1 to {labels[-1]}, got {rating[:40]!r}")
    return labels.index(rating), fields[3]


def _marked(text: str) -> list[str]:
    """What is between the marks, if there is a word; a no-break space may be inside one."""
    pieces = (piece.split(" ") for piece in text.translate(_SPACES).split(MARK))
    found = (" ".join(word for word in piece if word) for piece in pieces)
    return [sentence for sentence in found if sentence]
