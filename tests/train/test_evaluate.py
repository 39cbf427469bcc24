"""A model is scored as it was trained, whatever its sentences look like."""

import json
import time

import pytest
import torch
from torch import nn

import nse
from faults.made_models import LABELS, save_model
from nse.data.readers import logic, logic_grammar
from nse.errors import DataError, InputError, ModelError, RunError
from nse.inference import folder as hub
from nse.inference.batches import compute_rows
from nse.inference.kinds import refuse_non_finite_scores
from nse.metrics.bleu import bleu, get_signature
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.translator import Translator
from nse.tasks import load_recipe
from nse.text.sampler import LONG_SENTENCE, draw_bounded_batches
from nse.text.tensors import LabelledRows, Texts
from nse.text.vocabulary import Vocabulary
from nse.train.evaluate import describe_evaluation, evaluate
from small_models import save_document_model, save_sentence_model, save_translator, translate_word_by_word

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
def test_figures_are_those_of_single_pairs(encoder, batch, data, tmp_path):
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
    assert f"{right} of 5 right of 9,824 published" in describe_evaluation(result)
    assert f"{100 * right / 5:.2f}% on snli test" in describe_evaluation(result)


def test_the_data_folder_may_come_from_the_environment(data, tmp_path, monkeypatch):
    snli_model(tmp_path / "mine", ["dog"])
    monkeypatch.setenv("NSE_DATA", str(data))
    assert evaluate(str(tmp_path / "mine"), "dev", device="cpu")["precision"] == "float32"
    assert evaluate(str(tmp_path / "mine"), "dev", device="cpu")["n"] == 3
    monkeypatch.setenv("NSE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere"):
        evaluate(str(tmp_path / "mine"), "dev", device="cpu")


