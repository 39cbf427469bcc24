"""The table is what the results say, and refuses results that do not belong together."""

import copy
import io
import json
import statistics

import pytest
from rich.console import Console

from nse.errors import RunError
from nse.metrics.bleu import get_signature
from nse.train.results import compute_table, draw_table, format_markdown

RESULT = {
    "recipe": "snli/nse",
    "task": "snli",
    "seed": 1,
    "epoch": 3,
    "accuracy": {"train": 0.9, "dev": 0.76, "test": 0.75},
    "parameters": 3_398_299,
    "parameters_without_embeddings": 3_398_299,
    "seconds_per_epoch": 1.5,
    "examples": {"train": 99_890, "dev": 9_842, "test": 9_824},
    "device": "NVIDIA H200",
    "data": {
        "name": "snli",
        "fingerprint": "abc",
        "published": {"train": 549_367},
        "vectors": "spacy.md.300d",
    },
}


def result(file, **changes):
    told = copy.deepcopy(RESULT)
    for key, value in changes.items():
        *outer, name = key.split("__")
        section = told
        for part in outer:
            section = section[part]
        section[name] = value
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told))
    return file


def test_a_row_for_each_recipe_with_mean_and_deviation_over_seeds(tmp_path):
    tests = {1: 0.75, 2: 0.76, 10: 0.78}
    for seed, test in tests.items():
        result(
            tmp_path / f"{seed}.json", seed=seed, accuracy__test=test, seconds_per_epoch=3.0 + abs(seed - 2)
        )
    result(tmp_path / "deep" / "lstm.json", recipe="snli/lstm", accuracy__test=0.74)
    result(tmp_path / "mma.json", recipe="snli/mma")
    result(tmp_path / "logic.json", recipe="logic/nse", task="logic")
    rows = compute_table("snli", tmp_path)
    assert [row["recipe"] for row in rows] == ["snli/nse", "snli/mma", "snli/lstm"]
    first, _, baseline = rows
    assert first["seeds"] == [1, 2, 10]
    assert first["seconds"] == 3.0
    assert first["test"] == pytest.approx(
        {"mean": 100 * statistics.mean(tests.values()), "sd": 100 * statistics.stdev(tests.values())}
    )
    assert (first["paper"], baseline["paper"]) == ({"test": pytest.approx(84.6)}, None)
    assert (first["examples"], first["published"]) == (99_890, 549_367)
    assert baseline["test"] == {"mean": 74.0, "sd": None}
    json.dumps(rows, allow_nan=False)


def test_a_table_is_written_as_markdown(tmp_path):
    result(tmp_path / "1.json")
    result(tmp_path / "2.json", seed=2, accuracy__test=0.77, device="cpu")
    rows = compute_table("snli", tmp_path)
    lines = format_markdown(rows[0]["recipe"].split("/")[0], rows).split("\n")
    assert lines[0].startswith("| model | paper | test | dev | train | seeds | parameters |")
    assert lines[2] == (
        "| snli/nse | 84.6 | 76.0 ± 1.4 | 76.0 ± 0.0 | 90.0 ± 0.0 | 2 | 3,398,299 | 1.50 | NVIDIA H200, cpu "
        "| 99,890 of 549,367 | spacy.md.300d |"
    )
    assert lines[3:] == ["", "The paper's figures are with the vectors glove.840B.300d.", ""]
    lines = printed(rows)
    assert lines[1].split() == ["model", "paper", "test", "dev", "train", "seeds", "parameters", "s/epoch"]
    assert lines[3].split() == ["nse", "84.6", "76.0±1.4", "76.0±0.0", "90.0±0.0", "2", "3,398,299", "1.50"]
    assert lines[4:] == [
        "on: NVIDIA H200, cpu",
        "trained on: 99,890 of 549,367",
        "vectors: spacy.md.300d",
        "The paper's figures are with the vectors glove.840B.300d.",
    ]


def test_a_table_with_the_paper_s_vectors_or_without_its_results_has_no_note(tmp_path):
    result(tmp_path / "1.json", data__vectors="glove.840B.300d")
    result(tmp_path / "2.json", recipe="snli/lstm")
    rows = compute_table("snli", tmp_path)
    assert "paper's" not in format_markdown("snli", rows)
    assert "paper's" not in "".join(printed(rows))


def test_a_terminal_lists_rows_with_other_vectors_or_data(tmp_path):
    result(tmp_path / "1.json")
    result(tmp_path / "2.json", recipe="snli/mma-attention-masked", data__vectors="glove.840B.300d")
    result(tmp_path / "3.json", recipe="snli/lstm", device="cpu")
    lines = printed(compute_table("snli", tmp_path))
    assert max(map(len, lines)) <= 80
    assert "on: NVIDIA H200; lstm: cpu" in lines
    assert "vectors: spacy.md.300d; mma-attention-masked: glove.840B.300d" in lines


