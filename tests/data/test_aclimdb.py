"""The Large Movie Review Dataset is read as published."""

import gzip
import io
import lzma
import re
import tarfile

import pytest

from data.made_up import PACKED
from nse.data.readers import aclimdb
from nse.errors import DataError

REVIEWS = {
    "train/pos/2_10.txt": "A dog ran.<br /><br />So good! i liked Mr. Fox",
    "train/neg/10_1.txt": "Bad.",
    "train/neg/2_4.txt": "Café\u2028\x85naïve",
    "train/pos/950_7.txt": "In dev.",
    "train/neg/1999_3.txt": "In dev too.",
    "train/pos/1000_9.txt": "",
    "test/pos/0_8.txt": "Two dogs. Two cats.",
    "test/neg/900_2.txt": "No.",
}
OTHERS = {
    "README": "not read",
    "imdb.vocab": "\xff",
    "train/unsup/0_0.txt": "not read",
    "train/labeledBow.feat": "9 0:9",
    "train/urls_pos.txt": "http://example.org",
    "train/pos/._2_10.txt": "not the authors'",
}


def pack_tar(files):
    """Make a tar in the published layout, with folders; names keep their order."""
    handle = io.BytesIO()
    with tarfile.open(fileobj=handle, mode="w") as archive:
        folder = tarfile.TarInfo("aclImdb/train/pos")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(f"aclImdb/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return handle.getvalue()


def write_reviews(folder, form="gz", files=REVIEWS | OTHERS):
    """Write the published archive, or one tar per split."""
    if form == "one":
        (folder / aclimdb.ARCHIVE).write_bytes(gzip.compress(pack_tar(files)))
        return
    suffix, pack = PACKED[form]
    (folder / "aclImdb").mkdir()
    for split in ("train", "test"):
        part = {name: content for name, content in files.items() if name.startswith(split)}
        (folder / "aclImdb" / f"aclImdb_{split}.tar{suffix}").write_bytes(pack(pack_tar(part)))


@pytest.mark.parametrize("form", ["one", "plain", "gz", "xz"])
def test_reviews_are_read_from_every_archive_format(tmp_path, form):
    write_reviews(tmp_path, form)
    rows = aclimdb.read(tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    assert rows["train"].texts == {
        "document": ["Café naïve", "Bad.", "A dog ran.\nSo good!\ni liked Mr. Fox", ""]
    }
    assert [aclimdb.LABELS[label] for label in rows["train"].labels] == ["4", "1", "10", "9"]
    assert rows["dev"].texts == {"document": ["In dev too.", "In dev."]}
    assert rows["dev"].labels == [2, 4]
    assert rows["test"].texts == {"document": ["No.", "Two dogs.\nTwo cats."]}
    assert rows["test"].labels == [1, 5]
    assert [split_rows.total for split_rows in rows.values()] == [4, 2, 2]
    assert all(split_rows.groups is None for split_rows in rows.values())


def test_rows_are_sorted_whatever_the_order_of_the_archive(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write_reviews(tmp_path / "one", "one")
    write_reviews(tmp_path / "two", "one", dict(reversed(REVIEWS.items())))
    assert aclimdb.read(tmp_path / "one") == aclimdb.read(tmp_path / "two")


def test_every_tenth_hundred_of_reviews_is_in_dev(tmp_path):
    numbers = range(0, 12_500, 25)
    files = {f"train/{folder}/{n}_1.txt": f"{n}" for folder in ("neg", "pos") for n in numbers}
    write_reviews(tmp_path, "one", files | {"test/pos/0_8.txt": ""})
    expected = [f"{n}" for n in numbers if f"{n:05}"[-3] == "9"]
    assert len(expected) == 12 * 4
    rows = aclimdb.read(tmp_path)
    assert rows["dev"].texts["document"] == expected * 2
    assert rows["train"].texts["document"] == [f"{n}" for n in numbers if f"{n}" not in expected] * 2


@pytest.mark.parametrize("subfolder", ["", "aclImdb"])
def test_archives_are_found_in_both_folders(tmp_path, subfolder):
    (tmp_path / subfolder).mkdir(exist_ok=True)
    write_reviews(tmp_path / subfolder, "one")
    assert {source.path for source in aclimdb.find_sources(tmp_path).values()} == {
        tmp_path / subfolder / aclimdb.ARCHIVE
    }
    for split in ("train", "test"):
        (tmp_path / subfolder / f"aclImdb_{split}.tar").write_bytes(pack_tar(REVIEWS))
    files = aclimdb.find_sources(tmp_path)
    assert [source.path.name for source in files.values()] == [
        *("aclImdb_train.tar", "aclImdb_train.tar", "aclImdb_test.tar")
    ]
    assert all(source.path.is_file() and not source.member for source in files.values())
    # each archive holds both splits, of which one is taken
    assert [split_rows.total for split_rows in aclimdb.read(tmp_path).values()] == [4, 2, 2]


def test_the_error_names_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"no aclImdb_train\.tar in .* or inside aclImdb_v1\.tar\.gz$"):
        aclimdb.find_sources(tmp_path)
    write_reviews(tmp_path, "xz")
    (tmp_path / "aclImdb" / "aclImdb_test.tar.xz").unlink()
    with pytest.raises(DataError, match=r"aclimdb: no aclImdb_test\.tar"):
        aclimdb.read(tmp_path)
    write_reviews(tmp_path, "one")
    assert aclimdb.find_sources(tmp_path)["train"].path.name == aclimdb.ARCHIVE


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train/pos/7.txt", "x", "expected a name such as 12_7.txt"),
        ("train/pos/7_8.md", "x", "expected a name such as 12_7.txt"),
        ("test/neg/a_1.txt", "x", "expected a name such as 12_7.txt"),
        ("train/pos/\u0667_8.txt", "x", "expected a name such as 12_7.txt"),
        ("train/pos/7_5.txt", "x", "rating: expected one of 1, 2, 3, 4, 7, 8, 9, 10, got 5"),
        ("train/pos/7_08.txt", "x", "rating: expected one of .* got 08"),
        ("test/neg/7_1.txt", b"\xff", "is not UTF-8"),
        ("train/pos/2_9.txt", "x", "review 2 is there twice"),
        ("train/pos/02_10.txt", "x", "review 2 is there twice"),
        ("train/pos/950_8.txt", "x", "review 950 is there twice"),
    ],
)
@pytest.mark.parametrize("form", ["one", "xz"])
def test_the_error_names_a_broken_review(tmp_path, form, name, content, message):
    write_reviews(tmp_path, form, REVIEWS | {name: content})
    with pytest.raises(DataError, match=rf"\.tar\..., aclImdb/{re.escape(name)}: {message}"):
        aclimdb.read(tmp_path)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_split_without_reviews_is_an_error(tmp_path, split):
    held = {"train": [0, 1, 2, 5], "dev": [3, 4], "test": [6, 7]}[split]
    write_reviews(
        tmp_path, "one", {name: text for n, (name, text) in enumerate(REVIEWS.items()) if n not in held}
    )
    with pytest.raises(DataError, match=rf"v1\.tar\.gz: holds no reviews for {split}; remove it and get it"):
        aclimdb.read(tmp_path)


