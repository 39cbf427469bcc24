"""How much the server takes in, and for how long; every bound in one place."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass

from nse.errors import InputError

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

MOST_HEAD, MOST_HEADERS, MOST_PATH = 1 << 16, 100, 1 << 13
"""Bytes of the head of a request, headers in it, and bytes of the path. Trailers are bounded like a head."""

RECEIVE_BUFFER = 1 << 16
"""Bytes of a connection that the system keeps until they are read, about."""

MOST_CONNECTIONS = 2048
"""Connections that are open at a time, if the limit of open files allows for so many."""

MORE_FILES = 32
"""Files that a server opens later: pipes to processes that it starts anew."""

LARGEST_BODY = 1 << 18
"""Bytes of a request, if no text of the longest kind needs more."""

BYTES_OF_A_CHARACTER = 12
r"""As JSON may write one: \ud83d\ude00."""

MOST_WORDS, MOST_SENTENCES = 200, 50
"""Of a text that is traced, and of a document: a picture of more could not be looked at."""

MOST_CANDIDATES = 20
"""Of a question that is traced."""

LARGEST_BEAM = 32
"""Translations of a sentence that are followed at a time: each of them takes memory."""


@dataclass(frozen=True)
class Limits:
    """What a server lets in; see `nse serve --help`.

    Attributes:
        max_batch: Texts computed at a time.
        max_wait_ms: How long a request waits for others to be computed with, while they keep coming.
        max_queue: Requests that wait for the model; one more is told to come back later.
        max_chars: Characters of a text.
        max_texts: Texts of a request.
        timeout: Seconds until a request is answered, one way or the other.
    """

    max_batch: int = 64
    max_wait_ms: float = 5.0
    max_queue: int = 256
    max_chars: int = 10_000
    max_texts: int = 256
    timeout: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        for name in ("max_batch", "max_queue", "max_chars", "max_texts"):
            if getattr(self, name) < 1:
                raise InputError(f"serve: {option(name)}: expected at least 1, got {getattr(self, name)}")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise InputError(f"serve: --timeout: expected more than 0 seconds, got {self.timeout:g}")
        if not 0 <= self.max_wait_ms < 1000 * self.timeout:
            raise InputError(
                f"serve: --max-wait-ms: expected 0 or more, and less than --timeout ({self.timeout:g} s), "
                f"got {self.max_wait_ms:g}"
            )

    @property
    def max_body(self) -> int:
        """Bytes of a request."""
        return max(LARGEST_BODY, BYTES_OF_A_CHARACTER * self.max_chars + 4096)


def option(name: str) -> str:
    """What a limit is called on the command line."""
    return f"--{name.replace('_', '-')}"


def connection_room() -> tuple[int, int]:
    """How many connections may be open, and how many may wait to be accepted.

    Those that wait are accepted all at once, before any can be closed again, so they have descriptors too.
    """
    allowed, used = math.inf, 32
    if resource is not None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        allowed = math.inf if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError):
        used = len(os.listdir("/dev/fd"))
    backlog = int(max(16, min(1024, allowed // 4)))
    return int(max(16, min(MOST_CONNECTIONS, allowed - backlog - used - MORE_FILES))), backlog
