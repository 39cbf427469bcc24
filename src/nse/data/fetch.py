"""Published files from their addresses: resumed where they stopped, checked, and never half there."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nse import __version__
from nse.data.catalogue import Download
from nse.data.folders import CHUNK, checksums, say
from nse.data.sources import Progress
from nse.errors import DataError
from nse.files import settle

TIMEOUT = 30.0
"""Seconds without a byte, after which a server counts as gone."""

AGAIN = "what came is kept: run the command again to go on from there"
MIRROR = "try a mirror with --from ADDRESS"


def fetch(
    download: Download,
    folder: Path,
    address: str | None = None,
    log: Callable[[str], None] = say,
    progress: Progress | None = None,
) -> Path:
    """Get one file into a data folder, unless it is there already.

    Args:
        download: What to get.
        folder: The data folder, made if need be.
        address: A mirror to get it from: the file's own address, or a folder's, which ends in a slash.
        log: Called with a line about what is done; prints it on standard error by default.
        progress: Called with how many bytes are there.
    """
    if address is None:
        address = download.address
    elif not re.match(r"https?://[^/\s]", address):
        raise DataError(f"--from {address}: expected an address that starts with https:// or http://")
    elif address.endswith("/"):
        address += Path(download.file).name
    file = folder / download.file
    try:
        if file.exists():
            _check(file, download, progress, "it is not the published file: move it away to get that")
            log(f"{file} is already there")
            return file
        part = _Part(file, download.size, progress)
        file.parent.mkdir(parents=True, exist_ok=True)
        if part.size() < download.size:
            log(f"getting {address}")
            part.receive(address)
        try:
            advice = "it was removed; run the command again, or with --from"
            found = _check(part.file, download, progress, advice)
        except DataError:
            part.remove()
            raise
        part.keep(file)
    except OSError as error:  # of the disk: the network's are told where they happen
        raise DataError(f"{error.filename or file}: cannot be used: {error.strerror or error}") from None
    log(f"{file}: {download.size:,} bytes, sha256 {found}{'' if download.sha256 else ' (not verified)'}")
    return file


def _check(file: Path, download: Download, progress: Progress | None, advice: str) -> str:
    """Compute the checksum of a file that is the published one; `DataError` if it is not."""
    size = file.stat().st_size
    if size != download.size:
        raise DataError(f"{file}: has {size:,} bytes, the published file {download.size:,}; {advice}")
    (found,) = checksums([file], progress)
    if download.sha256 and found != download.sha256:
        raise DataError(f"{file}: has the sha256 {found}, the published file {download.sha256}; {advice}")
    return found


class _GoneError(Exception):
    """The network or the server failed."""


class _Part:
    """A file that is still coming, and beside it the server's mark for the version that was begun."""

    def __init__(self, file: Path, whole: int, progress: Progress | None):
        self.file = file.with_name(f"{file.name}.part")
        self.mark = file.with_name(f"{file.name}.part.etag")
        self.whole, self.progress = whole, progress

    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)

    def keep(self, file: Path) -> None:
        """Give the file its name, now that all of it is here."""
        with self.file.open("rb") as handle:
            os.fsync(handle.fileno())
        self.file.replace(file)
        self.mark.unlink(missing_ok=True)
        settle(file.parent)

    def receive(self, address: str) -> None:
        """Append what is missing, or start over where the server cannot go on."""
        done, why = self.size(), ""
        try:
            response, done = self._open(address, done)
            with response:
                if not done:
                    self._begin(response)
                with self.file.open("ab" if done else "wb") as handle:
                    while done <= self.whole and (chunk := _call(response.read, CHUNK)):
                        handle.write(chunk)
                        done += len(chunk)
                        if self.progress:
                            self.progress(done, self.whole)
        except urllib.error.HTTPError as error:
            error.close()
            raise DataError(f"{address}: the server answers {error.code} {error.reason}; {MIRROR}") from None
        except _GoneError as error:
            why = f": {error}"
        if why or done < self.whole:
            raise DataError(f"{address}: broke off after {done:,} of {self.whole:,} bytes{why}; {AGAIN}")

    def _open(self, address: str, done: int) -> tuple[Any, int]:
        """Ask the server; tells from which byte it goes on: the end of what is here if it can, else 0."""
        if done:
            etag = self.mark.read_text("utf-8") if self.mark.exists() else ""
            wanted = {"Range": f"bytes={done}-"} | ({"If-Range": etag} if etag else {})  # or all of another
            try:
                response = _request(address, wanted)
            except urllib.error.HTTPError as error:
                if error.code != 416:  # nothing after that byte: it is not the file that was begun
                    raise
                error.close()
            else:
                told = response.headers.get("Content-Range") or ""
                same = not etag or response.headers.get("ETag", etag) == etag
                if response.status == 206 and told.startswith(f"bytes {done}-") and same:
                    return response, done
                if response.status == 200:
                    return response, 0
                response.close()
        return _request(address, {}), 0

    def _begin(self, response: Any) -> None:
        """Start over, unless the server already tells that it has another file."""
        length = response.headers.get("Content-Length") or ""
        if length.isdigit() and int(length) != self.whole:
            raise DataError(
                f"{response.geturl()}: has {int(length):,} bytes, the published file {self.whole:,}; {MIRROR}"
            )
        self.remove()
        etag = response.headers.get("ETag") or ""
        if etag and not etag.startswith("W/"):  # a weak mark does not promise the same bytes
            self.mark.write_text(etag, "utf-8")


def _request(address: str, headers: dict[str, str]) -> Any:
    always = {"User-Agent": f"nse/{__version__}", "Accept-Encoding": "identity"}

    def ask() -> Any:
        request = urllib.request.Request(address, headers=always | headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT)

    return _call(ask)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what speaks to the server, and tell its failures from those of the disk."""
    try:
        return function(*arguments)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _GoneError(str(getattr(error, "reason", error)) or type(error).__name__) from None
