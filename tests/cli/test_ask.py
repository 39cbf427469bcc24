"""The commands that ask a model, over files: every format in and out, bad lines, interruptions, progress."""

import json
import lzma
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import forking
import nse
from faults.made_models import save_model
from nse.cli import ask
from nse.cli import main as cli
from nse.cli import rows as rows_module
from nse.errors import DataError, InputError, NSEError, RunError
from small_models import (
    SENTENCES,
    save_document_model,
    save_ranking_model,
    save_sentence_model,
    save_translator,
)

PAIRS = [("all dogs bark", "some dogs bark"), ("some dogs", "not zyx"), ("dogs", "dogs"), ("all", "do dance")]
GROUPS = {"who runs ?": ["the cat sleeps", "a dog runs", "runs"], "who sleeps ?": ["the cat", "a dog runs"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "pair")
    return {
        "pair": folder / "pair",
        "sentence": save_sentence_model(folder / "sentence"),
        "document": save_document_model(folder / "document"),
        "ranks": save_ranking_model(folder / "ranks", max_words=6),
        "translates": save_translator(folder / "translates", max_words=6),
    }


def call(*words, **settings):
    return CliRunner().invoke(cli.app, list(map(str, words)), **settings)


def done(*words, **settings):
    """What a command printed that did what it was asked."""
    answer = call(*words, **settings)
    assert answer.exit_code == 0, (answer.output, answer.exception)
    return answer


def refused(kind, *words, **settings):
    """What a command said that refused, and what it had printed before."""
    answer = call(*words, **settings)
    assert isinstance(answer.exception, kind), answer.output
    return str(answer.exception), answer.stdout


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def close(found, expected):
    """Whether answers are the same, but for rounding."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    return found == (pytest.approx(expected, abs=1e-5) if isinstance(expected, float) else expected)


def written_pairs(folder):
    """The same pairs in every format, the first row's number in each, and how to read it."""
    quoted = [f'"{a}","{b}"' for a, b in PAIRS]
    content = {
        "a.jsonl": "".join(json.dumps({"premise": a, "hypothesis": b, "x": 1}) + "\n" for a, b in PAIRS),
        "b.ndjson": "".join(json.dumps({"texts": [a, b]}) + "\n" for a, b in PAIRS),
        "c.tsv": "x\thypothesis\tpremise\n" + "".join(f"0\t{b}\t{a}\n" for a, b in PAIRS),
        "d.csv": "premise,hypothesis\r\n" + "\r\n".join(quoted),
        "e.txt": "".join(f"{a}\t{b}\n" for a, b in PAIRS),
    }
    for name, text in content.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "f.jsonl.xz").write_bytes(lzma.compress(content["a.jsonl"].encode()))
    firsts = {"c.tsv": 2, "d.csv": 2}
    return {folder / name: firsts.get(name, 1) for name in [*content, "f.jsonl.xz"]}


def test_predict_reads_every_input_format(models, tmp_path):
    expected = nse.load(models["pair"]).predict(PAIRS)
    for file, first in written_pairs(tmp_path).items():
        numbered = [row | {"number": n} for n, row in enumerate(expected, start=first)]
        printed = lines(done("predict", models["pair"], "--file", file, "--json").stdout)
        assert close(printed, numbered), file
        out = tmp_path / "out" / "answers.jsonl"
        answer = done("predict", models["pair"], "--file", file, "--out", out)
        assert (answer.stdout, answer.stderr) == ("", f"nse: {out}: 4 rows\n")
        assert lines(out.read_text()) == printed
        assert [each.name for each in out.parent.iterdir()] == [out.name]
        if not file.name.endswith(".xz"):
            form = {".ndjson": "jsonl", ".txt": "text"}.get(file.suffix, file.suffix[1:])
            given = ["predict", models["pair"], "--json", "--format", form]
            assert close(lines(done(*given, input=file.read_bytes()).stdout), numbered)


