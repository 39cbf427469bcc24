"""A model is scored as it was trained, whatever its sentences look like."""

import json
import time

import pytest
import torch
from torch import nn

from faults.made_models import LABELS, saved
from nse import api, hub
from nse.api import refuse_not_finite, scored, shares
from nse.errors import DataError, InputError, ModelError, RunError
from nse.nn.models import PairClassifier, PairConfig
from nse.tasks import load_recipe, logic
from nse.text.batching import Labelled, Texts
from nse.text.vocabulary import Vocabulary
from nse.train.evaluate import describe, evaluate

PAIRS = [
    ("A dog runs.", "An animal moves.", "entailment"),
    ("A dog runs.", "A cat sleeps.", "contradiction"),
    ("A dog runs.", "", "neutral"),
    ("Zyx qwv!", "Qqq zzz", "neutral"),
    ("A dog, a cat", "A dog", "entailment"),
    ("The dog", "-", "-"),
]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder in the published format."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data" / "snli_1.0"
    folder.mkdir(parents=True)
    for split, pairs in {"train": PAIRS, "dev": PAIRS[:3], "test": PAIRS}.items():
        rows = [{"gold_label": label, "sentence1": p, "sentence2": h} for p, h, label in pairs]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"snli_1.0_{split}.jsonl").write_text(text)
    return tmp_path / "data"


class Told(nn.Module):
    """Answers by the ids alone: the last word of the hypothesis, as its scores say."""

    def __init__(self, answers):
        super().__init__()
        self.answers = nn.Parameter(answers)

    def forward(self, premise, premise_lengths, hypothesis, lengths):
        assert premise.shape == (len(premise_lengths), int(premise_lengths.max()))
        last = (
            hypothesis.gather(1, (lengths - 1).clamp(min=0)[:, None]).squeeze(1) if hypothesis.shape[1] else 0
        )
        return self.answers[last * torch.ones_like(lengths)]


def snli_model(folder, words, labels=LABELS, **model):
    vocabulary = Vocabulary(words)
    config = hub.ModelConfig(
        task="snli",
        labels=labels,
        tokenizer="paper",
        data="snli",
        model=PairConfig(**{"size": 6, "hidden": 4, **model}),
    )
    torch.manual_seed(1)
    built = PairClassifier(config.model, len(vocabulary), len(labels))
    hub.save(folder, built, config, vocabulary, {})
    return built.eval(), vocabulary


def answer(model, vocabulary, tokenize, premise, hypothesis):
    """What a model says to one pair, by itself."""
    both = [
        torch.tensor([vocabulary.encode(tokenize(text))], dtype=torch.long) for text in (premise, hypothesis)
    ]
    with torch.no_grad():
        scores = model(*(part for ids in both for part in (ids, torch.tensor([ids.shape[1]]))))
    return int(scores.argmax())


@pytest.mark.parametrize("encoder", ["nse", "lstm", "bow"])
@pytest.mark.parametrize("batch", [1, 2, 512])
def test_the_figures_are_those_of_the_pairs_one_by_one(encoder, batch, data, tmp_path):
    labels = ["neutral", "entailment", "contradiction"]  # not the order of the data
    words = ["runs", "dog", "A", "cat", "unheard", "."]  # nor its words
    model, vocabulary = snli_model(tmp_path / "mine", words, labels, encoder=encoder)
    result = evaluate(str(tmp_path / "mine"), "test", data, batch, "cpu")
    tokenize = hub.load(tmp_path / "mine").tokenize
    confusion = [[0] * 3 for _ in labels]
    for premise, hypothesis, label in PAIRS[:-1]:
        confusion[labels.index(label)][answer(model, vocabulary, tokenize, premise, hypothesis)] += 1
    right = sum(confusion[i][i] for i in range(3))
    assert result["confusion"] == confusion
    assert (result["right"], result["n"], result["accuracy"]) == (right, 5, right / 5)
    assert result["by_label"]["entailment"]["n"] == 2
    assert (result["split"], result["data"], result["labels"], result["cut"]) == ("test", "snli", labels, 0)
    assert result["published"] == 9_824
    json.dumps(result, allow_nan=False)
    assert f"{right} of 5 right of 9,824 published" in describe(result)
    assert f"{100 * right / 5:.2f}% on snli test" in describe(result)


