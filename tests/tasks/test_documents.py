"""Reviews from the published files to a trained model that is loaded again, on reviews made here."""

import json
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.made_up import write_files, write_random_vectors
from faults.made_runs import assert_same_end, checkpoint, stop, train
from nse.data.cache import EncodedColumn, EncodedSplit
from nse.data.catalogue import get_data_set
from nse.errors import ConfigError
from nse.inference import folder as hub
from nse.tasks import documents, load_recipe
from nse.tasks.documents import TASK
from nse.tasks.task import Examples, make_labelled_rows, split_sentences
from nse.text.tensors import Documents, LabelledRows, Texts
from nse.text.vocabulary import Vocabulary
from nse.train.distributed import compute_scores

KNOWN = ["food", "is", "great", "awful", "the", "."]
NAMES = ["nse-nse", "nse-lstm", "lstm-lstm"]
SMALL = [
    "data.vectors=small.5d",
    "model.embedding_size=5",
    "model.size=6",
    "train.epochs=2",
    "train.batch_size=16",
    "train.lr=0.02",
    "train.ema_decay=0",
]
WORTH = {"great": 5, "awful": 1}


def reviews(count, seed):
    """As many stars as the one word of all sentences that tells them; 3 without."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        lengths = [draw.randint(1, 4) for _ in range(draw.randint(1, 4))]
        sentences = [draw.choices(["the", "food", "is", "zebra", "."], k=length) for length in lengths]
        report = draw.choice([*WORTH, None])
        if report:
            draw.choice(sentences).append(report)
        text = " <sssss> ".join(" ".join(words) for words in sentences)
        lines.append(f"u\t\tp\t\t{WORTH.get(report, 3)}\t\t{text}\n")
    return "".join(lines)


def write_yelp(folder, **splits):
    files = {f"yelp-2013-{split}.txt.ss": text.encode() for split, text in splits.items()}
    write_files(folder / "yelp13", "plain", files, "")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder as published: the reviews, and vectors of five numbers for some of their words."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write_yelp(folder, train=reviews(40, 1), dev=reviews(20, 2), test=reviews(20, 3))
    write_random_vectors(folder, KNOWN)
    return folder


def recipe(*assignments, name="yelp13/nse-nse"):
    return load_recipe(name, [*SMALL, *assignments])


def read(found, split):
    """The documents of a split as sentences of words, with their labels."""
    rows = found.splits[split]
    batch = rows.texts[0].select(torch.arange(len(rows.labels)))
    for places, count, label in zip(batch.rows, batch.counts.tolist(), rows.labels.tolist(), strict=True):
        sentences = [batch.ids[place, : batch.lengths[place]].tolist() for place in places[:count]]
        yield [" ".join(found.vocabulary.words[i] for i in ids) for ids in sentences], label


# Long sentences in pieces


def in_pieces(documents, longest):
    """What it has to be, document by document, as lengths."""
    found = []
    for lengths in documents:
        pieces = []
        for length in lengths:
            whole, rest = divmod(length, longest)
            pieces += [longest] * whole + ([rest] if rest or not whole else [])
        found.append(pieces)
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=5), max_size=6), st.integers(1, 12))
def test_splitting_long_sentences_keeps_every_word(made, longest):
    lengths = torch.tensor([n for each in made for n in each], dtype=torch.int32)
    counts = torch.tensor([len(each) for each in made], dtype=torch.int32)
    found, many = split_sentences(lengths, counts, longest)
    assert [each.tolist() for each in found.split(many.tolist())] == in_pieces(made, longest)
    assert found.sum() == lengths.sum()
    assert (found <= longest).all()
    assert found.dtype == many.dtype == torch.long


def test_a_sentence_of_two_thousand_words_is_split(data):
    many = [f"w{n}" for n in range(2000)]
    rows = [(5, f"the food <sssss> {' '.join(many)} <sssss> great ."), (1, "awful <sssss>")]
    write_yelp(data, train="".join(f"u\t\tp\t\t{stars}\t\t{text}\n" for stars, text in rows))
    write_random_vectors(data, [*KNOWN, *many])
    found = TASK.load_examples(recipe(), data)
    (sentences, label), (other, _) = read(found, "train")
    assert (label, other) == (4, ["awful"])
    assert [len(sentence.split(" ")) for sentence in sentences] == [2, *[96] * 20, 80, 2]
    assert " ".join(sentences) == f"the food {' '.join(many)} great ."
    assert found.splits["train"].texts[0].sentences.ids.shape[1] == 96
    longer = TASK.load_examples(recipe("model.max_words=5000"), data)
    assert next(read(longer, "train"))[0] == ["the food", " ".join(many), "great ."]
    # What is left is read like any other sentence: the pieces of one are its document's, in their order.
    rows = TASK.load_examples(recipe("model.max_words=1"), data).splits["train"]
    assert rows.texts[0].counts.tolist() == [2004, 1]


def test_splitting_matches_a_hand_computed_example():
    column = EncodedColumn(*(np.array(each, np.int32) for each in ([2, 3, 4, 5, 6, 7], [5, 0, 1], [2, 0, 1])))
    rows = make_labelled_rows(
        EncodedSplit({"document": column}, np.array([4, 0, 2], np.int32)), ("document",), 2
    )
    assert rows.labels.tolist() == [4, 0, 2]
    assert rows.texts[0].counts.tolist() == [4, 0, 1]
    assert rows.texts[0].sentences.ids.tolist() == [[2, 3], [4, 5], [6, 0], [0, 0], [7, 0]]


def test_a_document_model_needs_max_words():
    with pytest.raises(ConfigError, match=r"model\.max_words: must be at least 1 and at most 10,000, got 0"):
        recipe("model.max_words=0")


# Examples and figures


def test_examples_are_the_published_reviews(data):
    found = TASK.load_examples(recipe(), data)
    assert {name: len(split.labels) for name, split in found.splits.items()} == found.about["counts"]
    assert found.about["counts"] == {"train": 40, "dev": 20, "test": 20}
    assert found.about["published"] == {"train": 268_013, "dev": 33_504, "test": 33_501}
    for split in found.splits:
        lines = (data / "yelp13" / f"yelp-2013-{split}.txt.ss").read_text("utf-8").split("\n")[:-1]
        for line, (sentences, label) in zip(lines, read(found, split), strict=True):
            *_, stars, text = line.split("\t\t")
            assert label == int(stars) - 1
            words = [sentence.split(" ") for sentence in text.split(" <sssss> ")]
            assert sentences == [" ".join(w if w in KNOWN else "<unk>" for w in each) for each in words]
    assert found.vectors.shape == (len(found.vocabulary), 5)
    json.dumps(found.about, allow_nan=False)


def test_vectors_of_another_size_raise_an_error_with_the_key_to_set(data):
    with pytest.raises(
        ConfigError, match=r"small\.5d has vectors of 5 numbers .* set model\.embedding_size=5"
    ):
        TASK.load_examples(recipe("model.embedding_size=0"), data)


def judged(name, given, right):
    """Figures of a data set whose labels are told like this."""
    labels = torch.tensor(right)
    texts = Documents.from_sentences(
        Texts(torch.zeros(0, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long)), 0 * labels
    )
    report = get_data_set(name).labels
    examples = Examples({"dev": LabelledRows((texts,), labels)}, Vocabulary([]), {}, labels=report)
    scores = torch.nn.functional.one_hot(torch.tensor(given), 10).float()
    return documents.compute_metrics(load_recipe(f"{name}/nse-nse"), scores, examples, "dev")


def test_the_mean_squared_error_is_in_stars():
    assert judged("yelp13", [0, 4, 2, 3], [0, 0, 3, 3]) == {"accuracy": 0.5, "mse": (0 + 16 + 1 + 0) / 4}
    assert judged("imdb", [9, 0], [0, 9]) == {"accuracy": 0, "mse": 81}
    # 5 and 6 stars are missing: the fourth label is 4 stars and the fifth 7.
    assert judged("aclimdb", [3, 4, 7], [4, 3, 0]) == {"accuracy": 0, "mse": (9 + 9 + 81) / 3}


def test_metrics_of_an_empty_split_are_zero():
    texts = Documents.from_sentences(Texts.from_words([], Vocabulary([])), torch.zeros(0, dtype=torch.long))
    rows = LabelledRows((texts,), torch.zeros(0, dtype=torch.long))
    examples = Examples({"dev": rows}, Vocabulary([]), {}, labels=tuple("12345"))
    assert documents.compute_metrics(recipe(), torch.zeros(0, 5), examples, "dev") == {
        "accuracy": 0,
        "mse": 0,
    }


# Runs


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_trains(name, data, tmp_path):
    folder = tmp_path / "run"
    result = train(folder, recipe=f"yelp13/{name}", small=SMALL, data=data)
    assert json.loads((folder / "result.json").read_text()) == result
    assert (result["task"], result["epochs"]) == ("documents", 2)
    assert set(result["accuracy"]) == {"train", "dev", "test"}
    assert set(result["mse"]) == {"dev", "test"}
    metrics = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(row["loss"]) for row in metrics)
    assert result["accuracy"]["dev"] == max(row["dev"] for row in metrics)


@pytest.mark.parametrize(
    "settings", [["model.trainable=false"], ["model.trainable=true", "train.ema_decay=0.5"]]
)
def test_a_loaded_model_gives_the_scores_of_training(data, tmp_path, settings):
    """The same scores to the last bit, so nothing may be rounded when it is saved."""
    settings = [*settings, "model.init_range=1"]
    result = train(tmp_path / "run", *settings, recipe="yelp13/nse-nse", small=SMALL, data=data)
    again = hub.load(tmp_path / "run")
    assert (again.config.kind, again.config.task, again.config.data) == ("document", "documents", "yelp13")
    assert (again.config.tokenizer, again.config.labels) == ("treebank", ["1", "2", "3", "4", "5"])
    assert again.target is None
    found = TASK.load_examples(recipe(*settings), data)
    assert again.vocabulary.words == found.vocabulary.words
    scores = compute_scores(again.module, found.splits["dev"])
    assert torch.equal(scores, checkpoint(tmp_path / "run")["best"]["scores"])
    assert len(scores.unique(dim=0)) > 10
    report = documents.compute_metrics(
        recipe(), compute_scores(again.module, found.splits["test"]), found, "test"
    )
    assert report == {measure: result[measure]["test"] for measure in ("accuracy", "mse")}


def test_training_learns_to_predict_stars(data):
    write_yelp(data, train=reviews(300, 1), dev=reviews(60, 2), test=reviews(60, 3))
    learning = [
        "train.epochs=12",
        "train.weight_decay=0",
        "model.size=12",
        "model.dropout=0",
        "model.output_dropout=0",
    ]
    learning += ["model.init=uniform", "model.init_range=0.5"]
    result = train(data / "run", *learning, recipe="yelp13/nse-nse", small=SMALL, data=data)
    for split in ("dev", "test"):
        assert result["accuracy"][split] > 0.7  # a third without learning
        assert result["mse"][split] < 1.5


def test_a_resumed_run_ends_like_an_uninterrupted_one(data, tmp_path):
    settings = {"recipe": "yelp13/nse-nse", "small": [*SMALL, "train.batch_size=8"], "data": data}
    whole = train(tmp_path / "whole", **settings)
    stop(tmp_path / "stopped", after=3, **settings)
    resumed = train(tmp_path / "stopped", resume=True, **settings)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    assert resumed["mse"] == whole["mse"]


def test_every_result_of_the_paper_has_a_recipe():
    for name in TASK.paper_results:
        assert load_recipe(name).task == "document"
        assert set(TASK.paper_results[name]) == {"accuracy", "mse"}
