"""The Stanford Sentiment Treebank is read as published."""

import re
from pathlib import Path

import pytest

from data.made_up import write_sst
from nse.data.prepare import prepare
from nse.data.readers import sst
from nse.errors import DataError


@pytest.mark.parametrize("form", ["plain", "gz", "xz", "zip"])
def test_splits_are_read_from_every_published_format(tmp_path, form):
    write_sst(tmp_path, form)
    rows = sst.read(tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    assert rows["train"].texts == {
        "sentence": [
            *("It 's -LRB- good", "It", "'s -LRB- good", "'s", "-LRB- good", "-LRB-", "good"),
            *("Bad .", "Bad", "."),
        ]
    }
    assert rows["train"].labels == [3, 2, 4, 2, 4, 3, 2, 0, 1, 2]
    assert rows["dev"].texts == {"sentence": ["8\u00a01\\/2 films", "So good"]}
    assert [(split_rows.labels, split_rows.total) for split_rows in (rows["dev"], rows["test"])] == [
        ([2, 4], 2),
        ([1], 1),
    ]
    assert all(split_rows.groups is None for split_rows in rows.values())


def test_the_binary_task_drops_neutral_phrases(tmp_path):
    write_sst(tmp_path)
    rows = sst.read(tmp_path, binary=True)
    assert rows["train"].texts["sentence"] == [
        "It 's -LRB- good",
        "'s -LRB- good",
        "-LRB- good",
        "-LRB-",
        "Bad .",
        "Bad",
    ]
    assert rows["train"].labels == [1, 1, 1, 1, 0, 0]
    assert (rows["dev"].texts["sentence"], rows["dev"].labels) == (["So good"], [1])
    assert [split_rows.total for split_rows in rows.values()] == [10, 2, 1]
    assert rows["test"].labels == [0]


def test_repeated_phrases_are_kept(tmp_path):
    write_sst(tmp_path, train=b"(3 (3 good) (3 (3 good) (3 good)))\r\n" * 2)
    rows = sst.read(tmp_path)["train"]
    assert rows.texts["sentence"] == ["good good good", "good", "good good", "good", "good"] * 2


@pytest.mark.parametrize("subfolder", ["", "sst"])
def test_files_are_found_in_every_folder(tmp_path, subfolder):
    (tmp_path / "one").mkdir()
    write_sst(tmp_path / "one")
    assert sst.read(tmp_path / "one" / "sst")["test"].labels == [1]  # trees/ in the folder itself
    (tmp_path / "two" / subfolder).mkdir(parents=True)
    write_sst(tmp_path / "two" / subfolder, "zip")
    assert sst.find_sources(tmp_path / "two")["dev"].member == "trees/dev.txt"


def test_the_data_folder_may_be_a_relative_path(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    write_sst(tmp_path / "data", "zip")
    monkeypatch.chdir(tmp_path)
    assert sst.read(Path("data"))["test"].labels == [1]


def test_a_train_txt_in_another_folder_is_ignored(tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.txt").write_text("something else\n")
    with pytest.raises(DataError, match=r"sst: no train\.txt in ") as refusal:
        sst.find_sources(tmp_path)
    assert refusal.value.fix == ("fetch", "sst-fine", str(tmp_path))


def test_words_are_those_of_the_trees(tmp_path):
    write_sst(tmp_path)
    prepared = prepare("sst-fine", None, tmp_path)
    assert set(prepared.vocabulary.words[2:]) == {
        *("it", "'s", "(", "good", "bad", ".", "8\u00a01/2", "films", "so", "not")
    }
    assert prepared.splits["train"].texts["sentence"].lengths.tolist() == [4, 1, 3, 1, 2, 1, 1, 2, 1, 1]


GOOD = b"(3 (2 so) (4 good))\n"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"(3 (2 so) (5 good))\n", "label: expected a number from 0 to 4, got 5"),
        (b"(3 (2 so) (4 good)\n", "expected 1 more closing brackets"),
        (b"(3 (2 so) (4 good)))\n", "expected nothing after the last bracket"),
        (b"(x so)\n", "expected a whole number after an opening bracket, got 'x'"),
        (b"\n", "tree: is empty"),
        (b"so good\n", "expected an opening bracket"),
        (b"(2 \xff)\n", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "zip"])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_the_error_names_a_broken_line(tmp_path, split, form, broken, message):
    write_sst(tmp_path, form, **{split: GOOD + GOOD + broken + GOOD})
    for binary in (False, True):
        with pytest.raises(DataError, match=rf"{split}\.txt: line 3: .*{message}"):
            sst.read(tmp_path, binary)


@pytest.mark.parametrize("form", ["gz", "xz", "zip"])
def test_the_error_names_a_truncated_file(tmp_path, form):
    write_sst(tmp_path, form, train=GOOD * 1000)
    (file,) = [*tmp_path.glob("*.zip"), *tmp_path.glob("sst/trees/train*")]
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=re.escape(file.name)):
        sst.read(tmp_path)


def test_every_phrase_has_its_label_and_words():
    phrases = sst.parse_tree("(3 (2 (2 The) (2 film)) (4 (3 is) (4 great)))\n")
    assert [(phrase.label, " ".join(phrase.words)) for phrase in phrases] == [
        (3, "The film is great"),
        (2, "The film"),
        (2, "The"),
        (2, "film"),
        (4, "is great"),
        (3, "is"),
        (4, "great"),
    ]


def test_only_ascii_spaces_separate_words():
    assert sst.parse_tree("(3 (2 2\u00a01/2) (2 x\u2028y))")[0].words == ["2\u00a01/2", "x\u2028y"]
    assert sst.parse_tree("(2 one)")[0].words == ["one"]


def test_a_tree_may_be_deeper_than_the_stack():
    depth = 100_000
    phrases = sst.parse_tree("".join(f"({n % 5} (2 w{n}) " for n in range(depth)) + "(4 end)" + ")" * depth)
    assert len(phrases[0].words) == depth + 1
    assert len(phrases) == 2 * depth + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("(2", "1 more closing brackets"),
        ("(3 (2 a)", "1 more closing brackets"),
        ("(2 a) (2 b)", r"nothing after the last bracket, got '\('"),
        ("(2 a))", r"nothing after the last bracket, got '\)'"),
        ("word", "expected an opening bracket, got 'word'"),
        (")", r"expected an opening bracket, got '\)'"),
        ("(x a)", "a whole number after an opening bracket, got 'x'"),
        ("(-1 a)", "a whole number after an opening bracket, got '-1'"),
        ("(² a)", "a whole number after an opening bracket"),
        ("((2 a))", "a whole number after an opening bracket"),
        ("(2)", "expected a word or phrases"),
        ("(2 a b)", "got also 'b'"),
        ("(3 (2 a) b)", "got also 'b'"),
        ("(3 a (2 b))", "got both"),
    ],
)
def test_a_broken_tree_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        sst.parse_tree(text)
