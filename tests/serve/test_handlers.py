"""Over HTTP a model says what it says in Python, to one text or to many, alone or together with others."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

import nse
from faults.made_models import saved
from nse.serve.handlers import find_examples
from nse.serve.settings import MAX_BEAM
from serve.inside import inside
from serve.running import error, told
from small_models import (
    CANDIDATES,
    SENTENCES,
    save_document_model,
    save_ranking_model,
    save_sentence_model,
    save_translator,
)

PAIRS = [["all dogs bark", "some dogs bark"], ["some dogs", "not zebras"], ["dogs", "dogs dance"]]


def without_texts(rows):
    return [{name: value for name, value in row.items() if name not in ("text", "texts")} for row in rows]


def close(rows, others):
    """Whether rows say the same, but for rounding."""
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            assert value == pytest.approx(other[name], abs=1e-5)


@pytest.mark.parametrize("name", ["snli", "sentiment", "translate-en-de"])
def test_examples_are_of_words_that_the_model_knows(name):
    model = nse.load(name)
    for texts in find_examples(model):
        assert len(texts) == len(model.inputs)
        for text in texts:
            assert model.vocabulary.UNKNOWN not in model.vocabulary.encode(model.tokenize(text))


def test_a_model_of_other_words_has_no_examples(tmp_path):
    assert find_examples(nse.load(save_sentence_model(tmp_path / "mine"))) == []
    saved(tmp_path / "logic")
    assert find_examples(nse.load(tmp_path / "logic"))[0] == ["all dogs bark", "some dogs bark"]


def test_labels_of_sentences(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    with inside(model) as server:
        found = told(server.ask("/v1/predict", {"texts": SENTENCES}))
        assert found["model"] == "mine"
        close(found["predictions"], without_texts(model.predict(SENTENCES)))


def test_labels_of_pairs(tmp_path):
    saved(tmp_path / "mine")
    model = nse.load(tmp_path / "mine")
    with inside(model) as server:
        found = told(server.ask("/v1/predict", {"texts": PAIRS}))
        close(found["predictions"], without_texts(model.predict([tuple(pair) for pair in PAIRS])))
        message = error(server.ask("/v1/predict", {"texts": PAIRS[0]}), 422)
        assert message.endswith('send {"texts": [["...", "..."]]}')


def test_labels_of_documents(tmp_path):
    texts = ["A good film. The cat sleeps.", "bad", "The dog runs. " * 30]
    model = nse.load(save_document_model(tmp_path / "mine"))
    with inside(model) as server:
        found = told(server.ask("/v1/predict", {"texts": texts}))["predictions"]
        close(found, without_texts(model.predict(texts)))
        assert [row["sentences"] for row in found] == [2, 1, 30]


def test_ranks(tmp_path):
    model = nse.load(save_ranking_model(tmp_path / "mine"))
    with inside(model) as server:
        found = told(server.ask("/v1/rank", {"question": "who runs ?", "candidates": CANDIDATES}))
        close(found["ranking"], without_texts(model.rank("who runs ?", CANDIDATES)))


def test_equal_candidates_have_equal_scores_however_many_there_are(tmp_path):
    """Those of a large request are computed in several batches, where the same text could score otherwise."""
    model = nse.load(save_ranking_model(tmp_path / "mine", size=20))
    words = ["a", "dog", "runs", "the", "cat", "sleeps", "good"]
    rng = random.Random(0)
    others = [" ".join(rng.choices(words, k=rng.randrange(1, 9))) for _ in range(60)]
    candidates = [text for text in others for _ in range(3)]
    rng.shuffle(candidates)
    with inside(model, max_batch=7) as server:
        found = told(server.ask("/v1/rank", {"question": "who runs ?", "candidates": candidates}))["ranking"]
    score = {}
    for row in found:
        score.setdefault(candidates[row["number"] - 1], set()).add(row["score"])
    assert {len(scores) for scores in score.values()} == {1}
    assert found == sorted(found, key=lambda row: (-row["score"], row["number"]))
    close(found, without_texts(model.rank("who runs ?", candidates)))


def test_translations(tmp_path):
    texts = ["A dog runs.", "the cat, the dog", "Zyx qwv!", "good " * 30]
    model = nse.load(save_translator(tmp_path / "mine"))
    with inside(model) as server:
        for beam in (None, 1, 3):
            found = told(server.ask("/v1/translate", {"texts": texts, "beam": beam}))
            assert found["translations"] == without_texts(model.translate(texts, beam))
        assert "sentence 2 is empty" in error(server.ask("/v1/translate", {"texts": ["a", " "]}), 400)
        wide = {"texts": ["a"], "beam": MAX_BEAM + 1}
        assert error(server.ask("/v1/translate", wide), 422).startswith("beam: ")


@pytest.mark.parametrize(
    "make", [save_sentence_model, save_ranking_model, save_translator, save_document_model]
)
def test_vectors(tmp_path, make):
    model = nse.load(make(tmp_path / "mine"))
    with inside(model) as server:
        found = told(server.ask("/v1/encode", {"texts": SENTENCES}))
    wanted = model.encode(SENTENCES)
    assert found["size"] == wanted.shape[1]
    for row, vector in zip(found["vectors"], wanted.tolist(), strict=True):
        assert row["vector"] == pytest.approx(vector, abs=1e-6)
    assert [row["words"] for row in found["vectors"]][:2] == [4, 1]


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (save_sentence_model, "predict"),
        (save_document_model, "predict"),
        (save_ranking_model, "rank"),
        (save_translator, "translate"),
    ],
)
def test_only_what_the_model_does_is_described_and_its_examples_are_answered(tmp_path, make, own):
    with inside(make(tmp_path / "mine")) as server:
        paths = told(server.ask("/openapi.json"))["paths"]
        assert {path for path in paths if "post" in paths[path]} == {f"/v1/{own}", "/v1/encode", "/v1/trace"}
        for path in {"/v1/predict", "/v1/rank", "/v1/translate"} - paths.keys():
            assert error(server.ask(path, {"texts": ["a"]}), 400).endswith(f": use /v1/{own}")
        for path, operations in paths.items():
            if "post" not in operations:
                continue
            content = operations["post"]["requestBody"]["content"]["application/json"]
            assert content["examples"]
            for example in content["examples"].values():
                assert server.ask(path, example["value"])[0] == 200


def test_what_is_told_of_texts_that_are_cut_or_unknown(tmp_path):
    with inside(save_sentence_model(tmp_path / "mine", max_words=5)) as server:
        ask = {"texts": ["a good film a good film", "zyx qwv"]}
        one, two = told(server.ask("/v1/predict", ask))["predictions"]
        assert (one["words"], one["cut"], one["unknown"]) == (5, 1, 0)
        assert (two["words"], two["cut"], two["unknown"]) == (2, 0, 2)
        assert "sentence 1 has 6 words" in error(server.ask("/v1/predict", {**ask, "strict": True}), 400)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("max_batch", [1, 8, 64])
def test_answers_do_not_depend_on_who_else_asks(tmp_path, workers, max_batch):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    rng = random.Random(max_batch)
    asks = []
    for number in range(40):
        texts = [
            " ".join(rng.choices(["a", "good", "bad", "film"], k=rng.randrange(1, 20))) for _ in range(5)
        ]
        texts = texts[: rng.randrange(1, 6)] if number % 7 else texts * 4
        asks.append(rng.choice([("/v1/predict", texts), ("/v1/encode", texts), ("/v1/trace", texts[:1])]))
    with inside(model, workers=workers, max_batch=max_batch) as server, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda ask: told(server.ask(ask[0], {"texts": ask[1]})), asks))
    for (path, texts), found in zip(asks, answers, strict=True):
        if path == "/v1/predict":
            close(found["predictions"], without_texts(model.predict(texts)))
        elif path == "/v1/encode":
            for row, vector in zip(found["vectors"], model.encode(texts).tolist(), strict=True):
                assert row["vector"] == pytest.approx(vector, abs=1e-5)
        else:
            assert found == model.trace(*texts).as_dict()
