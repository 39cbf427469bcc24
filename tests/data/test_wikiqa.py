"""WikiQA is read as published."""

import re

import pytest

from data.made_up import HEADER, make_wikiqa_line, write_wikiqa
from nse.data.readers import wikiqa
from nse.errors import DataError


@pytest.mark.parametrize("form", ["plain", "gz", "xz", "zip"])
def test_splits_are_read_from_every_published_format(tmp_path, form):
    write_wikiqa(tmp_path, form)
    rows = wikiqa.read(tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    assert rows["train"].texts == {
        "question": ["who runs ?", "who runs ?", "WHO sleeps", "where"],
        "answer": ['A "dog" runs .', "Cats sleep .", '"', "Café"],
    }
    assert rows["train"].labels == [1, 0, 0, 1]
    assert rows["train"].groups == [0, 0, 1, 2]  # by appearance, whatever the question is called
    assert [
        (split_rows.labels, split_rows.groups, split_rows.total) for split_rows in (rows["dev"], rows["test"])
    ] == [
        ([0], [0], 1),
        ([0, 1], [0, 1], 2),
    ]


def test_files_are_found_in_the_data_folder_itself(tmp_path):
    write_wikiqa(tmp_path)
    assert wikiqa.read(tmp_path / "WikiQACorpus")["test"].labels == [0, 1]


def test_questions_with_the_same_words_stay_separate(tmp_path):
    write_wikiqa(tmp_path, dev=HEADER + make_wikiqa_line("Q1", "a", 0) + make_wikiqa_line("Q2", "a", 1))
    assert wikiqa.read(tmp_path)["dev"].groups == [0, 1]


def test_only_line_feeds_end_a_line(tmp_path):
    content = b"\xef\xbb\xbf" + (HEADER + make_wikiqa_line("Q1", "a\u2028b\u00a0c", 1)).replace(
        b"\n", b"\r\n"
    )
    write_wikiqa(tmp_path, dev=content)
    assert wikiqa.read(tmp_path)["dev"].texts["answer"] == ["a\u2028b\u00a0c"]


def test_the_error_names_a_missing_file_and_how_to_fetch_it(tmp_path):
    write_wikiqa(tmp_path)
    (tmp_path / "WikiQACorpus" / "WikiQA-test.tsv").unlink()
    with pytest.raises(DataError, match=r"no WikiQA-test\.tsv in ") as refusal:
        wikiqa.read(tmp_path)
    assert refusal.value.fix == ("fetch", "wikiqa", str(tmp_path))


GOOD = make_wikiqa_line("Q1", "a", 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (make_wikiqa_line("Q1", "a", 2), "Label: expected 0 or 1, got '2'"),
        (make_wikiqa_line("Q1", "a", ""), "Label: expected 0 or 1, got ''"),
        (make_wikiqa_line("Q1", "a\tb", 1), "expected 7 fields between tabs, got 8"),
        (b"\n", "expected 7 fields between tabs, got 1"),
        (b"Q1\t\xff\t\t\t\t\t0\n", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "zip"])
def test_the_error_names_a_broken_line(tmp_path, form, broken, message):
    write_wikiqa(tmp_path, form, dev=HEADER + GOOD + broken + GOOD)
    with pytest.raises(DataError, match=rf"WikiQA-dev\.tsv: line 3: .*{message}"):
        wikiqa.read(tmp_path)


def test_rows_of_a_question_must_stand_together(tmp_path):
    write_wikiqa(tmp_path, dev=HEADER + GOOD + make_wikiqa_line("Q2", "a", 0) + GOOD)
    with pytest.raises(
        DataError, match=r"WikiQA-dev\.tsv: line 4: .*rows of a question together, but Q1 returns"
    ):
        wikiqa.read(tmp_path)


@pytest.mark.parametrize("content", [GOOD, b"question\tanswer\n", HEADER.lower()])
def test_another_header_is_refused(tmp_path, content):
    write_wikiqa(tmp_path, dev=content + GOOD)
    with pytest.raises(DataError, match=r"WikiQA-dev\.tsv: line 1: expected "):
        wikiqa.read(tmp_path)


def test_an_empty_file_is_refused_but_one_without_rows_is_not(tmp_path):
    write_wikiqa(tmp_path, dev=HEADER)
    assert wikiqa.read(tmp_path)["dev"] == ({"question": [], "answer": []}, [], 0, [], False)
    write_wikiqa(tmp_path, dev=b"")
    with pytest.raises(DataError, match=r"WikiQA-dev\.tsv: is empty"):
        wikiqa.read(tmp_path)


@pytest.mark.parametrize("form", ["gz", "xz", "zip"])
def test_the_error_names_a_truncated_file(tmp_path, form):
    write_wikiqa(tmp_path, form, train=HEADER + GOOD * 1000)
    (file,) = [*tmp_path.glob("*.zip"), *tmp_path.glob("*/*train*")]
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=re.escape(file.name)):
        wikiqa.read(tmp_path)
