"""Files are there whole or not at all."""

import pytest

from nse.files import make_sure, partial, write


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    file = tmp_path / "figures.json"
    write(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write(file, "new \ud800")
    assert file.read_text() == "old"
    write(file, "new")
    assert file.read_text() == "new"
    assert not partial(file).exists()


def test_making_sure_leaves_nothing_behind(tmp_path):
    make_sure(tmp_path / "new" / "figures.json")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "old").write_text("old")
    make_sure(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
    with pytest.raises(IsADirectoryError):
        make_sure(tmp_path)
    with pytest.raises(OSError, match="old"):
        make_sure(tmp_path / "old" / "below")