def printed(rows, task="snli"):
    console = Console(width=80, file=io.StringIO())
    console.print(draw_table(task, rows))
    return [line.strip() for line in console.file.getvalue().splitlines()]


def test_only_result_json_of_a_run_is_read(tmp_path):
    result(tmp_path / "runs" / "small" / "config.json", recipe="snli/small")
    (tmp_path / "runs" / "small" / "model.safetensors").touch()
    run = tmp_path / "runs" / "first"
    result(run / "result.json")
    for name in ("recipe.toml", "data.json", "environment.json", "model/config.json"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("{}")
    (tmp_path / "runs" / "unfinished").mkdir()
    (tmp_path / "runs" / "unfinished" / "recipe.toml").touch()
    (tmp_path / "runs" / "unfinished" / "data.json").write_text("{}")
    assert [row["recipe"] for row in compute_table("snli", tmp_path / "runs")] == ["snli/nse"]
    assert [row["recipe"] for row in compute_table("snli", run)] == ["snli/nse"]


def test_data_without_a_published_size_counts_as_complete(tmp_path):
    about = {"name": "logic", "fingerprint": "abc", "vectors": None}
    result(tmp_path / "1.json", recipe="logic/nse", task="logic", data=about)
    rows = compute_table("logic", tmp_path)
    assert "| 99,890 | learned |" in format_markdown(rows[0]["recipe"].split("/")[0], rows)


@pytest.mark.parametrize("key", ["recipe", "task", "seed", "device", "seconds_per_epoch", "data", "accuracy"])
def test_an_error_names_a_missing_field(key, tmp_path):
    file = result(tmp_path / "1.json")
    told = json.loads(file.read_text())
    del told[key]
    file.write_text(json.dumps(told))
    with pytest.raises(RunError, match=rf"1\.json is not a result: {key} is missing"):
        compute_table("snli", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accuracy__test": None}, r"accuracy\.test is missing"),
        ({"accuracy__test": 75.0}, r"accuracy\.test is 75\.0, not from 0 to 1"),
        ({"accuracy__dev": True}, r"accuracy\.dev is missing"),
        ({"seed": "1"}, "seed is missing or invalid"),
        ({"examples": [3]}, "examples is missing"),
    ],
)
def test_an_error_names_a_wrong_field(changes, message, tmp_path):
    result(tmp_path / "1.json", **changes)
    with pytest.raises(RunError, match=message):
        compute_table("snli", tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"task": NaN}', "\ud800"])
