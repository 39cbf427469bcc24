"""A user's own files: every format gives the same rows, and errors name file and line."""

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nse.data.readers.table import Table, hold_out, list_labels, make_rows, read_table
from nse.data.records import MAX_LINE_BYTES, BadLineError
from nse.errors import DataError
from nse.tasks.answers import LABEL_IDS, CandidateFiles
from nse.tasks.nli import PairFiles
from nse.tasks.translation import MAX_WORDS, TranslationFiles

COLUMNS = {"text": "review", "label": "stars"}
NUMBERS = {"0": 0, "1": 1}

TABLES = {
    "plain.tsv": b'stars\tid\treview\n5\t1\tA "lovely" room, really\n1\t2\tNo\xc2\xa0hot water\n',
    "windows.tsv": b"\xef\xbb\xbfreview\tstars\r\n"
    b'A "lovely" room, really\t5\r\n\r\nNo\xc2\xa0hot water\t 1 \r\n',
    "plain.csv": b'review,stars\n"A ""lovely"" room, really",5\nNo\xc2\xa0hot water,1\n',
    "windows.CSV": b'\xef\xbb\xbfstars,review\r\n5,"A ""lovely"" room, really"\r\n1,No\xc2\xa0hot water\r\n',
    "lines.jsonl": b'{"review": "A \\"lovely\\" room, really", "stars": 5}\n\n'
    b'{"stars": "1", "review": "No\\u00a0hot water"}',
    "lines.json": b'{"review": "A \\"lovely\\" room, really", "stars": "5", "more": [1]}\n'
    b'{"stars": 1, "review": "No\xc2\xa0hot water"}\n',
}


PACKED = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def write_file(folder, content, name="mine.jsonl"):
    file = folder / name
    file.write_bytes(content)
    return file


def refuse_bad_text(**texts):
    """Make a check that raises for a row with these texts."""

    def check(row):
        if row.items() >= texts.items():
            raise BadLineError("no")

    return check


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("packed", ["", ".gz", ".xz", ".bz2"])
def test_every_format_gives_the_same_rows(tmp_path, name, packed):
    pack = PACKED[packed]
    table = read_table(write_file(tmp_path, pack(TABLES[name]), name + packed), COLUMNS)
    assert table.columns == {
        "text": ['A "lovely" room, really', "No\u00a0hot water"],
        "label": ["5", "1"],
    }
    blank = name in ("windows.tsv", "lines.jsonl")
    first = 1 if name.startswith("lines") else 2
    for line, stars in ((first, "5"), (first + 1 + blank, "1")):
        with pytest.raises(DataError, match=f"{name}.*: line {line}: no$"):
            read_table(table.file, COLUMNS, refuse_bad_text(label=stars))


def test_quoted_line_breaks_count_in_the_line_numbers_of_errors(tmp_path):
    file = write_file(tmp_path, b'review,stars\n"one\n\ntwo, three",1\nfour,2\n', "mine.csv")
    table = read_table(file, COLUMNS)
    assert table.columns["text"] == ["one\n\ntwo, three", "four"]
    for line, stars in ((2, "1"), (5, "2")):
        with pytest.raises(DataError, match=f"mine.csv: line {line}: no$"):
            read_table(file, COLUMNS, refuse_bad_text(label=stars))


def test_json_booleans_and_numbers_may_be_labels(tmp_path):
    rows = [{"review": "a", "stars": value} for value in (True, False, 0, -2, 1.5, " x ")]
    file = write_file(tmp_path, "\n".join(map(json.dumps, rows)).encode())
    assert read_table(file, COLUMNS).columns["label"] == ["true", "false", "0", "-2", "1.5", "x"]


