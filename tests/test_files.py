"""Files are there whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from nse.files import check_writable, write_bytes, write_text


def test_a_failed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "figures.json"
    write_text(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "new \ud800")
    assert file.read_text() == "old"
    write_text(file, "new")
    assert file.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["figures.json"]


def test_checking_a_file_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "new" / "figures.json")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "old").write_text("old")
    check_writable(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)
    with pytest.raises(OSError, match="old"):
        check_writable(tmp_path / "old" / "below")


def test_a_full_disk_leaves_only_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "weights"
    write_bytes(file, b"old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(file, memoryview(b"new"))
    assert [each.name for each in tmp_path.iterdir()] == ["weights"]
    assert file.read_bytes() == b"old"


def test_the_content_reaches_the_disk_before_the_name(tmp_path, monkeypatch):
    happened = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(handle):
        happened.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def noted_replace(self, target):
        happened.append("rename")
        return replace(self, target)

    monkeypatch.setattr("os.fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_bytes(tmp_path / "weights", b"new")
    assert happened == ["file", "rename", "folder"]
    assert (tmp_path / "weights").read_bytes() == b"new"
