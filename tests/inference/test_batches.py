"""Batches side by side give what batches one after the other give, in the same order."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import nse
from faults.made_models import save_model
from nse.errors import RunError
from nse.inference import batches as computing
from small_models import (
    SENTENCES,
    save_document_model,
    save_ranking_model,
    save_sentence_model,
    save_translator,
)


@pytest.fixture
def spread(monkeypatch):
    """Three threads, as `use_thread_pool` makes them."""
    monkeypatch.setattr(computing, "count_cores", lambda: 3)
    with ThreadPoolExecutor(3) as threads:
        yield lambda: monkeypatch.setattr(computing, "_threads", threads)


@pytest.mark.parametrize("batch", [1, 2, 128])
def test_threads_do_not_change_labels_and_vectors(batch, spread, tmp_path):
    model, texts = nse.load(save_sentence_model(tmp_path / "mine")), SENTENCES * 3 + ["a good film " * 9]
    wanted, vectors = model.predict(texts), torch.from_numpy(model.encode(texts))
    spread()
    for row, other in zip(model.predict(texts, batch), wanted, strict=True):
        chances, others = row.pop("probabilities"), dict(other)["probabilities"]
        assert row == {name: value for name, value in other.items() if name != "probabilities"}
        assert chances == pytest.approx(others, abs=1e-6)
    torch.testing.assert_close(torch.from_numpy(model.encode(texts, batch)), vectors, rtol=1e-5, atol=1e-6)


def test_threads_do_not_change_rankings_and_translations(spread, tmp_path):
    ranker = nse.load(save_ranking_model(tmp_path / "ranker"))
    documents = nse.load(save_document_model(tmp_path / "documents"))
    translating = nse.load(save_translator(tmp_path / "translator"))
    asks = [
        lambda: [row["number"] for row in ranker.rank("who runs ?", ["a dog", "the cat sleeps", "who ?"])],
        lambda: [row["label"] for row in documents.predict(["A dog runs. Good.", "Bad.", "The cat. Who?"])],
        lambda: translating.translate(["a dog runs", "the cat", "a", "the dog"]),
    ]
    wanted = [ask() for ask in asks]
    spread()
    assert [ask() for ask in asks] == wanted


def test_no_texts_give_no_answers_with_threads(spread, tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    spread()
    assert model.predict([]) == []
    assert len(model.encode([])) == 0


def test_an_error_in_a_thread_is_raised(spread, tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    spread()

    def wrong(*inputs):
        raise RunError("no such number")

    model.module.represent = wrong
    with pytest.raises(RunError, match="no such number"):
        model.encode(SENTENCES)


def test_the_thread_pool_uses_every_core_with_one_torch_thread_each():
    assert computing.limit_batch(128, 10) == 128
    computing.use_thread_pool()  # tests have one thread each anyway
    try:
        assert torch.get_num_threads() == 1
        assert computing._threads._max_workers == computing.count_cores()
        assert computing.limit_batch(128, 10) == -(-10 // computing.count_cores())
        assert computing.limit_batch(2, 10) == 2
    finally:
        computing._threads.shutdown()


@pytest.mark.parametrize(
    ("make", "model"),
    [
        (save_model, {}),
        (save_model, {"model": {"encoder": "mma", "directions": 2}}),
        (save_model, {"model": {"attention": "aligned", "pool": "mean-max"}}),
        (save_sentence_model, {}),
        (save_sentence_model, {"pool": "mean-max", "padding": "paper", "max_words": 3}),
        (save_sentence_model, {"encoder": "lstm", "directions": 2, "embedding_size": 4}),
        (save_sentence_model, {"encoder": "bow"}),
        (save_ranking_model, {}),
        (save_document_model, {}),
        (save_document_model, {"reader": "lstm"}),
        (save_translator, {}),
        (save_translator, {"directions": 2}),
    ],
)
def test_no_texts_give_an_empty_array_of_the_vector_size(make, model, tmp_path):
    make(tmp_path / "mine", **model)
    loaded = nse.load(tmp_path / "mine")
    none, one = loaded.encode([]), loaded.encode(["a dog"])
    assert none.shape == (0, one.shape[1])
    assert none.dtype == one.dtype
