"""Where data lies, and where what was made of it is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nse.console import make_bar
from nse.errors import DataError
from nse.text.published import Progress

CHUNK = 1 << 20


def named_folder(option: Path | None) -> Path:
    """The data folder, there or not: `--data`, else NSE_DATA, else ./data."""
    return option or Path(os.environ.get("NSE_DATA") or "data")


def data_folder(option: Path | None) -> Path:
    """The data folder, which must be there."""
    folder = named_folder(option)
    if not folder.is_dir():
        raise DataError(
            f"there is no data folder {folder}: name yours with --data or NSE_DATA, "
            "or get data into ./data with `nse data fetch snli`"
        )
    return folder


def cache_folder() -> Path:
    """Where prepared files are kept: NSE_CACHE, else ~/.cache/nse."""
    try:
        return Path(os.environ.get("NSE_CACHE") or "~/.cache/nse").expanduser()
    except RuntimeError:
        raise DataError(
            "there is no home folder to keep prepared files in: name a folder in NSE_CACHE"
        ) from None


def checksum(file: Path, progress: Progress | None = None) -> str:
    """The sha256 of a file."""
    digest = hashlib.sha256()
    total = file.stat().st_size
    done = 0
    with file.open("rb") as handle:
        while chunk := handle.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress(done, total)
    return digest.hexdigest()


@contextmanager
def meter(what: str) -> Iterator[Progress | None]:
    """A bar by bytes on standard error for the time of a block; nothing where that is not a terminal."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with make_bar(DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task(what, total=None)
        update = lambda done, total: bar.update(task, completed=done, total=total or None)  # noqa: E731
        yield None if bar.disable else update
