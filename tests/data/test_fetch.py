"""Downloads from a local server: complete, resumed, interrupted and wrong."""

import hashlib
import http.server
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from typer.testing import CliRunner

from nse.cli.data import app
from nse.data import fetch as module
from nse.data.catalogue import DATA, Download
from nse.data.fetch import fetch_file
from nse.errors import DataError

CONTENT = bytes(range(256)) * 4000
DOWNLOAD = Download("deep/file.zip", "", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Behaviour:
    """Settings of the server, and the ranges requested so far."""

    content: bytes = CONTENT
    ranges: bool = True
    wrong_range: bool = False
    etag: str = '"one"'
    drop_after: int | None = None
    length: bool = True
    status: int = 200
    requested: list[str | None] = field(default_factory=list)


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP server of one file, with faults on request."""

    def do_GET(self):
        behaviour = self.server.behaviour
        wanted = self.headers.get("Range")
        behaviour.requested.append(wanted)
        if behaviour.status != 200:
            self.send_error(behaviour.status)
            return
        start = self.start(wanted) if behaviour.ranges else 0
        if start >= len(behaviour.content):
            self.send_error(416)
            return
        self.answer(behaviour, start)

    def start(self, wanted):
        if self.headers.get("If-Range") not in (None, self.server.behaviour.etag):
            return 0
        return int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0

    def answer(self, behaviour, start):
        content = behaviour.content[start:]
        self.send_response(206 if start else 200)
        if start:
            sent_start = 0 if behaviour.wrong_range else start
            end = len(behaviour.content)
            self.send_header("Content-Range", f"bytes {sent_start}-{end - 1}/{end}")
        if behaviour.etag:
            self.send_header("ETag", behaviour.etag)
        if behaviour.length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(ConnectionError):  # a client that has seen enough
            self.wfile.write(content[: behaviour.drop_after])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """Run a local server, with its behaviour and its address as attributes."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "BUFFER", 10_000)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.behaviour = Behaviour()
        running.address = f"http://127.0.0.1:{running.server_address[1]}/file.zip"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def list_names(folder):
    return sorted(file.name for file in folder.rglob("*") if file.is_file())


def test_a_complete_file_is_not_downloaded_again(server, tmp_path):
    log, reports = [], []
    file = fetch_file(DOWNLOAD, tmp_path, server.address, log.append, lambda *report: reports.append(report))
    assert file == tmp_path / "deep" / "file.zip"
    assert file.read_bytes() == CONTENT
    assert list_names(tmp_path) == ["file.zip"]
    assert log[0] == f"downloading {server.address}"
    assert DOWNLOAD.sha256 in log[1]
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    assert fetch_file(DOWNLOAD, tmp_path, server.address, log.append) == file
    assert log[2] == f"{file} is already there"
    assert server.behaviour.requested == [None]


def test_a_mirror_may_be_a_file_or_a_folder(server, tmp_path):
    fetch_file(replace(DOWNLOAD, address=server.address), tmp_path / "a")
    fetch_file(DOWNLOAD, tmp_path / "b", server.address.removesuffix("file.zip"))
    assert list_names(tmp_path) == ["file.zip", "file.zip"]


@pytest.mark.parametrize(
    "mirror", ["ftp://x/file.zip", "file:///etc/passwd", "/etc/passwd", "https:///x", "x"]
)
def test_only_http_addresses_are_allowed(tmp_path, mirror):
    with pytest.raises(DataError, match="expected an address that starts with https:// or http://"):
        fetch_file(DOWNLOAD, tmp_path, mirror)


def test_the_fetch_command_downloads_a_file(server, tmp_path, monkeypatch):
    monkeypatch.setitem(DATA, "snli", replace(DATA["snli"], downloads=(DOWNLOAD,)))
    words = ["fetch", "snli", "--data", str(tmp_path / "new"), "--from", server.address]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert DOWNLOAD.sha256 in answer.output
    assert (tmp_path / "new" / "deep" / "file.zip").read_bytes() == CONTENT
    assert "is already there" in CliRunner().invoke(app, words).output


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("etag", ['"one"', "", 'W/"weak"'])
def test_a_broken_download_resumes(server, tmp_path, etag, length):
    server.behaviour.etag = etag
    server.behaviour.length = length
    server.behaviour.drop_after = 300_000
    for done in ("300,000", "600,000", "900,000"):
        with pytest.raises(DataError, match=rf"stopped after {done} of 1,024,000 bytes.*fetch it again"):
            fetch_file(DOWNLOAD, tmp_path, server.address)
        assert "file.zip" not in list_names(tmp_path)
    fetch_file(DOWNLOAD, tmp_path, server.address)
    assert (tmp_path / "deep" / "file.zip").read_bytes() == CONTENT
    assert list_names(tmp_path) == ["file.zip"]
    assert server.behaviour.requested == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def break_download(server, folder):
    server.behaviour.drop_after = 300_000
    with pytest.raises(DataError, match="stopped after"):
        fetch_file(DOWNLOAD, folder, server.address)
    server.behaviour.drop_after = None


def test_a_download_restarts_if_the_server_ignores_ranges(server, tmp_path):
    break_download(server, tmp_path)
    server.behaviour.ranges = False
    assert fetch_file(DOWNLOAD, tmp_path, server.address).read_bytes() == CONTENT


def test_a_download_restarts_if_the_server_sends_a_wrong_range(server, tmp_path):
    break_download(server, tmp_path)
    server.behaviour.wrong_range = True
    assert fetch_file(DOWNLOAD, tmp_path, server.address).read_bytes() == CONTENT
    assert server.behaviour.requested == [None, "bytes=300000-", None]


def test_a_download_restarts_if_the_file_has_changed(server, tmp_path):
    server.behaviour.content = bytes(len(CONTENT))
    break_download(server, tmp_path)
    server.behaviour.content, server.behaviour.etag = CONTENT, '"two"'
    assert fetch_file(DOWNLOAD, tmp_path, server.address).read_bytes() == CONTENT


def test_a_changed_file_without_an_etag_is_detected_by_its_checksum(server, tmp_path):
    server.behaviour.content, server.behaviour.etag = bytes(len(CONTENT)), ""
    break_download(server, tmp_path)
    server.behaviour.content = CONTENT
    with pytest.raises(DataError, match=r"has the sha256 .* it was removed; fetch it again"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert list_names(tmp_path) == []
    assert fetch_file(DOWNLOAD, tmp_path, server.address).read_bytes() == CONTENT


def test_a_download_restarts_if_the_range_is_past_the_end(server, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file.zip.part").write_bytes(bytes(500))
    server.behaviour.content = CONTENT[:400]
    with pytest.raises(DataError, match="has 400 bytes, the published file 1,024,000"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert server.behaviour.requested == ["bytes=500-", None]


def test_a_wrong_checksum_is_an_error_and_leaves_no_file(server, tmp_path):
    server.behaviour.content = CONTENT[:-1] + b"x"
    with pytest.raises(DataError, match=f"the published file {DOWNLOAD.sha256}; it was removed"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("length", [True, False])
def test_a_file_that_is_too_long_is_an_error(server, tmp_path, length):
    server.behaviour.content = CONTENT * 2
    server.behaviour.length = length
    with pytest.raises(DataError, match="the published file 1,024,000"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert list_names(tmp_path) == []


def test_a_file_without_a_known_checksum_is_not_verified(server, tmp_path):
    log = []
    fetch_file(replace(DOWNLOAD, sha256=None), tmp_path, server.address, log.append)
    assert log[1].endswith(f"sha256 {DOWNLOAD.sha256} (not verified)")


@pytest.mark.parametrize("status", [404, 403, 500])
def test_an_error_status_of_the_server_is_reported(server, tmp_path, status):
    server.behaviour.status = status
    with pytest.raises(DataError, match=rf"the server answers {status} ") as refusal:
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert refusal.value.fix == ("mirror",)
    assert list_names(tmp_path) == []


def test_an_error_while_resuming_keeps_the_part_file(server, tmp_path):
    break_download(server, tmp_path)
    server.behaviour.status = 503
    with pytest.raises(DataError, match="503"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert (tmp_path / "deep" / "file.zip.part").stat().st_size == 300_000


def test_a_missing_server_is_reported(tmp_path, monkeypatch):
    monkeypatch.delenv("http_proxy", raising=False)
    with pytest.raises(DataError, match=r"stopped after 0 of .*refused"):
        fetch_file(DOWNLOAD, tmp_path, "http://127.0.0.1:9/file.zip")


def test_a_server_that_stops_sending_is_reported(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    answered = threading.Event()

    def stall(self, behaviour, start):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT[:1000])
        self.wfile.flush()
        answered.wait(10)

    monkeypatch.setattr(Handler, "answer", stall)
    with pytest.raises(DataError, match=r"timed out.*fetch it again"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    answered.set()


def test_a_complete_part_file_needs_no_server(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file.zip.part").write_bytes(CONTENT)
    assert fetch_file(DOWNLOAD, tmp_path, "http://127.0.0.1:9/file.zip").read_bytes() == CONTENT
    assert list_names(tmp_path) == ["file.zip"]


@pytest.mark.parametrize("content", [b"mine", bytes(len(CONTENT))])
def test_a_file_of_the_user_is_never_overwritten(server, tmp_path, content):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file.zip").write_bytes(content)
    with pytest.raises(DataError, match="it is not the published file: move it away"):
        fetch_file(DOWNLOAD, tmp_path, server.address)
    assert (tmp_path / "deep" / "file.zip").read_bytes() == content
    assert server.behaviour.requested == []


def test_a_folder_with_the_name_of_the_file_is_an_error(tmp_path):
    (tmp_path / "deep" / "file.zip").mkdir(parents=True)
    with pytest.raises(DataError, match=r"deep/file\.zip: "):
        fetch_file(DOWNLOAD, tmp_path, "http://127.0.0.1:9/file.zip")


def test_a_folder_that_cannot_be_written_is_an_error(server, tmp_path):
    (tmp_path / "deep").write_text("a file in the way")
    with pytest.raises(DataError, match="deep: cannot be used"):
        fetch_file(DOWNLOAD, tmp_path, server.address)


def test_a_full_disk_is_reported_and_keeps_the_part_file(server, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(DataError, match=r"file.zip: cannot be used: File too large"):
            fetch_file(DOWNLOAD, tmp_path, server.address)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list_names(tmp_path) == ["file.zip.part", "file.zip.part.etag"]
    assert fetch_file(DOWNLOAD, tmp_path, server.address).read_bytes() == CONTENT
    assert server.behaviour.requested == [None, "bytes=300000-"]
