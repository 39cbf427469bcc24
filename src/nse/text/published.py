"""Published files as they lie on the disk: plain, compressed or inside an archive; read line by line."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from nse import files
from nse.errors import DataError

Progress = Callable[[int, int], None]
"""Told now and then how many bytes are done, of how many."""

SUFFIXES = ("", ".gz", ".xz")
"""What may follow a published file's name."""

EVERY = 4096
"""Lines between two reports of progress."""

BUFFER = 1 << 20

BROKEN = (*files.BROKEN, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""What reading a truncated, garbled or encrypted file raises."""


class Source(NamedTuple):
    """A file, or a member of a zip archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.member}" if self.member else str(self.path)

    @property
    def form(self) -> str:
        """How it is stored: `zip`, or the file's ending such as `jsonl.xz`."""
        if self.member:
            return "zip"
        ends = [suffix.lstrip(".") for suffix in self.path.suffixes[-2:]]
        return ".".join(ends if ends[-1:] in (["gz"], ["xz"]) else ends[-1:])


def find(folders: Iterable[Path], name: str, archives: Iterable[str] = ()) -> Source | None:
    """The first of these that is there: a file of this name, plain or compressed, or inside an archive."""
    folders = list(folders)
    for folder in folders:
        for suffix in SUFFIXES:
            if (path := folder / (name + suffix)).is_file():
                return Source(path)
    for path in (folder / archive for folder in folders for archive in archives):
        if path.is_file() and (member := _member(path, name)):
            return Source(path, member)
    return None


def find_each(
    data: str, names: Mapping[str, str], folders: Sequence[Path], archives: Iterable[str], otherwise: str
) -> dict[str, Source]:
    """Where each split of a data set lies.

    Args:
        data: The data set's name.
        names: The file of each split.
        folders: The two where they are looked for.
        archives: Which may hold them.
        otherwise: What else to tell where one is missing: the archive, and what to type.

    Raises:
        DataError: One is missing.
    """
    found = {split: find(folders, name, archives) for split, name in names.items()}
    there = {split: source for split, source in found.items() if source is not None}
    if missing := [names[split] for split in names if split not in there]:
        raise DataError(
            f"{data}: no {missing[0]} in {folders[0]} or {folders[1]}, plain, .gz, .xz or inside {otherwise}"
        )
    return there


def _member(archive: Path, name: str) -> str | None:
    with told(Source(archive)), zipfile.ZipFile(archive) as opened:
        for member in opened.namelist():
            if PurePosixPath(member).name == name and not member.startswith("__MACOSX"):
                return member
    return None


@contextmanager
def told(source: Source) -> Iterator[None]:
    """Errors of reading a file, told for people."""
    try:
        yield
    except BROKEN as error:
        raise DataError(
            f"{source}: cannot be read: {error or type(error).__name__}; "
            "if it is damaged, remove it and get it again"
        ) from None


def lines(source: Source, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, without the line feed that ends them."""
    with told(source), source.path.open("rb") as raw:
        if source.member:
            with zipfile.ZipFile(raw) as archive, archive.open(source.member) as handle:
                total = archive.getinfo(source.member).file_size
                buffered = io.BufferedReader(cast(io.RawIOBase, handle), BUFFER)  # gives lines faster
                yield from _counted(buffered, buffered.tell, total, progress)
            return
        total = source.path.stat().st_size
        with files.decompress(raw, source.path) as handle:
            yield from _counted(handle, raw.tell, total, progress)


def _counted(
    handle: IO[bytes], position: Callable[[], int], total: int, progress: Progress | None
) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(handle, start=1):
        if progress and number % EVERY == 0:
            progress(position(), total)
        yield number, line.removesuffix(b"\n")
    if progress:
        progress(total, total)
