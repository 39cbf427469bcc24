"""`nse data status`, `fetch` and `prepare`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from data.made_up import write_snli, write_sst, write_vectors, write_wikiqa
from nse.cli.data import app
from nse.data.cache import load_prepared, save_prepared
from nse.data.prepare import prepare
from nse.data.sources import show_progress
from nse.errors import DataError


def run_data(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NSE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_status_of_a_missing_folder_says_what_to_type(folder, monkeypatch):
    folder.rmdir()
    answer = run_data("status")
    assert answer.exit_code == 0
    assert "There is no data folder data" in answer.output
    assert "missing; nse data fetch snli" in answer.output
    report = json.loads(run_data("status", "--json").output)
    assert not report["exists"]
    assert not any(row["present"] for row in report["data"])
    commands = {row["name"]: row["get"] for row in report["data"]}
    fetched = ("snli", "wikiqa", "sst-fine", "sst-binary", "aclimdb")
    assert {name: commands[name] for name in fetched} == {name: f"nse data fetch {name}" for name in fetched}
    # Data without a public address is listed with the files that are looked for.
    assert "yelp-2013-train.txt.ss" in commands["yelp13"]
    assert "imdb-train.txt.ss" in commands["imdb"]
    assert "train.tags.en-de.en" in commands["iwslt14"]
    assert "multi30k" in commands["multi30k"]
    assert "europarl" in commands["europarl"]
    assert all(not row["present"] for row in report["vectors"])


def test_status_compares_counts_with_the_published_ones(folder, monkeypatch):
    write_snli(folder, "xz")
    write_vectors(folder)
    (folder / "vectors" / "glove.6B.100d.txt").write_text("the" + " 0.5" * 100 + "\n")
    save_prepared(prepare("snli", "set.2d", folder), folder / "prepared" / "snli.set.2d.safetensors")
    monkeypatch.setenv("NSE_DATA", str(folder))
    monkeypatch.chdir("/")
    report = json.loads(run_data("status", "--json").output)
    snli = report["data"][0]
    assert snli["present"]
    assert snli["form"] == "jsonl.xz"
    assert snli["counts"]["train"] == {"found": 3, "published": 549367}
    vectors = {row["name"]: row for row in report["vectors"]}
    assert vectors["set.2d"]["counts"]["words"] == {"found": 9, "published": None}
    assert (vectors["set.2d"]["dimension"], vectors["set.2d"]["form"]) == (2, "npy")
    assert (vectors["glove.6B.100d"]["dimension"], vectors["glove.6B.100d"]["form"]) == (100, "txt")
    assert vectors["glove.840B.300d"]["get"] == "nse data fetch glove.840B.300d"
    assert report["prepared"][0]["counts"]["test"] == {"found": 2, "published": 9824}
    table = run_data("status").output
    assert "train 3 of 549,367 (0%), dev 1 of 9,842 (0%)" in table
    assert "words 9, 2 numbers each; npy in" in table
    assert "snli.set.2d.safetensors" in table


def test_every_data_set_is_listed_and_can_be_prepared(folder):
    write_wikiqa(folder, "zip")
    write_sst(folder, "gz")
    write_vectors(folder)
    rows = {row["name"]: row for row in json.loads(run_data("status", "--json").output)["data"]}
    assert (rows["wikiqa"]["form"], rows["wikiqa"]["where"]) == ("zip", "data/WikiQACorpus.zip")
    assert (rows["sst-fine"]["form"], rows["sst-fine"]["where"]) == ("txt.gz", "data/sst/trees")
    counts = {name: [count["found"] for count in row["counts"].values()] for name, row in rows.items()}
    there = {"wikiqa": [4, 1, 2], "sst-fine": [10, 2, 1], "sst-binary": [6, 1, 1]}
    assert counts == {name: there.get(name, []) for name in rows}
    for name, tokenizer in [("wikiqa", "lower"), ("sst-fine", "treebank"), ("sst-binary", "treebank")]:
        answer = run_data("prepare", name, "--vectors", "set.2d", "--json")
        assert answer.exit_code == 0, answer.output
        information = json.loads(answer.output)["information"]
        assert information["tokenizer"] == tokenizer
        assert information["coverage"]["known_types"]
        assert information.get("groups") == (["train", "dev", "test"] if name == "wikiqa" else None)


def test_status_reports_broken_files_and_continues(folder):
    write_snli(folder, dev=b"{\n")
    (folder / "vectors").mkdir()
    (folder / "vectors" / "glove.840B.300d.txt.gz").write_bytes(b"garbage")
    np.save(folder / "set.2d.npy", np.zeros(3))
    (folder / "set.2d.words.txt").write_text("a\n")
    (folder / "snli.x.safetensors").write_bytes(b"garbage")
    answer = run_data("status", "--json")
    assert answer.exit_code == 0
    report = json.loads(answer.output)
    assert "snli_1.0_dev.jsonl: line 1" in report["data"][0]["problem"]
    problems = {row["name"]: row["problem"] for row in report["vectors"]}
    assert "glove.840B.300d.txt.gz: cannot be read" in problems["glove.840B.300d"]
    assert "set.2d.npy: expected" in problems["set.2d"]
    assert "is not a complete prepared" in report["prepared"][0]["problem"]
    assert run_data("status").exit_code == 0


def test_prepare_prints_the_file_and_the_coverage(folder):
    write_snli(folder)
    write_vectors(folder)
    answer = run_data("prepare", "snli", "--vectors", "set.2d")
    assert answer.exit_code == 0, answer.output
    file = folder.parent / "cache" / "snli.set.2d.safetensors"
    assert f"{file}: {file.stat().st_size:,} bytes, 10 words" in answer.output
    assert "train: 3 of 549,367 rows, 1 left out" in answer.output
    assert "types covered: " in answer.output
    assert "most frequent without a vector: dogs (2), zebra (2), , (1)" in answer.output
    report = json.loads(run_data("prepare", "snli", "--out", "made/here", "--json").output)
    assert report["file"] == "made/here/snli.safetensors"
    assert report["fingerprint"] == load_prepared(folder.parent / report["file"]).fingerprint
    assert report["information"]["vectors"] is None


def test_prepare_fails_before_reading_if_the_file_cannot_be_written(folder):
    write_snli(folder)
    (folder.parent / "file").write_text("")
    answer = run_data("prepare", "snli", "--out", "file/x")
    assert isinstance(answer.exception, DataError)
    assert "cannot be written: Not a directory; choose another" in str(answer.exception)


def test_prepare_writes_nothing_if_data_is_missing(folder):
    for words in (["snli"], ["snil"], ["snli", "--vectors", "../x"]):
        answer = run_data("prepare", *words)
        assert isinstance(answer.exception, DataError)
    assert not (folder.parent / "cache").exists()


def test_fetch_of_an_unknown_name_is_an_error(folder):
    for words in (["nothing"], ["spacy.md.300d"], ["snli", "--from", "ftp://x/y"]):
        assert isinstance(run_data("fetch", *words).exception, DataError)
    assert list(folder.iterdir()) == []


def test_there_is_no_progress_bar_without_a_terminal():
    with show_progress("file") as progress:
        assert progress is None


def test_a_terminal_shows_a_progress_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with show_progress("[file]") as progress:
        progress(5_000_000, 10_000_000)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "[file]" in shown.err
    assert "5.0/10.0 MB" in shown.err
