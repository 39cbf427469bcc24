"""Fault 11: a CSV with a quote that is not closed: the run stops and says so, it swallows no lines."""

import sys

import pytest

from nse.cli import main as cli
from small_models import save_sentence_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_sentence_model(tmp_path_factory.mktemp("model") / "mine"))


def ended(monkeypatch, capsys, *words):
    """How a command ends, and what it says."""
    monkeypatch.setattr(sys, "argv", ["nse", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    message = capsys.readouterr()
    return stopped.value.code or 0, message.out, message.err


TAILS = {
    "to the end of the file": "good,1\n" * 7_344,
    "past what a field may have": "good,1\n" * 20_000,
    "past what a record may have": 'good","film\n' * 100_000,
    "to the next quote": "good,1\n" * 7_344 + '"good, really",1\n' + "good,1\n",
    "at the end of the file": "",
}


@pytest.mark.parametrize("bad", ["skip", "stop"])
@pytest.mark.parametrize("tail", TAILS)
def test_an_open_quote_is_reported_with_its_line_and_nothing_is_written(
    tail, bad, model, tmp_path, monkeypatch, capsys
):
    file, out = tmp_path / "rows.csv", tmp_path / "answers.jsonl"
    file.write_text(f'sentence,id\ngood film,1\n"bad film,2\n{TAILS[tail]}')
    words = ["predict", model, "--file", file, "--bad", bad]
    code, printed, message = ended(monkeypatch, capsys, *words, "--out", out)
    assert (code, printed, message.count("\n")) == (2, "", 1)
    assert message.startswith(f"nse: {file}: line 3: a quote is perhaps not closed: ")
    assert [item.name for item in tmp_path.iterdir()] == ["rows.csv"]
    code, printed, message = ended(monkeypatch, capsys, *words, "--json")
    assert (code, printed.count("\n"), message.count("\n")) == (2, 1, 1)  # what came before it is printed
    assert '"text": "good film"' in printed


def test_skipped_lines_are_counted(model, tmp_path, monkeypatch, capsys):
    file, out = tmp_path / "rows.csv", tmp_path / "answers.jsonl"
    file.write_text('sentence,id\ngood,1\n"bad\n\nfilm"\nfilm,2\n')
    code, _, message = ended(
        monkeypatch, capsys, "predict", model, "--file", file, "--bad", "skip", "--out", out
    )
    assert (code, message.splitlines()) == (
        0,
        [
            f"nse: {file}: lines 3 to 5: expected 2 fields, as in the header, got 1; skipped",
            f"nse: {out}: 2 rows; 3 lines skipped",
        ],
    )