def test_predict_prints_lines_and_writes_tsv(models, tmp_path):
    file, table = tmp_path / "pairs.jsonl", tmp_path / "answers.tsv"
    file.write_text('{"premise": "all\\tdogs", "hypothesis": "bark", "id": "x7"}\n')
    (row,) = nse.load(models["pair"]).predict([("all\tdogs", "bark")])
    printed = done("predict", models["pair"], "--file", file).stdout
    assert printed.endswith("  all dogs | bark\n")
    assert printed.startswith(f"{row['label']} ")
    done("predict", models["pair"], "--file", file, "--out", table)
    header, fields = (line.split("\t") for line in table.read_text().splitlines())
    found = dict(zip(header, fields, strict=True))
    assert (found["number"], found["id"], found["label"]) == ("1", "x7", row["label"])
    assert (found["text.1"], found["text.2"]) == ("all dogs", "bark")
    for label, chance in row["probabilities"].items():
        assert float(found[f"probability.{label}"]) == pytest.approx(chance, abs=1e-6)


def test_answers_repeat_ids_and_line_numbers(models, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "good", "id": 5}\n\n{"text": "bad", "key": "k"}\n')
    rows = lines(done("predict", models["sentence"], "--file", file, "--json").stdout)
    assert [list(row)[:3] for row in rows] == [["number", "id", "text"], ["number", "text", "label"]]
    assert [(row["number"], row.get("id")) for row in rows] == [(1, 5), (3, None)]
    file.write_text("key,review\nk,good\n")
    words = ["--file", file, "--format", "csv", "--columns", "sentence=review", "--id", "key"]
    (row,) = lines(done("predict", models["sentence"], *words, "--json").stdout)
    assert (row["number"], row["id"], row["text"]) == (2, "k", "good")
    (row,) = lines(done("encode", models["sentence"], *words).stdout)
    assert (row["number"], row["id"], row["text"]) == (2, "k", "good")


@pytest.mark.parametrize("kind", ["sentence", "document", "pair", "translates"])
def test_encode_writes_the_same_vectors_as_python(kind, models, tmp_path):
    texts = [*SENTENCES[:4], "a good film. the dog runs."]
    expected = nse.load(models[kind]).encode(texts)
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts), "utf-8")
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        done("encode", models[kind], "--file", file, "--out", tmp_path / name)
    vectors = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, expected, atol=1e-6)
    printed = lines(done("encode", models[kind], *texts).stdout)
    assert [row["text"] for row in printed] == texts
    assert np.allclose([row["vector"] for row in printed], expected, atol=1e-6)
    rows = lines((tmp_path / "v.jsonl").read_text())
    assert [list(row) for row in rows] == [["number", "text", "vector", "words", "cut", "unknown"]] * 5
    assert np.array_equal(np.float32([row["vector"] for row in rows]), vectors)
    table = parquet.read_table(tmp_path / "v.parquet").to_pydict()
    assert np.array_equal(np.float32(table["vector"]), vectors)
    for column in ("number", "text", "words", "cut", "unknown"):
        assert table[column] == [row[column] for row in rows] == [row[column] for row in printed]


def test_default_column_names_are_found(models, tmp_path):
    for kind, column in [
        ("sentence", "sentence"),
        ("document", "document"),
        ("pair", "text"),
        ("translates", "source"),
    ]:
        file = tmp_path / f"{kind}.tsv"
        file.write_text(f"{column}\ty\na dog\tb\n")
        (row,) = lines(done("encode", models[kind], "--file", file).stdout)
        assert (row["number"], row["text"]) == (2, "a dog")
        file.write_text(f"{column}x\ty\na dog\tb\n")
        report, _ = refused(DataError, "encode", models[kind], "--file", file)
        assert (
            f"{file}: line 1: there is no column {column!r} in the header (there are {column}x, y)" in report
        )


