"""Published files from their addresses: resumed where they stopped, checked, and never half there."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from nse import __version__
from nse.data.catalogue import Download
from nse.data.folders import CHUNK, compute_checksums, print_log
from nse.data.sources import Progress
from nse.errors import DataError
from nse.files import settle

TIMEOUT = 30.0  # seconds without a byte, after which a server counts as gone


def fetch_file(
    download: Download,
    folder: Path,
    address: str | None = None,
    log: Callable[[str], None] = print_log,
    progress: Progress | None = None,
) -> Path:
    """Get one file into a data folder; the address of a mirror's folder ends in a slash."""
    if address and not re.match(r"https?://[^/\s]", address):
        raise DataError(f"{address}: expected an address that starts with https:// or http://")
    address, file = address or download.address, folder / download.file
    part = _Part(file, download, progress)
    try:
        if file.exists():
            part.check(file, "it is not the published file: move it away to get that")
            log(f"{file} is already there")
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        if part.size() < download.size:
            log(f"getting {address}")
            part.receive(address + file.name if address.endswith("/") else address)
        verified = "" if download.sha256 else " (not verified)"
        log(f"{file}: {download.size:,} bytes, sha256 {part.finish(file)}{verified}")
    except OSError as error:  # of the disk: the network's are told where they happen
        raise DataError(f"{error.filename or file}: cannot be used: {error.strerror or error}") from None
    return file


class _GoneError(Exception):
    """The network or the server failed."""


class _Part:
    """A file that is still coming, and beside it the server's mark for the version that was begun."""

    def __init__(self, file: Path, download: Download, progress: Progress | None):
        self.file = file.with_name(f"{file.name}.part")
        self.mark = file.with_name(f"{file.name}.part.etag")
        self.whole, self.sha256, self.progress = download.size, download.sha256, progress

    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)

    def check(self, file: Path, advice: str) -> str:
        """Compute the checksum of a file that is the published one; `DataError` if it is not."""
        if (size := file.stat().st_size) != self.whole:
            raise DataError(f"{file}: has {size:,} bytes, the published file {self.whole:,}; {advice}")
        (sha256,) = compute_checksums([file], self.progress)
        if self.sha256 and sha256 != self.sha256:
            raise DataError(f"{file}: has the sha256 {sha256}, the published file {self.sha256}; {advice}")
        return sha256

    def finish(self, file: Path) -> str:
        """Give the file its name, if it is the published one; returns its checksum."""
        try:
            sha256 = self.check(self.file, "it was removed; fetch it again, or from a mirror")
        except DataError:
            self.remove()
            raise
        with self.file.open("rb") as handle:
            os.fsync(handle.fileno())
        self.file.replace(file)
        self.mark.unlink(missing_ok=True)
        settle(file.parent)
        return sha256

    def receive(self, address: str) -> None:
        """Append what is missing, or start over where the server cannot go on."""
        done, why = self.size(), ""
        try:
            response, done = self._open(address, done)
            with closing(response), self.file.open("ab" if done else "wb") as handle:
                while done <= self.whole and (chunk := _call(response.read, CHUNK)):
                    handle.write(chunk)
                    done += len(chunk)
                    if self.progress:
                        self.progress(done, self.whole)
        except urllib.error.HTTPError as error:
            error.close()
            raise DataError(
                f"{address}: the server answers {error.code} {error.reason}", ("mirror",)
            ) from None
        except _GoneError as error:
            why = f": {error}"
        if why or done < self.whole:
            why += "; what came is kept: fetch it again to go on from there"
            raise DataError(f"{address}: broke off after {done:,} of {self.whole:,} bytes{why}")

    def _open(self, address: str, done: int) -> tuple[Any, int]:
        """Ask the server; tells from which byte it goes on: the end of what is here if it can, else 0."""
        headers, etag = {"User-Agent": f"nse/{__version__}", "Accept-Encoding": "identity"}, ""
        if done:
            etag = self.mark.read_text("utf-8") if self.mark.exists() else ""
            headers |= {"Range": f"bytes={done}-"} | ({"If-Range": etag} if etag else {})
        try:
            request = urllib.request.Request(address, headers=headers)
            response = _call(urllib.request.urlopen, request, None, TIMEOUT)
        except urllib.error.HTTPError as error:
            if not done or error.code != 416:  # nothing after that byte: it is not the file that was begun
                raise
            error.close()
            return self._open(address, 0)
        told = response.headers
        if done and response.status != 200:
            goes_on = response.status == 206 and told.get("Content-Range", "").startswith(f"bytes {done}-")
            if goes_on and (not etag or told.get("ETag", etag) == etag):
                return response, done
            response.close()
            return self._open(address, 0)
        length, etag = (told.get(name, "") for name in ("Content-Length", "ETag"))
        if length.isdigit() and int(length) != self.whole:
            response.close()
            size = f"has {int(length):,} bytes, the published file {self.whole:,}"
            raise DataError(f"{response.geturl()}: {size}", ("mirror",))
        self.remove()
        if etag and not etag.startswith("W/"):  # a weak mark does not promise the same bytes
            self.mark.write_text(etag, "utf-8")
        return response, 0


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what speaks to the server, and tell its failures from those of the disk."""
    try:
        return function(*arguments)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _GoneError(str(getattr(error, "reason", error)) or type(error).__name__) from None
