"""Where data lies, where what was made of it is kept, and what is told while files are read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nse.console import make_bar
from nse.data.sources import Progress
from nse.errors import DataError

CHUNK = 1 << 20


def choose_data_folder(option: Path | None) -> Path:
    """Name the data folder, there or not: the option, else NSE_DATA, else ./data."""
    return option or Path(os.environ.get("NSE_DATA") or "data")


def find_data_folder(option: Path | None) -> Path:
    """Name the data folder, which must be there."""
    folder = choose_data_folder(option)
    if not folder.is_dir():
        raise DataError(f"there is no data folder {folder}: name yours in NSE_DATA", ("data",))
    return folder


def choose_cache_folder() -> Path:
    """Name the folder of prepared files: NSE_CACHE, else ~/.cache/nse."""
    try:
        return Path(os.environ.get("NSE_CACHE") or "~/.cache/nse").expanduser()
    except RuntimeError:
        wrong = "there is no home folder to keep prepared files in: name a folder in NSE_CACHE"
        raise DataError(wrong) from None


def compute_checksums(files: Sequence[Path], progress: Progress | None = None) -> list[str]:
    """Compute the sha256 of each file."""
    total, done, sums = sum(file.stat().st_size for file in files), 0, []
    for file in files:
        digest = hashlib.sha256()
        with file.open("rb") as handle:
            while chunk := handle.read(CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total)
        sums.append(digest.hexdigest())
    return sums


def print_log(line: str) -> None:
    """Tell a person what is done, on standard error: results go to standard output."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)


@contextmanager
def show_progress(what: str) -> Iterator[Progress | None]:
    """Show a bar by bytes on standard error for the time of a block; nothing where that is not a terminal."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with make_bar(DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task(what, total=None, visible=False)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, visible=True)

        yield None if bar.disable else update