GOOD = b'{"review": "a", "stars": "1"}\n'
HEAD = b"review\tstars\n"
BAD = {
    "not JSON": ("mine.jsonl", GOOD + b"{]\n", "line 2: is not JSON: "),
    "not an object": ("mine.jsonl", GOOD + b"[1]\n", "line 2: expected a JSON object"),
    "nested too deep": ("mine.jsonl", GOOD + b"[" * 100_000 + b"\n", "line 2: is not JSON"),
    "NaN": (
        "mine.jsonl",
        GOOD + b'{"review": "a", "stars": NaN}\n',
        "line 2: stars: expected a text or a number, got NaN",
    ),
    "a huge number": ("mine.jsonl", b'{"stars": ' + b"9" * 5000 + b"}\n", "line 1: is not JSON"),
    "no text": (
        "mine.jsonl",
        GOOD + b'{"review": 5, "stars": 1}\n',
        "line 2: review: expected a text, got 5",
    ),
    "null": ("mine.jsonl", GOOD + b'{"review": null, "stars": 1}\n', "review: expected a text, got null"),
    "no key": ("mine.jsonl", GOOD + b'{"stars": 1}\n', "line 2: review: expected a text, got nothing"),
    "no label": (
        "mine.jsonl",
        GOOD + b'{"review": "a", "stars": null}',
        "line 2: stars: expected a text or a number, got null",
    ),
    "a list": ("mine.jsonl", GOOD + b'{"review": "a", "stars": []}', "stars: expected a text or a number"),
    "half a pair": (
        "mine.jsonl",
        GOOD + b'{"review": "\\ud800", "stars": 1}',
        "review: holds half of a surr",
    ),
    "NUL by escape": (
        "mine.jsonl",
        GOOD + b'{"review": "\\u0000", "stars": 1}',
        "line 2: review: holds a NUL",
    ),
    "NUL": ("mine.tsv", HEAD + b"a\x00b\t1\n", "line 2: holds a NUL"),
    "NUL in a CSV": ("mine.csv", b"review,stars\na\x00b,1\n", "line 2: holds a NUL"),
    "not UTF-8": ("mine.tsv", HEAD + b"a\t1\ncaf\xe9\t1\n", "line 3: is not UTF-8"),
    "not UTF-8 in a CSV": ("mine.csv", b'review,stars\n"a\nb",1\ncaf\xe9,1\n', "line 4: is not UTF-8"),
    "not UTF-8 in JSON": ("mine.jsonl", b'{"review": "\xff"}', "line 1: is not UTF-8"),
    "not UTF-8 in the header": ("mine.csv", b"review,stars,\xff\na,1,2\n", "line 1: the header is not UTF-8"),
    "UTF-16": ("mine.tsv", "review\tstars\na\t1\n".encode("utf-16"), "line 1: "),
    "a field less": ("mine.tsv", HEAD + b"a\n", "line 2: expected 2 fields, as in the header, got 1"),
    "a field more": (
        "mine.csv",
        b"review,stars\na,b,1\n",
        "line 2: expected 2 fields, as in the header, got 3",
    ),
    "an open quote": ("mine.csv", b'review,stars\na,1\n"b,1\nc,1\n', "line 3: a quote is perhaps not closed"),
    "a wild quote": ("mine.csv", b'review,stars\n"a"b,1\n', "line 2: is not CSV: "),
    "a long field": (
        "mine.csv",
        b"review,stars\n" + b"a" * 200_000 + b",1\n",
        "line 2: is not CSV: field larger",
    ),
    "a long line": (
        "mine.tsv",
        HEAD + b"a" * (MAX_LINE_BYTES + 1),
        r"line 2: is longer than 1,048,576 bytes",
    ),
    "blank": ("mine.tsv", HEAD + b" \xc2\xa0\t1\n", "line 2: review is empty"),
    "a blank label": ("mine.tsv", HEAD + b"a\t \n", "line 2: stars is empty"),
    "a label of two lines": (
        "mine.csv",
        b'review,stars\na,"1\n2"\n',
        r"line 2: stars: '1\\n2' holds characters that",
    ),
    "empty": ("mine.csv", b"", "holds no rows"),
    "a header alone": ("mine.tsv", HEAD, "holds no rows"),
    "blank lines": ("mine.jsonl", b"\n \n", "holds no rows"),
    "another kind": ("mine.xlsx", b"PK", "expected a name that ends in .jsonl, .json, .tsv or .csv"),
    "no ending": ("mine", b"", "expected a name that ends in"),
    "packed garbage": ("mine.csv.gz", b"garbage", "mine.csv.gz: cannot be read: "),
    "cut off": ("mine.csv.xz", lzma.compress(b"review,stars\na,1\n")[:-9], "cannot be read: "),
}


@pytest.mark.parametrize("case", BAD)
def test_the_error_names_the_file_and_the_broken_line(tmp_path, case):
    name, content, message = BAD[case]
    file = write_file(tmp_path, content, name)
    with pytest.raises(DataError, match=message) as error:
        read_table(file, COLUMNS)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_an_error(tmp_path):
    for file in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(DataError, match=r"cannot be read: |expected a name"):
            read_table(file, COLUMNS)


