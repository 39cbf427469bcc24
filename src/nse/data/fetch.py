"""Download published files: resume interrupted downloads, and check each file before it gets its name."""

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
from nse.data.sources import BUFFER, Progress, compute_checksums, print_log
from nse.errors import DataError
from nse.files import sync_folder

TIMEOUT = 30.0  # seconds without a byte


def fetch_file(
    download: Download,
    folder: Path,
    address: str | None = None,
    log: Callable[[str], None] = print_log,
    progress: Progress | None = None,
) -> Path:
    """Download one file into a data folder; an address that ends in a slash is a mirror's folder."""
    if address and not re.match(r"https?://[^/\s]", address):
        raise DataError(f"{address}: expected an address that starts with https:// or http://")
    address, file = address or download.address, folder / download.file
    part = _PartFile(file, download, progress)
    try:
        if file.exists():
            part.check(file, "it is not the published file: move it away to get that")
            log(f"{file} is already there")
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        if part.size < download.size:
            log(f"downloading {address}")
            part.receive(address + file.name if address.endswith("/") else address)
        verified = "" if download.sha256 else " (not verified)"
        log(f"{file}: {download.size:,} bytes, sha256 {part.finish(file)}{verified}")
    except OSError as error:  # of the disk; `_call` converts those of the network
        raise DataError(f"{error.filename or file}: cannot be used: {error.strerror or error}") from None
    return file


class _ConnectionError(Exception):
    """Raised when the network or the server fails."""


class _PartFile:
    """Incomplete download, with the ETag of its version in a file beside it."""

    def __init__(self, file: Path, download: Download, progress: Progress | None):
        self.file = file.with_name(f"{file.name}.part")
        self.etag_file = file.with_name(f"{file.name}.part.etag")
        self.total, self.sha256, self.progress = download.size, download.sha256, progress

    @property
    def size(self) -> int:
        """Number of bytes that are already downloaded."""
        return self.file.stat().st_size if self.file.exists() else 0

    def remove(self) -> None:
        """Remove both files."""
        self.file.unlink(missing_ok=True)
        self.etag_file.unlink(missing_ok=True)

    def check(self, file: Path, advice: str) -> str:
        """Return the checksum of a file; raise `DataError` if it is not the published one."""
        if (size := file.stat().st_size) != self.total:
            raise DataError(f"{file}: has {size:,} bytes, the published file {self.total:,}; {advice}")
        (sha256,) = compute_checksums([file], self.progress)
        if self.sha256 and sha256 != self.sha256:
            raise DataError(f"{file}: has the sha256 {sha256}, the published file {self.sha256}; {advice}")
        return sha256

    def finish(self, file: Path) -> str:
        """Move a correct file to its final name, and return its checksum."""
        try:
            sha256 = self.check(self.file, "it was removed; fetch it again, or from a mirror")
        except DataError:
            self.remove()
            raise
        with self.file.open("rb") as handle:
            os.fsync(handle.fileno())
        self.file.replace(file)
        self.etag_file.unlink(missing_ok=True)
        sync_folder(file.parent)
        return sha256

    def receive(self, address: str) -> None:
        """Download the rest of the file, or all of it if the server cannot resume."""
        done, why = self.size, ""
        try:
            response, done = self._open(address, done)
            with closing(response), self.file.open("ab" if done else "wb") as handle:
                while done <= self.total and (chunk := _call(response.read, BUFFER)):
                    handle.write(chunk)
                    done += len(chunk)
                    if self.progress:
                        self.progress(done, self.total)
        except urllib.error.HTTPError as error:
            error.close()
            status = f"{error.code} {error.reason}"
            raise DataError(f"{address}: the server answers {status}", ("mirror",)) from None
        except _ConnectionError as error:
            why = f": {error}"
        if why or done < self.total:
            why += "; fetch it again to continue"
            raise DataError(f"{address}: stopped after {done:,} of {self.total:,} bytes{why}")

    def _open(self, address: str, done: int) -> tuple[Any, int]:
        """Open the address; return the response and the byte it starts at: `done`, or 0 without resume."""
        headers, etag = {"User-Agent": f"nse/{__version__}", "Accept-Encoding": "identity"}, ""
        if done:
            etag = self.etag_file.read_text("utf-8") if self.etag_file.exists() else ""
            headers |= {"Range": f"bytes={done}-"} | ({"If-Range": etag} if etag else {})
        try:
            request = urllib.request.Request(address, headers=headers)
            response = _call(urllib.request.urlopen, request, None, TIMEOUT)
        except urllib.error.HTTPError as error:
            if not done or error.code != 416:  # the file on the server has changed
                raise
            error.close()
            return self._open(address, 0)
        reply = response.headers
        if done and response.status != 200:
            resumes = response.status == 206 and reply.get("Content-Range", "").startswith(f"bytes {done}-")
            if resumes and (not etag or reply.get("ETag", etag) == etag):
                return response, done
            response.close()
            return self._open(address, 0)
        length, etag = (reply.get(name, "") for name in ("Content-Length", "ETag"))
        if length.isdigit() and int(length) != self.total:
            response.close()
            size = f"has {int(length):,} bytes, the published file {self.total:,}"
            raise DataError(f"{response.geturl()}: {size}", ("mirror",))
        self.remove()
        if etag and not etag.startswith("W/"):  # a weak ETag does not promise the same bytes
            self.etag_file.write_text(etag, "utf-8")
        return response, 0


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a network function; its failures become `_ConnectionError`, unlike those of the disk."""
    try:
        return function(*arguments)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _ConnectionError(str(getattr(error, "reason", error)) or type(error).__name__) from None