def test_rank_reads_questions_from_a_file(models, tmp_path):
    model, expected = nse.load(models["ranks"]), []
    for question, candidates in GROUPS.items():
        expected += [row | {"question": question} for row in model.rank(question, candidates)]
    flat = [(question, each) for question, some in GROUPS.items() for each in some]
    table = tmp_path / "rows.tsv"
    table.write_text("answer\tquestion\tid\n" + "".join(f"{a}\t{q}\t{n}\n" for n, (q, a) in enumerate(flat)))
    listed = tmp_path / "lists.jsonl"
    listed.write_text(
        "".join(json.dumps({"question": q, "candidates": c, "id": q[4]}) + "\n" for q, c in GROUPS.items())
    )
    numbers = {each: n for n, each in enumerate(flat)}
    rows = lines(done("rank", models["ranks"], "--file", table, "--json").stdout)
    for row in rows:
        assert row.pop("id") == str(numbers[row["question"], row["text"]])
        assert row["number"] == 2 + numbers[row["question"], row["text"]]
    without = [row | {"number": 0} for row in expected]
    assert close([row | {"number": 0} for row in rows], without)
    rows = lines(done("rank", models["ranks"], listed, "--json").stdout)
    for row in rows:
        assert (row.pop("id"), row["number"]) == (row["question"][4], 1 + (row["question"] != "who runs ?"))
        assert GROUPS[row["question"]][row.pop("candidate") - 1] == row["text"]
    assert close([row | {"number": 0} for row in rows], without)
    out = tmp_path / "best.tsv"
    done("rank", models["ranks"], "--file", table, "--top", 1, "--out", out)
    header, *rest = (line.split("\t") for line in out.read_text().splitlines())
    assert header[:5] == ["number", "id", "question", "rank", "score"]
    assert [row[2:4] for row in rest] == [[question, "1"] for question in GROUPS]
    printed = done("rank", models["ranks"], "--file", table).stdout.splitlines()
    assert [line for line in printed if line in GROUPS] == list(GROUPS)
    assert sum(line.split() == ["rank", "score", "line", "sentence"] for line in printed) == 2
    assert len(printed) == 2 * 2 + len(flat)


def test_rank_takes_candidates_as_arguments_or_from_a_column(models, tmp_path):
    candidates = GROUPS["who runs ?"]
    expected = nse.load(models["ranks"]).rank("who runs ?", candidates)
    words = ["rank", models["ranks"], "--question", "who runs ?", "--json"]
    assert close(lines(done(*words, *candidates).stdout), expected)
    file = tmp_path / "candidates.csv"
    file.write_text("answer,question\n" + "".join(f"{each},no\n" for each in candidates))
    rows = lines(done(*words, "--file", file).stdout)
    assert close([row | {"number": row["number"] - 1} for row in rows], expected)
    report, _ = refused(InputError, "rank", models["ranks"], "a dog", "a cat")
    assert "candidates need a --question" in report


def test_equal_questions_apart_are_ranked_separately(models, tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text("who ?\ta dog\nwho ?\ta cat\nwhat ?\truns\nwho ?\tthe cat\n")
    rows = lines(done("rank", models["ranks"], file, "--json").stdout)
    assert [row["rank"] for row in rows] == [1, 2, 1, 1]
    assert {row["number"] for row in rows[:2]} == {1, 2}


def test_translate_reads_and_writes_files(models, tmp_path):
    texts = ["A dog runs.", "", "the cat, the dog", "Zyx qwv!"]
    expected = nse.load(models["translates"]).translate(texts)
    plain, table = tmp_path / "english.txt", tmp_path / "english.tsv"
    plain.write_text("\n".join(texts) + "\n")
    table.write_text("id\tsource\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(texts)))
    outs = [tmp_path / "german.txt", tmp_path / "german.jsonl", tmp_path / "german.tsv"]
    for out in outs:
        done("translate", models["translates"], "--file", plain, "--out", out)
    assert outs[0].read_text("utf-8") == "".join(f"{row['translation']}\n" for row in expected)
    assert lines(outs[1].read_text()) == expected
    header, *rest = (line.split("\t") for line in outs[2].read_text("utf-8").splitlines())
    rows = [dict(zip(header, row, strict=True)) for row in rest]
    assert [row["translation"] for row in rows] == [row["translation"] for row in expected]
    assert [row["words"] for row in rows] == [" ".join(row["words"]) for row in expected]
    rows = lines(done("translate", models["translates"], "--file", table, "--json").stdout)
    assert [(row["number"], row["id"]) for row in rows] == [(n + 2, str(n)) for n in range(4)]
    assert [row["translation"] for row in rows] == [row["translation"] for row in expected]


@pytest.mark.parametrize("command", ["predict", "encode"])
def test_a_bad_line_stops_the_run_after_the_answers_before_it(command, models, tmp_path):
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    file.write_bytes(b'{"text": "good"}\n{"text": "bad"}\n{"text": "a\n{"text": "good"}\n')
    words = [command, models["sentence"], "--file", file]
    report, printed = refused(DataError, *words, "--json")
    assert report.startswith(f"{file}: line 3: is not JSON: Unterminated string")
    assert [row["number"] for row in lines(printed)] == [1, 2]
    out.write_text("old")
    report, printed = refused(DataError, *words, "--out", out)
    assert (out.read_text(), printed) == ("old", "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.jsonl", "rows.jsonl"]


@pytest.mark.parametrize("command", ["predict", "encode"])
def test_bad_lines_are_reported_and_skipped_on_request(command, models, tmp_path):
    texts = ["good", "", "bad\\ud800", "a " * 2_000, "bad", "\\u200b"]
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts) + "[]\n" + '{"text": "film"}\n')
    words = [command, models["sentence"], "--file", file, "--bad", "skip"]
    answer = done(*words, "--strict", "--json")
    assert [row["number"] for row in lines(answer.stdout)] == [1, 5, 6, 8]
    report = answer.stderr.splitlines()
    assert [line.split(": ")[2] for line in report[:-1]] == ["line 2", "line 3", "line 4", "line 7"]
    assert all(line.startswith(f"nse: {file}: line ") and line.endswith("; skipped") for line in report[:-1])
    assert "sentence 2 is empty" in report[0]
    assert "half of a surrogate pair" in report[1]
    assert "sentence 4 has 2,000 words and the model reads 1,000" in report[2]
    assert report[-1] == f"nse: {file}: 4 lines skipped"
    answer = done(*words, "--out", out)
    assert answer.stderr.splitlines()[-1] == (f"nse: {out}: 5 rows; 1 text truncated; 3 lines skipped")
    assert [(row["number"], row["cut"]) for row in lines(out.read_text())] == [
        (1, 0),
        (4, 1_000),
        (5, 0),
        (6, 0),
        (8, 0),
    ]


