"""Published files from their addresses: resumed where they stopped, checked, and never half there."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nse import __version__
from nse.data.catalogue import Download
from nse.data.folders import CHUNK, checksum
from nse.errors import DataError
from nse.files import settle
from nse.text.published import Progress

TIMEOUT = 30.0
"""Seconds without a byte, after which a server counts as gone."""

AGAIN = "what came is kept: run the command again to go on from there"


def fetch(
    download: Download,
    folder: Path,
    address: str | None = None,
    log: Callable[[str], None] = lambda _: None,
    progress: Progress | None = None,
) -> Path:
    """Get one file into a data folder, unless it is there already.

    Args:
        download: What to get.
        folder: The data folder, made if need be.
        address: A mirror to get it from: the file's own address, or a folder's, which ends in a slash.
        log: Told what is done, in a line.
        progress: Told how many bytes are there.
    """
    address = _address(download, address)
    file = folder / download.file
    try:
        if file.exists():
            _check(file, download, progress, "it is not the published file: move it away to get that")
            log(f"{file} is already there")
        else:
            found = _got(address, file, download, log, progress)
            verified = "" if download.sha256 else " (not verified)"
            log(f"{file}: {download.size:,} bytes, sha256 {found}{verified}")
    except OSError as error:  # of the disk: the network's are told where they happen
        raise DataError(f"{error.filename or file}: cannot be used: {error.strerror or error}") from None
    return file


def _got(
    address: str, file: Path, download: Download, log: Callable[[str], None], progress: Progress | None
) -> str:
    """Get a file that is not there yet; returns its checksum."""
    part = _Part.of(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    if part.size() < download.size:
        log(f"getting {address}")
        _receive(address, part, download.size, progress)
    found = _check_part(part, download, progress)
    _keep(part, file)
    return found


class _Part(NamedTuple):
    """A file that is still coming, and beside it the server's mark for the version that was begun."""

    file: Path
    mark: Path

    @classmethod
    def of(cls, file: Path) -> _Part:
        return cls(file.with_name(f"{file.name}.part"), file.with_name(f"{file.name}.part.etag"))

    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def etag(self) -> str:
        return self.mark.read_text("utf-8") if self.mark.exists() else ""

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)


def _address(download: Download, mirror: str | None) -> str:
    if mirror is None:
        return download.address
    if not re.match(r"https?://[^/\s]", mirror):
        raise DataError(f"--from {mirror}: expected an address that starts with https:// or http://")
    return mirror + Path(download.file).name if mirror.endswith("/") else mirror


class _GoneError(Exception):
    """The network or the server failed."""


def _receive(address: str, part: _Part, size: int, progress: Progress | None) -> None:
    """Append what is missing to the part file, or start over where the server cannot go on."""
    done = part.size()
    try:
        response, done = _opened(address, part)
        with response:
            if not done:
                _begin(response, part, size)
            with part.file.open("ab" if done else "wb") as handle:
                while done <= size and (chunk := _chunk(response)):
                    handle.write(chunk)
                    done += len(chunk)
                    if progress:
                        progress(done, size)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(
            f"{address}: the server answers {error.code} {error.reason}; try a mirror with --from ADDRESS"
        ) from None
    except _GoneError as error:
        raise DataError(f"{address}: broke off after {done:,} of {size:,} bytes: {error}; {AGAIN}") from None
    if done < size:
        raise DataError(f"{address}: broke off after {done:,} of {size:,} bytes; {AGAIN}")


def _opened(address: str, part: _Part) -> tuple[Any, int]:
    """The server's answer, and the byte from which it goes on: the part file's end if it can, else 0."""
    if done := part.size():
        wanted = {"Range": f"bytes={done}-"}
        if part.etag():
            wanted["If-Range"] = part.etag()  # another version comes whole
        try:
            response = _asked(address, wanted)
        except urllib.error.HTTPError as error:
            if error.code != 416:  # nothing after that byte: it is not the file that was begun
                raise
            error.close()
        else:
            if _goes_on(response, done, part.etag()):
                return response, done
            if response.status == 200:
                return response, 0
            response.close()
    return _asked(address, {}), 0


def _asked(address: str, headers: dict[str, str]) -> Any:
    always = {"User-Agent": f"nse/{__version__}", "Accept-Encoding": "identity"}
    try:
        return urllib.request.urlopen(
            urllib.request.Request(address, headers=always | headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _GoneError(str(getattr(error, "reason", error)) or type(error).__name__) from None


def _goes_on(response: Any, done: int, etag: str) -> bool:
    """Whether an answer is the rest of the very file that was begun."""
    told = response.headers.get("Content-Range") or ""
    same = not etag or response.headers.get("ETag", etag) == etag
    return response.status == 206 and told.startswith(f"bytes {done}-") and same


def _begin(response: Any, part: _Part, size: int) -> None:
    """Start over, unless the server already tells that it has another file."""
    length = response.headers.get("Content-Length") or ""
    if length.isdigit() and int(length) != size:
        raise DataError(
            f"{response.geturl()}: has {int(length):,} bytes, the published file {size:,}; "
            "try a mirror with --from ADDRESS"
        )
    part.remove()
    etag = response.headers.get("ETag") or ""
    if etag and not etag.startswith("W/"):  # a weak mark does not promise the same bytes
        part.mark.write_text(etag, "utf-8")


def _chunk(response: Any) -> bytes:
    try:
        return bytes(response.read(CHUNK))
    except (OSError, http.client.HTTPException) as error:
        raise _GoneError(str(error) or type(error).__name__) from None


def _check_part(part: _Part, download: Download, progress: Progress | None) -> str:
    try:
        return _check(part.file, download, progress, "it was removed; run the command again, or with --from")
    except DataError:
        part.remove()
        raise


def _check(file: Path, download: Download, progress: Progress | None, advice: str) -> str:
    """The checksum of a file that is the published one; `DataError` if it is not."""
    size = file.stat().st_size
    if size != download.size:
        raise DataError(f"{file}: has {size:,} bytes, the published file {download.size:,}; {advice}")
    found = checksum(file, progress)
    if download.sha256 and found != download.sha256:
        raise DataError(f"{file}: has the sha256 {found}, the published file {download.sha256}; {advice}")
    return found


def _keep(part: _Part, file: Path) -> None:
    with part.file.open("rb") as handle:
        os.fsync(handle.fileno())
    part.file.replace(file)
    part.mark.unlink(missing_ok=True)
    settle(file.parent)
