"""The checksums of a model folder: a line for each file that is loaded, as `sha256sum` writes them."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path

from nse.bounds import read_bounded
from nse.errors import ModelError

SUMS = "SHA256SUMS"
"""The name that the file has everywhere."""

LONGEST = 1 << 16
"""Bytes of the file: it has four lines."""

ADVICE = f"get the model folder again, whole, or delete {SUMS} if the change was meant"

COMMAND = f"sha256sum *.json *.safetensors *.txt > {SUMS}"

LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")

log = logging.getLogger(__name__)


def compute_digest(content: bytes | BufferedReader) -> str:
    """Compute the SHA-256 of a file, given its bytes or the file itself, open at its start."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    return hashlib.file_digest(content, "sha256").hexdigest()


def write_sums(files: Mapping[str, bytes]) -> bytes:
    """Write the checksums of files, by their names."""
    return "".join(f"{compute_digest(content)}  {name}\n" for name, content in files.items()).encode()


class Checksums:
    """The checksums of a model folder, to be compared with its files as they are read.

    A folder without them is older than they are: that is logged, and nothing is compared.

    Args:
        folder: The model folder.

    Raises:
        ModelError: They are there and cannot be read.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.sums: dict[str, str] | None = None
        try:
            lines = read_bounded(folder / SUMS, LONGEST).decode("utf-8", "replace").splitlines()
            self.sums = {match[2]: match[1].lower() for line in lines if (match := LINE.fullmatch(line))}
        except FileNotFoundError:
            log.warning(
                "%s has no %s, so that a changed bit would not be noticed; to make one, type there: %s",
                *(folder, SUMS, COMMAND),
            )
        except OSError as error:
            raise ModelError(f"{folder / SUMS} cannot be read: {error.strerror or error}") from None

    def verify(self, name: str, content: bytes | BufferedReader) -> None:
        """Compare the content of a file with its checksum.

        Raises:
            ModelError: It is not what was saved, or has no checksum.
        """
        if self.sums is None:
            return
        if name not in self.sums:
            raise ModelError(f"{self.folder / SUMS} has no checksum of {name}; {ADVICE}")
        if compute_digest(content) != self.sums[name]:
            raise ModelError(f"{self.folder / name}: not what was saved, by its checksum in {SUMS}; {ADVICE}")
