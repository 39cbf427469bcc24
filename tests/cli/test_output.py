"""What is written is whole or not there, and can be read by what it is written for."""

import json
import os
import resource
import signal
import sys

import numpy as np
import pytest
from pyarrow import parquet

from nse.cli.output import (
    describe_predictions,
    describe_ranking,
    flatten,
    format_json,
    open_output,
    open_writer,
)
from nse.errors import InputError, RunError

ENDINGS = (".jsonl", ".tsv", ".txt", ".npy", ".parquet")


def answers(count, first=1, size=5):
    """Some vectors, each with what belongs to it."""
    vectors = np.random.default_rng(first).normal(size=(count, size)).astype(np.float32)
    return [
        {"number": first + n, "text": "caf\u00e9", "vector": vectors[n], "words": 1, "cut": 0, "unknown": 1}
        for n in range(count)
    ]


@pytest.mark.parametrize("counts", [[1], [9, 1], [50, 51], [3, 100, 997]])
def test_vectors_written_in_parts_are_one_array(counts, tmp_path):
    file, rows = tmp_path / "vectors.npy", []
    with open_writer(file, ENDINGS, format_json) as write:
        for count in counts:
            some = answers(count, len(rows) + 1)
            write(some)
            rows += some
    for mode in (None, "r"):
        result = np.load(file, mmap_mode=mode, allow_pickle=False)
        assert (result.dtype, result.shape) == (np.dtype("<f4"), (sum(counts), 5))
        assert np.array_equal(result, np.stack([row["vector"] for row in rows]))


def test_parquet_has_vectors_ids_and_counts(tmp_path):
    file, rows = tmp_path / "vectors.parquet", [*answers(3), *answers(2, 4)]
    rows[1]["id"], rows[2]["id"] = "x", 7
    with open_writer(file, ENDINGS, format_json) as write:
        write(rows[:3])
        write(rows[3:])
    table = parquet.read_table(file)
    assert parquet.ParquetFile(file).num_row_groups == 2
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[5]"
    result = table.to_pydict()
    assert result["id"] == [None, "x", "7", None, None]
    assert np.array_equal(np.float32(result.pop("vector")), np.stack([row["vector"] for row in rows]))
    for name in ("number", "text", "words", "cut", "unknown"):
        assert result[name] == [row[name] for row in rows]


def test_json_lines_keep_numbers_exactly(tmp_path):
    file, rows = tmp_path / "vectors.jsonl", answers(3)
    with open_writer(file, ENDINGS, format_json) as write:
        write(rows)
    result = [json.loads(line) for line in file.read_text("ascii").splitlines()]
    assert [row | {"vector": None} for row in result] == [row | {"vector": None} for row in rows]
    assert np.array_equal(
        np.float32([row["vector"] for row in result]), np.stack([r["vector"] for r in rows])
    )


def test_nan_is_not_written_as_json(tmp_path):
    with (
        pytest.raises(ValueError, match="JSON"),
        open_writer(tmp_path / "a.jsonl", ENDINGS, format_json) as write,
    ):
        write([{"number": 1, "score": float("nan")}])
    assert list(tmp_path.iterdir()) == []


