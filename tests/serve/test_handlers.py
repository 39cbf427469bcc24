"""Answers over HTTP equal those in Python, for one text or many, alone or in shared batches."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

import nse
from faults.made_models import save_model
from nse.serve.handlers import find_examples
from nse.serve.settings import MAX_BEAM
from serve.inside import serve_inside
from serve.running import read_error, read_json
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


def assert_close(rows, others):
    """Compare rows up to rounding."""
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            assert value == pytest.approx(other[name], abs=1e-5)


@pytest.mark.parametrize("name", ["snli", "sentiment", "translate-en-de"])
def test_examples_have_known_words_only(name):
    model = nse.load(name)
    for texts in find_examples(model):
        assert len(texts) == len(model.inputs)
        for text in texts:
            assert model.vocabulary.UNKNOWN not in model.vocabulary.encode(model.tokenize(text))


def test_a_model_without_the_words_of_the_examples_has_none(tmp_path):
    assert find_examples(nse.load(save_sentence_model(tmp_path / "mine"))) == []
    save_model(tmp_path / "logic")
    assert find_examples(nse.load(tmp_path / "logic"))[0] == ["all dogs bark", "some dogs bark"]


def test_predict_labels_sentences(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    with serve_inside(model) as server:
        answer = read_json(server.ask("/v1/predict", {"texts": SENTENCES}))
        assert answer["model"] == "mine"
        assert_close(answer["predictions"], without_texts(model.predict(SENTENCES)))


def test_predict_labels_pairs(tmp_path):
    save_model(tmp_path / "mine")
    model = nse.load(tmp_path / "mine")
    with serve_inside(model) as server:
        answer = read_json(server.ask("/v1/predict", {"texts": PAIRS}))
        assert_close(answer["predictions"], without_texts(model.predict([tuple(pair) for pair in PAIRS])))
        message = read_error(server.ask("/v1/predict", {"texts": PAIRS[0]}), 422)
        assert message.endswith('send {"texts": [["...", "..."]]}')


def test_predict_labels_documents(tmp_path):
    texts = ["A good film. The cat sleeps.", "bad", "The dog runs. " * 30]
    model = nse.load(save_document_model(tmp_path / "mine"))
    with serve_inside(model) as server:
        answer = read_json(server.ask("/v1/predict", {"texts": texts}))["predictions"]
        assert_close(answer, without_texts(model.predict(texts)))
        assert [row["sentences"] for row in answer] == [2, 1, 30]


def test_rank_orders_candidates(tmp_path):
    model = nse.load(save_ranking_model(tmp_path / "mine"))
    with serve_inside(model) as server:
        answer = read_json(server.ask("/v1/rank", {"question": "who runs ?", "candidates": CANDIDATES}))
        assert_close(answer["ranking"], without_texts(model.rank("who runs ?", CANDIDATES)))


def test_equal_candidates_have_equal_scores_in_different_batches(tmp_path):
    """In several batches the same text could get different scores."""
    model = nse.load(save_ranking_model(tmp_path / "mine", size=20))
    words = ["a", "dog", "runs", "the", "cat", "sleeps", "good"]
    rng = random.Random(0)
    others = [" ".join(rng.choices(words, k=rng.randrange(1, 9))) for _ in range(60)]
    candidates = [text for text in others for _ in range(3)]
    rng.shuffle(candidates)
    with serve_inside(model, max_batch=7) as server:
        answer = read_json(server.ask("/v1/rank", {"question": "who runs ?", "candidates": candidates}))[
            "ranking"
        ]
    score = {}
    for row in answer:
        score.setdefault(candidates[row["number"] - 1], set()).add(row["score"])
    assert {len(scores) for scores in score.values()} == {1}
    assert answer == sorted(answer, key=lambda row: (-row["score"], row["number"]))
    assert_close(answer, without_texts(model.rank("who runs ?", candidates)))


def test_translate_returns_translations_of_any_beam(tmp_path):
    texts = ["A dog runs.", "the cat, the dog", "Zyx qwv!", "good " * 30]
    model = nse.load(save_translator(tmp_path / "mine"))
    with serve_inside(model) as server:
        for beam in (None, 1, 3):
            answer = read_json(server.ask("/v1/translate", {"texts": texts, "beam": beam}))
            assert answer["translations"] == without_texts(model.translate(texts, beam))
        assert "sentence 2 is empty" in read_error(server.ask("/v1/translate", {"texts": ["a", " "]}), 400)
        wide = {"texts": ["a"], "beam": MAX_BEAM + 1}
        assert read_error(server.ask("/v1/translate", wide), 422).startswith("beam: ")


@pytest.mark.parametrize(
    "make", [save_sentence_model, save_ranking_model, save_translator, save_document_model]
)
def test_encode_returns_vectors(tmp_path, make):
    model = nse.load(make(tmp_path / "mine"))
    with serve_inside(model) as server:
        answer = read_json(server.ask("/v1/encode", {"texts": SENTENCES}))
    expected = model.encode(SENTENCES)
    assert answer["size"] == expected.shape[1]
    for row, vector in zip(answer["vectors"], expected.tolist(), strict=True):
        assert row["vector"] == pytest.approx(vector, abs=1e-6)
    assert [row["words"] for row in answer["vectors"]][:2] == [4, 1]


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (save_sentence_model, "predict"),
        (save_document_model, "predict"),
        (save_ranking_model, "rank"),
        (save_translator, "translate"),
    ],
)
def test_openapi_describes_only_fitting_routes_with_valid_examples(tmp_path, make, own):
    with serve_inside(make(tmp_path / "mine")) as server:
        paths = read_json(server.ask("/openapi.json"))["paths"]
        assert {path for path in paths if "post" in paths[path]} == {f"/v1/{own}", "/v1/encode", "/v1/trace"}
        for path in {"/v1/predict", "/v1/rank", "/v1/translate"} - paths.keys():
            assert read_error(server.ask(path, {"texts": ["a"]}), 400).endswith(f": use /v1/{own}")
        for path, operations in paths.items():
            if "post" not in operations:
                continue
            content = operations["post"]["requestBody"]["content"]["application/json"]
            assert content["examples"]
            for example in content["examples"].values():
                assert server.ask(path, example["value"])[0] == 200


def test_answers_count_truncated_and_unknown_words(tmp_path):
    with serve_inside(save_sentence_model(tmp_path / "mine", max_words=5)) as server:
        ask = {"texts": ["a good film a good film", "zyx qwv"]}
        one, two = read_json(server.ask("/v1/predict", ask))["predictions"]
        assert (one["words"], one["cut"], one["unknown"]) == (5, 1, 0)
        assert (two["words"], two["cut"], two["unknown"]) == (2, 0, 2)
        assert "sentence 1 has 6 words" in read_error(server.ask("/v1/predict", {**ask, "strict": True}), 400)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("max_batch", [1, 8, 64])
def test_answers_do_not_depend_on_other_requests(tmp_path, workers, max_batch):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    rng = random.Random(max_batch)
    requests = []
    for number in range(40):
        texts = [
            " ".join(rng.choices(["a", "good", "bad", "film"], k=rng.randrange(1, 20))) for _ in range(5)
        ]
        texts = texts[: rng.randrange(1, 6)] if number % 7 else texts * 4
        requests.append(rng.choice([("/v1/predict", texts), ("/v1/encode", texts), ("/v1/trace", texts[:1])]))
    with serve_inside(model, workers=workers, max_batch=max_batch) as server, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda ask: read_json(server.ask(ask[0], {"texts": ask[1]})), requests))
    for (path, texts), answer in zip(requests, answers, strict=True):
        if path == "/v1/predict":
            assert_close(answer["predictions"], without_texts(model.predict(texts)))
        elif path == "/v1/encode":
            for row, vector in zip(answer["vectors"], model.encode(texts).tolist(), strict=True):
                assert row["vector"] == pytest.approx(vector, abs=1e-5)
        else:
            assert answer == model.trace(*texts).as_dict()
