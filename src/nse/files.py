"""Files that are there whole or not at all."""

import errno
import os
from pathlib import Path


def write(file: Path, text: str) -> None:
    """Write a text file; whatever interrupts it, the file is the old one or the new one."""
    with partial(file).open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    partial(file).replace(file)


def make_sure(file: Path) -> None:
    """Raise the OSError now that writing this file later would raise; make its folder."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    partial(file).touch()
    partial(file).unlink()


def partial(file: Path) -> Path:
    """Where a file is written before it takes its name."""
    return file.with_name(f".{file.name}.part")
