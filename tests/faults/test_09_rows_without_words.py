"""Fault 9, in the library and on the command line: rows without words, blank and unknown texts, one token."""

import pytest
import torch

import nse
from faults.made_models import get_refusal, save_model, shell
from small_models import save_sentence_model


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize("lengths", [[0, 3, 1], [0, 0, 0]])
def test_a_row_of_padding_has_the_same_outputs_in_every_backend(lengths, shared):
    torch.manual_seed(1)
    reference = nse.NSE(5, shared=shared, backend="reference")
    fast = nse.NSE(5, shared=shared, backend="torch")
    fast.load_state_dict(reference.state_dict())
    x = torch.randn(3, 3, 5)
    others = [nse.Memory(torch.randn(3, 2, 5), torch.tensor([2, 0, 1]))] * shared
    expected, actual = (encoder(x, lengths, shared=others) for encoder in (reference, fast))
    assert expected.last.isfinite().all()
    assert torch.equal(expected.last[0], torch.zeros(5))  # the h it started with
    assert torch.equal(expected.outputs[0], torch.zeros(3, 5))
    torch.testing.assert_close(actual.outputs, expected.outputs)
    torch.testing.assert_close(actual.last, expected.last)
    torch.testing.assert_close(actual.memory.slots, expected.memory.slots)


@pytest.mark.parametrize("frozen", [False, True])  # whether words are data, or learned
@pytest.mark.parametrize(
    "settings", [{}, {"shared": 1, "layers": 2}, {"dropout": 0.5, "blanks": 2, "starts": 1}]
)
@pytest.mark.parametrize(
    ("B", "T", "lengths"),
    [(3, 4, [0, 0, 0]), (3, 0, None), (3, 0, [0, 0, 0]), (0, 4, None), (0, 4, []), (0, 0, ())],
)
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_batch_without_words_has_gradients(backend, B, T, lengths, settings, frozen):
    encoder = nse.NSE(5, backend=backend, **settings)
    x = torch.randn(B, T, 5, requires_grad=not frozen)
    out = encoder(x, lengths, shared=[torch.randn(B, 2, 5)] * encoder.shared, trace=True)
    assert out.outputs.shape == (B, T, 5)
    assert out.keys.shape[:2] == (B, T)
    (out.outputs.sum() + out.last.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
    if not settings.get("starts"):
        assert not any(p.grad.any() for p in encoder.parameters())
    assert frozen or not x.grad.any()


def test_a_row_of_padding_has_the_same_scores_as_an_answer(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine")).module
    ids, lengths = torch.tensor([[2, 3], [0, 0], [1, 1]]), torch.tensor([2, 0, 1])
    with torch.inference_mode():
        actual = model(ids, lengths)
    expected = model(ids, lengths)
    assert expected.isfinite().all()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_blank_text_on_the_command_line_is_named(tmp_path):
    save_model(tmp_path / "mine")
    for first, second, name in (("", "dogs", "premise"), ("dogs", " \t", "hypothesis")):
        message = get_refusal(shell("predict", "mine", first, second, cwd=tmp_path))
        assert f"{name} 1 is empty: give it at least one word" in message


def test_unknown_words_and_single_tokens_are_answered(tmp_path):
    save_model(tmp_path / "mine")
    answer = shell("predict", "mine", "zyx qwv", "dogs", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "2 of 3 words unknown" in answer.stdout
