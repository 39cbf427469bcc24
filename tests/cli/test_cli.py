"""The command line as a person meets it."""

import json
import sys

import pytest
from typer.testing import CliRunner

import forking
import nse
from faults.made_models import save_model
from nse.cli import main as cli
from nse.cli import train
from nse.cli.bench import ROUNDS
from nse.errors import BackendError
from nse.ops.cpu.library import explain_no_kernel, load_kernel
from nse.ops.dispatch import BACKENDS
from nse.viz.trace import MemoryTrace
from small_models import save_document_model, save_ranking_model, save_sentence_model

TINY = ["data.train=60", "data.dev=30", "data.test=30", "data.unseen=30", "model.size=8", "train.epochs=1"]
SETS = [word for assignment in TINY for word in ("--set", assignment)]


def call(*words, **settings):
    return CliRunner().invoke(cli.app, words, **settings)


def answers(*words, **settings):
    """The answers of a command that prints an object a line."""
    answer = call(*words, **settings)
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


def refused(monkeypatch, capsys, *words):
    """What the command said, if it refused as it should: exit 2, a line, nothing printed."""
    monkeypatch.setattr(sys, "argv", ["nse", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    told = capsys.readouterr()
    assert (stopped.value.code, told.out) == (2, "")
    assert told.err.startswith("nse: ")
    assert told.err.count("\n") == 1
    return told.err


def shell(*words, cwd):
    return forking.run(["-m", "nse", *words], cwd=cwd)


def test_help_names_every_command():
    answer = call("--help")
    assert answer.exit_code == 0
    names = ("demo", "recipes", "data", "train", "evaluate", "predict", "rank", "translate", "table", "bench")
    names += ("explore", "serve", "encode", "export")
    assert all(name in answer.stdout for name in names)
    for name in names:
        assert call(name, "--help").exit_code == 0
    assert call("--version").stdout.strip() == f"nse {nse.__version__}"


def test_recipes_are_listed():
    assert "logic/nse" in call("recipes").stdout
    rows = json.loads(call("recipes", "--json").stdout)
    names = [row["recipe"] for row in rows]
    assert names == sorted(names)
    assert {"logic/bow", "logic/nse", "snli/nse", "snli/mma-attention", "snli/best"} <= set(names)
    assert all(row["about"] for row in rows)


def test_train_prints_the_figures_and_makes_the_folder(tmp_path):
    answer = call("train", "logic/bow", "--out", str(tmp_path / "run"), *SETS)
    assert answer.exit_code == 0, answer.output
    assert "test " in answer.stdout
    assert str(tmp_path / "run") in answer.stdout.replace("\n", "")
    answer = call("train", "logic/lstm", "--out", str(tmp_path / "other"), "--json", *SETS)
    assert json.loads(answer.stdout) == json.loads((tmp_path / "other" / "result.json").read_text())


def test_train_without_out_writes_to_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("train", "logic/bow", *SETS).exit_code == 0
    assert (tmp_path / "runs" / "logic-bow" / "result.json").exists()


def test_demo_shows_a_table_and_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = call("demo", "--quick", "--seed", "3")
    assert answer.exit_code == 0, answer.output
    for word in ("NSE", "LSTM", "bag of words", "unseen", "composed with", "dance"):
        assert word in answer.stdout
    rows = json.loads(CliRunner().invoke(cli.app, ["demo", "--quick", "--json"]).stdout)
    assert [row["model"] for row in rows] == ["nse", "lstm", "bow"]
    for row in rows:
        assert {"model", "accuracy", "accuracy_unseen", "parameters", "seconds"} <= set(row)
        assert 0 <= row["accuracy"] <= 1


def test_bench_writes_what_it_prints(tmp_path, monkeypatch):
    file = tmp_path / "new" / "bench.json"
    answer = call("bench", "--device", "cpu", "--quick", "--threads", "1", "--out", str(file), "--json")
    assert answer.exit_code == 0, answer.output
    report = json.loads(file.read_text())
    assert json.loads(answer.stdout) == report
    for row in report["rows"]:
        assert {"name", "backend", "B", "T", "k", "dtype", "mode", "ms", "over_lstm"} <= set(row)
        assert row["ms"] > 0
        assert row["over_lstm"] == 1 or row["backend"] != "lstm"
    compiled = {"cpu"} if explain_no_kernel() is None else set()
    assert {row["backend"] for row in report["rows"]} == {"reference", "torch", "lstm"} | compiled
    assert {row["mode"] for row in report["rows"]} == {"forward", "train"}
    assert {row["rounds"] for row in report["rows"]} == {ROUNDS}
    rows = report["rows"]  # as a table, without measuring again
    monkeypatch.setattr("nse.cli.bench.measure_shape", lambda *shape: rows)
    assert report["machine"]["kernel"] == (explain_no_kernel() or load_kernel().isa)
    monkeypatch.setenv("NSE_CPU_ISA", "none")
    table = call("bench", "--device", "cpu", "--quick", "--threads", "1").stdout
    assert "torch" in table
    assert "CPU kernel: NSE_CPU_ISA=none turns it off" in " ".join(table.split())


@pytest.mark.parametrize(("factor", "error"), [(1.01, "1.0e-02"), (float("nan"), "nan")])
def test_bench_refuses_a_backend_with_wrong_results(monkeypatch, factor, error):
    honest = BACKENDS["torch"]
    monkeypatch.setitem(
        BACKENDS, "torch", lambda *a: honest(*a)._replace(outputs=honest(*a).outputs * factor)
    )
    answer = call("bench", "--device", "cpu", "--quick", "--threads", "1")
    assert isinstance(answer.exception, BackendError)
    assert f"reference and torch differ by {error}" in str(answer.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "logic/nes"], "logic/nes: no such recipe; did you mean logic/nse?"),
        (["train", "zzz"], "zzz: no such recipe; there are aclimdb/lstm-lstm, aclimdb/nse-lstm, "),
        (["train", "missing.toml"], "missing.toml: cannot be read: No such file"),
        (["train", "broken.toml"], "broken.toml: not valid TOML"),
        (
            ["train", "other.toml"],
            "task: expected one of pair, ranking, sentence, document, translation, got 'chess'",
        ),
        (
            ["train", "logic/nse", "--set", "model.sise=3"],
            "model.sise: no such key; did you mean model.size?",
        ),
        (["train", "logic/nse", "--set", "train.lr=nan"], "train.lr"),
        (["train", "logic/nse", "--set", "train.epochs=0"], "must be at least 1, got 0"),
        (["train", "logic/nse", "--set", "train.lr=-1.0"], "lr and clip_norm must be above 0"),
        (["train", "logic/nse", "--set", "data.train=0"], "data.train and data.dev must be at least 1"),
        (["train", "logic/nse", "--out", "."], "is not empty: choose another folder"),
        (["train", "snli/nse"], "there is no data folder data: name yours in NSE_DATA; or with --data"),
        (["evaluate", "nobody"], "nobody: no such model"),
        (["predict", "nobody", "good"], "nobody: no such model"),
        (["rank", "nobody", "--question", "who"], "nobody: no such model"),
        (["translate", "nobody", "a dog"], "nobody: no such model"),
        (["evaluate", "snli", "--on", "iwslt14"], "on: snli gives a pair of sentences a label (ent"),
        (["evaluate", "snli", "--beam", "4"], "; only a translator takes it"),
        (["evaluate", "--scores", ".", "--on", "iwslt14"], "--on cannot be used with --scores"),
        (["table", "snli"], "there is no folder docs/results/snli"),
        (["bench", "--quick", "--out", "."], ". cannot be written"),
        (["bench", "--quick", "--out", "broken.toml/x.json"], "broken.toml/x.json cannot be written: "),
    ],
)
def test_mistakes_print_one_line_and_exit_with_2(words, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.toml").write_text("a = = 3")
    (tmp_path / "other.toml").write_text('task = "chess"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nse", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


def test_all_mistakes_of_a_recipe_are_listed(tmp_path):
    answer = shell("train", "logic/nse", "--set", "model.sise=3", "--set", "train.lr=fast", cwd=tmp_path)
    assert answer.returncode == 2
    assert "model.sise" in answer.stderr
    assert "train.lr" in answer.stderr


def test_an_unavailable_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("NSE_BACKEND", "warp")
    answer = shell("demo", "--quick", cwd=tmp_path)
    assert answer.returncode == 2
    assert "NSE_BACKEND='warp' cannot run here" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_ctrl_c_prints_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert "interrupted" in capsys.readouterr().err


def test_bench_on_cuda_without_a_gpu_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["nse", "bench", "--device", "cuda", "--quick"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "no CUDA device here; type `nse bench --device cpu`" in error
    assert "Traceback" not in error


@pytest.fixture
def models(tmp_path):
    """A model of each kind: of sentences, of pairs, and one that ranks."""
    save_model(tmp_path / "pair")
    return {
        "sentence": str(save_sentence_model(tmp_path / "sentence")),
        "pair": str(tmp_path / "pair"),
        "ranks": str(save_ranking_model(tmp_path / "ranks", max_words=6)),
    }


def test_predict_labels_sentences(models):
    answer = call("predict", models["sentence"], "a good film", "bad zyx", "--device", "cpu")
    assert answer.exit_code == 0, answer.output
    first, second = answer.stdout.splitlines()
    rows = answers("predict", models["sentence"], "a good film", "bad zyx", "--json")
    assert [(row["number"], row["text"]) for row in rows] == [(1, "a good film"), (2, "bad zyx")]
    assert first.startswith(f"{rows[0]['label']} {100 * rows[0]['probabilities'][rows[0]['label']]:.1f}% (")
    assert first.endswith("  a good film")
    assert second.endswith("  bad zyx  [1 of 2 words unknown]")


def test_predict_reads_standard_input(models):
    text = "\ufeffa good film\r\n\n  bad\n".encode()
    rows = answers("predict", models["sentence"], "--json", input=text)
    assert [(row["number"], row["text"]) for row in rows] == [(1, "a good film"), (3, "bad")]


def test_predict_labels_a_pair(models):
    answer = call("predict", models["pair"], "all dogs", "some dogs")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.endswith("  all dogs | some dogs\n")
    assert "neutral" in answer.stdout
    (row,) = answers("predict", models["pair"], "all dogs", "some dogs", "--json")
    assert row["texts"] == ["all dogs", "some dogs"]


def test_predict_labels_documents(tmp_path):
    model = str(save_document_model(tmp_path / "mine"))
    text = b"A good film. The dog runs.\n\nbad\n"
    rows = answers("predict", model, "--json", input=text)
    assert [(row["number"], row["sentences"], row["words"]) for row in rows] == [(1, 2, 8), (3, 1, 1)]
    assert call("predict", model, "A good film. Bad").stdout.endswith("%)  A good film. Bad\n")
    answer = call("predict", model, input=b"\n")
    assert "standard input: there are no documents in it" in str(answer.exception)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            {
                "task": "documents",
                "accuracy": {"train": 0.9, "dev": 0.5, "test": 0.666},
                "mse": {"dev": 2, "test": 0.48},
            },
            "dev 50.0% MSE 2.000, test 66.6% MSE 0.480",
        ),
        (
            {"task": "translation", "accuracy": {"train": 0.9}, "bleu": {"dev": 0.1, "test": 0.17934}},
            "dev BLEU 10.00, test BLEU 17.93",
        ),
        ({"task": "snli", "accuracy": {"train": 0.9, "dev": 0.5, "test": 0.25}}, "dev 50.0%, test 25.0%"),
    ],
)
def test_the_figures_of_a_run_are_one_line(result, line):
    assert train.describe_figures(result) == line