def test_the_data_folder_comes_from_the_environment_too(data, tmp_path, monkeypatch):
    snli_model(tmp_path / "mine", ["dog"])
    monkeypatch.setenv("NSE_DATA", str(data))
    assert evaluate(str(tmp_path / "mine"), "dev", device="cpu")["n"] == 3
    monkeypatch.setenv("NSE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere"):
        evaluate(str(tmp_path / "mine"), "dev", device="cpu")


def test_the_split_of_a_run_is_made_by_its_own_recipe(tmp_path):
    sizes = ["data.train=60", "data.dev=30", "data.test=36", "data.unseen=30", "data.seed=4"]
    recipe = load_recipe("logic/nse", sizes)
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text(
        'task = "logic"\n[data]\ntrain = 60\ndev = 30\ntest = 36\nunseen = 30\nseed = 4\n'
    )
    pairs = logic.corpus(recipe.data)["test"]
    words = sorted({word for pair in pairs for word in f"{pair.premise} {pair.hypothesis}".split()})
    vocabulary = Vocabulary(words)
    config = hub.ModelConfig(
        task="logic",
        labels=list(logic.LABELS),
        tokenizer="whitespace",
        data="logic",
        model=PairConfig(size=6),
    )
    model = PairClassifier(config.model, len(vocabulary), 3).eval()
    hub.save(run / "model", model, config, vocabulary, {})
    result = evaluate(str(run), device="cpu")
    right = sum(
        answer(model, vocabulary, str.split, pair.premise, pair.hypothesis) == pair.label for pair in pairs
    )
    assert (result["n"], result["right"], result["published"]) == (36, right, 36)
    assert [result["by_label"][label]["n"] for label in logic.LABELS] == [12, 12, 12]


def test_a_bare_logic_model_is_scored_on_the_default_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(
        logic, "corpus", lambda data: {"dev": [logic.Pair("all dogs", "some dogs", 0)] * data.dev}
    )
    saved(tmp_path / "mine")
    assert evaluate(str(tmp_path / "mine"), "dev", device="cpu")["n"] == logic.LogicData().dev


def test_mistakes_are_told(data, tmp_path):
    name = str(tmp_path / "mine")
    snli_model(tmp_path / "mine", ["dog"])
    with pytest.raises(
        InputError, match="split: there is no 'tets'; did you mean test\\? there are dev, test, train"
    ):
        evaluate(name, "tets", data, device="cpu")
    with pytest.raises(InputError, match="split: there is no 'x'; there are dev, test, train"):
        evaluate(name, "x", data, device="cpu")
    with pytest.raises(InputError, match="batch: expected at least 1, got 0"):
        evaluate(name, "test", data, 0, "cpu")
    saved(tmp_path / "none", data="")
    with pytest.raises(ModelError, match=r"config\.json names no data set"):
        evaluate(str(tmp_path / "none"), device="cpu")
    saved(tmp_path / "other", data="chess")
    with pytest.raises(DataError, match="chess"):
        evaluate(str(tmp_path / "other"), "test", data, device="cpu")
    saved(tmp_path / "spaces", data="snli")
    with pytest.raises(
        ModelError, match="reads words as whitespace makes them, and snli was prepared by paper"
    ):
        evaluate(str(tmp_path / "spaces"), "test", data, device="cpu")
    saved(tmp_path / "labels", data="snli", tokenizer="paper", labels=["entailment", "neutral", "no"])
    with pytest.raises(ModelError, match="the model does not know the data's labels contradiction"):
        evaluate(str(tmp_path / "labels"), "test", data, device="cpu")


def texts(*lengths):
    ids = [torch.arange(2, 2 + length) % 7 + 2 for length in lengths]
    return Texts.flat(torch.cat(ids), torch.tensor(lengths))


