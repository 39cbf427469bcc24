"""The comparison of two versions, with versions that are made up."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "compare_versions.py"
VERSIONS = {"before": "old/python", "now": "new/python"}


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(FILE.parent)
    spec = importlib.util.spec_from_file_location("compare_versions", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_that_comes_first_alternates(program):
    names = [name for name, _ in program.take_turns(VERSIONS, 3)]
    assert names == ["before", "now", "now", "before", "before", "now"]


@pytest.mark.parametrize(("is_speed", "expected"), [(True, 2.0), (False, 0.5)])
def test_versions_are_compared_within_a_round(program, is_speed, expected):
    ledger = program.Ledger()
    for before, now in ((1.0, 2.0), (10.0, 20.0), (5.0, 5.0)):
        ledger.add("steps", "before", before)
        ledger.add("steps", "now", now)
    row = ledger.summarize(is_speed)["steps"]
    assert (row["before"], row["now"], row["times_faster"]) == (5.0, 5.0, expected)
    assert row["rounds"]["now"] == [2.0, 20.0, 5.0]


def test_training_runs_every_recipe_with_both_versions(program, monkeypatch):
    called = []
    monkeypatch.setattr(program, "run_child", lambda *words: called.append(words) or len(words[0]))
    report = program.compare_steps(VERSIONS, argparse.Namespace(rounds=9, data=Path("DATA")))
    assert len(called) == 3 * 2 * 2
    assert {words[1:] for words in called} == {("steps", recipe, "DATA") for recipe in program.RECIPES}
    assert report["steps"] == program.RECIPES
    assert all(report[recipe]["times_faster"] == 1 for recipe in program.RECIPES)


def test_parts_that_are_not_measured_stay_in_the_file(program, tmp_path, monkeypatch, capsys):
    file = tmp_path / "out.json"
    file.write_text('{"first": 1, "demo": 2}')
    monkeypatch.setattr(program, "read_commit", str)
    monkeypatch.setitem(program.COMPARISONS, "demo", lambda versions, args: versions["before"])
    monkeypatch.setattr(sys, "argv", ["it", "--before", str(tmp_path), "--only", "demo", "--out", str(file)])
    program.main()
    report = json.loads(file.read_text())
    assert (report["first"], report["demo"]) == (1, str(tmp_path / ".venv/bin/python"))
    assert report["commits"]["before"] == str(tmp_path)
    assert json.loads(capsys.readouterr().out) == report
