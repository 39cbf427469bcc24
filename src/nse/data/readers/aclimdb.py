"""The Large Movie Review Dataset, as published: reviews with ratings (in the place of section 4.4's IMDB).

It is read from the published archive or from one archive a split; an unpacked folder of 50,000 files is not,
because what is read is known by the checksums of its files.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from nse.data.splits import Rows
from nse.errors import DataError
from nse.files import decompress
from nse.text.published import BUFFER, Source, find_each, told
from nse.text.sentence_splitter import sentences

SPLITS = ("train", "dev", "test")
LABELS = ("1", "2", "3", "4", "7", "8", "9", "10")
"""The ratings that are there: what is neither good nor bad was left out."""

ARCHIVE = "aclImdb_v1.tar.gz"

_MEMBER = re.compile(r"(?:.*/)?(train|test)/(neg|pos)/([^./][^/]*)")  # hidden files are not the authors'
_NAME = re.compile(r"([0-9]{1,9})_([0-9]{1,9})\.txt")


class _Review(NamedTuple):
    """Where a review belongs, in the order of rows, and what it is."""

    split: str
    folder: str
    number: int
    label: int
    document: str


def sources(folder: Path) -> dict[str, Source]:
    """Where each split lies; dev is cut from the training set, and one archive may hold all.

    In a data folder or in `aclImdb/` in it, this is `aclImdb_train.tar` and `aclImdb_test.tar`, plain or
    compressed, or else the published archive. `DataError` says what is missing.
    """
    places = [folder / "aclImdb", folder]
    names = {split: f"aclImdb_{split}.tar" for split in ("train", "test")}
    otherwise = f"{ARCHIVE}; type `nse data fetch aclimdb --data {folder}`"
    try:
        found = find_each("aclimdb", names, places, [], otherwise)
    except DataError:
        archive = next((path for place in places if (path := place / ARCHIVE).is_file()), None)
        if archive is None:
            raise
        found = dict.fromkeys(names, Source(archive))
    return {"train": found["train"], "dev": found["train"], "test": found["test"]}


def read(folder: Path) -> dict[str, Rows]:
    """The three splits, bad reviews before good ones, each by number; a review's sentences are its lines."""
    files = sources(folder)
    reviews: dict[tuple[str, str, int], _Review] = {}
    for path in dict.fromkeys(source.path for source in files.values()):
        held = [split for split, source in files.items() if source.path == path]
        for member, content in _members(path):
            try:
                review = _review(member, content)
                if review.split in held and reviews.setdefault(review[:3], review) is not review:
                    raise ValueError(f"review {review.number} is there twice")
            except ValueError as error:
                raise DataError(f"{path}, {member}: {error}") from None
    return {split: _rows(split, source, reviews) for split, source in files.items()}


def count(folder: Path) -> dict[str, int]:
    """How many reviews each split has, without reading what they say."""
    files, found = sources(folder), dict.fromkeys(SPLITS, 0)
    for path in dict.fromkeys(source.path for source in files.values()):
        for member, _ in _members(path):
            try:
                split = _named(member)[0]
            except ValueError as error:
                raise DataError(f"{path}, {member}: {error}") from None
            found[split] += files[split].path == path
    return found


def _rows(split: str, source: Source, reviews: dict[tuple[str, str, int], _Review]) -> Rows:
    chosen = [reviews[key] for key in sorted(reviews) if key[0] == split]
    if not chosen:
        raise DataError(f"{source}: holds no reviews for {split}; remove it and get it again")
    return Rows(
        {"document": [each.document for each in chosen]}, [each.label for each in chosen], len(chosen)
    )


def _review(member: str, content: bytes) -> _Review:
    """A review from its file; `ValueError` says what is wrong with it."""
    named = _named(member)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    return _Review(*named, "\n".join(sentences(text)))


def _named(member: str) -> tuple[str, str, int, int]:
    """Split, folder, number and label of a review by the name of its file."""
    place = _MEMBER.fullmatch(member)
    assert place  # the others are not read
    split, folder, name = place.groups()
    found = _NAME.fullmatch(name)
    if not found:
        raise ValueError("expected a name such as 12_7.txt, which is number and rating")
    number, rating = int(found[1]), found[2]
    if rating not in LABELS:
        raise ValueError(f"rating: expected one of {', '.join(LABELS)}, got {rating}")
    return "dev" if split == "train" and _is_dev(number) else split, folder, number, LABELS.index(rating)


def _is_dev(number: int) -> bool:
    """Every tenth hundred: where neighbours review the same film, few films are on both sides."""
    return number // 100 % 10 == 9


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a review, in the archive's order; nothing is written to the disk."""
    with told(Source(path)), path.open("rb") as raw:
        stream = _Stream(decompress(raw, path))  # which tells when it was cut off; that of tarfile does not
        try:
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
                for member in archive:
                    if member.isfile() and _MEMBER.fullmatch(member.name):
                        content = archive.extractfile(member)
                        assert content  # it is a file
                        yield member.name, content.read()
                stream.check_end(archive.offset)
        except tarfile.TarError as error:
            raise OSError(str(error)) from None


class _Stream:
    """An archive which remembers how long it was, and up to where there was more than padding."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._size = 0
        self._filled = 0

    def read(self, size: int) -> bytes:
        chunk = self._handle.read(size)
        if filled := len(chunk.rstrip(b"\0")):
            self._filled = self._size + filled
        self._size += len(chunk)
        return chunk

    def check_end(self, position: int) -> None:
        """Whether it was right to stop here: tarfile does so without a word where a header is broken."""
        while self.read(BUFFER):
            pass
        if self._filled > position or self._size < position + tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"expected the next file, or the end, at byte {position}")