def test_a_file_that_is_not_json_raises_an_error(text, tmp_path):
    (tmp_path / "1.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(RunError, match=r"1\.json is not JSON"):
        compute_table("snli", tmp_path)


def test_json_that_is_not_a_result_raises_an_error(tmp_path):
    (tmp_path / "1.json").write_text("[]")
    with pytest.raises(RunError, match=r"1\.json is not a result: task is missing"):
        compute_table("snli", tmp_path)


def test_an_error_names_both_results_of_the_same_seed(tmp_path):
    result(tmp_path / "a.json")
    result(tmp_path / "b.json")
    with pytest.raises(RunError, match=r"a\.json and .*b\.json are both snli/nse with seed 1: keep one"):
        compute_table("snli", tmp_path)


def test_seeds_on_different_data_are_not_averaged(tmp_path):
    result(tmp_path / "a.json")
    result(tmp_path / "b.json", seed=2, data__fingerprint="other", examples__train=549_367)
    with pytest.raises(RunError, match=r"differ in data\.fingerprint, examples\.train"):
        compute_table("snli", tmp_path)


def document(file, **changes):
    figures = {"accuracy": {"train": 0.9, "dev": 0.5, "test": 0.4}, "mse": {"dev": 2.25, "test": 3.0}}
    return result(file, **{"task": "documents", "recipe": "imdb/nse-nse", **figures, **changes})


def test_a_table_of_documents_has_the_mean_squared_error(tmp_path):
    document(tmp_path / "1.json")
    document(tmp_path / "2.json", seed=2, mse__test=4.0)
    document(
        tmp_path / "3.json", recipe="aclimdb/lstm-lstm", data__vectors="glove.6B.100d", data__fingerprint="b"
    )
    rows = compute_table("documents", tmp_path)
    assert [row["recipe"] for row in rows] == ["imdb/nse-nse", "aclimdb/lstm-lstm"]
    assert rows[0]["MSE"] == {"mean": 3.5, "sd": pytest.approx(0.7071, abs=1e-4)}
    assert rows[0]["paper"] == {"test": pytest.approx(48.3), "MSE": 1.94}
    text = format_markdown("documents", rows)
    assert "| imdb/nse-nse | 48.3 / 1.94 | 40.0 ± 0.0 | 3.50 ± 0.71 | 50.0 ± 0.0 | 2.25 ± 0.00 | " in text
    assert text.endswith("\nThe paper's figures are with the vectors glove.6B.100d.\n")
    lines = printed(rows, "documents")
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert lines[0].startswith("documents: accuracy in percent, mean")
    assert lines[3].split()[:5] == ["imdb/nse-nse", "48.3/1.94", "40.0±0.0", "3.50±0.71", "50.0±0.0"]
    document(tmp_path / "4.json", seed=3, mse__test=82.0)
    with pytest.raises(RunError, match=r"mse\.test is 82\.0, not from 0 to 81"):
        compute_table("documents", tmp_path)


def test_a_table_of_translations_has_bleu_and_its_signature(tmp_path):
    told = {"task": "translation", "accuracy": {"train": 0.625}, "bleu": {"dev": 0.2, "test": 0.1834}}
    result(tmp_path / "1.json", recipe="iwslt14/nse-nse", **told)
    result(tmp_path / "2.json", recipe="multi30k/nse-nse", **told)
    rows = compute_table("translation", tmp_path)
    assert rows[0]["paper"] == {"test BLEU": pytest.approx(17.93)}
    computed = get_signature().split("|version:")[0]
    assert "nrefs:1" in computed
    text = format_markdown("translation", rows)
    assert "| iwslt14/nse-nse | 17.93 | 18.34 | 20.00 | 62.5 | 1 | " in text
    assert text.endswith(
        f"\nBLEU is sacrebleu's, {computed}.\n\nThe paper's figures are with the vectors glove.840B.300d.\n"
    )
    lines = printed(rows, "translation")
    assert max(map(len, lines)) <= 80
    assert f"BLEU is sacrebleu's, {computed}." in lines
    result(tmp_path / "3.json", recipe="iwslt14/nse-nse", **told, seed=2, bleu__test=18.34)
    with pytest.raises(RunError, match=r"bleu\.test is 18\.34, not from 0 to 1"):
        compute_table("translation", tmp_path)


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("snli", "train one of its recipes (snli/...)"),
        ("documents", "train one of its recipes (aclimdb/... or imdb/... or yelp13/...)"),
        ("translation", "train one of its recipes (europarl/... or iwslt14/... or multi30k/...)"),
    ],
)
def test_an_error_names_the_recipes_that_make_a_result(task, hint, tmp_path):
    with pytest.raises(RunError) as told:
        compute_table(task, tmp_path)
    assert str(told.value).endswith(f"no result of {task} in {tmp_path}: {hint}")


def test_a_folder_without_results_raises_an_error(tmp_path):
    with pytest.raises(RunError, match="no result of snli in"):
        compute_table("snli", tmp_path)
    with pytest.raises(RunError, match=r"there is no folder .*missing with results"):
        compute_table("snli", tmp_path / "missing")


def test_a_run_without_a_test_file_is_named_and_left_out(tmp_path):
    own = {"task": "own-sentence", "recipe": "own/sentence", "data__vectors": ""}
    tested = result(tmp_path / "tested.json", **own)
    result(tmp_path / "not.json", **own, seed=2)
    told = json.loads((tmp_path / "not.json").read_text())
    del told["accuracy"]["test"], told["examples"]["test"]
    (tmp_path / "not.json").write_text(json.dumps(told))
    lines = []
    rows = compute_table("own-sentence", tmp_path, lines.append)
    assert [row["seeds"] for row in rows] == [[1]]
    assert lines == [f"{tmp_path / 'not.json'} is left out: its run had no test file"]
    assert compute_table("own-sentence", tmp_path) == rows
    tested.unlink()
    with pytest.raises(RunError, match=r"no run of own-sentence in .* had a test file$"):
        compute_table("own-sentence", tmp_path)


def test_a_missing_published_split_raises_an_error(tmp_path):
    file = result(tmp_path / "1.json")
    told = json.loads(file.read_text())
    del told["accuracy"]["test"], told["examples"]["test"]
    file.write_text(json.dumps(told))
    with pytest.raises(RunError, match=r"accuracy\.test is missing"):
        compute_table("snli", tmp_path)
