"""The picture of the sweeps is made of the rows and of nothing else."""

import re

import pytest

from bench.made_up import made_up
from benchmarks.speed.sweeps import GPU, compute_fingerprint, draw_sweeps
from nse import InputError


def test_every_series_is_drawn_and_the_file_is_reproducible(tmp_path):
    rows = made_up()["rows"]
    draw_sweeps(rows, tmp_path / "new" / "one.svg")
    draw_sweeps(rows, tmp_path / "two.svg")
    text = (tmp_path / "two.svg").read_text("utf-8")
    assert (tmp_path / "new" / "one.svg").read_text("utf-8") == text
    for name, colour in GPU.values():
        assert f">{name}, train<" in text
        assert f">{name}, forward<" in text
        assert colour.lower() in text.lower()
    for size in (10, 25, 800, 1, 1024):
        assert re.search(rf">{size}<", text)
    assert compute_fingerprint(rows) in text


def test_other_rows_are_another_picture():
    rows = made_up()["rows"]
    assert compute_fingerprint(rows) == compute_fingerprint([dict(reversed(row.items())) for row in rows])
    assert compute_fingerprint(rows) != compute_fingerprint([{**rows[0], "ms": 1.5}, *rows[1:]])


def test_without_matplotlib_it_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'neural-semantic-encoders\[figures\]'"):
        draw_sweeps([], tmp_path / "none.svg")
