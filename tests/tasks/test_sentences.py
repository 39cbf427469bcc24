"""The Stanford Sentiment Treebank from trees to a trained model that is scored again, on trees made here."""

import json
import math
import random

import pytest
import torch

from data.made_up import write_random_vectors, write_sst
from faults.made_runs import assert_same_end, checkpoint, stop, train
from nse.data.catalogue import get_data_set
from nse.data.readers.sst import BINARY_LABELS, LABELS
from nse.errors import ConfigError
from nse.inference import folder as hub
from nse.tasks import load_recipe
from nse.tasks.recipe import list_recipes
from nse.tasks.sentences import TASK
from nse.train.distributed import compute_scores
from nse.train.evaluate import evaluate
from nse.train.results import compute_table

RECIPES = [name for name in list_recipes() if name.startswith("sst/")]
KNOWN = ["a", "film", "good", "bad", "very", ".", "("]
SMALL = [
    "data.vectors=small.5d",
    "model.embedding_size=5",
    "model.size=4",
    "model.hidden=8",
    "train.epochs=2",
    "train.batch_size=16",
    "train.lr=0.03",
]

FEW = b"""(3 (2 A) (4 (3 good) (2 film)))
(1 (2 a) (0 (1 bad) (2 film)))
(4 (4 good) (2 film))
"""
SENTENCES = b"(2 (2 a) (2 film))\n(4 (4 good) (2 (2 -LRB-) (2 film)))\n(0 bad)\n"


def trees(count, seed):
    """Trees that branch to the right, each phrase as good as its words; some words are not known."""
    draw = random.Random(seed)
    values = {"good": 2, "bad": -2, "very": 1}

    def tree(words):
        label = min(4, max(0, 2 + sum(values.get(word, 0) for word in words)))
        if len(words) == 1:
            return f"({label} {words[0]})"
        return f"({label} {tree(words[:1])} {tree(words[1:])})"

    texts = [draw.choices([*KNOWN[:-1], "zebra"], k=draw.randint(1, 6)) for _ in range(count)]
    return "".join(f"{tree(words)}\n" for words in texts).encode()


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder as published: the trees, and vectors of five numbers for some of their words."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write_sst(folder, train=trees(12, 1), dev=trees(14, 2), test=trees(14, 3))
    write_random_vectors(folder, KNOWN)
    return folder


def examples(data, *assignments, name="sst/fine"):
    return TASK.load_examples(load_recipe(name, [*SMALL, *assignments]), data)


def texts(found, split):
    """The rows of a split as words and labels."""
    rows = found.splits[split]
    (texts,) = rows.texts
    for ids, length, label in zip(*texts, rows.labels.tolist(), strict=True):
        yield " ".join(found.vocabulary.words[each] for each in ids[:length]), label


@pytest.mark.parametrize("phrases", ["once", "all"])
@pytest.mark.parametrize("labels", ["fine", "binary"])
def test_training_has_phrases_and_dev_and_test_have_sentences(data, labels, phrases):
    write_sst(data, train=FEW, dev=SENTENCES, test=SENTENCES)
    found = examples(data, f"data.phrases={phrases}", f"data.labels={labels}")
    first = [("a good film", 3), ("a", 2), ("good film", 4), ("good", 3), ("film", 2)]
    second = [("a bad film", 1), ("a", 2), ("bad film", 0), ("bad", 1), ("film", 2)]
    third = [("good film", 4), ("good", 4), ("film", 2)]
    wanted, whole = [*first, *second, *third], [("a film", 2), ("good ( film", 4), ("bad", 0)]
    if labels == "binary":
        signs = {0: 0, 1: 0, 3: 1, 4: 1}
        wanted, whole = ([(t, signs[n]) for t, n in rows if n in signs] for rows in (wanted, whole))
    if phrases == "once":  # with each label: of five good has two, of two one
        wanted = list(dict.fromkeys(wanted))
    assert list(texts(found, "train")) == wanted
    assert list(texts(found, "dev")) == list(texts(found, "test")) == whole
    counts = {("fine", "once"): 9, ("fine", "all"): 13, ("binary", "once"): 6, ("binary", "all"): 8}
    assert found.about["counts"] == {
        "train": counts[labels, phrases],
        "dev": len(whole),
        "test": len(whole),
    }
    assert found.about["name"] == f"sst-{labels}"
    json.dumps(found.about, allow_nan=False)


