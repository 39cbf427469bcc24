"""Fault 19: a closed stdin, stdout or stderr, or one that takes no more: no answer is lost in silence."""

import json
import os
import re
import subprocess
import sys

import pytest

import forking
import nse
from nse.cli import main as cli
from small_models import save_ranking_model, save_sentence_model, save_translator

TINY = ["data.train=60", "data.dev=30", "data.test=30", "data.unseen=30", "model.size=8", "train.epochs=1"]
SETS = [word for assignment in TINY for word in ("--set", assignment)]

COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "recipes": ["recipes"],
    "recipes --json": ["recipes", "--json"],
    "data status": ["data", "status", "--data", "FOLDER"],
    "predict": ["predict", "sentence", "good"],
    "predict of a file": ["predict", "sentence", "--file", "rows.txt", "--json"],
    "encode": ["encode", "sentence", "good"],
    "rank": ["rank", "ranking", "--question", "good film", "bad film", "good"],
    "translate": ["translate", "translation", "good"],
    "explore": ["explore", "sentence", "good", "--steps"],
    "explore --json -": ["explore", "sentence", "good", "--json", "-"],
    "evaluate": ["evaluate", "run"],
}
"""Commands that print something."""

READING = {
    "predict": ["predict", "sentence"],
    "predict -": ["predict", "sentence", "--file", "-"],
    "encode": ["encode", "sentence"],
    "rank": ["rank", "ranking", "--question", "good film"],
    "translate": ["translate", "translation"],
}
"""Commands that read standard input."""


MODES = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)


