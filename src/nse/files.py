"""Atomic writes, bounded reads, compressed files, strict JSON and TOML."""

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

# A part file is always created: an existing file or link of its name is neither followed nor truncated.
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
OPEN_EXISTING = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
COMPRESSED: dict[str, Callable[[IO[bytes]], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
MAX_TOML_BYTES = 1 << 20
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)  # errors of reading a compressed file


def write_text(file: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(file, text.encode("utf-8"))


def write_bytes(file: Path, content: bytes | memoryview) -> None:
    """Write a file atomically: after an interruption it has its old or its new content."""
    with open_replacement(file) as handle:
        handle.write(content)


@contextmanager
def open_replacement(file: Path, alone: bool = False) -> Iterator[IO[bytes]]:
    """Open a part file, which replaces the file when the block ends without an error.

    Several processes may write the same file: each has its own part file, and the last to finish wins;
    `alone` raises an error instead. Links are followed. The new file gets the mode of the old one, and its
    owner if permitted. A device or a FIFO is written directly. After an error the old file is unchanged, and
    the part file is removed.
    """
    target, status = find_target(file)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with os.fdopen(os.open(file, os.O_WRONLY), "wb") as stream:
            yield stream
        return
    part, handle = open_part(target, status)
    with handle:
        try:
            if remove_stale_parts(target, part) and alone:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process is writing it", str(file))
            yield handle
            handle.flush()
            os.fsync(handle.fileno())  # before the rename, which could reach the disk first
            if os.name == "nt":  # Windows cannot rename an open file; elsewhere it stays locked until then
                handle.close()
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    sync_folder(target.parent)


def find_target(file: Path) -> tuple[Path, os.stat_result | None]:
    """Resolve links; return the file and its status, or `None` if it does not exist."""
    status = None
    with suppress(FileNotFoundError):
        status = os.stat(file)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    return Path(os.path.realpath(file)), status


def open_part(target: Path, status: os.stat_result | None) -> tuple[Path, IO[bytes]]:
    """Create and lock a part file of this process, with the mode and owner of the file to replace."""
    while True:
        part = target.with_name(f"{part_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            number = os.open(part, CREATE, 0o666 if status is None else 0o600)
        except FileExistsError:
            continue
        handle = os.fdopen(number, "wb")
        if lock(number) is False or not is_at(number, part):  # another process removed it as stale
            handle.close()
            continue
        if status is not None and os.name != "nt":
            copy_mode(number, status)
        return part, handle


def part_prefix(target: Path) -> str:
    """Return the prefix of the names of a file's part files, short enough for any file system."""
    name = target.name
    if len(os.fsencode(name)) > 200:
        name = f"{name[:30]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return f".{name}."


def lock(number: int) -> bool | None:
    """Lock an open file; return `False` if another process has locked it, `None` without lock support."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # unsupported by the file system
        return None
    return True


def is_at(number: int, file: Path) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(number), file.stat())
    except FileNotFoundError:
        return False


def copy_mode(number: int, status: os.stat_result) -> None:
    """Give an open file the mode of another, and its group and owner if permitted."""
    mode, current = status.st_mode & 0o777, os.fstat(number)
    if current.st_gid != status.st_gid:
        try:
            os.fchown(number, -1, status.st_gid)
        except OSError:
            mode &= ~0o070  # it would open the file to another group
    with suppress(OSError):
        if current.st_uid != status.st_uid:
            os.fchown(number, status.st_uid, -1)
    with suppress(OSError):  # the file system may have no modes
        os.fchmod(number, mode)


def remove_stale_parts(target: Path, part: Path) -> int:
    """Remove other part files that no process has locked; return how many are locked."""
    name = re.compile(rf"{re.escape(part_prefix(target))}\d+-[0-9a-f]{{8}}\.part")
    count = 0
    with suppress(OSError), os.scandir(target.parent) as entries:  # the folder may not be listable
        for entry in entries:
            if entry.name == part.name or not name.fullmatch(entry.name):
                continue
            with suppress(OSError):  # removed meanwhile, or owned by another user
                number = os.open(entry.path, OPEN_EXISTING)
                try:
                    locked = lock(number)
                    count += locked is False
                    if locked:
                        os.unlink(entry.path)
                finally:
                    os.close(number)
    return count


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(file: Path) -> None:
    """Raise an `OSError` if the file cannot be written; create its folder."""
    target, status = find_target(file)
    if status is not None and not stat.S_ISREG(status.st_mode):
        if not os.access(file, os.W_OK):  # not opened: closing it would end a FIFO for its reader
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part, handle = open_part(target, None)
    handle.close()
    part.unlink(missing_ok=True)


def open_regular(file: Path) -> BufferedReader:
    """Open a regular file for reading; refuse devices, FIFOs and folders, which might never end."""
    _refuse_irregular(os.stat(file))  # before it is opened, which may start a device
    no_wait = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would wait for its writer
    handle = open(file, "rb", opener=lambda name, flags: os.open(name, flags | no_wait))  # noqa: SIM115
    try:
        _refuse_irregular(os.fstat(handle.fileno()))  # again: it may have been replaced
    except OSError:
        handle.close()
        raise
    return handle


def read_bounded(file: Path, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`; raise an `OSError` for any other."""
    with open_regular(file) as handle:
        content = handle.read(max_bytes + 1) or b""  # `None` if reading would block
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"longer than {max_bytes:,} bytes")
    return content


def _refuse_irregular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "a device or a FIFO, not a file")


def decompress(raw: IO[bytes], name: str | Path) -> IO[bytes]:
    """Decompress an open file if the suffix of its name is that of a compressed one."""
    content: IO[bytes] = COMPRESSED.get(Path(name).suffix, lambda plain: plain)(raw)
    return content


def parse_json(content: bytes | str) -> Any:
    """Parse JSON strictly: no duplicate keys, no NaN or infinity, no lone surrogates."""

    def refuse_constant(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number in JSON")

    def make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(data := dict(pairs)) != len(pairs):
            raise ValueError(f"a key occurs twice among {shorten(', '.join(key for key, _ in pairs), 400)}")
        return data

    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        data = json.loads(text, object_pairs_hook=make_object, parse_constant=refuse_constant)
        json.dumps(data, ensure_ascii=False).encode()  # fails for a lone surrogate
    except RecursionError:
        raise ValueError("nested too deep") from None
    return data


def read_toml(file: Path | Traversable) -> dict[str, object]:
    """Read a TOML file of bounded size.

    Raises:
        ConfigError: It cannot be read or parsed.
    """
    with explain_errors(f"{file}: cannot be read", ConfigError):
        content = read_bounded(file, MAX_TOML_BYTES) if isinstance(file, Path) else file.read_bytes()
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # not TOML, not UTF-8, or an integer too long for Python
        end = "at end of document"
        reason = str(error).replace(end, f"{end}, line {len(content.splitlines())}")
        raise ConfigError(f"{file}: not valid TOML: {reason}") from None
