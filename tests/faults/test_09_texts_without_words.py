"""Fault 9: empty, spaces only, every word unknown, one token: a defined answer, or 400 that says why."""

import pytest

from serve.inside import serve_inside
from serve.running import read_error, read_json, send
from small_models import save_document_model, save_ranking_model, save_translator

BLANK = ["", " ", "\t\n\r ", "\u00a0\u2003\u3000", "\u2028\u2029\x85"]


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/encode", "/v1/trace"])
def test_a_blank_text_is_named(served, path):
    for blank in BLANK:
        texts = [blank] if path == "/v1/trace" else ["good", blank, "bad"]
        number = "" if path == "/v1/trace" else " 2"
        message = read_error(send(served, path, {"texts": texts}), 400)
        assert message == f"sentence{number} is empty: give it at least one word"


def test_unknown_words_get_the_same_answers_alone_and_in_a_batch(served):
    texts = ["zyx", "zyx qwv vwx", "good", "\u200b", "\ufffd", "\U0001f600", "."]
    together = read_json(send(served, "/v1/predict", {"texts": texts}))["predictions"]
    assert [row["unknown"] for row in together] == [1, 3, 0, 1, 1, 1, 0]
    for text, row in zip(texts, together, strict=True):
        [alone] = read_json(send(served, "/v1/predict", {"texts": [text]}))["predictions"]
        assert alone["label"] == row["label"]
        assert alone["probabilities"] == pytest.approx(row["probabilities"], abs=1e-6)
        assert sum(alone["probabilities"].values()) == pytest.approx(1)
    one, three = together[0], together[1]
    assert one["probabilities"] != three["probabilities"]  # that there were words counts, unknown ones too


@pytest.mark.parametrize("make", [save_ranking_model, save_translator, save_document_model])
def test_models_of_every_kind_say_which_text_is_empty(tmp_path, make):
    with serve_inside(make(tmp_path / "mine")) as server:
        for blank in BLANK:
            asks = {
                save_ranking_model: ("/v1/rank", {"question": "who ?", "candidates": ["a dog", blank]}),
                save_translator: ("/v1/translate", {"texts": ["a dog", blank]}),
                save_document_model: ("/v1/predict", {"texts": ["A dog runs.", blank]}),
            }
            assert " 2 is empty: give it at least one word" in read_error(server.ask(*asks[make]), 400)
        if make is save_translator:
            for path, texts in (
                ("/v1/translate", ["a dog", "\x9b\u200b"]),
                ("/v1/encode", ["a dog", "\xad"]),
            ):
                assert "sentence 2 is empty" in read_error(server.ask(path, {"texts": texts}), 400)
        if make is save_ranking_model:
            ask = {"question": " ", "candidates": ["a dog"]}
            assert read_error(server.ask("/v1/rank", ask), 400).startswith("question is empty")
