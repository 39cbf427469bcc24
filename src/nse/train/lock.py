"""Lock of a run folder: one process writes at a time; the system releases the lock when the process dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nse.errors import RunError
from nse.files import OPEN_EXISTING, is_at, lock

LOCK = ".lock"  # file in the run folder that the writing process locks, and that names this process

_locked_descriptors: set[int] = set()


def _close_inherited_locks() -> None:
    """Close the locks in a forked child, which would otherwise keep them after its parent's death."""
    for descriptor in _locked_descriptors:
        os.close(descriptor)
    _locked_descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_locks)


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder in the block; create the folder, and remove it if it stays empty.

    Do nothing where locks are missing (Windows, some network file systems) or nothing can be written.
    """
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    with suppress(OSError):  # a later write reports the reason
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire_lock(folder)
    try:
        yield
    finally:
        if descriptor in _locked_descriptors:  # not in a forked child
            with suppress(OSError):
                (folder / LOCK).unlink()  # before it is released: see `_acquire_lock`
            _locked_descriptors.remove(descriptor)
            os.close(descriptor)
        for parent in created:
            with suppress(OSError):  # not empty
                parent.rmdir()


def find_run_folder(file: Path) -> Path | None:
    """Return the run folder that contains a path, if any."""
    return next((parent for parent in file.absolute().parents if (parent / "recipe.toml").is_file()), None)


def _acquire_lock(folder: Path) -> int | None:
    """Return a file descriptor that holds the lock; `None` where there are no locks."""
    file = folder / LOCK
    while True:
        try:
            descriptor = os.open(file, OPEN_EXISTING | os.O_CREAT, 0o644)
        except OSError as error:
            if file.exists() or file.is_symlink():
                raise RunError(f"{folder} cannot be used: {file}: {error.strerror}") from None
            return None
        locked = lock(descriptor)
        if locked and is_at(descriptor, file):
            break
        holder = os.read(descriptor, 200).decode("utf-8", "replace").strip() or "another process"
        os.close(descriptor)  # if it was locked, its writer has just ended and removed the file
        if locked is None:
            with suppress(OSError):
                file.unlink()
            return None
        if not locked:
            advice = "wait for it to end, stop it, or choose another folder"
            raise RunError(f"{folder} is in use by {holder}: {advice}")
    _locked_descriptors.add(descriptor)
    with suppress(OSError):  # a full disk: the lock holds without the text
        os.ftruncate(descriptor, 0)
        start_time = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(descriptor, f"process {os.getpid()}, since {start_time}\n".encode(), 0)
    return descriptor