def test_the_error_names_the_first_mistake_and_counts_the_others(tmp_path):
    file = write_file(tmp_path, HEAD + b"a\t1\n\xff\t1\nb\nc\t1\n \t1\n", "mine.tsv")
    with pytest.raises(DataError, match=r"mine.tsv: line 3: is not UTF-8 \(2 more wrong in this file\)$"):
        read_table(file, COLUMNS)
    with pytest.raises(
        DataError, match=r"line 3: .* \(3 more wrong in this file\)"
    ):  # the last one ends it all
        read_table(write_file(tmp_path, file.read_bytes() + b"x" * (MAX_LINE_BYTES + 1), "mine.tsv"), COLUMNS)


def test_a_missing_column_is_an_error_that_suggests_the_nearest(tmp_path):
    file = write_file(tmp_path, b"reviews,stars\na,1\n", "mine.csv")
    message = (
        f"{file}: there is no column review (did you mean reviews?) and no kind; there are: reviews, stars"
    )
    with pytest.raises(DataError, match=re.escape(message)) as refusal:
        read_table(file, {"text": "review", "label": "kind"})
    assert refusal.value.fix == ("columns", "text=reviews,label=COLUMN")
    with pytest.raises(DataError, match=r"there is no column review; there are: stars$"):
        read_table(write_file(tmp_path, b'{"stars": 1}\n'), COLUMNS)
    with pytest.raises(
        DataError, match=r"there are: review;stars \(.csv has commas between columns, .tsv tabs\)"
    ):
        read_table(write_file(tmp_path, b"review;stars\na;1\n", "mine.csv"), COLUMNS)
    with pytest.raises(DataError, match="there is more than one column review; give each a name of its own"):
        read_table(write_file(tmp_path, b"review,stars,review\na,1,b\n", "mine.csv"), COLUMNS)
    many = write_file(tmp_path, (",".join(f"c{n}" for n in range(99)) + "\n").encode(), "mine.csv")
    with pytest.raises(DataError, match=r"c18, c19, \.\.\.$"):
        read_table(many, COLUMNS)


STARTS = {".jsonl": GOOD, ".tsv": HEAD, ".csv": b"review,stars\n"}
BYTES = st.lists(st.sampled_from([b"a", b'"', b",", b"\t", b"\n", b"\r", b"\0", b"\xe9", b"{}", GOOD]))


@given(content=BYTES.map(b"".join) | st.binary(max_size=100), ending=st.sampled_from(list(STARTS)))
def test_any_content_is_read_or_refused(tmp_path_factory, content, ending):
    file = write_file(tmp_path_factory.getbasetemp(), STARTS[ending] + content, f"fuzz{ending}")
    message = ""
    try:
        table = read_table(file, COLUMNS)
    except DataError as error:
        message = str(error)
    if message:
        assert message.startswith(f"{file}: ")
    else:
        assert len({len(column) for column in table.columns.values()}) == 1
        assert all(text.strip() for column in table.columns.values() for text in column)


def make_table(**columns):
    """Make a table of columns."""
    keys = columns.get("group") or columns.get("question") or columns.get("source")
    return Table(Path("mine.csv"), columns, keys or columns["text"])


def test_labels_are_those_of_the_training_file_sorted():
    table = make_table(text=["a", "b", "c", "d"], label=["so", "good", "bad", "so"])
    assert list_labels(table) == ("bad", "good", "so")
    rows = make_rows(table, {"bad": 0, "good": 1, "so": 2})
    assert (rows.texts, rows.labels, rows.total) == ({"text": ["a", "b", "c", "d"]}, [2, 1, 0, 2], 4)
    assert (rows.groups, rows.tokenized) == (None, False)
    with pytest.raises(DataError, match="every row has the label so; a classifier needs two"):
        list_labels(make_table(text=["a", "b"], label=["so", "so"]))
    numbers = [str(n) for n in range(11)]
    with pytest.raises(
        DataError, match=r"every row has a label of its own, such as '0'; is it the right column\?"
    ):
        list_labels(make_table(text=numbers, label=numbers))
    assert len(list_labels(make_table(text=numbers[:10], label=numbers[:10]))) == 10


def test_candidates_of_a_question_need_not_stand_together():
    questions, labels = ["q", "p", "q", "p", "r"], ["1", "no", "false", "yes", "0"]
    rows = make_rows(make_table(question=questions, answer=list("abcde"), label=labels), LABEL_IDS)
    assert rows.groups == [0, 1, 0, 1, 2]
    assert rows.labels == [1, 0, 0, 1, 0]
    assert rows.texts == {"question": questions, "answer": list("abcde")}
    by_group = make_table(
        question=["q"] * 5, answer=list("abcde"), label=labels, group=["7", "7", "2", "2", "7"]
    )
    assert make_rows(by_group, LABEL_IDS).groups == [0, 0, 1, 1, 0]


