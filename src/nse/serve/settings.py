"""What the server takes in, from whom, and for how long; every bound in one place."""

from __future__ import annotations

import hmac
import math
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from nse.errors import InputError

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

MOST_HEAD, MOST_HEADERS, MOST_PATH = 1 << 16, 100, 1 << 13  # of a request: bytes, headers, bytes of the path
RECEIVE_BUFFER = 1 << 16  # bytes of a connection that the system keeps until they are read, about
MOST_CONNECTIONS = 2048  # open at a time, if the limit of open files allows for so many
MORE_FILES = 32  # that a server opens later: pipes to processes that it starts anew
LARGEST_BODY = 1 << 18  # bytes of a request, if no text of the longest kind needs more
BYTES_OF_A_CHARACTER = 12  # as JSON may write one: \ud83d\ude00
MOST_WORDS, MOST_SENTENCES = 200, 50  # of a text that is traced: nobody could look at a larger picture
MOST_CANDIDATES = 20  # of a question that is traced
LARGEST_BEAM = 32  # translations of a sentence that are followed at a time: each of them takes memory
SHORTEST_KEY = 16  # characters: a shorter one can be guessed
MAKE_KEY = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


class Keys:
    """The keys that are let in, of which only digests are kept."""

    def __init__(self, keys: Iterable[str]):
        self.digests = [sha256(key.encode()).digest() for key in keys]

    def allow(self, key: bytes) -> bool:
        """Tell whether a key is one of them; it takes as long whichever it is, and however much is right."""
        digest = sha256(key).digest()
        return sum(hmac.compare_digest(digest, known) for known in self.digests) > 0


@dataclass(frozen=True)
class Settings:
    """How a server runs and what it lets in."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0 takes one that is free
    max_batch: int = 64  # texts computed at a time
    max_wait_ms: float = (
        5.0  # how long a request waits for others to be computed with, while they keep coming
    )
    max_queue: int = 256  # requests that wait for the model; one more is told to come back later
    max_chars: int = 10_000  # of a text
    max_texts: int = 256  # of a request
    timeout: float = 30.0  # seconds until a request is answered, one way or the other
    workers: int | None = (
        None  # threads that compute, on a CPU each in a process; as many as suit the machine
    )
    keys: Keys | None = None  # of which one is needed, if any
    access_log: bool = True  # whether every request is logged
    log_texts: bool = False  # whether the log has the texts

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        for name in ("max_batch", "max_queue", "max_chars", "max_texts"):
            if (value := getattr(self, name)) < 1:
                raise InputError(f"{name}: expected at least 1, got {value}")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise InputError(f"timeout: expected more than 0 seconds, got {self.timeout:g}")
        if not 0 <= self.max_wait_ms < 1000 * self.timeout:
            raise InputError(
                f"max_wait_ms: expected 0 or more, and less than the timeout ({self.timeout:g} s), "
                f"got {self.max_wait_ms:g}"
            )
        if self.log_texts and not self.access_log:
            raise InputError("log_texts: texts are logged in the access log, which is off")

    @property
    def max_body(self) -> int:
        """Bytes of a request."""
        return max(LARGEST_BODY, BYTES_OF_A_CHARACTER * self.max_chars + 4096)


def read_keys(file: Path) -> Keys:
    """Read the keys of a file, one on each line; blank lines and those that begin with # are left out.

    Keys that could be guessed or not be sent are refused; the message names the line, and never the key.
    """
    where = f"api_key_file: {file}:"
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise InputError(f"{where} cannot be read: {reason}") from None
    numbered = enumerate((line.strip() for line in lines), start=1)
    keys = {number: key for number, key in numbered if key and not key.startswith("#")}
    if not keys:
        raise InputError(f"{where} there is no key in it; make one: {MAKE_KEY}")
    for number, key in keys.items():
        if not re.fullmatch(r"[!-~]+", key):
            raise InputError(f"{where} line {number}: use ASCII without spaces: {MAKE_KEY}")
        if len(key) < SHORTEST_KEY:
            raise InputError(f"{where} line {number}: a key needs {SHORTEST_KEY} characters: {MAKE_KEY}")
    return Keys(keys.values())


def is_open_to_others(file: Path) -> bool:
    """Tell whether other users may read or change a file; on Windows that is not known."""
    others = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
    return os.name == "posix" and bool(file.stat().st_mode & others)


def connection_room() -> tuple[int, int]:
    """Count how many connections may be open, and how many may wait to be: they have files, too."""
    allowed, used = math.inf, 32
    if resource is not None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        allowed = math.inf if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError):
        used = len(os.listdir("/dev/fd"))
    backlog = int(max(16, min(1024, allowed // 4)))
    return int(max(16, min(MOST_CONNECTIONS, allowed - backlog - used - MORE_FILES))), backlog
