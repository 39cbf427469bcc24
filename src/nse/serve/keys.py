"""API keys: who may ask."""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from nse.errors import InputError

SHORTEST = 16
"""Characters of a key: a shorter one can be guessed."""

MAKE = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


class Keys:
    """The keys that are let in. Only their digests are kept.

    Args:
        keys: As people send them.
    """

    def __init__(self, keys: Iterable[str]):
        self.digests = [sha256(key.encode()).digest() for key in keys]

    def allow(self, given: bytes) -> bool:
        """Whether a key is one of them; takes as long whichever it is, and however much of it is right."""
        digest = sha256(given).digest()
        return sum(hmac.compare_digest(digest, each) for each in self.digests) > 0


def is_readable_by_others(file: Path) -> bool:
    """Whether users other than its owner may read or change a file; on Windows it cannot be told."""
    others = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
    return os.name == "posix" and bool(file.stat().st_mode & others)


def read_keys(file: Path) -> Keys:
    """The keys of a file, one on each line; blank lines and those that begin with # are left out.

    Raises:
        InputError: There is no such file, no key in it, or one that could be guessed or not be sent. The
            message names the line, and never the key.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise InputError(f"serve: --api-key-file {file}: cannot be read: {reason}") from None
    numbered = enumerate((line.strip() for line in lines), start=1)
    found = {number: key for number, key in numbered if key and not key.startswith("#")}
    if not found:
        raise InputError(f"serve: --api-key-file {file}: there is no key in it; make one: {MAKE}")
    for number, key in found.items():
        if not re.fullmatch(r"[!-~]+", key):
            raise InputError(f"serve: --api-key-file {file}: line {number}: use ASCII without spaces: {MAKE}")
        if len(key) < SHORTEST:
            raise InputError(
                f"serve: --api-key-file {file}: line {number}: a key needs {SHORTEST} characters: {MAKE}"
            )
    return Keys(found.values())
