"""The Large Movie Review Dataset, as published: reviews with ratings (in the place of section 4.4's IMDB).

It is read from the published archive or from one archive a split; an unpacked folder of 50,000 files is not,
because what is read is known by the checksums of its files.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from nse.data.sources import BUFFER, DataFile, Rows, describe_search, explain_read_errors, find_file
from nse.errors import DataError
from nse.files import decompress
from nse.text.sentence_splitter import split_sentences

LABELS = ("1", "2", "3", "4", "7", "8", "9", "10")  # what is neither good nor bad was left out
ARCHIVE = "aclImdb_v1.tar.gz"

_MEMBER = re.compile(r"(?:.*/)?(train|test)/(neg|pos)/([^./][^/]*)")  # hidden files are not the authors'
_NAME = re.compile(r"([0-9]{1,9})_([0-9]{1,9})\.txt")


Place = tuple[str, str, int]
"""Split, folder and number of a review: the order of rows."""


def find_sources(folder: Path) -> dict[str, DataFile]:
    """Find each split; dev is cut from the training set, and the published archive holds all."""
    places = [folder / "aclImdb", folder]
    names = ("aclImdb_train.tar", "aclImdb_test.tar")
    found = [find_file(places, name) for name in names]
    if None in found and (archive := find_file(places, ARCHIVE)):
        found = [archive, archive]
    train, test = found
    if train is None or test is None:
        looked = describe_search(names[train is not None], places, [f"inside {ARCHIVE}"])
        raise DataError(f"aclimdb: no {looked}", ("fetch", "aclimdb", str(folder)))
    return {"train": train, "dev": train, "test": test}


def read(folder: Path, raw: bool = False) -> dict[str, Rows]:
    """Read the three splits, bad reviews before good ones, each by number; its sentences are its lines.

    Where `raw`, reviews stay as they are, which is enough to count them.
    """
    files = find_sources(folder)
    reviews: dict[Place, tuple[str, int]] = {}  # document and label
    for path in dict.fromkeys(file.path for file in files.values()):
        held = [split for split, file in files.items() if file.path == path]
        for member, content in _read_members(path):
            try:
                place, review = _parse_review(member, content, raw)
                if place[0] in held and reviews.setdefault(place, review) is not review:
                    raise ValueError(f"review {place[2]} is there twice")
            except ValueError as error:
                why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
                raise DataError(f"{path}, {member}: {why}") from None
    rows = {}
    for split, file in files.items():
        chosen = [reviews[place] for place in sorted(reviews) if place[0] == split]
        if not chosen:
            raise DataError(f"{file}: holds no reviews for {split}; remove it and get it again")
        texts = {"document": [document for document, _ in chosen]}
        rows[split] = Rows(texts, [label for _, label in chosen], len(chosen))
    return rows


def _parse_review(member: str, content: bytes, raw: bool) -> tuple[Place, tuple[str, int]]:
    """Parse a review and the name of its file; `ValueError` says what is wrong with it."""
    place = _MEMBER.fullmatch(member)
    assert place  # the others are not read
    split, folder, name = place.groups()
    found = _NAME.fullmatch(name)
    if not found:
        raise ValueError("expected a name such as 12_7.txt, which is number and rating")
    number, rating = int(found[1]), found[2]
    if rating not in LABELS:
        raise ValueError(f"rating: expected one of {', '.join(LABELS)}, got {rating}")
    # Every tenth hundred is for dev: where neighbours review the same film, few films are on both sides.
    if split == "train" and number // 100 % 10 == 9:
        split = "dev"
    text = content.decode("utf-8")
    document = text if raw else "\n".join(split_sentences(text))
    return (split, folder, number), (document, LABELS.index(rating))


def _read_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Read name and content of each review, in the archive's order; nothing is written to the disk."""
    with explain_read_errors(DataFile(path)), path.open("rb") as handle:
        stream = _Stream(decompress(handle, path))  # which tells when it was cut off; tarfile's does not
        try:
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
                for member in archive:
                    if member.isfile() and _MEMBER.fullmatch(member.name):
                        yield member.name, cast(IO[bytes], archive.extractfile(member)).read()
                stream.check_end(archive.offset)
        except tarfile.TarError as error:
            raise OSError(str(error)) from None


class _Stream:
    """An archive which remembers how long it was, and up to where there was more than padding."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle, self._size, self._filled = handle, 0, 0

    def read(self, size: int) -> bytes:
        chunk = self._handle.read(size)
        if filled := len(chunk.rstrip(b"\0")):
            self._filled = self._size + filled
        self._size += len(chunk)
        return chunk

    def check_end(self, position: int) -> None:
        """Refuse to stop here wrongly: tarfile does so without a word where a header is broken."""
        while self.read(BUFFER):
            pass
        if self._filled > position or self._size < position + tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"expected the next file, or the end, at byte {position}")