def pairs_of(premises, hypotheses):
    return Labelled((texts(*premises), texts(*hypotheses)), torch.zeros(len(premises), dtype=torch.long))


def test_answers_come_in_the_order_of_the_pairs():
    lengths = [5, 0, 17, 1, 3, 200, 2, 0]
    scores = torch.rand(9, 3)
    pairs = pairs_of(lengths[::-1], lengths)
    last = [int(ids[n - 1]) if n else 0 for ids, n in zip(*pairs.texts[1], strict=True)]
    for batch in (1, 3, 8):
        assert torch.equal(scored(Told(scores), pairs, batch), scores[last])


def test_batches_hold_each_pair_once_and_never_too_many_words():
    lengths = [1, 5_000, 70, 3, 0, 999, 65, 64, 64, 64]
    found = [share.tolist() for share in shares(pairs_of(lengths, [2] * 10), 4)]
    assert sorted(row for rows in found for row in rows) == list(range(10))
    for rows in found:
        assert 0 < len(rows) <= 4
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= 4 * api.USUAL
    none = Labelled((Texts.flat(torch.zeros(0), torch.zeros(0)),) * 2, torch.zeros(0))
    assert list(shares(none, 4)) == []


def test_an_empty_split(data, tmp_path):
    (data / "snli_1.0" / "snli_1.0_dev.jsonl").write_text("")
    snli_model(tmp_path / "mine", ["dog"])
    result = evaluate(str(tmp_path / "mine"), "dev", data, device="cpu")
    assert (result["n"], result["accuracy"], result["confusion"]) == (0, None, [[0] * 3] * 3)
    assert "no accuracy on snli dev, 0 of 0 right" in describe(result)


@pytest.mark.parametrize(
    ("model", "read"),
    [({}, "1,000"), ({"padding": "paper", "longest": 8}, "8"), ({"encoder": "lstm"}, "1,000")],
)
def test_empty_unknown_and_endless_sentences(model, read, data, tmp_path):
    odd = ["", " ", "zzz", "qqq zzz", "dog " * 10_000]
    rows = [{"gold_label": "neutral", "sentence1": p, "sentence2": h} for p in odd for h in odd]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (data / "snli_1.0" / "snli_1.0_test.jsonl").write_text(text)
    snli_model(tmp_path / "mine", ["dog"], **model)
    started = time.perf_counter()
    result = evaluate(str(tmp_path / "mine"), "test", data, device="cpu")
    assert time.perf_counter() - started < 60
    assert (result["n"], result["cut"]) == (25, 10)
    assert sum(map(sum, result["confusion"])) == 25
    assert f"10 sentences cut to {read} words" in describe(result)


def test_scores_that_are_not_finite_are_no_answers():
    scores = torch.rand(9, 3)
    scores[4, 1] = float("nan")
    one = torch.ones(3, dtype=torch.long)
    pairs = Labelled((texts(1, 1, 1), Texts.flat(torch.tensor([2, 4, 3]), one)), one)
    found = scored(Told(scores), pairs, 2)
    with pytest.raises(RunError, match=r"NaN or infinite, for rows counted from 0: 1$"):
        refuse_not_finite(found, "rows counted from 0:", range(3))


def test_a_model_whose_scores_are_not_finite_has_no_figures(data, tmp_path, monkeypatch):
    snli_model(tmp_path / "mine", ["dog"])
    monkeypatch.setattr("nse.train.evaluate.scored", lambda *_: torch.full((5, 3), float("nan")))
    with pytest.raises(RunError, match=r"NaN or infinite, for rows counted from 0: 0, 1, 2, 3, 4$"):
        evaluate(str(tmp_path / "mine"), "test", data, device="cpu")


def test_dropout_is_off(data, tmp_path):
    snli_model(tmp_path / "mine", ["runs", "dog", "A", "cat"], dropout=0.9)
    results = [evaluate(str(tmp_path / "mine"), "test", data, device="cpu")["confusion"] for _ in range(5)]
    assert all(result == results[0] for result in results)
