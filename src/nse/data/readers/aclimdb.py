"""Read the Large Movie Review Dataset, as published: reviews with ratings (instead of section 4.4's IMDB).

It is read from the published archive or from one archive per split, not from an unpacked folder of 50,000
files: the checksums of the source files identify a prepared data set.
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

LABELS = ("1", "2", "3", "4", "7", "8", "9", "10")  # the data set has no neutral reviews
ARCHIVE = "aclImdb_v1.tar.gz"

_MEMBER = re.compile(r"(?:.*/)?(train|test)/(neg|pos)/([^./][^/]*)")  # without hidden files
_NAME = re.compile(r"([0-9]{1,9})_([0-9]{1,9})\.txt")

ReviewId = tuple[str, str, int]
"""Split, folder and number of a review: the order of rows."""


def find_sources(folder: Path) -> dict[str, DataFile]:
    """Find each split; dev is a part of the training set, and the published archive holds all."""
    folders = [folder / "aclImdb", folder]
    names = ("aclImdb_train.tar", "aclImdb_test.tar")
    files = [find_file(folders, name) for name in names]
    if None in files and (archive := find_file(folders, ARCHIVE)):
        files = [archive, archive]
    train, test = files
    if train is None or test is None:
        looked = describe_search(names[train is not None], folders, [f"inside {ARCHIVE}"])
        raise DataError(f"aclimdb: no {looked}", ("fetch", "aclimdb", str(folder)))
    return {"train": train, "dev": train, "test": test}


def read(folder: Path, raw: bool = False) -> dict[str, Rows]:
    """Read the three splits, negative reviews first, each by number, with one sentence per line.

    With `raw`, texts are not split into sentences, which is enough to count reviews.
    """
    files = find_sources(folder)
    reviews: dict[ReviewId, tuple[str, int]] = {}  # document and label
    for path in dict.fromkeys(file.path for file in files.values()):
        splits = [split for split, file in files.items() if file.path == path]
        for member, content in _read_members(path):
            try:
                key, review = _parse_review(member, content, raw)
                if key[0] in splits and reviews.setdefault(key, review) is not review:
                    raise ValueError(f"review {key[2]} is there twice")
            except ValueError as error:
                why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
                raise DataError(f"{path}, {member}: {why}") from None
    rows = {}
    for split, file in files.items():
        chosen = [reviews[key] for key in sorted(reviews) if key[0] == split]
        if not chosen:
            raise DataError(f"{file}: holds no reviews for {split}; remove it and get it again")
        texts = {"document": [document for document, _ in chosen]}
        rows[split] = Rows(texts, [label for _, label in chosen], len(chosen))
    return rows


def _parse_review(member: str, content: bytes, raw: bool) -> tuple[ReviewId, tuple[str, int]]:
    """Parse a review and the name of its file; raise `ValueError` for a wrong one."""
    path = _MEMBER.fullmatch(member)
    assert path  # `_read_members` yields no others
    split, folder, name = path.groups()
    match = _NAME.fullmatch(name)
    if not match:
        raise ValueError("expected a name such as 12_7.txt, which is number and rating")
    number, rating = int(match[1]), match[2]
    if rating not in LABELS:
        raise ValueError(f"rating: expected one of {', '.join(LABELS)}, got {rating}")
    # Every tenth hundred is for dev: neighbours often review the same film, so few films are on both sides.
    if split == "train" and number // 100 % 10 == 9:
        split = "dev"
    text = content.decode("utf-8")
    document = text if raw else "\n".join(split_sentences(text))
    return (split, folder, number), (document, LABELS.index(rating))


def _read_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each review, in the archive's order, without unpacking it."""
    with explain_read_errors(DataFile(path)), path.open("rb") as handle:
        stream = _ArchiveStream(decompress(handle, path))
        try:
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
                for member in archive:
                    if member.isfile() and _MEMBER.fullmatch(member.name):
                        yield member.name, cast(IO[bytes], archive.extractfile(member)).read()
                stream.check_end(archive.offset)
        except tarfile.TarError as error:
            raise OSError(str(error)) from None


class _ArchiveStream:
    """Stream of an archive that records its length and the end of its content, to detect truncation."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle, self._size, self._filled = handle, 0, 0

    def read(self, size: int) -> bytes:
        chunk = self._handle.read(size)
        if filled := len(chunk.rstrip(b"\0")):
            self._filled = self._size + filled
        self._size += len(chunk)
        return chunk

    def check_end(self, position: int) -> None:
        """Raise if the archive does not end at `position`: tarfile stops silently at a broken header."""
        while self.read(BUFFER):
            pass
        if self._filled > position or self._size < position + tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"expected the next file, or the end, at byte {position}")
