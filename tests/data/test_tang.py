"""The documents of Tang, Qin and Liu (2015) are read as published."""

import pytest

from data.made_up import write_files
from nse.data.readers import tang
from nse.errors import DataError


def make_line(rating, text, user="u1", product="p1"):
    return f"{user}\t\t{product}\t\t{rating}\t\t{text}\n".encode()


YELP = {
    "train": make_line(5, "so good . <sssss> a dog , café ! ")
    + make_line(1, "<sssss> bad . <sssss>  <sssss> very\tbad\t\tdog . <sssss>\r", "u\u00a02", "p 2 ")
    + make_line(3, ""),
    "dev": make_line(" 2 ", "one sentence . <sssss>"),
    "test": make_line(4, "8\u00a01/2 dogs\x85and\u2028a\x0bcat<sssss>.") + make_line(1, " <sssss> "),
}


def write_yelp(folder, form="plain", name="yelp-2013-{}.txt.ss", **changed):
    folder.mkdir(exist_ok=True)
    files = {name.format(split): content for split, content in (YELP | changed).items()}
    write_files(folder, form, files, "")


@pytest.mark.parametrize("form", ["plain", "gz", "xz"])
@pytest.mark.parametrize("subfolder", ["yelp13", "emnlp-2015-data", "."])
def test_documents_are_read_from_every_format_and_folder(tmp_path, form, subfolder):
    write_yelp(tmp_path / subfolder, form)
    rows = tang.read("yelp13", tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    assert rows["train"].texts == {
        "document": ["so good .\na dog , café !", "bad .\nvery bad dog .", ""],
    }
    assert rows["train"].labels == [4, 0, 2]
    assert (rows["dev"].texts, rows["dev"].labels) == ({"document": ["one sentence ."]}, [1])
    assert rows["test"].texts == {"document": ["8\u00a01/2 dogs and a cat\n.", ""]}
    assert [(split_rows.total, split_rows.groups) for split_rows in rows.values()] == [
        (3, None),
        (1, None),
        (2, None),
    ]


@pytest.mark.parametrize("subfolder", ["imdb", "emnlp-2015-data", "."])
@pytest.mark.parametrize("name", ["imdb-{}.txt.ss", "imdb.{}.txt.ss"])
def test_imdb_is_read_under_both_names(tmp_path, subfolder, name):
    write_yelp(tmp_path / subfolder, "xz", name, dev=make_line(10, "great <sssss> dog"))
    rows = tang.read("imdb", tmp_path)
    assert [split_rows.labels for split_rows in rows.values()] == [[4, 0, 2], [9], [3, 0]]
    assert rows["dev"].texts == {"document": ["great\ndog"]}


def test_files_of_two_copies_are_never_mixed(tmp_path):
    write_yelp(tmp_path, "plain", "imdb.{}.txt.ss")
    (tmp_path / "imdb-train.txt.ss").write_bytes(make_line(1, "other"))
    assert {source.path.name for source in tang.find_sources("imdb", tmp_path).values()} == {
        *("imdb.train.txt.ss", "imdb.dev.txt.ss", "imdb.test.txt.ss")
    }
    write_yelp(tmp_path / "imdb", "gz", "imdb-{}.txt.ss")
    assert tang.find_sources("imdb", tmp_path)["test"].path == tmp_path / "imdb" / "imdb-test.txt.ss.gz"


def test_a_file_without_sentence_marks_is_split_by_rules(tmp_path):
    raw = (
        make_line(5, "So good.The dog ran...\tYes!  I liked Mr. Fox")
        + make_line(1, "bad")
        + make_line(2, " ")
    )
    write_yelp(tmp_path, train=raw, dev=raw + make_line(3, "a. B. <sssss> c"))
    rows = tang.read("yelp13", tmp_path)
    assert rows["train"].texts["document"] == ["So good.\nThe dog ran...\nYes!\nI liked Mr. Fox", "bad", ""]
    assert rows["dev"].texts["document"] == [
        "So good.The dog ran... Yes! I liked Mr. Fox",
        "bad",
        "",
        "a. B.\nc",
    ]


def test_only_line_feeds_separate_sentences(tmp_path):
    odd = "".join(chr(n) for n in range(0x3000) if len(f"a{chr(n)}b".splitlines()) > 1 and chr(n) != "\n")
    text = "".join(f"a{letter}b" for letter in odd)
    write_yelp(tmp_path, train=make_line(1, text), dev=make_line(1, f"{text} <sssss>{odd}"))
    rows = tang.read("yelp13", tmp_path)
    for split in ("train", "dev"):
        (document,) = rows[split].texts["document"]
        assert document == "a " + "ba " * (len(odd) - 1) + "b"


@pytest.mark.parametrize("missing", ["train", "dev", "test"])
def test_the_error_names_a_missing_file(tmp_path, missing):
    write_yelp(tmp_path / "yelp13")
    write_yelp(tmp_path / "imdb", "xz", "imdb.{}.txt.ss")
    (tmp_path / "yelp13" / f"yelp-2013-{missing}.txt.ss").unlink()
    (tmp_path / "imdb" / f"imdb.{missing}.txt.ss.xz").unlink()
    unpack = r"plain, \.gz or \.xz; get emnlp-2015-data\.7z from its authors and unpack it in "
    with pytest.raises(DataError, match=rf"yelp13: no yelp-2013-{missing}\.txt\.ss in .*yelp13, .*{unpack}"):
        tang.find_sources("yelp13", tmp_path)
    with pytest.raises(DataError, match=rf"imdb: no imdb\.{missing}\.txt\.ss in .*imdb, .*{unpack}"):
        tang.read("imdb", tmp_path)
    with pytest.raises(DataError, match=r"imdb: no imdb-train\.txt\.ss in "):
        tang.find_sources("imdb", tmp_path / "yelp13")


GOOD = make_line(1, "so <sssss> good")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"\n", "expected user, product, rating and text with two tabs between them, got 1 fields"),
        (b"u\tp\t5\tgood\n", "expected user, product, rating and text .* got 1 fields"),
        (b"u\t\tp\t\t5\n", "expected user, product, rating and text .* got 3 fields"),
        (make_line(0, "x"), "rating: expected a whole number from 1 to 5, got '0'"),
        (make_line(6, "x"), "rating: expected a whole number from 1 to 5, got '6'"),
        (make_line("", "x"), "rating: expected a whole number from 1 to 5, got ''"),
        (make_line("5.0", "x"), r"rating: expected a whole number from 1 to 5, got '5\.0'"),
        (b"u\t\tp\t\t5\t\t\xff\n", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "xz"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_error_names_a_broken_line(tmp_path, split, form, broken, message):
    write_yelp(tmp_path, form, **{split: GOOD + GOOD + broken + GOOD})
    with pytest.raises(DataError, match=rf"yelp-2013-{split}\.txt\.ss.*: line 3: {message}"):
        tang.read("yelp13", tmp_path)


def test_imdb_has_ten_ratings(tmp_path):
    write_yelp(tmp_path, "plain", "imdb-{}.txt.ss", dev=make_line(11, "x"))
    with pytest.raises(DataError, match=r"line 1: rating: expected a whole number from 1 to 10, got '11'"):
        tang.read("imdb", tmp_path)


def test_an_empty_file_is_an_error(tmp_path):
    write_yelp(tmp_path, dev=b"")
    with pytest.raises(DataError, match=r"yelp-2013-dev\.txt\.ss: is empty; remove it and get it again"):
        tang.read("yelp13", tmp_path)


@pytest.mark.parametrize("form", ["gz", "xz"])
def test_the_error_names_a_truncated_file(tmp_path, form):
    write_yelp(tmp_path, form, train=GOOD * 1000)
    file = tmp_path / f"yelp-2013-train.txt.ss.{form}"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"yelp-2013-train\.txt\.ss.*: cannot be read"):
        tang.read("yelp13", tmp_path)
