"""Settings and limits of the server, and its API keys."""

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
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MAX_HEAD, MAX_HEADERS, MAX_PATH = 1 << 16, 100, 1 << 13  # of a request: bytes, number, bytes
RECEIVE_BUFFER = 1 << 16  # bytes per connection that the kernel buffers
MAX_CONNECTIONS = 2048  # fewer if the limit of open files is low
SPARE_FILES = 32  # open files kept free for new worker processes
MIN_BODY_LIMIT = 1 << 18  # bytes; `Settings.max_body` is larger if a text may be longer
MAX_BYTES_PER_CHARACTER = 12  # in JSON: \ud83d\ude00
MAX_TRACE_WORDS, MAX_TRACE_SENTENCES = 200, 50  # of a text; a larger picture would be unreadable
MAX_TRACE_CANDIDATES = 20
MAX_BEAM = 32  # every beam needs memory
MIN_KEY_LENGTH = 16  # shorter keys could be guessed
MAKE_KEY = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


class ApiKeys:
    """Accepted API keys, stored as digests."""

    def __init__(self, keys: Iterable[str]):
        self.digests = [sha256(key.encode()).digest() for key in keys]

    def allow(self, key: bytes) -> bool:
        """Return whether a key is accepted, in a time that does not depend on the key."""
        digest = sha256(key).digest()
        return sum(hmac.compare_digest(digest, known) for known in self.digests) > 0


@dataclass(frozen=True)
class Settings:
    """Settings of a server."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0 takes a free one
    max_batch: int = 64  # texts per batch
    max_wait_ms: float = 5.0  # longest wait for more requests to fill a batch
    max_queue: int = 256  # requests that wait for the model; more are refused with 429
    max_chars: int = 10_000  # per text
    max_texts: int = 256  # per request
    timeout: float = 30.0  # seconds until a request is answered or refused
    workers: int | None = None  # processes on a CPU, threads on a GPU; default: one per core, or one on a GPU
    keys: ApiKeys | None = None  # if any, a request needs one of them
    access_log: bool = True
    log_texts: bool = False  # whether the access log contains the texts

    def __post_init__(self) -> None:
        """Check the values."""
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
        """Largest body of a request, in bytes."""
        return max(MIN_BODY_LIMIT, MAX_BYTES_PER_CHARACTER * self.max_chars + 4096)


def read_keys(file: Path) -> ApiKeys:
    """Read API keys from a file, one per line; blank lines and lines that begin with # are skipped.

    Raises:
        InputError: The file cannot be read, or a key is too short or not ASCII. The message has no key in it.
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
        raise InputError(f"{where} contains no key; make one: {MAKE_KEY}")
    for number, key in keys.items():
        if not re.fullmatch(r"[!-~]+", key):
            raise InputError(f"{where} line {number}: use ASCII without spaces: {MAKE_KEY}")
        if len(key) < MIN_KEY_LENGTH:
            raise InputError(f"{where} line {number}: a key needs {MIN_KEY_LENGTH} characters: {MAKE_KEY}")
    return ApiKeys(keys.values())


def is_open_to_others(file: Path) -> bool:
    """Return whether other users can read or change a file; always False on Windows."""
    others = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
    return os.name == "posix" and bool(file.stat().st_mode & others)


def compute_connection_limits() -> tuple[int, int]:
    """Return the limits of open connections and of waiting ones that the limit of open files allows."""
    file_limit, open_files = math.inf, 32
    if resource is not None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        file_limit = math.inf if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError):
        open_files = len(os.listdir("/dev/fd"))
    backlog = int(max(16, min(1024, file_limit // 4)))
    free = file_limit - backlog - open_files - SPARE_FILES
    return int(max(16, min(MAX_CONNECTIONS, free))), backlog