def test_a_run_is_evaluated_on_the_data_of_its_own_recipe(tmp_path):
    sizes = ["data.train=60", "data.dev=30", "data.test=36", "data.unseen=30", "data.seed=4"]
    recipe = load_recipe("logic/nse", sizes)
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text(
        'task = "logic"\n[data]\ntrain = 60\ndev = 30\ntest = 36\nunseen = 30\nseed = 4\n'
    )
    pairs = logic.generate_pairs(recipe.data)["test"]
    words = sorted({word for pair in pairs for word in f"{pair.premise} {pair.hypothesis}".split()})
    vocabulary = Vocabulary(words)
    config = hub.ModelConfig(
        task="logic",
        labels=list(logic_grammar.LABELS),
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
    assert [result["by_label"][label]["n"] for label in logic_grammar.LABELS] == [12, 12, 12]


def test_a_logic_model_without_a_run_is_evaluated_on_the_default_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(
        logic, "generate_pairs", lambda data: {"dev": [logic.Pair("all dogs", "some dogs", 0)] * data.dev}
    )
    save_model(tmp_path / "mine")
    assert evaluate(str(tmp_path / "mine"), "dev", device="cpu")["n"] == logic.LogicData().dev


def test_wrong_arguments_raise_errors_that_name_them(data, tmp_path):
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
    save_model(tmp_path / "none", data="")
    with pytest.raises(ModelError, match=r"config\.json names no data set"):
        evaluate(str(tmp_path / "none"), device="cpu")
    save_model(tmp_path / "other", data="chess")
    with pytest.raises(ModelError, match="chess is not published"):
        evaluate(str(tmp_path / "other"), "test", data, device="cpu")
    save_model(tmp_path / "spaces", data="snli")
    with pytest.raises(
        ModelError, match="the model uses the tokenizer whitespace, and snli was prepared with paper"
    ):
        evaluate(str(tmp_path / "spaces"), "test", data, device="cpu")
    save_model(tmp_path / "labels", data="snli", tokenizer="paper", labels=["entailment", "neutral", "no"])
    with pytest.raises(ModelError, match="the model does not have the data's labels contradiction"):
        evaluate(str(tmp_path / "labels"), "test", data, device="cpu")


def texts(*lengths):
    ids = [torch.arange(2, 2 + length) % 7 + 2 for length in lengths]
    return Texts.from_ids(torch.cat(ids), torch.tensor(lengths))


def pairs_of(premises, hypotheses):
    return LabelledRows((texts(*premises), texts(*hypotheses)), torch.zeros(len(premises), dtype=torch.long))


def test_scores_are_in_the_order_of_the_pairs():
    lengths = [5, 0, 17, 1, 3, 200, 2, 0]
    scores = torch.rand(9, 3)
    pairs = pairs_of(lengths[::-1], lengths)
    last = [int(ids[n - 1]) if n else 0 for ids, n in zip(*pairs.texts[1], strict=True)]
    for batch in (1, 3, 8):
        assert torch.equal(compute_rows(Told(scores), pairs, batch, torch.device("cpu")), scores[last])


def test_batches_hold_each_pair_once_and_few_enough_words():
    lengths = [1, 5_000, 70, 3, 0, 999, 65, 64, 64, 64]
    batches = [share.tolist() for share in draw_bounded_batches(pairs_of(lengths, [2] * 10), 4)]
    assert sorted(row for rows in batches for row in rows) == list(range(10))
    for rows in batches:
        assert 0 < len(rows) <= 4
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= 4 * LONG_SENTENCE
    none = LabelledRows((Texts.from_ids(torch.zeros(0), torch.zeros(0)),) * 2, torch.zeros(0))
    assert list(draw_bounded_batches(none, 4)) == []


def test_an_empty_split_has_no_accuracy(data, tmp_path):
    (data / "snli_1.0" / "snli_1.0_dev.jsonl").write_text("")
    snli_model(tmp_path / "mine", ["dog"])
    result = evaluate(str(tmp_path / "mine"), "dev", data, device="cpu")
    assert (result["n"], result["accuracy"], result["confusion"]) == (0, None, [[0] * 3] * 3)
    assert "no accuracy on snli dev, 0 of 0 right" in describe_evaluation(result)


@pytest.mark.parametrize(
    ("model", "read"),
    [({}, "1,000"), ({"padding": "paper", "max_words": 8}, "8"), ({"encoder": "lstm"}, "1,000")],
)
def test_empty_unknown_and_too_long_sentences_are_scored(model, read, data, tmp_path):
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
    assert f"10 sentences truncated to {read} words" in describe_evaluation(result)


def test_scores_that_are_not_finite_raise_an_error():
    scores = torch.rand(9, 3)
    scores[4, 1] = float("nan")
    one = torch.ones(3, dtype=torch.long)
    pairs = LabelledRows((texts(1, 1, 1), Texts.from_ids(torch.tensor([2, 4, 3]), one)), one)
    scores_of_rows = compute_rows(Told(scores), pairs, 2, torch.device("cpu"))
    with pytest.raises(RunError, match=r"NaN or infinite, for rows counted from 0: 1$"):
        refuse_non_finite_scores(scores_of_rows, "rows counted from 0:", range(3))


def test_evaluating_scores_that_are_not_finite_raises_an_error(data, tmp_path, monkeypatch):
    snli_model(tmp_path / "mine", ["dog"])
    monkeypatch.setattr("nse.train.evaluate.compute_rows", lambda *_: torch.full((5, 3), float("nan")))
    with pytest.raises(RunError, match=r"NaN or infinite, for rows counted from 0: 0, 1, 2, 3, 4$"):
        evaluate(str(tmp_path / "mine"), "test", data, device="cpu")


def test_evaluation_uses_no_dropout(data, tmp_path):
    snli_model(tmp_path / "mine", ["runs", "dog", "A", "cat"], dropout=0.9)
    results = [evaluate(str(tmp_path / "mine"), "test", data, device="cpu")["confusion"] for _ in range(5)]
    assert all(result == results[0] for result in results)


REVIEWS = [
    (3, "a good film <sssss> the dog runs ."),
    (1, "bad <sssss> bad <sssss> bad film"),
    (5, "the cat " * 100 + "<sssss> who sleeps ?"),
    (2, ""),
    (3, "zyx qwv"),
]
STARS = ["5", "4", "3", "2", "1"]  # not the order of the data


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Yelp 13 in the published format."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data" / "yelp13"
    folder.mkdir(parents=True)
    for split, rows in {"train": REVIEWS[:1], "dev": REVIEWS[:2], "test": REVIEWS}.items():
        text = "".join(f"user\t\titem\t\t{stars}\t\t{review}\n" for stars, review in rows)
        (folder / f"yelp-2013-{split}.txt.ss").write_text(text)
    return tmp_path / "data"


def stars_of(model, text):
    """What a model of documents says to one, by itself: its sentences are marked, and in pieces."""
    sentences = [sentence.split() for sentence in text.split("<sssss>") if sentence.split()]
    pieces = [words[at : at + 96] for words in sentences for at in range(0, len(words), 96)]
    ids = [torch.tensor(model.vocabulary.encode(piece)) for piece in pieces]
    n = len(ids)
    padded = nn.utils.rnn.pad_sequence(ids, batch_first=True) if n else torch.zeros(1, 1, dtype=torch.long)
    lengths = torch.tensor([len(item) for item in ids] or [0])
    with torch.no_grad():
        scores = model.module(padded, lengths, torch.arange(max(n, 1))[None], torch.tensor([n]))
    return int(STARS[int(scores.argmax())])


@pytest.mark.parametrize("batch", [1, 2, 512])
def test_documents_have_accuracy_and_squared_error_in_stars(batch, reviews, tmp_path):
    report = {"labels": STARS, "tokenizer": "treebank", "data": "yelp13"}
    folder = save_document_model(tmp_path / "mine", **report, seed=3)
    result = evaluate(str(folder), "test", reviews, batch, "cpu")
    predicted_stars = [stars_of(hub.load(folder), text) for _, text in REVIEWS]
    errors = [predicted - stars for predicted, (stars, _) in zip(predicted_stars, REVIEWS, strict=True)]
    assert len(set(predicted_stars)) > 1
    assert (result["n"], result["right"]) == (5, errors.count(0))
    assert result["accuracy"] == errors.count(0) / 5
    assert result["mse"] == pytest.approx(sum(error**2 for error in errors) / 5)
    assert [result["by_label"][label]["n"] for label in STARS] == [1, 0, 2, 1, 1]
    assert sum(map(sum, result["confusion"])) == 5
    assert (result["longest"], result["cut"], result["published"]) == (96, 0, 33_501)
    assert (
        f"%, MSE {result['mse']:.3f} on yelp13 test, {errors.count(0)} of 5 right of 33,501"
        in describe_evaluation(result)
    )
    json.dumps(result, allow_nan=False)


ENGLISH = ["A dog runs.", "The cat sleeps, the dog runs.", "The zebra runs fast.", "the cat"]
GERMAN = ["Ein Hund läuft.", "Die Katze schläft, die Hund läuft.", "Die Zebra läuft schnell.", "die Katze"]


@pytest.fixture
def parallel(tmp_path, monkeypatch):
    """Multi30k as published, and IWSLT 2014 as a script leaves it, without anything to train on."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    files = {
        "multi30k": ["train", "val", "test_2016_flickr", "test_2017_flickr"],
        "iwslt14": ["valid", "test"],
    }
    for data, names in files.items():
        (tmp_path / "data" / data).mkdir(parents=True)
        for name in names:
            for language, lines in (("en", ENGLISH), ("de", GERMAN)):
                lines = lines if data == "multi30k" else [line.lower() for line in lines[3:]]
                text = "".join(f"{line}\n" for line in lines)
                (tmp_path / "data" / data / f"{name}.{language}").write_text(text)
    return tmp_path / "data"


SAID = [
    "ein hund läuft .",
    "die katze schläft , die hund läuft .",
    "die <unk> läuft <unk> .",
    "die katze",
]
WANTED = [
    "ein hund läuft .",
    "die katze schläft , die hund läuft .",
    "die zebra läuft schnell .",
    "die katze",
]


@pytest.mark.parametrize("batch", [1, 3, 512])
def test_bleu_compares_translations_with_the_references_of_the_data(batch, parallel, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    result = evaluate(str(save_translator(tmp_path / "mine", beam=2)), "test", parallel, batch, "cpu")
    assert result["bleu"] == pytest.approx(bleu(SAID, WANTED))
    assert 0.5 < result["bleu"] < 1
    assert (result["n"], result["beam"], result["cut"], result["published"]) == (4, 2, 0, 1_000)
    assert (result["data"], result["split"], result["signature"]) == ("multi30k", "test", get_signature())
    assert result["sentences_per_second"] > 0
    line = describe_evaluation(result)
    assert (
        f"BLEU {100 * result['bleu']:.2f} ({get_signature()}, beam 2) on multi30k test, 4 pairs of 1,000"
        in line
    )
    assert "sentences/s" in line
    json.dumps(result, allow_nan=False)
    whole = save_translator(tmp_path / "whole", replace_unknown=True)
    said = [line.replace("<unk> .", "fast .").replace("<unk>", "zebra") for line in SAID]
    assert evaluate(str(whole), "test", parallel, device="cpu")["bleu"] == pytest.approx(bleu(said, WANTED))


def test_subwords_are_joined_before_bleu_is_computed(parallel, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    words = ["a", "dog", "run@@", "s", "the", "ca@@", "t", "."]
    target = ["ein", "hund", "lä@@", "uft", "die", "kat@@", "ze", "."]
    folder = save_translator(tmp_path / "mine", words=words, target=target, pieces=True)
    said = []
    monkeypatch.setattr("nse.metrics.bleu.bleu", lambda actual, _: said.extend(actual) or 0.5)
    assert evaluate(str(folder), "test", parallel, device="cpu")["bleu"] == 0.5
    assert (said[0], said[3]) == ("ein hund läuft .", "die katze")


def test_the_beam_size_can_be_chosen(parallel, tmp_path, monkeypatch):
    folder = save_translator(tmp_path / "mine", max_words=4)
    texts = [" ".join(hub.load(folder).tokenize(text)[:4]) for text in ENGLISH]
    compared = []
    monkeypatch.setattr("nse.metrics.bleu.bleu", lambda *both: compared.append(both) or 0.5)
    for beam in (1, 3):
        result = evaluate(str(folder), "test", parallel, device="cpu", beam=beam)
        said = [" ".join(row["words"]) for row in nse.load(folder).translate(texts, beam)]
        assert compared.pop() == (said, WANTED)
        assert (result["beam"], result["cut"]) == (beam, 2)
    assert "2 sentences truncated to 4 words" in describe_evaluation(result)
    with pytest.raises(InputError, match="beam: expected at least 1, got 0"):
        evaluate(str(folder), "test", parallel, device="cpu", beam=0)


def test_a_translator_can_be_evaluated_on_other_translations_only(parallel, tmp_path):
    folder = str(save_translator(tmp_path / "mine"))
    result = evaluate(folder, "test", parallel, device="cpu", on="iwslt14")
    assert (result["data"], result["n"], result["published"]) == ("iwslt14", 1, 4_793)
    for on, split, error, message in [
        ("iwslt14", "train", InputError, "there is no 'train'; there are dev, test"),
        ("snli", "test", InputError, "snli has no translations; there are iwslt14, multi30k, europarl"),
        ("iwslt", "test", DataError, "did you mean iwslt14"),
        ("europarl", "test", DataError, r"europarl: no train\.en"),
    ]:
        with pytest.raises(error, match=message):
            evaluate(folder, split, parallel, device="cpu", on=on)
    with pytest.raises(InputError, match=r"trec: .* translates sentences and does not rank"):
        evaluate(folder, "test", parallel, device="cpu", trec=tmp_path / "scores")
    other = str(save_sentence_model(tmp_path / "other"))
    with pytest.raises(InputError, match=r"on: .* gives a sentence a label .*; only a translator takes it"):
        evaluate(other, "test", parallel, device="cpu", on="iwslt14")
    with pytest.raises(InputError, match=r"beam: .*; only a translator takes it"):
        evaluate(other, "test", parallel, device="cpu", beam=2)


def test_data_without_a_column_of_the_model_raises_an_error(reviews, tmp_path):
    save_model(tmp_path / "mine", task="snli", data="yelp13", tokenizer="treebank")
    with pytest.raises(ModelError, match="needs a premise, and yelp13 has none"):
        evaluate(str(tmp_path / "mine"), "test", reviews, device="cpu")
