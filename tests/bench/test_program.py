"""The benchmark as a program: what it prints and writes, and what an interruption leaves."""

import json

import pytest

import forking
from benchmarks import speed
from benchmarks.speed.__main__ import main
from nse.errors import RunError

WORDS = ["--device", "cpu", "--quick", "--threads", "1", "--json"]


def test_it_writes_what_it_prints(tmp_path):
    file = tmp_path / "new" / "cpu.json"
    answer = forking.run(["benchmarks/speed", *WORDS, "--only", "growth", "--out", str(file)])
    assert answer.returncode == 0, answer.stderr
    report = json.loads(file.read_text())
    assert json.loads(answer.stdout) == report
    assert report["machine"]["threads"] == 1
    for row in report["growth"]:
        assert {"name", "backend", "B", "T", "k", "dtype", "mode", "ms", "over_lstm"} <= set(row)
    assert {row["backend"] for row in report["growth"]} - {"cpu"} == {"torch", "lstm"}


def test_parts_that_are_not_measured_stay_in_the_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "cpu.json"
    file.write_text('{"rows": [1], "isa": [2]}')
    monkeypatch.setattr(speed, "run", lambda parts, **_: {part: [3] for part in parts})
    main([*WORDS, "--out", str(file), "--only", "isa"])
    assert json.loads(capsys.readouterr().out) == {"rows": [1], "isa": [3]}
    assert json.loads(file.read_text()) == {"rows": [1], "isa": [3]}


def test_an_interruption_leaves_what_was_measured(tmp_path, monkeypatch):
    def interrupted(save, **_):
        save({"rows": [1]})
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "run", interrupted)
    file = tmp_path / "bench.json"
    with pytest.raises(KeyboardInterrupt):
        main(["--out", str(file)])
    assert not file.exists()
    assert json.loads((tmp_path / "bench.unfinished.json").read_text()) == {"rows": [1]}
    monkeypatch.setattr(speed, "run", lambda save, **_: save({"rows": [1]}) or {"rows": [1, 2]})
    monkeypatch.setattr(speed, "format_tables", lambda report: "")
    main(["--out", str(file)])
    assert json.loads(file.read_text()) == {"rows": [1, 2]}
    assert not (tmp_path / "bench.unfinished.json").exists()


def test_a_place_that_cannot_be_written_is_refused_first(tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        main(["--quick", "--out", str(tmp_path)])
