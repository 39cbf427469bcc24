"""Files as they are published, plain, compressed or inside an archive, and the rows that are made of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, TypeVar, cast

from nse import files
from nse.data.records import BadLine, number_lines
from nse.errors import DataError

Key = TypeVar("Key")
Parsed = TypeVar("Parsed")

SPLITS = ("train", "dev", "test")
Progress = Callable[[int, int], None]  # called now and then with how many bytes are done, and of how many

SUFFIXES = ("", ".gz", ".xz")  # what may follow a published file's name
EVERY = 4096  # lines between two reports of progress
BUFFER = 1 << 20
# What reading a truncated, garbled or encrypted file raises.
BROKEN = (*files.BROKEN, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class Rows(NamedTuple):
    """The labelled rows of one split."""

    texts: dict[str, list[str]]  # the columns by name; a document is its sentences, one a line
    labels: list[int]  # the number of each row's label; 0 where there are none, as in a translation
    read: int  # how many rows the file holds, those that are dropped for want of a label too
    groups: list[int] | None = None  # of a ranking: the question of each row, from 0 in the order of the file
    tokenized: bool = False  # whether the texts are words already, with one space between two


class DataFile(NamedTuple):
    """A file, or a member of a zip archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.member}" if self.member else str(self.path)

    @property
    def form(self) -> str:
        """Name the format it is stored in: `zip`, or the file's ending such as `jsonl.xz`."""
        if self.member:
            return "zip"
        ends = [suffix.lstrip(".") for suffix in self.path.suffixes[-2:]]
        return ".".join(ends if ends[-1:] in (["gz"], ["xz"]) else ends[-1:])


def find_file(folders: Iterable[Path], name: str, archives: Iterable[Path] = ()) -> DataFile | None:
    """Find a file of this name, plain or compressed, in the first folder with it, or inside an archive."""
    for path in (folder / f"{name}{suffix}" for folder in folders for suffix in SUFFIXES):
        if path.is_file():
            return DataFile(path)
    for path in filter(Path.is_file, archives):
        with explain_read_errors(DataFile(path)), zipfile.ZipFile(path) as opened:
            for member in opened.namelist():
                if PurePosixPath(member).name == name and not member.startswith("__MACOSX"):
                    return DataFile(path, member)
    return None


def find_files(
    data: str,
    names: Mapping[Key, str],
    folders: Sequence[Path],
    advice: str = "",
    archives: Sequence[Path] = (),
    fix: tuple[str, ...] = (),
) -> dict[Key, DataFile]:
    """Find the files of a data set, by what each is for; `DataError` tells what is missing and what to do."""
    found = {key: find_file(folders, name, archives) for key, name in names.items()}
    there = {key: file for key, file in found.items() if file is not None}
    if missing := [name for key, name in names.items() if key not in there]:
        inside = [f"inside {archives[0].name}"] if archives else []
        raise DataError(f"{data}: no {describe_search(missing[0], folders, inside)}{advice}", fix)
    return there


def describe_search(name: str, folders: Sequence[Path], inside: Sequence[str] = ()) -> str:
    """Say where a file was looked for, and in which forms."""
    return f"{name} in {_join(map(str, folders))}, {_join(['plain', '.gz', '.xz', *inside])}"


def _join(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} or {last}" if first else last


@contextmanager
def explain_read_errors(file: DataFile) -> Iterator[None]:
    """Raise errors of reading a file as those for people, with its name."""
    try:
        yield
    except BROKEN as error:
        advice = "if it is damaged, remove it and get it again"
        raise DataError(f"{file}: cannot be read: {error or type(error).__name__}; {advice}") from None


def read_lines(file: DataFile, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Read the lines of a file with their numbers from 1, without what ends them."""
    with explain_read_errors(file), _open(file) as (handle, position, total):
        for number, line in number_lines(handle):
            if isinstance(line, BadLine):
                raise DataError(f"{file}: line {number}: {line.why}")
            if progress and number % EVERY == 0:
                progress(position(), total)
            yield number, line
        if progress:
            progress(total, total)


@contextmanager
def _open(file: DataFile) -> Iterator[tuple[IO[bytes], Callable[[], int], int]]:
    """Open a file: its content, how far it was read, and how long it is."""
    with file.path.open("rb") as raw:
        if not file.member:
            plain = files.decompress(raw, file.path)
            yield io.BufferedReader(cast(io.RawIOBase, plain), BUFFER), raw.tell, file.path.stat().st_size
            return
        with zipfile.ZipFile(raw) as archive, archive.open(file.member) as handle:
            buffered = io.BufferedReader(cast(io.RawIOBase, handle), BUFFER)  # gives lines faster
            yield buffered, buffered.tell, archive.getinfo(file.member).file_size


def parse_lines(file: DataFile, parse: Callable[[str], Parsed]) -> Iterator[Parsed]:
    """Parse each line of a file; one that is not UTF-8, or that `parse` refuses by a ValueError, is named."""
    for number, line in read_lines(file):
        try:
            parsed = parse(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(f"{file}: line {number}: is not UTF-8") from None
        except ValueError as error:
            raise DataError(f"{file}: line {number}: {error}") from None
        yield parsed