def read_error(files, labels=(), /, **row):
    """Return the error of a row, or the row as the source changes it."""
    try:
        files.check_row(labels, row)
    except BadLineError as wrong:
        return str(wrong)
    return row


def test_each_task_checks_its_own_columns():
    assert read_error(PairFiles(), ("bad", "so"), label="so") == {"label": "so"}
    wanted = "the label 'goood' is not one that was trained on: bad, so"
    assert read_error(PairFiles(), ("bad", "so"), label="goood") == wanted
    assert read_error(CandidateFiles(), label="FALSE") == {"label": "false"}
    wanted = "the label is 'perhaps'; expected 1 for a correct answer or 0 for an incorrect one"
    assert read_error(CandidateFiles(), label="perhaps") == wanted


def test_each_side_of_a_translation_must_have_words():
    files = TranslationFiles(tokenizer="whitespace", language="")
    row = read_error(files, source="A  b", target="D\u00a0 e")
    assert row == {"source": "A b", "target": "D e"}
    rows = make_rows(make_table(source=["A b"], target=["D e"]), {})
    assert (rows.tokenized, rows.labels, rows.groups) == (True, [0], None)
    assert read_error(files, source="a", target="\u200b") == "the target has no words"
    wanted = "the source has 1,001 words, more than 1,000: break it up"
    assert read_error(files, source="a " * (MAX_WORDS + 1), target="b") == wanted


def test_held_out_rows_do_not_depend_on_the_order():
    texts = [f"text {n % 40}" for n in range(100)]
    table = make_table(text=texts, label=[str(n % 2) for n in range(100)])
    train, dev = hold_out(table, make_rows(table, NUMBERS), 0.1)
    assert len(set(dev.texts["text"])) == 4  # of 40 different ones
    assert not set(dev.texts["text"]) & set(train.texts["text"])
    assert len(train.labels) + len(dev.labels) == 100
    turned = make_table(text=texts[::-1], label=table.columns["label"][::-1])
    assert hold_out(turned, make_rows(turned, NUMBERS), 0.1)[1].texts["text"] == dev.texts["text"][::-1]


@pytest.mark.parametrize(("fraction", "dev_texts"), [(0.001, 1), (0.999, 39)])
def test_train_and_dev_are_never_empty(fraction, dev_texts):
    table = make_table(text=[f"text {n}" for n in range(40)], label=[str(n % 2) for n in range(40)])
    train, dev = hold_out(table, make_rows(table, NUMBERS), fraction)
    assert (len(train.labels), len(dev.labels)) == (40 - dev_texts, dev_texts)


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"text": "a", "label": "b"}, ["A  b", "c"]),
        ({"first": "a", "second": "b", "label": "c"}, ["A  b\0x", "c\0y"]),
        ({"question": "a", "answer": "b", "label": "c"}, ["A  b", "c"]),
        ({"question": "a", "answer": "b", "label": "c", "group": "b"}, ["x", "y"]),
        ({"source": "a", "target": "b"}, ["A  b", "c"]),
    ],
)
def test_rows_belong_together_by_group_question_or_source(tmp_path, columns, keys):
    """The raw texts decide, so that dev does not depend on the tokenizer."""
    file = write_file(tmp_path, b"a,b,c\nA  b,x,1\nc,y,0\n", "mine.csv")
    table = read_table(file, columns, lambda row: row.update(dict.fromkeys(row, "changed")))
    assert table.keys == keys
    assert set(table.columns) == set(columns)


def test_a_question_is_never_in_train_and_dev():
    questions = [f"question {n // 3}" for n in range(60)]
    table = make_table(question=questions, answer=[str(n) for n in range(60)], label=["1", "0", "0"] * 20)
    train, dev = hold_out(table, make_rows(table, LABEL_IDS), 0.1)
    assert (len(dev.labels), dev.groups) == (6, [0, 0, 0, 1, 1, 1])
    assert sorted(set(train.groups)) == list(range(18))
    assert not set(train.texts["question"]) & set(dev.texts["question"])
    one = make_table(question=["q", "q"], answer=["a", "b"], label=["0", "1"])
    with pytest.raises(DataError, match="all rows are alike, so that none can be held out") as refusal:
        hold_out(one, make_rows(one, LABEL_IDS), 0.1)
    assert refusal.value.fix == ("dev",)