def test_predict_uses_a_shipped_model():
    (row,) = answers("predict", "snli", "Two dogs play.", "The animals sleep.", "--device", "cpu", "--json")
    assert row["label"] == "contradiction"
    rows = answers("predict", "sentiment", "I was never bored.", "A bad film.", "--json")
    assert [row["label"] for row in rows] == ["positive", "negative"]


def test_predict_reports_wrong_texts(models, monkeypatch, capsys):
    def told(*words):
        return refused(monkeypatch, capsys, "predict", *words)

    for texts in (["dogs"], ["dogs", "dogs", "dogs"]):
        error = told(models["pair"], *texts)
        assert f"expected 2 texts, premise and hypothesis, each in quotes, got {len(texts)}" in error
    assert "sentence 2 is empty" in told(models["sentence"], "good", " ")
    assert "hypothesis 1 is empty" in told(models["pair"], "dogs", "")
    assert "use rank" in told(models["ranks"], "good")
    assert "sentence 1 has 2,000 words" in told(models["sentence"], "good " * 2_000, "--strict")
    assert "half of a surrogate pair" in told(models["sentence"], "caf\udce9")


def test_predict_reports_truncated_words(models):
    answer = call("predict", models["sentence"], "good " * 2_000)
    assert "...  [1,000 words truncated]" in answer.stdout


