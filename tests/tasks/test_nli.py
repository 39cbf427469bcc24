"""SNLI from the published files to a trained model that is scored again, on a corpus made here."""

import json
import math
import random
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from data.made_up import make_snli_line, write_random_vectors, write_snli
from faults.made_models import shell
from nse.data.catalogue import VECTORS, VectorSet
from nse.data.readers.snli import LABELS
from nse.errors import ConfigError
from nse.inference import folder as hub
from nse.nn.text_model import PAD, pad_left
from nse.tasks import load_recipe
from nse.tasks.nli import TASK
from nse.tasks.recipe import list_recipes
from nse.tasks.task import draw_padding_vector, make_model_config
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import Vocabulary
from nse.train import run
from nse.train.evaluate import evaluate
from nse.train.loop import fit
from nse.train.progress import Progress
from nse.train.results import compute_table

RECIPES = [name for name in list_recipes() if name.startswith("snli/")]
KNOWN = ["a", "dog", "cat", "runs", "sleeps", "."]
UNUSUAL = ["", "zzz qqq", "dog " * 10_000]
SMALL = [
    "data.vectors=small.5d",
    "model.embedding_size=5",
    "model.size=4",
    "model.hidden=16",
    "model.init_range=1",  # so that the tiny model tells sentences apart
    "train.epochs=1",
    "train.batch_size=4",
    "train.lr=0.03",
]


def corpus(pairs, seed):
    """So many pairs, and after them every unusual sentence beside a usual one and beside itself.

    Some word tells the label, so that a model learns to give more than one.
    """
    draw = random.Random(seed)

    def sentence():
        return " ".join(draw.choices([*KNOWN, "zebra"], k=draw.randint(1, 6)))

    usual = [(sentence(), sentence()) for _ in range(pairs)]
    unusual = [pair for text in UNUSUAL for pair in ((text, "a dog"), ("a dog", text), (text, text))]
    labelled = [make_snli_line(LABELS["cat" in pair[1]], *pair) for pair in usual]
    labelled += [make_snli_line("neutral", *pair) for pair in unusual]
    return b"".join([*labelled, make_snli_line("-", "a dog", "a cat")])


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder as published: SNLI, and vectors of five numbers for some of its words."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write_snli(folder, train=corpus(24, 1), dev=corpus(8, 2), test=corpus(8, 3))
    write_random_vectors(folder, KNOWN)
    return folder


def recipe(name, *assignments):
    return load_recipe(name, [*SMALL, *assignments])


def trained(name, folder, data, *assignments):
    return run.train(name, recipe(name, *assignments), folder, Progress.silent(), data=data)


def test_examples_are_the_labelled_pairs_of_each_split(data):
    actual = TASK.load_examples(recipe("snli/nse-masked"), data)
    assert {name: len(split.labels) for name, split in actual.splits.items()} == {
        "train": 33,
        "dev": 17,
        "test": 17,
    }
    assert actual.vocabulary.words[:2] == Vocabulary.SPECIAL
    assert sorted(actual.vocabulary.words[2:]) == sorted(KNOWN)
    rows = [json.loads(row) for row in (data / "snli_1.0" / "snli_1.0_dev.jsonl").read_bytes().splitlines()]
    dev, tokenize = actual.splits["dev"], TOKENIZERS["paper"]
    for b, row in enumerate(rows[:-1]):
        assert dev.labels[b] == LABELS.index(row["gold_label"])
        for texts, key in zip(dev.texts, ("sentence1", "sentence2"), strict=True):
            ids = actual.vocabulary.encode(tokenize(row[key])[:128])
            assert texts.lengths[b] == len(ids)
            assert texts.ids[b, : len(ids)].tolist() == ids
            assert not texts.ids[b, len(ids) :].any()
    assert dev.texts[0].ids.shape == (17, 128)


def test_every_word_has_its_own_vector(data):
    actual = TASK.load_examples(recipe("snli/nse-masked"), data)
    given = np.load(data / "vectors" / "small.5d.npy")
    assert actual.vectors.dtype == torch.float32
    assert not actual.vectors[:2].any()
    for index, word in enumerate(actual.vocabulary.words[2:], start=2):
        assert actual.vectors[index].tolist() == pytest.approx(given[KNOWN.index(word)], rel=1e-3)


def test_data_json_describes_the_data(data):
    about = TASK.load_examples(recipe("snli/nse-masked"), data).about
    assert about["name"] == "snli"
    assert about["counts"] == {"train": 33, "dev": 17, "test": 17}
    assert about["published"] == {"train": 549_367, "dev": 9_842, "test": 9_824}
    assert about["vectors"] == "small.5d"
    assert about["coverage"]["known_types"] == len(KNOWN)
    json.dumps(about, allow_nan=False)