def test_tsv_has_a_field_for_every_value(tmp_path):
    rows = [
        {
            "number": 1,
            "texts": ["a\tb\nc", "d\u2028e"],
            "label": "x",
            "probabilities": {"x": 0.75, "y": 0.25},
        },
        {"number": 2, "id": "k", "texts": ["f", ""], "label": "y", "probabilities": {"x": 0.5, "y": 0.5}},
    ]
    with open_writer(tmp_path / "a.tsv", ENDINGS, format_json) as write:
        write(rows)
    assert (tmp_path / "a.tsv").read_text("utf-8").split("\n") == [
        "number\tid\ttext.1\ttext.2\tlabel\tprobability.x\tprobability.y",
        "1\t\ta b c\td e\tx\t0.75\t0.25",
        "2\tk\tf\t\ty\t0.5\t0.5",
        "",
    ]
    assert flatten({"number": 3, "words": ["ein", "hund"]}) == {"number": 3, "id": "", "words": "ein hund"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_while_writing_leaves_the_old_file(ending, tmp_path):
    file = tmp_path / f"a{ending}"
    file.write_text("old")
    rows = [row | {"translation": "hund", "label": "x"} for row in answers(50)]

    def break_off(error):
        with open_writer(file, ENDINGS, format_json) as write:
            write(rows)
            raise error

    for error in (KeyboardInterrupt, SystemExit, ZeroDivisionError):
        with pytest.raises(error):
            break_off(error)
        assert [each.name for each in tmp_path.iterdir()] == [file.name]
        assert file.read_text() == "old"
    with open_writer(file, ENDINGS, format_json) as write:
        write(rows)
        assert file.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    assert file.stat().st_size > 100


@pytest.mark.parametrize("ending", [".jsonl", ".npy", ".parquet"])
def test_a_full_disk_is_reported_and_leaves_the_old_file(ending, tmp_path):
    file = tmp_path / f"a{ending}"
    file.write_text("old")

    def write_much():
        with open_writer(file, ENDINGS, format_json) as write:
            for first in range(1, 3_000, 300):
                write(answers(300, first))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # no file may grow beyond that
    try:
        with pytest.raises(RunError, match=rf"a\{ending} cannot be written: File too large"):
            write_much()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    assert file.read_text() == "old"


def test_an_unwritable_output_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "a.npy").mkdir()
    for path, message in [
        (tmp_path / "file" / "a.npy", "cannot be written: "),
        (tmp_path / "a.npy", r"a\.npy cannot be written: Is a directory"),
    ]:
        with pytest.raises(RunError, match=message), open_writer(path, ENDINGS, format_json):
            pytest.fail("it was begun")
    with (
        pytest.raises(InputError, match=r"expected a file with the suffix \.jsonl, \.tsv, got .*a\.npy"),
        open_writer(tmp_path / "b" / "a.npy", (".jsonl", ".tsv"), format_json),
    ):
        pytest.fail("it was begun")
    assert not (tmp_path / "b").exists()


def test_without_pyarrow_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        pytest.raises(InputError, match=r"pip install 'neural-semantic-encoders\[parquet\]'"),
        open_writer(tmp_path / "a.parquet", ENDINGS, format_json),
    ):
        pytest.fail("it was begun")
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_write_the_same_file(tmp_path):
    file = tmp_path / "a.txt"
    with open_output(file) as handle:
        handle.write(b"mine")
        with pytest.raises(RunError, match="another process is writing it"), open_output(file):
            pytest.fail("it was begun")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a.txt": "mine"}


def test_the_part_file_of_a_killed_process_is_removed(tmp_path):
    (tmp_path / ".a.txt.12345-0123abcd.part").write_text("half of something longer")
    with open_output(tmp_path / "a.txt") as handle:
        handle.write(b"whole")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a.txt": "whole"}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_clean_up_and_handlers_are_restored(name, tmp_path):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, open_output(tmp_path / "a.txt"):
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is before
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    usual = tmp_path / "usual"
    usual.write_text("")
    with open_output(tmp_path / "a.txt"):
        pass
    assert (tmp_path / "a.txt").stat().st_mode == usual.stat().st_mode


def test_printed_lines_are_aligned_and_truncated():
    rows = [
        {"text": "good", "probabilities": {"no": 0.25, "yes": 0.75}, "words": 1, "cut": 0, "unknown": 0},
        {
            "texts": ["a\x1b[2J\n", "b" * 300],
            "probabilities": {"no": 1.0},
            "words": 9,
            "cut": 3,
            "unknown": 2,
        },
    ]
    assert describe_predictions(rows) == [
        "yes 75.0% (no 25.0%)  good",
        f"no 100.0%             a [2J  | {'b' * 200}...  [2 of 9 words unknown; 3 words truncated]",
    ]
    candidate = {"rank": 1, "score": -1.25, "number": 12, "text": "a dog", "words": 4, "cut": 0, "unknown": 1}
    assert describe_ranking([candidate]) == [
        "rank     score  line  sentence",
        "   1   -1.2500    12  a dog  [1 of 4 words unknown]",
    ]
    assert describe_predictions([]) == []
