"""The benchmark of training beside a baseline, on data that is made up."""

import importlib.util
from pathlib import Path

import pytest

from nse.tasks import load_recipe

FILE = Path(__file__).parents[2] / "benchmarks" / "tasks.py"
ENGLISH, GERMAN = "a dog sees the cat .", "ein hund sieht die katze ."


@pytest.fixture
def tasks(monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark_of_tasks", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    small = ["model.size=4", "train.batch_size=8", "data.vectors=set.4d"]
    monkeypatch.setattr(module, "load_recipe", lambda name: load_recipe(name, small))
    return module


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    for name in ("multi30k", "yelp13", "vectors"):
        (tmp_path / name).mkdir()
    for split in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for language, text in (("en", ENGLISH), ("de", GERMAN)):
            (tmp_path / "multi30k" / f"{split}.{language}").write_text(f"{text}\n" * 20)
    for split in ("train", "dev", "test"):
        line = f"u\t\tp\t\t3\t\t{ENGLISH} <sssss> {ENGLISH}\n"
        (tmp_path / "yelp13" / f"yelp-2013-{split}.txt.ss").write_text(line * 20)
    vectors = "".join(f"{word} 0.1 0.2 0.3 -0.4\n" for word in ENGLISH.split())
    (tmp_path / "vectors" / "set.4d.txt").write_text(vectors)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "unit", "many"), [("multi30k", "target words", 20 * 7), ("yelp13", "documents", 20)]
)
def test_models_are_measured_beside_their_baseline(tasks, data, name, unit, many):
    rows = tasks.measure_models(name, data, epochs=2)
    assert [row["recipe"] for row in rows] == [f"{name}/{model}" for model in tasks.MODELS]
    assert rows[0]["times_the_baseline"] == 1
    for row in rows:
        assert (row["unit"], row["in_an_epoch"], row["epochs"]) == (unit, many, 2)
        assert row["in_a_second"] == pytest.approx(many / row["seconds"], rel=0.05)
        assert row["times_the_baseline"] == pytest.approx(row["seconds"] / rows[0]["seconds"], rel=0.05)