def test_the_fingerprint_changes_with_the_training_rows(data):
    settings = [
        [f"data.labels={n}", f"data.phrases={p}"] for n in ("fine", "binary") for p in ("all", "once")
    ]
    prints = [examples(data, *each).about["fingerprint"] for each in settings]
    assert len(set(prints)) == 4
    assert examples(data, *settings[0], "seed=2", "model.size=3").about["fingerprint"] == prints[0]


def test_vectors_of_another_size_raise_an_error_with_the_key_to_set(data):
    with pytest.raises(
        ConfigError, match=r"small\.5d has vectors of 5 numbers .* set model\.embedding_size=5"
    ):
        examples(data, "model.embedding_size=0")
    assert examples(data, "model.embedding_size=0", "model.size=5").vectors.shape[1] == 5


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_and_is_scored_again(name, data, tmp_path):
    folder = tmp_path / "run"
    result = train(folder, recipe=name, small=SMALL, data=data)
    assert json.loads((folder / "result.json").read_text()) == result
    assert (result["task"], result["epochs"]) == ("sst", 2)
    assert set(result["accuracy"]) == {"train", "dev", "test"}
    assert not (folder / "scores").exists()
    metrics = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(row["loss"]) for row in metrics)
    assert result["accuracy"]["dev"] == max(row["dev"] for row in metrics)
    (row,) = compute_table("sst", tmp_path / "run")
    assert row["test"] == {"mean": 100 * result["accuracy"]["test"], "sd": None}
    for split in ("dev", "test"):
        again = evaluate(str(folder), split, data, device="cpu")
        assert again["accuracy"] == result["accuracy"][split]
        assert again["labels"] == list(LABELS if "fine" in name else BINARY_LABELS)


@pytest.mark.parametrize("learned", ["false", "true"])
def test_a_loaded_model_gives_the_scores_of_training(data, tmp_path, learned):
    """The same scores to the last bit, so nothing may be rounded when it is saved."""
    settings = [f"model.trainable={learned}", "model.init_range=1", "train.weight_decay=0"]
    train(tmp_path / "run", *settings, recipe="sst/fine", small=SMALL, data=data)
    again = hub.load(tmp_path / "run")
    assert (again.config.kind, again.config.task, again.config.data) == ("sentence", "sst", "sst-fine")
    assert (again.config.tokenizer, again.config.labels) == ("treebank", list(LABELS))
    found = examples(data, *settings)
    assert again.vocabulary.words == found.vocabulary.words
    scores = compute_scores(again.module, found.splits["dev"])
    assert torch.equal(scores, checkpoint(tmp_path / "run")["best"]["scores"])
    assert scores.shape == (14, 5)
    assert len(scores.unique(dim=0)) > 5


def test_training_learns_sentiment(data):
    write_sst(data, train=trees(40, 1), dev=trees(60, 2), test=trees(60, 3))
    settings = ["train.epochs=6", "train.weight_decay=0", "data.phrases=all"]
    found = examples(data, *settings, name="sst/binary")
    result = train(data / "run", *settings, recipe="sst/binary", small=SMALL, data=data)
    for split in ("dev", "test"):
        often = found.splits[split].labels.bincount().max() / len(found.splits[split].labels)
        assert result["accuracy"][split] > often + 0.1


def test_a_resumed_run_ends_like_an_uninterrupted_one(data, tmp_path):
    settings = {"recipe": "sst/fine", "small": [*SMALL, "train.batch_size=8"], "data": data}
    whole = train(tmp_path / "whole", **settings)
    steps = checkpoint(tmp_path / "whole")["step"]
    stop(tmp_path / "stopped", after=3, **settings)
    stop(tmp_path / "stopped", after=steps - 1, resume=True, **settings)
    resumed = train(tmp_path / "stopped", resume=True, **settings)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    assert resumed["accuracy"] == whole["accuracy"]


@pytest.mark.parametrize(("name", "labels", "hidden"), [("sst/binary", 2, 1024), ("sst/fine", 5, 300)])
def test_recipes_have_the_settings_of_the_paper(name, labels, hidden):
    recipe = load_recipe(name)
    model, training = recipe.model, recipe.train
    assert (model.encoder, model.size, model.hidden, model.dropout) == ("nse", 300, hidden, 0.5)
    assert (training.batch_size, training.lr, training.weight_decay, training.epochs) == (64, 3e-4, 3e-5, 25)
    assert len(get_data_set(f"sst-{recipe.data.labels}").labels) == labels
    assert name in TASK.paper_results