def test_skipped_lines_have_no_vector(models, tmp_path):
    file, out = tmp_path / "rows.txt", tmp_path / "out.npy"
    file.write_bytes(b"good\ncaf\xe9\n\nbad\n")
    answer = done("encode", models["sentence"], "--file", file, "--bad", "skip", "--out", out)
    assert np.allclose(np.load(out), nse.load(models["sentence"]).encode(["good", "bad"]), atol=1e-6)
    assert answer.stderr.splitlines()[-1].endswith("2 rows; 1 line skipped, without a row")


def test_bad_candidates_and_questions_are_reported(models, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"question": "who", "candidates": ["a dog", " ", "the cat"]}\n'
        '{"question": " ", "candidates": ["a dog", "a cat"]}\n'
        '{"question": "what", "answer": "runs"}\n'
    )
    answer = done("rank", models["ranks"], "--file", file, "--bad", "skip", "--json")
    rows = lines(answer.stdout)
    assert [(row["number"], row["question"]) for row in rows] == [(1, "who"), (1, "who"), (3, "what")]
    assert {row["candidate"] for row in rows[:2]} == {1, 3}
    assert [row["rank"] for row in rows] == [1, 2, 1]
    first, second, last = answer.stderr.splitlines()
    assert first.startswith(f"nse: {file}: line 1: candidate 2 is empty")
    assert second.startswith(f"nse: {file}: line 2: question is empty")
    assert last.endswith("2 lines skipped")
    report, printed = refused(DataError, "rank", models["ranks"], "--file", file, "--json")
    assert (report.split(": ")[1], printed) == ("line 1", "")


def test_an_incomplete_question_is_not_ranked(models, tmp_path):
    file = tmp_path / "rows.tsv"
    file.write_text("question\tanswer\nwho\ta dog\nwho\ta cat\nwhat\truns\nwhat\n")
    report, printed = refused(DataError, "rank", models["ranks"], "--file", file, "--json")
    assert report == f"{file}: line 5: expected 2 fields, as in the header, got 1"
    assert {row["question"] for row in lines(printed)} == {"who"}


def test_translate_skips_bad_lines_or_stops(models, tmp_path):
    file, out = tmp_path / "english.txt", tmp_path / "german.txt"
    file.write_bytes(b"a dog\ncaf\xe9\n\nthe cat\n")
    report, printed = refused(DataError, "translate", models["translates"], "--file", file)
    assert report == f"{file}: line 2: is not UTF-8"
    assert printed.count("\n") == 1
    answer = done("translate", models["translates"], "--file", file, "--bad", "skip", "--out", out)
    assert answer.stderr.splitlines()[-1] == f"nse: {out}: 3 rows; 1 line skipped"
    assert out.read_text("utf-8").count("\n") == 3


