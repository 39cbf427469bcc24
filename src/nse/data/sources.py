"""Find data folders and published files, plain, compressed or in an archive, and read their lines."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, TypeVar, cast

from nse import files
from nse.console import make_bar
from nse.data.records import BadLine, number_lines
from nse.errors import DataError

Key = TypeVar("Key")
Parsed = TypeVar("Parsed")

SPLITS = ("train", "dev", "test")
Progress = Callable[[int, int], None]  # called with the number of bytes that are done, and their total

SUFFIXES = ("", ".gz", ".xz")  # that may follow a published file's name
LINES_PER_REPORT = 4096  # of progress
BUFFER = 1 << 20
# Errors of reading a truncated, damaged or encrypted file.
READ_ERRORS = (*files.READ_ERRORS, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class Rows(NamedTuple):
    """Labelled rows of one split."""

    texts: dict[str, list[str]]  # columns by name; a document has one sentence per line
    labels: list[int]  # indices of labels; 0 in a translation, which has none
    total: int  # number of rows in the file, also those that are dropped because they have no label
    groups: list[int] | None = None  # of a ranking: the question of each row, numbered by first occurrence
    tokenized: bool = False  # texts are words with single spaces between them


class DataFile(NamedTuple):
    """File, or a member of a zip archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.member}" if self.member else str(self.path)

    @property
    def form(self) -> str:
        """Format of the file: `zip`, or its ending such as `jsonl.xz`."""
        if self.member:
            return "zip"
        ends = [suffix.lstrip(".") for suffix in self.path.suffixes[-2:]]
        return ".".join(ends if ends[-1:] in (["gz"], ["xz"]) else ends[-1:])


def choose_data_folder(folder: Path | None) -> Path:
    """Return the given data folder, else NSE_DATA, else ./data; it need not exist."""
    return folder or Path(os.environ.get("NSE_DATA") or "data")


def find_data_folder(folder: Path | None) -> Path:
    """Return the data folder, which must exist."""
    chosen = choose_data_folder(folder)
    if not chosen.is_dir():
        raise DataError(f"there is no data folder {chosen}: name yours in NSE_DATA", ("data",))
    return chosen


def find_file(folders: Iterable[Path], name: str, archives: Iterable[Path] = ()) -> DataFile | None:
    """Find a file by name, plain or compressed, in the first folder with it, or inside an archive."""
    for path in (folder / f"{name}{suffix}" for folder in folders for suffix in SUFFIXES):
        if path.is_file():
            return DataFile(path)
    for path in filter(Path.is_file, archives):
        with explain_read_errors(DataFile(path)), zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
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
    """Find the files of a data set, with the keys of `names`; raise `DataError` if one is missing."""
    results = {key: find_file(folders, name, archives) for key, name in names.items()}
    found = {key: file for key, file in results.items() if file is not None}
    if missing := [name for key, name in names.items() if key not in found]:
        inside = [f"inside {archives[0].name}"] if archives else []
        raise DataError(f"{data}: no {describe_search(missing[0], folders, inside)}{advice}", fix)
    return found


def describe_search(name: str, folders: Sequence[Path], inside: Sequence[str] = ()) -> str:
    """Describe for an error where a file was looked for, and in which formats."""
    return f"{name} in {_join(map(str, folders))}, {_join(['plain', '.gz', '.xz', *inside])}"


def _join(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} or {last}" if first else last


@contextmanager
def explain_read_errors(file: DataFile) -> Iterator[None]:
    """Raise errors of reading a file as `DataError` with its name."""
    try:
        yield
    except READ_ERRORS as error:
        advice = "if it is damaged, remove it and get it again"
        raise DataError(f"{file}: cannot be read: {error or type(error).__name__}; {advice}") from None


def read_lines(file: DataFile, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, numbered from 1, without line breaks."""
    with explain_read_errors(file), _open(file) as (handle, position, total):
        for number, line in number_lines(handle):
            if isinstance(line, BadLine):
                raise DataError(f"{file}: line {number}: {line.why}")
            if progress and number % LINES_PER_REPORT == 0:
                progress(position(), total)
            yield number, line
        if progress:
            progress(total, total)


@contextmanager
def _open(file: DataFile) -> Iterator[tuple[IO[bytes], Callable[[], int], int]]:
    """Open a file: its content, a function that returns the bytes read so far, and their total."""
    with file.path.open("rb") as raw:
        if not file.member:
            plain = files.decompress(raw, file.path)
            yield io.BufferedReader(cast(io.RawIOBase, plain), BUFFER), raw.tell, file.path.stat().st_size
            return
        with zipfile.ZipFile(raw) as archive, archive.open(file.member) as handle:
            buffered = io.BufferedReader(cast(io.RawIOBase, handle), BUFFER)  # reads lines faster
            yield buffered, buffered.tell, archive.getinfo(file.member).file_size


def parse_lines(file: DataFile, parse: Callable[[str], Parsed]) -> Iterator[Parsed]:
    """Parse each line of a file; raise `DataError` with its number if `parse` raises a ValueError."""
    for number, line in read_lines(file):
        try:
            parsed = parse(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(f"{file}: line {number}: is not UTF-8") from None
        except ValueError as error:
            raise DataError(f"{file}: line {number}: {error}") from None
        yield parsed


def compute_checksums(paths: Sequence[Path], progress: Progress | None = None) -> list[str]:
    """Compute the sha256 of each file."""
    total, done, checksums = sum(path.stat().st_size for path in paths), 0, []
    for path in paths:
        digest = hashlib.sha256()
        with path.open("rb") as handle:
            while chunk := handle.read(BUFFER):
                digest.update(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total)
        checksums.append(digest.hexdigest())
    return checksums


def print_log(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def show_progress(label: str) -> Iterator[Progress | None]:
    """Show a progress bar in bytes on standard error during a block; yield None if that is no terminal."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with make_bar(DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task(label, total=None, visible=False)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, visible=True)

        yield None if bar.disable else update