def test_rank_reads_the_lines_of_a_file(models, tmp_path):
    file = tmp_path / "candidates.txt"
    file.write_bytes("the cat sleeps\n\n \na dog runs\r\nCaf\u00e9\n".encode())
    words = ["rank", models["ranks"], "--question", "who runs ?"]
    answer = call(*words, str(file), "--device", "cpu")
    assert answer.exit_code == 0, answer.output
    heading, *lines = answer.stdout.splitlines()
    assert heading.split() == ["rank", "score", "line", "sentence"]
    rows = answers(*words, str(file), "--json")
    assert {row["number"]: row["text"] for row in rows} == {
        1: "the cat sleeps",
        4: "a dog runs",
        5: "Caf\u00e9",
    }
    assert [line.split()[2] for line in lines] == [str(row["number"]) for row in rows]
    assert [float(line.split()[1]) for line in lines] == pytest.approx(
        [row["score"] for row in rows], abs=1e-4
    )
    content = file.read_bytes()
    for source in ([], ["-"], ["--file", "-"], ["--file", str(file)]):
        assert answers(*words, *source, "--json", input=content) == rows
    assert answers(*words, str(file), "--json", "--top", "2") == rows[:2]


def test_rank_reports_wrong_input(models, tmp_path, monkeypatch, capsys):
    def told(*words):
        return refused(monkeypatch, capsys, "rank", *words)

    file, asked = tmp_path / "candidates.txt", ["--question", "who"]
    file.write_text("\n \n")
    assert f"{file}: there are no candidates in it" in told(models["ranks"], *asked, str(file))
    file.write_bytes(b"good\ncaf\xe9\n")
    assert f"{file}: line 2: is not UTF-8" in told(models["ranks"], *asked, str(file))
    assert "nowhere: cannot be read: No such file" in told(models["ranks"], *asked, str(tmp_path / "nowhere"))
    assert "cannot be read: Is a directory" in told(models["ranks"], *asked, str(tmp_path))
    file.write_text("\na dog runs and runs and runs\n")
    assert "candidate 2 has 7 words and the model reads 6" in told(
        models["ranks"], *asked, str(file), "--strict"
    )
    assert "question is empty" in told(models["ranks"], "--question", " ", str(file))
    assert "use predict" in told(models["sentence"], *asked, str(file))
    assert "use predict" in told("snli", *asked, str(file))