MANY = REVIEWS | {f"train/neg/{n}_1.txt": f"A dog, number {n}. " * (n % 60) for n in range(100, 160)}


@pytest.mark.parametrize("form", ["one", "plain", "gz", "xz"])
def test_the_error_names_a_truncated_archive(tmp_path, form):
    write_reviews(tmp_path, form, MANY)
    (file,) = tmp_path.glob("aclImdb_v1*" if form == "one" else "aclImdb/*train*")
    whole = file.read_bytes()
    end = len(whole) if form != "plain" else len(whole.rstrip(b"\0"))
    for size in range(0, end, max(1, end // 100)):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match=rf"{re.escape(file.name)}: cannot be read: .*get it again"):
            aclimdb.read(tmp_path)


def test_an_archive_cut_between_two_reviews_is_an_error(tmp_path):
    write_reviews(tmp_path, "plain", MANY)
    file = tmp_path / "aclImdb" / "aclImdb_train.tar"
    whole = file.read_bytes()
    blocks = range(512, len(whole.rstrip(b"\0")), 512)
    starts = [start for start in blocks if whole[start : start + 8] == b"aclImdb/"]
    assert len(starts) > 60
    for start in starts:  # here tarfile alone would see nothing wrong
        file.write_bytes(whole[:start])
        with pytest.raises(DataError, match=r"aclImdb_train\.tar: cannot be read: expected the next file"):
            aclimdb.read(tmp_path)
        file.write_bytes(whole[:start] + b"\xff" + whole[start + 1 :])
        with pytest.raises(DataError, match=r"aclImdb_train\.tar: cannot be read: "):
            aclimdb.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"not a tar", b"\0" * 100, gzip.compress(b""), lzma.compress(b"x" * 9999)],
    ids=["empty", "text", "zeros", "gz of nothing", "xz of something else"],
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_file_that_is_no_archive_is_an_error(tmp_path, content, suffix):
    for split in ("train", "test"):
        (tmp_path / f"aclImdb_{split}.tar{suffix}").write_bytes(content)
    with pytest.raises(DataError, match=r"aclImdb_train\.tar.*: cannot be read: "):
        aclimdb.read(tmp_path)
