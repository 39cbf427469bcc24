"""Attention against the formulas, one word at a time."""

import pytest
import torch

from nse.nn.attention import Alignment, Attention, masked_softmax
from oracle.problems import assert_close

LENGTHS = torch.tensor([5, 2, 0, 1])


def sentences(T=5, k=6):
    return torch.randn(4, T, k, dtype=torch.float64)


def attended(attention, words, question):
    """e_l = w . relu(W_h h_l + W_q q + biases), softmax over the words h_l, and their weighted mean."""
    scores = []
    for h in words:
        key = attention.key.weight @ h + attention.key.bias
        query = attention.query.weight @ question + attention.query.bias
        hidden = (key + query).clamp(min=0)
        scores.append((attention.score.weight[0] @ hidden + attention.score.bias[0]).exp())
    total = torch.zeros_like(question)
    for score, h in zip(scores, words, strict=True):
        total = total + score / sum(scores) * h
    return total


def test_attention_equals_its_formula():
    attention, words, question = Attention(6).double(), sentences(), torch.randn(4, 6, dtype=torch.float64)
    actual = attention(words, LENGTHS, question)
    assert actual.shape == (4, 6)
    for b, length in enumerate(LENGTHS):
        assert_close(actual[b], attended(attention, words[b, :length], question[b]), 1e-12)
    assert (actual[2] == 0).all()


def test_attention_has_as_many_parameters_as_in_the_paper():
    assert sum(p.numel() for p in Attention(300).parameters()) == 2 * (300 * 300 + 300) + 300 + 1


def test_padding_gets_no_attention_and_no_gradient():
    attention, words = Attention(6).double(), sentences().requires_grad_()
    question = torch.randn(4, 6, dtype=torch.float64)
    actual = attention(words, LENGTHS, question)
    actual.square().sum().backward()
    other = words.detach().clone()
    for b, length in enumerate(LENGTHS):
        assert (words.grad[b, length:] == 0).all()
        assert (words.grad[b, :length] != 0).any(dim=-1).all()
        other[b, length:] = 1e6
    assert torch.equal(attention(other, LENGTHS, question), actual)
    assert all(p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_masked_softmax_is_zero_outside_the_mask(dtype):
    scores = torch.tensor([[3.0, -1e30, 1.0], [1e4, -1e4, 0.0], [5.0, 5.0, 5.0]], dtype=dtype)
    allowed = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    weights = masked_softmax(scores, allowed)
    first = torch.tensor([3.0, 1.0], dtype=dtype).softmax(dim=0)
    expected = torch.tensor([[first[0], 0.0, first[1]], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert_close(weights, expected, 1e-2 if dtype == torch.bfloat16 else 1e-6)
    assert (weights[~allowed] == 0).all()


def compared(alignment, words, others):
    """Each word beside its match, which is the mean of the others weighted by softmax of the products."""
    result = []
    for a in words:
        b = torch.zeros_like(a)
        scores = [(a @ other).exp() for other in others]
        for score, other in zip(scores, others, strict=True):
            b = b + score / sum(scores) * other
        features = torch.cat([a, b, a - b, a * b])
        result.append((alignment.compare.weight @ features + alignment.compare.bias).clamp(min=0))
    return torch.stack(result)


def test_alignment_equals_a_loop_over_words():
    alignment = Alignment(6, 3, dropout=0.0).double()
    premise, hypothesis, lengths = sentences(5), sentences(4), torch.tensor([4, 0, 3, 1])
    a, b = alignment(premise, LENGTHS, hypothesis, lengths)
    assert (a.shape, b.shape) == ((4, 5, 3), (4, 4, 3))
    for row, (n, m) in enumerate(zip(LENGTHS, lengths, strict=True)):
        p, h = premise[row, :n], hypothesis[row, :m]
        if n:
            assert_close(a[row, :n], compared(alignment, p, h), 1e-12)
        if m:
            assert_close(b[row, :m], compared(alignment, h, p), 1e-12)
        assert (a[row, n:] == 0).all()
        assert (b[row, m:] == 0).all()


def test_alignment_is_symmetric():
    alignment = Alignment(6, 3, dropout=0.0).double()
    premise, hypothesis, lengths = sentences(5), sentences(4), torch.tensor([4, 0, 3, 1])
    there = alignment(premise, LENGTHS, hypothesis, lengths)
    back = alignment(hypothesis, lengths, premise, LENGTHS)
    assert_close(there, back[::-1], 1e-12)


def test_alignment_ignores_the_padding():
    alignment = Alignment(6, 3, dropout=0.0).double()
    premise, hypothesis, lengths = sentences(5), sentences(4), torch.tensor([4, 0, 3, 1])
    expected = alignment(premise, LENGTHS, hypothesis, lengths)
    for words, real in ((premise, LENGTHS), (hypothesis, lengths)):
        for row, length in enumerate(real):
            words[row, length:] = 1e3
    assert_close(alignment(premise, LENGTHS, hypothesis, lengths), expected, 1e-12)


def test_alignment_has_dropout_only_in_training():
    alignment = Alignment(6, 3, dropout=0.5)
    a, b = torch.randn(1, 3, 6), torch.randn(1, 3, 6)
    assert not torch.equal(alignment.compare_words(a, b), alignment.compare_words(a, b))
    alignment.eval()
    assert torch.equal(alignment.compare_words(a, b), alignment.compare_words(a, b))
