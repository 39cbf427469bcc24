"""Models answer with products in bfloat16 where the device has them, and in float32 where it has not."""

import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import nse
from nse.errors import InputError
from nse.inference import batches
from nse.nn.translator import Translator
from nse.ops.cpu import call
from nse.ops.cpu.library import explain_no_kernel
from nse.ops.dispatch import explain_no_bfloat16
from small_models import (
    CANDIDATES,
    SENTENCES,
    save_document_model,
    save_ranking_model,
    save_sentence_model,
    save_translator,
)

PAIRS = [("Two dogs play in the snow.", "The animals are outdoors."), ("A man sleeps.", "He runs.")] * 3


@pytest.fixture
def bfloat16(monkeypatch):
    """A CPU whose users may ask for bfloat16; where it has no such products, PyTorch alone rounds."""
    monkeypatch.setattr("nse.inference.folder.explain_no_bfloat16", lambda device: None)
    return "bfloat16"


def list_chances(rows):
    return np.array([list(row["probabilities"].values()) for row in rows])


@pytest.mark.parametrize("threads", [0, 2])
def test_the_shipped_model_gives_almost_the_same_probabilities_in_bfloat16(threads, bfloat16, monkeypatch):
    exact, half = nse.load("snli"), nse.load("snli", precision=bfloat16)
    assert (exact.precision, half.precision) == ("float32", "bfloat16")
    with ThreadPoolExecutor(threads or 1) as pool:
        monkeypatch.setattr(batches, "_threads", pool if threads else None)
        wanted, got = (list_chances(model.predict(PAIRS, batch=2)) for model in (exact, half))
    assert 0 < np.abs(got - wanted).max() < 0.03
    assert got.sum(axis=1) == pytest.approx(1, abs=1e-6)


def test_scores_and_vectors_are_float32(bfloat16, tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"), precision=bfloat16)
    assert model.compute(model.request("predict", SENTENCES)).dtype == torch.float32
    vectors = model.encode(SENTENCES)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, nse.load(tmp_path / "mine").encode(SENTENCES), atol=0.02)


@pytest.mark.parametrize("encoder", ["nse", "lstm", "bow"])
@pytest.mark.parametrize(
    ("save", "ask"),
    [
        (save_sentence_model, lambda model: list_chances(model.predict(SENTENCES))),
        (save_document_model, lambda model: list_chances(model.predict(["A dog runs. Good.", "Bad."]))),
        (
            lambda folder, encoder: save_ranking_model(
                folder, encoder={"nse": "mma"}.get(encoder, encoder), word_overlap=True
            ),
            lambda model: sorted(row["score"] for row in model.rank("who runs ?", CANDIDATES)),
        ),
    ],
    ids=["sentence", "document", "ranking"],
)
def test_every_kind_answers_almost_the_same_in_bfloat16(save, ask, encoder, bfloat16, tmp_path):
    save(tmp_path / "mine", encoder=encoder)
    exact, half = nse.load(tmp_path / "mine"), nse.load(tmp_path / "mine", precision=bfloat16)
    assert ask(half) == pytest.approx(ask(exact), abs=0.02)


@pytest.mark.parametrize("model", [{}, {"directions": 2}, {"encoder": "lstm", "decoder": "lstm"}], ids=str)
def test_translations_have_almost_the_same_scores_in_bfloat16(model, bfloat16, tmp_path, monkeypatch):
    save_translator(tmp_path / "mine", **model)
    found, translate = [], Translator.translate

    def note(self, *arguments):
        found.append(translate(self, *arguments))
        return found[-1]

    monkeypatch.setattr(Translator, "translate", note)
    for precision in ("float32", bfloat16):
        nse.load(tmp_path / "mine", precision=precision).translate(["a dog runs", "the cat", "a"], beam=2)
    exact, half = (result.log_probs for result in found)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, exact, rtol=0.1, atol=0.1)


def test_an_unknown_precision_is_an_error_that_names_the_choices(tmp_path):
    with pytest.raises(InputError, match="precision: expected float32 or bfloat16, got 'half'"):
        nse.load(save_sentence_model(tmp_path / "mine"), precision="half")


@pytest.mark.skipif(explain_no_kernel() is not None, reason="there is no CPU kernel")
def test_a_cpu_without_bfloat16_uses_float32_and_says_so_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(call, "supports_half", lambda: False)
    with caplog.at_level(logging.INFO):
        model = nse.load(save_sentence_model(tmp_path / "mine"), precision="bfloat16")
    assert model.precision == "float32"
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "float32 is used instead: the CPU has no products of bfloat16" in record.getMessage()
    assert model.predict(SENTENCES) == nse.load(tmp_path / "mine").predict(SENTENCES)


def test_without_the_kernel_there_is_no_bfloat16(monkeypatch):
    monkeypatch.setattr("nse.ops.cpu.library.explain_no_kernel", lambda: "it was not compiled")
    assert explain_no_bfloat16(torch.device("cpu")) == "it was not compiled"


def test_float32_is_exact_whatever_autocast_says_around_it(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    wanted = model.predict(SENTENCES)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.predict(SENTENCES) == wanted


def test_a_pickle_keeps_the_precision(bfloat16, tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"), precision=bfloat16)
    other = pickle.loads(pickle.dumps(model))
    assert other.precision == "bfloat16"
    assert other.predict(SENTENCES) == model.predict(SENTENCES)