def test_rank_needs_a_question_for_candidates_and_a_top_above_0(models, monkeypatch, capsys):
    told = refused(monkeypatch, capsys, "rank", models["ranks"], "a dog runs", "the cat sleeps")
    assert "candidates need a --question" in told
    assert call("rank", models["ranks"], "--question", "who", "--top", "0").exit_code == 2


def test_explore_prints_the_compositions(tmp_path):
    answer = call("explore", str(save_sentence_model(tmp_path / "mine")), "a good film")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("mine: ")
    assert "composed with" in answer.stdout
    assert "t=1" not in answer.stdout
    assert "t=1" in call("explore", str(tmp_path / "mine"), "a good film", "--steps").stdout


def test_explore_writes_only_the_requested_files(tmp_path):
    model = str(save_sentence_model(tmp_path / "mine"))
    files = {
        name: tmp_path / "new" / f"it.{name}" for name in ("svg", "heat", "dot", "html", "latex", "json")
    }
    options = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    answer = call("explore", model, "a good film", *options)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.split() == [str(file) for file in files.values()]
    assert {file.name for file in (tmp_path / "new").iterdir()} == {file.name for file in files.values()}
    starts = {
        "svg": "<svg",
        "heat": "<svg",
        "dot": "digraph",
        "html": "<!doctype html>",
        "latex": "\\document",
    }
    assert all(files[name].read_text("utf-8").startswith(start) for name, start in starts.items())
    text = files["json"].read_text("utf-8")
    assert MemoryTrace.from_json(text).to_json() == text
    answer = call(
        "explore", model, "a good film", "--json", "-", "--steps", "--svg", str(tmp_path / "it.svg")
    )
    assert json.loads(answer.stdout) == json.loads(text)  # and nothing else
    assert "it.svg" in answer.stderr
    assert "t=1" in answer.stderr


def test_a_failed_explore_writes_nothing(tmp_path, monkeypatch, capsys):
    model, file = str(save_sentence_model(tmp_path / "mine")), tmp_path / "it.svg"
    file.write_text("old", "utf-8")
    assert "expected 1, sentence, got 2" in refused(
        monkeypatch, capsys, "explore", model, "a", "b", "--svg", str(file)
    )
    assert file.read_text("utf-8") == "old"
    twice = ("--svg", str(file), "--html", str(file))
    assert "is named twice" in refused(monkeypatch, capsys, "explore", model, "a", *twice)
    assert "cannot be written" in refused(monkeypatch, capsys, "explore", model, "a", "--svg", str(tmp_path))
    assert file.read_text("utf-8") == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["it.svg", "mine"]


def test_the_demo_writes_a_page(tmp_path):
    answer = shell("demo", "--quick", "--page", "new/it.html", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip().endswith("new/it.html")
    text = (tmp_path / "new" / "it.html").read_text("utf-8")
    assert "nse-trace" in text
    assert "not all dogs that bark do not dance" in text
    assert "cannot be written" in shell("demo", "--page", ".", cwd=tmp_path).stderr
