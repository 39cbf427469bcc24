"""An encoder that starts by looking its words up: what it does before anything is learned."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

import nse
from nse.nn.pair import PairClassifier, PairConfig

K, T = 64, 7


def words(seed=0):
    """Make sentences of distinct words, scaled as published vectors are."""
    return 0.6 * torch.randn(5, T, K, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(1)


def actual(keys, at):
    """Compute the fraction of steps whose largest weight is at the expected slot."""
    return (keys.argmax(-1) == at).float().mean().item()


@pytest.mark.parametrize("layers", [1, 2])
def test_with_lookup_each_word_reads_its_own_slot(layers):
    x, own = words(), torch.arange(T)
    assert actual(nse.NSE(K, init="lookup", layers=layers)(x, trace=True).keys, own) > 0.95
    assert actual(nse.NSE(K, layers=layers)(x, trace=True).keys, own) < 0.5


def test_with_lookup_a_word_is_read_from_a_shared_memory():
    x, order = words(), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    first, second = nse.NSE(K, init="lookup"), nse.NSE(K, shared=1, init="lookup")
    [keys] = second(x[:, order], shared=[first(x).memory], trace=True).shared_keys
    assert actual(keys, order) > 0.95
    first, second = nse.NSE(K), nse.NSE(K, shared=1)
    [keys] = second(x[:, order], shared=[first(x).memory], trace=True).shared_keys
    assert actual(keys, order) < 0.5


@pytest.mark.parametrize("layers", [1, 2])
def test_with_lookup_outputs_are_in_the_space_of_the_words(layers):
    x = words()
    outputs = nse.NSE(K, init="lookup", layers=layers)(x).outputs
    assert cosine_similarity(outputs, x, dim=-1).mean() > 0.5
    assert nse.NSE(K, layers=layers)(x).outputs.mul(x).sum(-1).mean().abs() < 0.5


def test_the_random_part_has_the_given_range():
    """With range 0 an encoder does not depend on the seed."""
    made = [nse.NSE(4, shared=1, layers=2, init="lookup", init_range=r) for r in (0.0, 0.0, 0.1, 0.1)]
    for name, a, b, c, d in zip(made[0].state_dict(), *(m.state_dict().values() for m in made), strict=True):
        assert torch.equal(a, b), name
        assert not torch.equal(c, d), name
        assert (c - a).abs().max() <= 0.1 * (1 + 1e-6), name
    assert torch.equal(made[0].compose.weight, torch.eye(12))


def test_reset_parameters_restores_the_lookup():
    encoder = nse.NSE(K, init="lookup")
    encoder.reset_parameters()
    assert actual(encoder(words(), trace=True).keys, torch.arange(T)) > 0.95


@pytest.mark.parametrize("init_range", [0.0, 0.05])
def test_every_encoder_of_a_model_is_initialised_as_configured(init_range):
    settings = {"size": K, "directions": 2, "init": "lookup", "init_range": init_range, "max_words": 9}
    models = [
        PairClassifier(PairConfig(encoder="mma", attention="paper", **settings), 5, 3),
        PairClassifier(PairConfig(attention="aligned", reader="nse", **settings), 5, 3),
    ]
    encoders = [module for model in models for module in model.modules() if isinstance(module, nse.NSE)]
    assert len(encoders) == 4 + 4
    for encoder in encoders:
        assert encoder.init == "lookup"
        rest = encoder.compose.weight.detach() - torch.eye(encoder.compose.in_features)
        assert 0 < rest.abs().max() <= (init_range or 0.1)
    for model in models:
        assert model.head[0].weight.abs().max() <= (init_range or 1)
