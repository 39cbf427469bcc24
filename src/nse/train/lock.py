"""One writer for a run folder: a lock that the system gives back when its holder dies, however it dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nse.errors import RunError
from nse.files import LOOK, is_at, lock

LOCK = ".lock"  # the file in a run folder that its writer holds; it says who that is

_held: set[int] = set()  # the file descriptors of the locks that this process holds


def _forget_locks() -> None:
    """Close the locks in a forked child, which would otherwise hold them after its parent's death."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, which is made if need be and removed again if nothing was written.

    Without locks (Windows, some network file systems) and where nothing can be written, go on without.
    """
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    with suppress(OSError):  # whoever writes there will say why it cannot
        folder.mkdir(parents=True, exist_ok=True)
    handle = _take(folder)
    try:
        yield
    finally:
        if handle in _held:  # and this is no forked child
            with suppress(OSError):
                (folder / LOCK).unlink()  # while it is held: see `_take`
            _held.remove(handle)
            os.close(handle)
        for parent in made:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def run_of(file: Path) -> Path | None:
    """Return the run folder that a file lies in, or would lie in."""
    return next((parent for parent in file.absolute().parents if (parent / "recipe.toml").is_file()), None)


def _take(folder: Path) -> int | None:
    """Return a descriptor that holds the lock; `None` where there are no locks."""
    file = folder / LOCK
    while True:
        try:
            handle = os.open(file, LOOK | os.O_CREAT, 0o644)
        except OSError as error:
            if file.exists() or file.is_symlink():
                raise RunError(f"{folder} cannot be used: {file}: {error.strerror}") from None
            return None
        locked = lock(handle)
        if locked and is_at(handle, file):
            break
        holder = os.read(handle, 200).decode("utf-8", "replace").strip() or "another process"
        os.close(handle)  # where it was locked, of a writer that has just ended, and removed the file
        if locked is None:
            with suppress(OSError):
                file.unlink()
            return None
        if not locked:
            wait = "wait for it to end, stop it, or choose another folder"
            raise RunError(f"{folder} is in use by {holder}: {wait}")
    _held.add(handle)
    with suppress(OSError):  # of a full disk: the lock is held all the same
        os.ftruncate(handle, 0)
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(handle, f"process {os.getpid()}, since {now}\n".encode(), 0)
    return handle
