"""Files that are there whole or not at all."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def write(file: Path, text: str) -> None:
    """Write a text file; whatever interrupts it, the file is the old one or the new one."""
    write_bytes(file, text.encode("utf-8"))


def write_bytes(file: Path, content: bytes | memoryview) -> None:
    """Write a file; whatever interrupts it, the file is the old one or the new one.

    Raises:
        OSError: It cannot be written, for example because the disk is full: the old file is as it was, and
            nothing of the new one is left behind.
    """
    part = partial(file)
    try:
        with part.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())  # or the new name might reach the disk before what it names
        part.replace(file)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    settle(file.parent)


def settle(folder: Path) -> None:
    """Make sure that the names in a folder have reached the disk."""
    if os.name == "nt":  # which cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