def test_the_fingerprint_changes_with_the_training_rows(data):
    def fingerprint(*assignments):
        return TASK.load_examples(recipe("snli/nse-masked", *assignments), data).about["fingerprint"]

    first = fingerprint()
    assert fingerprint("seed=2", "model.size=3") == fingerprint("data.train=99") == first
    assert len({first, fingerprint("data.train=10"), fingerprint("data.train=11")}) == 3
    write_snli(data, train=corpus(24, 4), dev=corpus(8, 2), test=corpus(8, 3))
    assert fingerprint() != first


def test_data_train_selects_the_first_pairs(data):
    whole = TASK.load_examples(recipe("snli/nse"), data).splits
    some = TASK.load_examples(recipe("snli/nse", "data.train=10"), data)
    assert some.about["counts"] == {"train": 10, "dev": 17, "test": 17}
    for one, other in ((some.splits["train"], whole["train"]), (some.splits["dev"], whole["dev"])):
        n = len(one.labels)
        assert one.labels.tolist() == other.labels[:n].tolist()
        width = one.texts[1].ids.shape[1]
        assert one.texts[1].ids.tolist() == other.texts[1].ids[:n, :width].tolist()
        assert not other.texts[1].ids[:n, width:].any()
    with pytest.raises(ConfigError, match="data: train must be at least 0, got -1"):
        recipe("snli/nse", "data.train=-1")


def test_the_paper_s_padding_is_added_once(data):
    """By the model, and not by the data too."""
    loaded = recipe("snli/nse")
    examples = TASK.load_examples(loaded, data)
    rows, made = examples.splits["test"], TASK.build_model(loaded, examples)
    assert rows.texts[0].lengths.unique().numel() > 1
    for texts in rows.texts:
        ids, lengths = made.truncate(*texts)
        wanted = pad_left(*texts, 32)
        assert torch.equal(ids, wanted[0])
        assert lengths.tolist() == wanted[1].tolist() == [32] * 17
        assert (ids[texts.lengths > 0, -1] != PAD).all()


@pytest.mark.parametrize(("size", "words"), [(4, 0), (4, 6), (5, 4)])
def test_vectors_of_another_size_raise_an_error_with_the_key_to_set(data, size, words):
    wrong = recipe("snli/nse", f"model.size={size}", f"model.embedding_size={words}")
    with pytest.raises(
        ConfigError, match=r"small\.5d has vectors of 5 numbers .* set model\.embedding_size=5"
    ):
        TASK.load_examples(wrong, data)
    assert (
        TASK.load_examples(recipe("snli/nse", "model.size=5", "model.embedding_size=0"), data).vectors.shape[
            1
        ]
        == 5
    )


def embedding(data, seed, *assignments):
    loaded = recipe("snli/nse", *assignments)
    torch.manual_seed(seed)
    return TASK.build_model(loaded, TASK.load_examples(loaded, data)).embedding.weight


def test_the_padding_vector_does_not_depend_on_the_seed(data):
    actual, examples = embedding(data, 1), TASK.load_examples(recipe("snli/nse"), data)
    assert torch.equal(actual, embedding(data, 2))
    assert torch.equal(actual[1:], examples.vectors[1:])
    assert (actual[PAD] != 0).all()
    assert actual[PAD].unique().numel() == 5
    assert torch.equal(actual.half().float(), actual)  # so that a saved model reads the same padding


@pytest.mark.parametrize("scale", [0.05, 0.3, 2.0])
def test_the_padding_vector_is_as_long_as_a_word_vector(scale):
    words = scale * torch.randn(50, 300, generator=torch.Generator().manual_seed(1))
    pad = draw_padding_vector(torch.cat([torch.zeros(2, 300), words]))
    assert pad.norm().item() == pytest.approx(words.norm(dim=1).mean().item(), rel=0.1)
    assert (draw_padding_vector(torch.zeros(2, 300)) != 0).all()  # where every word is unknown


@pytest.mark.parametrize("learned", [False, True])
def test_training_does_not_change_frozen_vectors(data, learned):
    loaded = recipe("snli/mma", f"model.trainable={str(learned).lower()}")
    examples = TASK.load_examples(loaded, data)
    before = TASK.build_model(loaded, examples).embedding.weight.detach()
    outcome = fit(TASK, loaded, examples, Progress.silent())
    after = outcome.model.embedding.weight
    assert after.requires_grad == learned
    assert torch.equal(after, before) != learned
    assert outcome.parameters - outcome.parameters_without_embeddings == (before.numel() if learned else 0)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_and_is_scored_again(name, data, tmp_path):
    """Also on sentences without words, without known words, and with 10,000."""
    folder = tmp_path / "run"
    result = trained(name, folder, data)
    assert json.loads((folder / "result.json").read_text()) == result
    (row,) = compute_table("snli", tmp_path / "run")
    paper = (
        {"test": pytest.approx(100 * TASK.paper_results[name]["accuracy"])}
        if name in TASK.paper_results
        else None
    )
    assert (row["recipe"], row["paper"], row["seeds"]) == (name, paper, [1])
    assert (row["examples"], row["published"], row["vectors"]) == (33, 549_367, "small.5d")
    assert row["test"] == {"mean": 100 * result["accuracy"]["test"], "sd": None}
    assert row["parameters"] == result["parameters"] > 0
    metrics = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [math.isfinite(each["loss"]) for each in metrics] == [True]
    assert result["seconds"] < 20
    for split in ("dev", "test"):
        again = evaluate(str(folder), split, data, device="cpu")
        assert again["accuracy"] == result["accuracy"][split]
        assert (again["n"], again["cut"], again["labels"]) == (17, 4, list(LABELS))