class Program:
    """Runs commands in a folder of models, with files as streams, or None for a closed one."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, words, stdin="/dev/null", stdout="out", stderr="err"):
        """Run a command; returns its exit code, what it printed, and what it said on standard error."""
        for name in ("out", "err"):
            (self.folder / name).write_text("")
        paths = [path and self.folder / path for path in (stdin, stdout, stderr)]
        files = [path and os.open(path, mode) for path, mode in zip(paths, MODES, strict=True)]
        environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
        closed = [number for number, file in enumerate(files) if file is None]
        settings = dict(zip(("stdin", "stdout", "stderr"), files, strict=True))
        with forking.Popen(
            ["-m", "nse", *words], closed=closed, cwd=self.folder, env=environment, **settings
        ) as process:
            for file in filter(None, files):
                os.close(file)
            code = process.wait(60)
        printed = re.sub(r"[\d.]+ s\n$", "some s\n", (self.folder / "out").read_text())  # of `evaluate`
        return code, printed, (self.folder / "err").read_text()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    save_sentence_model(folder / "sentence")
    save_ranking_model(folder / "ranking")
    save_translator(folder / "translation")
    (folder / "rows.txt").write_text("good film\nbad\n" * 500)
    (folder / "FOLDER").mkdir()
    made = Program(folder)
    code, _, errors = made.run(["train", "logic/bow", "--out", "run", *SETS])
    assert code == 0, errors
    return made


@pytest.fixture(scope="module")
def usual(program):
    """What each command prints when all is well."""
    printed = {name: program.run(words) for name, words in COMMANDS.items()}
    assert all(code == 0 and out for code, out, _ in printed.values()), printed
    return {name: out for name, (_, out, _) in printed.items()}


def one_line(errors, message):
    """Whether this is the last thing that was said, and there was no traceback."""
    return errors.splitlines()[-1:] == [f"nse: {message}"] and "Traceback" not in errors


CLOSED = "standard output is closed: leave out >&-"
FULL = "standard output cannot be written: No space left on device"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_that_cannot_be_printed_is_an_error(name, program, usual):
    code, out, errors = program.run(COMMANDS[name], stdout=None)
    assert (code, out) == (2, "")
    assert one_line(errors, CLOSED), errors
    code, out, errors = program.run(COMMANDS[name], stdout="/dev/full")
    assert (code, out) == (2, "")
    assert one_line(errors, FULL), errors


@pytest.mark.parametrize("name", COMMANDS)
def test_the_answer_is_printed_with_standard_error_closed(name, program, usual):
    code, out, _ = program.run(COMMANDS[name], stderr=None)
    assert (code, out) == (0, usual[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_read_no_input_work_with_standard_input_closed(name, program, usual):
    code, out, errors = program.run(COMMANDS[name], stdin=None)
    assert (code, out) == (0, usual[name])
    assert "Traceback" not in errors


@pytest.mark.parametrize("name", COMMANDS)
def test_the_exit_code_reports_an_error_with_all_streams_closed(name, program, usual):
    assert program.run(COMMANDS[name], None, None, None) == (2, "", "")


@pytest.mark.parametrize("name", READING)
def test_a_closed_standard_input_is_an_error_where_it_is_read(name, program):
    code, out, errors = program.run(READING[name], stdin=None)
    assert (code, out) == (2, "")
    assert errors == "nse: standard input is closed; give texts or --file, or leave out <&-\n"


@pytest.mark.parametrize("ending", [".jsonl", ".tsv"])
def test_a_file_is_written_with_all_streams_closed(ending, program):
    """And nothing is mixed into the files that are then opened with the lowest numbers."""
    words = ["predict", "sentence", "--file", "rows.txt", "--out"]
    assert program.run([*words, f"usual{ending}"])[0] == 0
    assert program.run([*words, f"closed{ending}"], None, None, None) == (0, "", "")
    written, usual = (program.folder / f"{name}{ending}" for name in ("closed", "usual"))
    assert written.read_bytes() == usual.read_bytes()


def test_a_warning_with_standard_error_closed_is_not_written_into_files(program):
    (program.folder / "bad.txt").write_bytes(b"good\ncaf\xe9\nbad\n" * 300)
    words = ["predict", "sentence", "--file", "bad.txt", "--bad", "skip", "--out", "skipped.jsonl"]
    assert program.run(words, None, None, None) == (0, "", "")
    rows = [json.loads(line) for line in (program.folder / "skipped.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == ["good", "bad"] * 300
    assert (program.folder / "bad.txt").read_bytes() == b"good\ncaf\xe9\nbad\n" * 300


def test_training_ends_with_an_error_if_its_figures_cannot_be_printed(program):
    words = ["train", "logic/bow", *SETS, "--out"]
    code, out, errors = program.run([*words, "silent"], stdout=None)
    assert (code, out) == (2, "")
    assert one_line(errors, CLOSED), errors
    assert (program.folder / "silent" / "result.json").exists()
    code, out, _ = program.run([*words, "blind"], stdin=None, stderr=None)
    assert (code, out.count("\n")) == (0, 1)
    assert program.run([*words, "both"], None, None, None) == (2, "", "")
    for name in ("silent", "blind", "both"):
        whole = (program.folder / name / "model" / "model.safetensors").read_bytes()
        assert whole == (program.folder / "run" / "model" / "model.safetensors").read_bytes()


def test_an_error_is_printed_with_standard_output_closed(program):
    code, _, errors = program.run(["predict", "nowhere", "good"], stdout=None)
    assert code == 2
    assert errors.startswith("nse: nowhere: no such model")


REAL = {
    ">&-": (2, "", f"nse: {CLOSED}\n"),
    "<&- 2>&-": (0, f"nse {nse.__version__}\n", ""),
}


@pytest.mark.parametrize("closed", REAL)
def test_commands_started_by_a_shell_with_closed_streams_behave_the_same(closed):
    """The rest of this file imports once and forks; here Python itself finds the streams closed."""
    answer = subprocess.run(
        ["bash", "-c", f'"$0" -m nse --version {closed}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    code, out, errors = REAL[closed]
    assert (answer.returncode, answer.stderr) == (code, errors)
    assert answer.stdout == out


def test_calling_main_does_not_close_the_streams_of_the_program(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nse", "--version"])
    before = sys.stdout, sys.stderr
    with pytest.raises(SystemExit):
        cli.main()
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out.startswith("nse ")
