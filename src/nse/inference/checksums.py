"""The files of a model folder, read whole and compared with the checksums that `sha256sum` would write."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from nse.errors import ModelError, shorten
from nse.files import read_bounded

SUMS = "SHA256SUMS"  # the name that the list of checksums has everywhere
LONGEST = 1 << 16  # bytes of the list: it has four lines
AGAIN = "get the model folder again, whole"
ADVICE = f"{AGAIN}, or delete {SUMS} if the change was meant"
LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")

log = logging.getLogger(__name__)


def compute_digest(content: bytes) -> str:
    """Compute the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def write_sums(files: Mapping[str, bytes]) -> bytes:
    """Write the checksums of files, by their names."""
    return "".join(f"{compute_digest(content)}  {name}\n" for name, content in files.items()).encode()


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Turn what is raised inside, where a file cannot be read, into a `ModelError`."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{file} is missing; {AGAIN}") from None
    except SafetensorError as error:
        raise ModelError(f"{file} is not a whole safetensors file ({shorten(error)}); {AGAIN}") from None
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):  # as PyTorch says it
            raise
        raise ModelError(f"{file} cannot be read: there is not enough memory for it") from None


class Checksums:
    """The checksums of a model folder; where it has none, that is logged and nothing is compared."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sums: dict[str, str] | None = None
        with translate_errors(folder / SUMS), suppress(FileNotFoundError):
            lines = read_bounded(folder / SUMS, LONGEST).decode("utf-8", "replace").splitlines()
            self.sums = {match[2]: match[1].lower() for line in lines if (match := LINE.fullmatch(line))}
        if self.sums is None:
            advice = f"to make one, type there: sha256sum *.json *.safetensors *.txt > {SUMS}"
            log.warning("%s has no %s, so that a changed bit would not be noticed; %s", folder, SUMS, advice)

    def read(self, name: str, most: int) -> bytes:
        """Read a file of at most so many bytes, and compare it with its checksum."""
        with translate_errors(self.folder / name):
            content = read_bounded(self.folder / name, most)
        self.verify(name, compute_digest(content))
        return content

    def verify(self, name: str, digest: str) -> None:
        """Refuse a file whose digest is not that of what was saved."""
        if self.sums is not None and name not in self.sums:
            raise ModelError(f"{self.folder / SUMS} has no checksum of {name}; {ADVICE}")
        if self.sums is not None and self.sums[name] != digest:
            raise ModelError(f"{self.folder / name}: not what was saved, by its checksum in {SUMS}; {ADVICE}")
