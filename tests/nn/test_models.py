"""The paper's pair model and its baselines."""

import pytest
import torch

from nse.nn.models import ENCODERS, PairClassifier, PairConfig
from oracle.problems import assert_close


def classifier(encoder="nse", **kwargs):
    torch.manual_seed(0)
    return PairClassifier(PairConfig(encoder=encoder, size=8, hidden=16, **kwargs), words=20, labels=3).eval()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_pair_does_not_depend_on_its_batch(encoder):
    model = classifier(encoder)
    premise, hypothesis = torch.randint(2, 20, (3, 7)), torch.randint(2, 20, (3, 4))
    lengths, other = torch.tensor([7, 2, 0]), torch.tensor([1, 4, 3])
    together = model(premise, lengths, hypothesis, other)
    assert together.shape == (3, 3)
    for b in range(3):
        alone = model(
            premise[b : b + 1, : lengths[b]],
            lengths[b : b + 1],
            hypothesis[b : b + 1, : other[b]],
            other[b : b + 1],
        )
        assert_close(alone[0], together[b], 1e-6)


def test_only_a_bag_of_words_ignores_order():
    ids = torch.tensor([[5, 6, 7]])
    reordered, lengths = torch.tensor([[6, 7, 5]]), torch.tensor([3])
    for encoder in ENCODERS:
        model = classifier(encoder)
        same = torch.allclose(
            model(ids, lengths, ids, lengths), model(reordered, lengths, ids, lengths), atol=1e-6
        )
        assert same == (encoder == "bow"), encoder


def test_an_lstm_over_padding_is_the_lstm_over_the_words():
    encoder = ENCODERS["lstm"](8, 0.0)
    x, lengths = torch.randn(4, 6, 8, requires_grad=True), torch.tensor([6, 1, 3, 5])
    wanted = encoder.packed(x, lengths)
    found = encoder.padded(x, lengths)
    assert_close(found, wanted, 1e-6)
    inputs = [x, *encoder.parameters()]
    gradients = [torch.autograd.grad(h.square().sum(), inputs) for h in (found, wanted)]
    assert_close(*gradients, 1e-5)


def test_features_are_both_their_signed_difference_and_their_product():
    model = classifier()
    seen = {}
    model.head[0].register_forward_hook(lambda _m, args, _o: seen.update(x=args[0]))
    ids, lengths = torch.randint(2, 20, (2, 5)), torch.tensor([5, 3])
    model(ids, lengths, ids.flip(0), lengths.flip(0))
    p, h, difference, product = seen["x"].chunk(4, dim=-1)
    assert_close([difference, product], [p - h, p * h], 0)
    assert_close([p[0], p[1]], [h[1], h[0]], 1e-6)  # one encoder for both


def test_parameters_of_the_paper():
    model = PairClassifier(PairConfig(), words=2, labels=3)
    assert sum(p.numel() for n, p in model.named_parameters() if "embedding" not in n) == 3_398_299


def test_settings_that_make_no_model_are_refused():
    with pytest.raises(ValueError, match="size and hidden must be at least 1"):
        PairConfig(size=0)
    with pytest.raises(ValueError, match="dropout"):
        PairConfig(dropout=1.0)