def test_typed_texts_are_answered_all_or_not_at_all(models):
    report, printed = refused(InputError, "predict", models["sentence"], "good", " ")
    assert (report, printed) == ("sentence 2 is empty: give it at least one word", "")
    answer = done("predict", models["sentence"], "good", " ", "--bad", "skip", "--json")
    assert [row["number"] for row in lines(answer.stdout)] == [1]
    assert answer.stderr.splitlines()[-1] == "nse: predict: 1 line skipped"


@pytest.mark.parametrize("content", ["", "\n \n", None])
def test_an_empty_input_is_an_error_and_writes_nothing(content, models, tmp_path):
    file, out = tmp_path / "rows.txt", tmp_path / "out.npy"
    file.write_bytes(b"caf\xe9\n" if content is None else content.encode())
    words = ["encode", models["sentence"], "--file", file, "--bad", "skip", "--out", out]
    report, _ = refused(DataError, *words)
    assert report == (
        f"{file}: every line was skipped"
        if content is None
        else f"{file}: there are no sentences in it; write one on each line"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["rows.txt"]


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["predict", "{m}", "a", "--file", "{f}"], InputError, "either texts, or --file, not both"),
        (
            ["encode", "{m}", "a", "--format", "tsv"],
            InputError,
            "--format: only for a file or standard input",
        ),
        (
            ["encode", "{m}", "a", "--id", "x", "--columns", "y"],
            InputError,
            "--columns, --id: only for a file",
        ),
        (
            ["predict", "{m}", "a", "--json", "--out", "b.tsv"],
            InputError,
            "give either --json or --out, not both",
        ),
        (["predict", "{m}", "a", "--out", "b.npy"], InputError, "with the suffix .jsonl, .tsv, got b.npy"),
        (["encode", "{m}", "a", "--out", "b.txt"], InputError, "with the suffix .npy, .parquet, .jsonl, got"),
        (["encode", "{m}", "a", "--out", "{f}/b.npy"], RunError, "b.npy cannot be written: "),
        (["predict", "nobody", "--file", "nowhere"], DataError, "nowhere: cannot be read: No such file"),
        (["predict", "nobody", "a", "--out", "{f}/b.tsv"], RunError, "b.tsv cannot be written: "),
        (
            ["encode", "{m}", "--file", "{f}", "--columns", "x=y"],
            InputError,
            "expected one of sentence, text",
        ),
        (["encode", "{m}", "--file", "{f}", "--id", "x"], InputError, "plain text has no columns"),
        (["encode", "{m}", "a", "--workers", "2"], InputError, "--workers: only with --ray"),
        (["encode", "{m}", "a", "--ray", "local"], InputError, "--ray: needs a --file"),
        (["encode", "{m}", "--ray", "local"], InputError, "--ray: needs a --file"),
    ],
)
def test_contradicting_options_are_refused_before_loading_a_model(
    words, kind, message, models, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rows.txt"
    file.write_text("good\n")
    report, printed = refused(kind, *(word.format(m=models["sentence"], f=file) for word in words))
    assert message in report
    assert printed == ""
    assert [each.name for each in tmp_path.iterdir()] == ["rows.txt"]


def test_a_broken_model_writes_no_file(tmp_path):
    refused(NSEError, "encode", "nobody", "a", "--out", tmp_path / "a.npy")
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_file(models, tmp_path, monkeypatch):
    """The model is left out of it: what is measured is reading, answering and writing."""

    def answered(loaded, verb, batch, rows, strict):
        return [{"number": row.number, "text": row.texts[0], "cut": 0, "score": [0.5] * 20} for row in rows]

    monkeypatch.setattr(ask, "answer_rows", answered)
    file, out, peaks = tmp_path / "rows.txt", tmp_path / "out.jsonl", []
    words = ["predict", models["sentence"], "--file", file, "--out", out]
    for count in (5_000, 15_000):
        file.write_text("".join(f"a dog runs for the {n}th time\n" for n in range(count)))
        tracemalloc.start()
        done(*words)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert out.read_bytes().count(b"\n") == count
    assert peaks[1] < 1.2 * peaks[0]


def test_the_chunk_size_changes_only_the_last_digits(models, tmp_path, monkeypatch):
    file = tmp_path / "rows.txt"
    file.write_text("\n".join(SENTENCES * 3), "utf-8")
    words = ["predict", models["sentence"], "--file", file, "--json"]
    rows = lines(done(*words).stdout)
    monkeypatch.setattr(rows_module, "MAX_CHUNK_CHARACTERS", 40)
    assert close(lines(done(*words, "--batch", 2).stdout), rows)
    assert close(lines(done(*words[:2], "--json", "--batch", 4, input=file.read_bytes()).stdout), rows)


def on_a_terminal(monkeypatch, *words):
    """What a command shows on standard error where that is a terminal."""
    reading, writing = os.openpty()
    shown = []

    def drain():
        with suppress(OSError):  # which is how a terminal ends
            while some := os.read(reading, 10_000):
                shown.append(some)

    reader = threading.Thread(target=drain)
    reader.start()
    monkeypatch.setattr(sys, "argv", ["nse", *map(str, words)])
    with os.fdopen(writing, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    reader.join(30)
    os.close(reading)
    assert not ended.value.code
    return b"".join(shown).decode()


def test_progress_is_shown_only_on_a_terminal(models, tmp_path, monkeypatch):
    file, out = tmp_path / "rows.txt", tmp_path / "out.jsonl"
    file.write_bytes(b"good\n" * 100 + b"caf\xe9\n")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    words = ["predict", models["sentence"], "--file", file, "--bad", "skip", "--out", out]
    shown = on_a_terminal(monkeypatch, *words)
    assert "101 rows" in shown
    assert "\x1b[" in shown
    assert f"nse: {file}: line 101: is not UTF-8; skipped\r\n" in shown
    assert shown.endswith(f"nse: {out}: 100 rows; 1 line skipped\r\n")
    assert "\x1b[" not in done(*words).stderr


def started(*words, **settings):
    return forking.Popen(
        ["-m", "nse", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **settings,
    )


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", 130), ("SIGHUP", 129), ("SIGTERM", 143), ("SIGKILL", -9)]
)
def test_an_interrupted_command_leaves_the_old_file(name, code, models, tmp_path):
    """By a real process that has written some thousand answers and waits for more."""
    out = tmp_path / "out.jsonl"
    out.write_text("old")

    def part_size():
        return sum(part.stat().st_size for part in tmp_path.glob(".out.jsonl.*.part"))

    with started("predict", models["sentence"], "--out", out) as process:
        process.stdin.write(b"good\n" * 3_000)
        process.stdin.flush()
        until = time.monotonic() + 60
        while part_size() <= 10_000 and time.monotonic() < until:
            time.sleep(0.05)
        assert part_size() > 10_000
        process.send_signal(getattr(signal, name))
        _, error = process.communicate(timeout=60)
    assert process.returncode == code, error
    assert b"Traceback" not in error
    assert out.read_text() == "old"
    assert (part_size() > 0) == (name == "SIGKILL")
    if name == "SIGKILL":
        done("predict", models["sentence"], "good", "--out", out)
        assert [row["text"] for row in lines(out.read_text())] == ["good"]
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_commands_do_not_import_unused_heavy_libraries():
    check = "import sys, nse.cli.ask, nse.cli.ray; "
    check += "print([m for m in ('pyarrow', 'ray', 'rich.progress', 'lightning') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "sentence", "a good film"),
        ("rank", "ranks", "a dog runs", "the cat", "--question", "who runs ?"),
        ("translate", "translates", "a dog runs"),
        ("encode", "sentence", "a good film"),
    ],
    ids=lambda words: words[0],
)
def test_the_precision_is_that_of_the_option(words, models, monkeypatch):
    used, load = [], nse.load

    def note(*arguments, precision):
        used.append(precision)
        return load(*arguments, precision=precision)

    monkeypatch.setattr(nse, "load", note)
    command, model, *rest = words
    printed = [done(command, models[model], *rest, "--precision", "bfloat16").stdout]
    printed.append(done(command, models[model], *rest).stdout)
    assert all(printed)
    assert used == ["bfloat16", "float32"]
    assert "'float32', 'bfloat16'" in call(command, models[model], *rest, "--precision", "half").output
