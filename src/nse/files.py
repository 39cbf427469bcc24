"""Files: written whole or not at all, read within bounds, compressed ones, JSON without liberties."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import os
import re
import secrets
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources.abc import Traversable
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NoReturn

from nse.errors import ConfigError, explain_errors, shorten

# A part file is always a new file: whatever somebody put in its place is neither followed nor emptied; that
# of another process is opened to find out whether it still writes it.
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
LOOK = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
COMPRESSED: dict[str, Callable[[IO[bytes]], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
LONGEST_TOML = 1 << 20  # bytes of a recipe: no sensible one comes near
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what reading a file raises


def write(file: Path, text: str) -> None:
    """Write a text file; whatever interrupts it, the file is the old one or the new one."""
    write_bytes(file, text.encode("utf-8"))


def write_bytes(file: Path, content: bytes | memoryview) -> None:
    """Write a file; whatever interrupts it, the file is the old one or the new one."""
    with open_replacement(file) as handle:
        handle.write(content)


@contextmanager
def open_replacement(file: Path, alone: bool = False) -> Iterator[IO[bytes]]:
    """Open a part file beside a file, which replaces the file when the block ends without an error.

    Many processes may do so at the same time: each has its own part file, and the last one to end wins; with
    `alone`, one that is not the only one is refused. A link is followed. The new file has the mode of the old
    one, and its owner if this process may give files away. A device or a FIFO is written into.
    After an `OSError`, as of a full disk, the old file is as it was, and nothing of the new one is left.
    """
    target, before = find_target(file)
    if before is not None and not stat.S_ISREG(before.st_mode):
        with os.fdopen(os.open(file, os.O_WRONLY), "wb") as stream:
            yield stream
        return
    part, handle = open_part(target, before)
    with handle:
        try:
            if remove_left_over(target, part) and alone:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process is writing it", str(file))
            yield handle
            handle.flush()
            os.fsync(handle.fileno())  # or the new name might reach the disk before what it names
            if os.name == "nt":  # which cannot rename an open file; elsewhere it stays locked until then
                handle.close()
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    settle(target.parent)


def find_target(file: Path) -> tuple[Path, os.stat_result | None]:
    """Follow links to the file that a path names; returns it and its status if it is there."""
    before = None
    with suppress(FileNotFoundError):
        before = os.stat(file)
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    return Path(os.path.realpath(file)), before


def open_part(target: Path, before: os.stat_result | None) -> tuple[Path, IO[bytes]]:
    """Create a part file of this process, locked, with the mode and the owner of the file it will replace."""
    while True:
        part = target.with_name(f"{part_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            number = os.open(part, CREATE, 0o666 if before is None else 0o600)
        except FileExistsError:
            continue
        handle = os.fdopen(number, "wb")
        if lock(number) is False or not is_at(number, part):  # another process took it for a left-over
            handle.close()
            continue
        if before is not None and os.name != "nt":
            keep_mode(number, before)
        return part, handle


def part_prefix(target: Path) -> str:
    """Make the beginning of a part file's name, short enough for a file system to take the rest."""
    name = target.name
    if len(os.fsencode(name)) > 200:
        name = f"{name[:30]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return f".{name}."


def lock(number: int) -> bool | None:
    """Lock an open file; `False` if another process holds the lock, `None` where files cannot be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def is_at(number: int, file: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(number), file.stat())
    except FileNotFoundError:
        return False


def keep_mode(number: int, before: os.stat_result) -> None:
    """Give an open file the mode of another, and its group and owner as far as this process may."""
    mode, now = before.st_mode & 0o777, os.fstat(number)
    if now.st_gid != before.st_gid:
        try:
            os.fchown(number, -1, before.st_gid)
        except OSError:
            mode &= ~0o070  # which would open it to another group
    with suppress(OSError):
        if now.st_uid != before.st_uid:
            os.fchown(number, before.st_uid, -1)
    with suppress(OSError):  # of a file system that has no modes
        os.fchmod(number, mode)


def remove_left_over(target: Path, own: Path) -> int:
    """Remove part files that no process has locked, in any container; returns how many others there are."""
    name = re.compile(rf"{re.escape(part_prefix(target))}\d+-[0-9a-f]{{8}}\.part")
    written = 0
    with suppress(OSError), os.scandir(target.parent) as entries:  # a folder that cannot be listed
        for entry in entries:
            if entry.name == own.name or not name.fullmatch(entry.name):
                continue
            with suppress(OSError):  # it has just gone, or belongs to somebody else
                number = os.open(entry.path, LOOK)
                try:
                    locked = lock(number)
                    written += locked is False
                    if locked:
                        os.unlink(entry.path)
                finally:
                    os.close(number)
    return written


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
    target, before = find_target(file)
    if before is not None and not stat.S_ISREG(before.st_mode):
        if not os.access(file, os.W_OK):  # not opened: the reader of a FIFO would take that for its end
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part, handle = open_part(target, None)
    handle.close()
    part.unlink(missing_ok=True)


def open_regular(file: Path) -> BufferedReader:
    """Open a file to read it; devices, FIFOs and folders are refused, because reading them may never end."""
    _refuse_irregular(os.stat(file))  # before it is opened, which may start a device
    no_wait = getattr(os, "O_NONBLOCK", 0)  # as a FIFO would, for who writes it
    # Whoever asked closes it.
    handle = open(file, "rb", opener=lambda name, flags: os.open(name, flags | no_wait))  # noqa: SIM115
    try:
        _refuse_irregular(os.fstat(handle.fileno()))  # again: it may have been replaced since
    except OSError:
        handle.close()
        raise
    return handle


def read_bounded(file: Path, most: int) -> bytes:
    """Read a regular file of at most so many bytes; anything else raises an `OSError`."""
    with open_regular(file) as handle:
        content = handle.read(most + 1) or b""  # nothing where it would have to be waited for
    if len(content) > most:
        raise OSError(errno.EFBIG, f"longer than {most:,} bytes")
    return content


def _refuse_irregular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "a device or a FIFO, not a file")


def decompress(raw: IO[bytes], name: str | Path) -> IO[bytes]:
    """Open the content of an open file, which is compressed if the ending of its name says so."""
    opened: IO[bytes] = COMPRESSED.get(Path(name).suffix, lambda plain: plain)(raw)
    return opened


def parse_json(content: bytes | str) -> Any:
    """Parse JSON without the liberties that Python takes: each key once, no NaN, no half of a character."""

    def refuse_constant(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number in JSON")

    def make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(data := dict(pairs)) != len(pairs):
            raise ValueError(f"a key occurs twice among {shorten(', '.join(key for key, _ in pairs), 400)}")
        return data

    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        data = json.loads(text, object_pairs_hook=make_object, parse_constant=refuse_constant)
        json.dumps(data, ensure_ascii=False).encode()  # half of a character, escaped, is no text
    except RecursionError:
        raise ValueError("nested too deep") from None
    return data


def read_toml(file: Path | Traversable) -> dict[str, object]:
    """Read a TOML file of bounded size; `ConfigError` says what is wrong with it."""
    with explain_errors(f"{file}: cannot be read", ConfigError):
        content = read_bounded(file, LONGEST_TOML) if isinstance(file, Path) else file.read_bytes()
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # wrong TOML, not UTF-8, or an integer too long for Python
        end = "at end of document"
        reason = str(error).replace(end, f"{end}, line {len(content.splitlines())}")
        raise ConfigError(f"{file}: not valid TOML: {reason}") from None