@pytest.mark.parametrize("learned", [False, True])
def test_a_loaded_model_gives_the_scores_of_training(data, tmp_path, learned):
    """The same scores to the last bit, so nothing may be rounded when it is saved."""
    loaded = recipe("snli/mma-attention", f"model.trainable={str(learned).lower()}")
    examples = TASK.load_examples(loaded, data)
    outcome = fit(TASK, loaded, examples, Progress.silent())
    hub.save(tmp_path / "mine", outcome.model, make_model_config(loaded, examples), examples.vocabulary, {})
    again = hub.load(tmp_path / "mine")
    assert (again.config.task, again.config.data, again.config.tokenizer) == ("snli", "snli", "paper")
    assert again.config.labels == list(LABELS)
    assert again.vocabulary.words == examples.vocabulary.words
    with torch.no_grad():
        inputs = examples.splits["test"].inputs
        actual, wanted = again.module(*inputs), outcome.model.eval()(*inputs)
    assert torch.equal(actual, wanted)
    assert len(wanted.unique(dim=0)) > 5


def test_the_seed_determines_the_result(data, tmp_path):
    figures = [
        json.loads((tmp_path / out / "metrics.jsonl").read_text())["loss"]
        for out, seed in (("a", 1), ("b", 1), ("c", 2))
        if trained("snli/nse-masked", tmp_path / out, data, f"seed={seed}")
    ]
    assert figures[0] == figures[1] != figures[2]


def test_nse_predict_takes_unusual_sentences(data, tmp_path):
    sets = [word for assignment in SMALL for word in ("--set", assignment)]
    words = ["train", "snli/nse-masked", *sets, "--out", "mine"]
    answer = shell(*words, "--data", data, "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert set(result["accuracy"]) == {"train", "dev", "test"}
    answer = shell("evaluate", "mine", "--data", data, "--json", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    again = json.loads(answer.stdout)
    assert (again["accuracy"], again["n"], again["cut"]) == (result["accuracy"]["test"], 17, 4)


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRIED = runpy.run_path(str(BENCHMARKS / "tried.py"))
SHIP = runpy.run_path(str(BENCHMARKS / "ship.py"))


def test_every_tried_setting_changes_the_recipe():
    for task, rows in TRIED["TRIED"].items():
        for name, *changes in rows:
            assert load_recipe(name).data.table == task
            assert load_recipe(name, changes) != load_recipe(name), changes


def test_tried_settings_are_not_scored_on_test(data, monkeypatch):
    seen = []
    monkeypatch.setitem(
        TRIED["measure_variant"].__globals__, "fit", lambda *given: seen.append(given[2]) or fit(*given)
    )
    row = TRIED["measure_variant"]("snli/nse", [*SMALL, "model.init=uniform"], 3, data)
    assert set(seen[0].splits) == {"train", "dev"}
    assert (row["recipe"], row["changes"][-1], row["seed"]) == ("snli/nse", "model.init=uniform", 3)
    assert row["dev"] == max(row["dev_by_epoch"])
    assert row["examples"] == {"train": 33, "dev": 17}


def test_a_compacted_model_has_its_scores_on_the_card(data, tmp_path, monkeypatch):
    trained("snli/best", tmp_path / "run", data)
    monkeypatch.setitem(VECTORS, "small.5d", VectorSet("made up", "CC0", len(KNOWN)))
    card = SHIP["ship"](tmp_path / "run", "snli", data, tmp_path / "pretrained")
    folder = tmp_path / "pretrained" / "snli"
    assert (hub.load(folder).config.weights, hub.load(folder).config.vectors) == ("float16", "int8")
    for split in ("dev", "test"):
        assert card["accuracy"][split] == evaluate(str(folder), split, data)["accuracy"]
    text = (folder / "README.md").read_text()
    assert f"| accuracy test | {100 * card['accuracy']['test']:.1f}% |" in text
    assert "The word vectors are made from small.5d (CC0)." in text
