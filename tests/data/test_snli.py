"""SNLI is read as published."""

import re

import pytest

from data.made_up import make_snli_line, write_snli
from nse.data.readers import snli
from nse.errors import DataError


@pytest.mark.parametrize("form", ["plain", "gz", "xz", "zip"])
def test_splits_are_read_from_every_published_format(tmp_path, form):
    write_snli(tmp_path, form)
    rows = snli.read(tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    assert rows["train"].texts == {
        "premise": ["A dog runs, fast.", "The cat sleeps.", "A dog\u2028runs."],
        "hypothesis": ["A dog moves.", "N/A", ""],
    }
    assert rows["train"].labels == [0, 1, 2]
    assert [(split_rows.total, len(split_rows.labels)) for split_rows in rows.values()] == [
        (4, 3),
        (1, 1),
        (2, 2),
    ]


def test_files_are_found_in_the_data_folder_itself(tmp_path):
    write_snli(tmp_path)
    assert snli.read(tmp_path / "snli_1.0")["dev"].labels == [2]


def test_labels_have_the_order_of_the_built_in_corpus():
    from nse.data.readers.logic_grammar import LABELS

    assert snli.LABELS == LABELS


def test_the_error_names_a_missing_file_and_how_to_fetch_it(tmp_path):
    write_snli(tmp_path)
    (tmp_path / "snli_1.0" / "snli_1.0_dev.jsonl").unlink()
    with pytest.raises(DataError, match=r"no snli_1\.0_dev\.jsonl in ") as refusal:
        snli.read(tmp_path)
    assert refusal.value.fix == ("fetch", "snli", str(tmp_path))


GOOD = make_snli_line("neutral", "a", "b")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"{\n", "is not JSON"),
        (b"\n", "is not JSON"),
        (b"[" * 200_000 + b"\n", "is not JSON"),
        (b"[1]\n", "expected a JSON object"),
        (b" " * 1_048_577 + b"\n", "is longer than 1,048,576 bytes"),
        (b"\xff\xfe\n", "is not UTF-8"),
        (b'{"gold_label": "neutral", "sentence1": "a"}\n', "sentence2: expected a text, got nothing"),
        (
            b'{"gold_label": "neutral", "sentence1": 7, "sentence2": "a"}\n',
            "sentence1: expected a text, got 7",
        ),
        (
            b'{"gold_label": null, "sentence1": "a", "sentence2": "a"}\n',
            "gold_label: expected a text, got null",
        ),
        (b'{"gold_label": "maybe", "sentence1": "a", "sentence2": "a"}\n', "expected one of .* got 'maybe'"),
        (b'{"gold_label": "neutral", "sentence1": "\\ud800", "sentence2": ""}\n', "sentence1: holds half"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "zip"])
def test_the_error_names_a_broken_line(tmp_path, form, broken, message):
    write_snli(tmp_path, form, dev=GOOD + GOOD + broken + GOOD)
    with pytest.raises(DataError, match=rf"snli_1\.0_dev\.jsonl: line 3: .*{message}"):
        snli.read(tmp_path)


@pytest.mark.parametrize("form", ["gz", "xz", "zip"])
def test_the_error_names_a_truncated_file(tmp_path, form):
    write_snli(tmp_path, form, train=GOOD * 1000)
    (file,) = [*tmp_path.glob("*.zip"), *tmp_path.glob("*/*train*")]
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=re.escape(file.name)):
        snli.read(tmp_path)
