"""A run that ranks: its scores are written, and the figures by them are always the same."""

import json
import sys

import pytest
from typer.testing import CliRunner

from data.made_up import HEADER, make_wikiqa_line, write_vectors, write_wikiqa
from nse.cli import main as cli
from nse.errors import DataError, InputError, RunError
from nse.metrics import ranking
from nse.train import scores
from nse.train.scores import describe_scores, evaluate_scores

SETS = [
    "data.vectors=set.2d",
    "model.embedding_size=2",
    "model.size=6",
    "model.hidden=8",
    "model.layers=1",
    "train.epochs=2",
    "train.lr=0.01",
]


def asked(*questions):
    """A split in the published format: each question is its candidates, each with its label."""
    rows = [
        make_wikiqa_line(f"Q{number}", answer, label, f"who {verb} ?")
        for number, (verb, answers) in enumerate(questions)
        for answer, label in answers
    ]
    return HEADER + b"".join(rows)


SPLIT = asked(
    ("runs", [("a dog runs .", 1), ("the cat .", 0), ("a cat moves", 0), ("a dog runs .", 0)]),
    ("moves", [("the dog", 0), ("a cat moves .", 1), ("zebra", 0)]),
    ("sleeps", [("a cat", 1)]),
    ("eats", [("a cat", 0), ("zebra zebra", 0)]),
)


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words], catch_exceptions=False)


def train(folder, data):
    sets = [word for item in SETS for word in ("--set", item)]
    return call("train", "wikiqa/mma-attention", "--out", folder, "--data", data, *sets)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Data in the published format, and a run on it."""
    folder = tmp_path_factory.mktemp("ranking")
    data = folder / "data"
    data.mkdir()
    write_wikiqa(data, train=SPLIT, dev=SPLIT, test=SPLIT)
    write_vectors(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSE_CACHE", str(folder / "cache"))
        return folder, train(folder / "run", data).stdout


@pytest.fixture
def run(runs, tmp_path, monkeypatch):
    """A copy of what an old run left, which had no figures; a run of today is at `runs`."""
    monkeypatch.setenv("NSE_CACHE", str(runs[0] / "cache"))
    copy = tmp_path / "run"
    (copy / "scores").mkdir(parents=True)
    for file in (runs[0] / "run" / "scores").iterdir():
        (copy / "scores" / file.name).write_bytes(file.read_bytes())
    result = read_result(runs[0] / "run")
    without = {key: value for key, value in result.items() if key not in ranking.MEASURES}
    (copy / "result.json").write_text(json.dumps(without))
    return copy


def read_result(folder):
    return json.loads((folder / "result.json").read_text())


def test_training_prints_map_and_mrr(runs):
    folder, told = runs
    result = read_result(folder / "run")
    assert list(result["map"]) == list(result["mrr_mixed"]) == ["dev", "test"]
    for split in ("dev", "test"):
        assert f"{split} MAP {result['map'][split]:.4f} MRR {result['mrr'][split]:.4f}" in told
    assert told.endswith(f" s: {folder / 'run'}\n")
    names = sorted(file.name for file in (folder / "run" / "scores").iterdir())
    assert names == ["dev.qrels", "dev.run", "test.qrels", "test.run"]


def test_figures_computed_from_files_are_added_to_the_result(runs, run):
    before = read_result(run)
    answer = call("evaluate", "--scores", run)
    assert answer.exit_code == 0
    assert read_result(run) == read_result(runs[0] / "run")
    assert list(read_result(run)) == list(read_result(runs[0] / "run"))  # and where a run writes them
    assert {key: read_result(run)[key] for key in before} == before
    test = read_result(run)["map"]["test"], read_result(run)["mrr"]["test"]
    assert f"test: MAP {test[0]:.4f}, MRR {test[1]:.4f} of 3 questions (" in answer.stdout
    assert "of the 2 that also have wrong answers)" in answer.stdout
    assert f"added to {run / 'result.json'}: map, mrr, map_mixed, mrr_mixed" in answer.stdout
    once = (run / "result.json").read_bytes()
    again = json.loads(call("evaluate", "--scores", run, "--json").stdout)
    assert again["added"] == []
    assert again["splits"]["dev"] == {
        **{measure: read_result(run)[measure]["dev"] for measure in ranking.MEASURES},
        "questions": 3,
        "mixed": 2,
    }
    assert (run / "result.json").read_bytes() == once


def test_evaluating_the_model_gives_the_same_figures(runs, run, tmp_path):
    folder = runs[0] / "run"
    call("evaluate", "--scores", run)
    for split in ("dev", "test"):
        words = ["evaluate", folder, "--split", split, "--data", runs[0] / "data", "--device", "cpu"]
        prefix = tmp_path / "again.v1"
        result = json.loads(call(*words, "--json", "--trec", prefix).stdout)
        assert [result[measure] for measure in ranking.MEASURES] == [
            read_result(run)[measure][split] for measure in ranking.MEASURES
        ]
        assert (result["questions"], result["mixed"], result["n"]) == (3, 2, 10)
        assert result["scores"] == str(tmp_path / "again.v1.run")
        written = evaluate_scores(tmp_path / "again.v1.run")
        assert written["splits"]["again.v1"]["map"] == result["map"]
        judged = (folder / "scores" / f"{split}.qrels").read_bytes()
        assert (tmp_path / "again.v1.qrels").read_bytes() == judged
        shown = call(*words).stdout
        assert f"MAP {result['map']:.4f}, MRR {result['mrr']:.4f} of 3 questions" in shown
        assert f"on wikiqa {split}, 10 pairs of " in shown


def test_one_file_can_be_scored_with_right_answers_from_another_folder(run, tmp_path):
    file = run / "scores" / "test.run"
    expected = evaluate_scores(file)
    assert (list(expected["splits"]), expected["added"]) == (["test"], [])
    assert not set(ranking.MEASURES) & set(read_result(run))  # one file is not the run
    reference = tmp_path / "WikiQA-test.ref"
    (run / "scores" / "test.qrels").rename(reference)
    assert evaluate_scores(file, reference)["splits"] == expected["splits"]
    with pytest.raises(InputError, match=r"no test\.qrels next to .*test\.run; name the file of right"):
        evaluate_scores(file)
    assert json.loads(call("evaluate", "--scores", file, "--qrels", reference, "--json").stdout) == expected
    with pytest.raises(DataError, match=r"nowhere\.ref: cannot be read"):
        evaluate_scores(file, tmp_path / "nowhere.ref")


def test_an_unfinished_run_is_scored_and_gets_no_result(run):
    (run / "result.json").unlink()
    assert list(evaluate_scores(run)["splits"]) == ["dev", "test"]
    assert not (run / "result.json").exists()


def test_different_figures_are_never_overwritten(run):
    evaluate_scores(run)
    result = read_result(run)
    result["mrr"]["test"] += 1e-4
    del result["map"]
    changed = json.dumps(result)
    (run / "result.json").write_text(changed)
    with pytest.raises(RunError, match=r"result\.json: mrr of test is .* nothing was changed"):
        evaluate_scores(run)
    assert (run / "result.json").read_text() == changed


def test_only_missing_figures_are_added(run):
    evaluate_scores(run)
    whole = read_result(run)
    part = {key: value for key, value in whole.items() if key != "mrr_mixed"}
    part["map"] = {"dev": whole["map"]["dev"] + 1e-12}
    (run / "result.json").write_text(json.dumps(part))
    assert evaluate_scores(run)["added"] == ["map", "mrr_mixed"]
    assert read_result(run) == whole | {"map": {"dev": part["map"]["dev"], "test": whole["map"]["test"]}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("precious", "is not JSON: Expecting value"),
        ("[1]", "expected keys and values, got list"),
        ('{"map": 0.5}', "map: expected a figure for each split, got 0.5"),
        ('{"map": {"dev": "high"}}', "map of dev is high in the file"),
        ('{"seconds": NaN}', "NaN is not a number in JSON"),
    ],
)
def test_a_broken_result_is_not_changed(run, content, message):
    (run / "result.json").write_text(content)
    with pytest.raises(RunError, match=message):
        evaluate_scores(run)
    assert (run / "result.json").read_text() == content


def test_a_result_that_cannot_be_written_is_not_changed(run, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scores, "write_text", refuse)
    before = (run / "result.json").read_bytes()
    with pytest.raises(RunError, match="No space left on device; it was not changed"):
        evaluate_scores(run)
    assert (run / "result.json").read_bytes() == before


def test_an_error_names_a_path_without_scores(run, tmp_path):
    with pytest.raises(InputError, match=r"scores: there is no .*nowhere; give the folder of a ranking run"):
        evaluate_scores(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"there is no scores/\*\.run in "):
        evaluate_scores(run / "scores")
    with pytest.raises(InputError, match=r"expected the folder of a run, or a file that ends in \.run, got"):
        evaluate_scores(run / "result.json")
    with pytest.raises(InputError, match=r"qrels: needs one \.run file"):
        evaluate_scores(run, run / "scores" / "dev.qrels")
    (run / "scores" / "dev.qrels").unlink()
    with pytest.raises(InputError, match=r"no dev\.qrels next to"):
        evaluate_scores(run)


def test_an_error_names_files_that_are_broken_or_do_not_match(run):
    judgements = run / "scores" / "dev.qrels"
    whole = judgements.read_text()
    judgements.write_text("".join(line[:-2] + "0\n" for line in whole.splitlines(keepends=True)))
    with pytest.raises(DataError, match=r"dev\.qrels: labels: no question has a right answer"):
        evaluate_scores(run)
    judgements.write_text(whole.replace("4 0 0000 0\n", ""))
    with pytest.raises(DataError, match="candidate 0000 of question 4"):
        evaluate_scores(run)
    (run / "scores" / "dev.run").write_text("1 Q0 0000 1 nan nse\n")
    with pytest.raises(DataError, match=r"dev\.run: line 1: score"):
        evaluate_scores(run)
    assert not set(ranking.MEASURES) & set(read_result(run))


def test_the_description_has_a_line_for_each_split(run):
    lines = describe_scores(evaluate_scores(run))
    assert [line.split(":")[0] for line in lines] == ["dev", "test", f"added to {run / 'result.json'}"]
    assert len(describe_scores(evaluate_scores(run))) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a model, or --scores"),
        (["MODEL", "--scores", "RUN"], "give a model, or --scores"),
        (["--scores", "RUN", "--split", "dev"], "--split cannot be used with --scores"),
        (["--scores", "RUN", "--trec", "x", "--batch", "3"], "--batch, --trec cannot be used with --scores"),
        (["MODEL", "--qrels", "x"], "--qrels cannot be used with a model"),
        (["--scores", "nowhere"], "there is no nowhere"),
    ],
)
def test_wrong_options_exit_with_2(words, message, runs, run, monkeypatch, capsys):
    named = {"MODEL": str(runs[0] / "run"), "RUN": str(run)}
    monkeypatch.setattr(sys, "argv", ["nse", "evaluate", *(named.get(word, word) for word in words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_trained_model_ranks_candidates(runs, tmp_path):
    file = tmp_path / "candidates.txt"
    file.write_text("the cat .\n\na dog runs .\n")
    told = call("rank", runs[0] / "run", "--question", "who runs ?", file, "--device", "cpu", "--json")
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert sorted(row["number"] for row in rows) == [1, 3]
