"""The paper's models of sentences and of pairs, and their baselines, in all that makes a model."""

import copy
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nse
from nse.errors import ConfigError
from nse.nn.pair import PairClassifier, PairConfig, measure_overlap
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.nn.sentence_encoder import reverse_sequences
from nse.nn.text_model import PAD, UNKNOWN, pad_left
from nse.tasks import load_recipe
from oracle.problems import assert_close

WORDS, PREMISE, HYPOTHESIS = 20, torch.tensor([6, 2, 0, 3, 0]), torch.tensor([1, 4, 3, 0, 0])


def configurations():
    """Encoders, directions, pools, attentions and readers that go together."""
    encoders = [*product(("nse", "mma", "lstm"), (1, 2)), ("bow", 1)]
    pools = ("last", "max", "mean-max")
    heads = [(pool, "none", "none") for pool in pools]
    heads += [(pool, "paper", "none") for pool in pools[:2]]
    heads += [(pool, "aligned", "none") for pool in pools[1:]]
    heads += [(pool, "aligned", "nse") for pool in pools]
    names = ("encoder", "directions", "pool", "attention", "reader")
    return [dict(zip(names, (*encoder, *head), strict=True)) for encoder, head in product(encoders, heads)]


EVERY = pytest.mark.parametrize(
    "settings", configurations(), ids=lambda settings: "-".join(map(str, settings.values()))
)
ENCODERS = pytest.mark.parametrize("encoder", ["nse", "mma", "lstm", "bow"])


def classifier(encoder="nse", **settings):
    torch.manual_seed(0)
    config = PairConfig(**{"encoder": encoder, "size": 4, "hidden": 16, **settings})
    return PairClassifier(config, WORDS, labels=3).double().eval()


def pairs(T=6):
    return torch.randint(2, WORDS, (5, T)), PREMISE, torch.randint(2, WORDS, (5, 4)), HYPOTHESIS


def one(batch, b):
    """A pair of a batch by itself, without padding."""
    premise, n, hypothesis, m = batch
    return premise[b : b + 1, : n[b]], n[b : b + 1], hypothesis[b : b + 1, : m[b]], m[b : b + 1]


def wider(batch):
    """The same pairs, with words in the padding and more of it."""
    premise, n, hypothesis, m = batch
    more = torch.randint(2, WORDS, (5, 3))
    return torch.cat([premise, more], dim=1), n, torch.cat([hypothesis, more, more], dim=1), m


@EVERY
@pytest.mark.parametrize("padding", ["masked", "paper"])
def test_a_pair_depends_on_neither_batch_nor_padding(settings, padding):
    """Also where its premise, its hypothesis or both have no words."""
    model, batch = classifier(**settings, padding=padding, max_words=7), pairs()
    together = model(*batch)
    assert together.shape == (5, 3)
    assert together.isfinite().all()
    assert_close(model(*wider(batch)), together, 1e-12)
    alone = torch.cat([model(*one(batch, b)) for b in range(5)])
    assert_close(alone, together, 1e-12)


@EVERY
def test_a_batch_of_empty_sentences_has_finite_scores(settings):
    model, nothing = classifier(**settings), torch.zeros(2, dtype=torch.long)
    actual = model(torch.zeros(2, 0, dtype=torch.long), nothing, torch.zeros(2, 0, dtype=torch.long), nothing)
    padded = model(torch.zeros(2, 3, dtype=torch.long), nothing, torch.zeros(2, 3, dtype=torch.long), nothing)
    assert actual.isfinite().all()
    assert_close(padded, actual, 1e-12)
    batch = pairs()
    assert_close(model(*batch)[4].expand(2, -1), actual, 1e-12)


@EVERY
def test_gradients_reach_every_trained_parameter(settings):
    learned = {"blanks": 2, "starts": 1} if settings["encoder"] in ("nse", "mma") else {}
    model = classifier(**settings, **learned, embedding_size=5, size=8, hidden=16)
    scores = model(*pairs())
    assert all(score.unique().numel() > 1 for score in scores.T)
    scores.square().sum().backward()
    for name, parameter in model.named_parameters():
        if name != "attention.score.bias":  # softmax does not see it; it belongs to the paper's count
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().sum() > 0, name


@EVERY
def test_long_sentences_are_truncated(settings):
    model, batch = classifier(**settings, max_words=3), pairs()
    premise, n, hypothesis, m = batch
    whole = classifier(**settings)
    whole.load_state_dict(model.state_dict())
    actual = model(*batch)
    assert_close(actual, whole(premise[:, :3], n.clamp(max=3), hypothesis[:, :3], m.clamp(max=3)), 1e-12)
    assert not torch.allclose(actual[:2], whole(*batch)[:2])
    assert_close(actual[2:], whole(*batch)[2:], 1e-12)


@ENCODERS
def test_only_a_bag_of_words_ignores_order(encoder):
    ids, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
    model = classifier(encoder)
    actual, turned = (model(premise, lengths, ids, lengths) for premise in (ids, ids.flip(1)))
    assert torch.allclose(actual, turned) == (encoder == "bow")


@ENCODERS
def test_the_head_sees_both_vectors_their_signed_difference_and_product(encoder):
    model, seen = classifier(encoder), {}
    model.head[0].register_forward_hook(lambda _m, args, _o: seen.update(x=args[0]))
    premise, n, *_ = batch = pairs()
    model(*batch)
    p, h, difference, product_ = seen["x"].chunk(4, dim=-1)
    assert_close([difference, product_], [p - h, p * h], 0)
    first = model.encoder(model.embed(premise), n)
    assert_close(p, first.last, 1e-12)
    model(premise, n, premise, n)
    p, h, _, _ = seen["x"].chunk(4, dim=-1)
    assert torch.allclose(p, h) == (encoder != "mma")  # one encoder for both


@pytest.mark.parametrize("masked", ["", "-masked"])
@pytest.mark.parametrize(
    ("recipe", "count"), [("snli/nse", 3_398_299), ("snli/mma", 6_373_999), ("snli/mma-attention", 6_554_900)]
)
def test_models_have_as_many_parameters_as_in_the_paper(recipe, count, masked):
    config = load_recipe(recipe + masked).model
    with torch.device("meta"):
        model = PairClassifier(config, vocab_size=5, labels=3)
    assert not model.embedding.weight.requires_grad
    assert sum(p.numel() for n, p in model.named_parameters() if n != "embedding.weight") == count


@pytest.mark.parametrize("trained", [False, True])
def test_word_vectors_are_trained_only_if_configured(trained):
    model = classifier(trainable=trained).train()
    assert model.embedding.weight.requires_grad == trained
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], weight_decay=0.1)
    model(*pairs()).square().sum().backward()
    optimizer.step()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == before.keys() - (set() if trained else {"embedding.weight"})


def test_initial_weights_are_in_the_configured_range():
    model = classifier("mma", attention="paper", init_range=0.01, blanks=2, starts=2, embedding_size=5)
    for name, parameter in model.named_parameters():
        assert (parameter.abs().max() <= 0.01) == (name != "embedding.weight"), name


@pytest.mark.parametrize(("words", "size"), [(400, 100), (30, 50)])
def test_a_fixed_projection_keeps_lengths_and_is_not_trained(words, size):
    model = classifier(embedding_size=words, size=size, init_range=0.5, projection="fixed")
    vectors = torch.randn(200, words, generator=torch.Generator().manual_seed(1)).double()
    ratio = model.projection(vectors).norm(dim=1) / vectors.norm(dim=1)
    assert abs(ratio.mean() - 1) < 0.02
    assert ratio.std() < 0.1
    assert not any(p.requires_grad for p in model.projection.parameters())


REFUSED = [
    ({"size": 0}, "size must be at least 1 and at most 65,536, got 0"),
    ({"layers": 0}, "layers must be at least 1 and at most 64, got 0"),
    ({"hidden": 0}, "hidden must be at least 1 and at most 65,536, got 0"),
    ({"embedding_size": -1}, "embedding_size must be at least 0 and at most 65,536, got -1"),
    ({"max_words": -1}, "max_words must be at least 0 and at most 10,000, got -1"),
    ({"blanks": -1}, "blanks must be at least 0 and at most 1,000, got -1"),
    ({"starts": -1}, "starts must be at least 0 and at most 1,000, got -1"),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
    ({"embedding_dropout": 1.0}, "embedding_dropout must be at least 0 and below 1, got 1.0"),
    ({"directions": 0}, "directions must be at least 1 and at most 2, got 0"),
    ({"directions": 3}, "directions must be at least 1 and at most 2, got 3"),
    ({"init_range": -0.1}, "init_range must be at least 0 and at most 10, got -0.1"),
    ({"padding": "paper", "max_words": 0}, 'padding = "paper" needs max_words'),
    ({"reader": "nse"}, 'reader = "nse" needs attention = "aligned"'),
    ({"reader": "nse", "attention": "paper"}, 'reader = "nse" needs attention = "aligned"'),
    ({"attention": "aligned"}, 'attention = "aligned" without a reader needs pool = "max" or "mean-max"'),
    ({"attention": "paper", "pool": "mean-max"}, 'attention = "paper" needs pool = "last" or "max"'),
    ({"projection": "fixed"}, 'projection = "fixed" needs an embedding_size other than size'),
    (
        {"projection": "fixed", "embedding_size": 300},
        'projection = "fixed" needs an embedding_size other than size',
    ),
    ({"encoder": "lstm", "init": "lookup"}, 'init = "lookup" needs an NSE as the encoder'),
    ({"encoder": "lstm", "blanks": 1}, "blanks and starts need an NSE as the encoder"),
    ({"encoder": "bow", "starts": 1}, "blanks and starts need an NSE as the encoder"),
    ({"encoder": "bow", "directions": 2}, "a bag of words has no directions and no layers"),
    ({"encoder": "bow", "layers": 2}, "a bag of words has no directions and no layers"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=r"\w") as refused:
        PairConfig(**settings)
    assert message in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        load_recipe("snli/nse-masked", [f"model.{key}={value}" for key, value in settings.items()])
    named = message.replace(" ", ": ", 1)  # of a number that is out of range, its key
    assert f"model: {message}" in str(refused.value) or f"model.{named}" in str(refused.value)
    assert f"model.{next(iter(settings))}" in str(refused.value)


# Padding as in the paper: on the left, and read like any other word.


def test_pad_left_equals_a_loop():
    ids, lengths = torch.randint(2, WORDS, (5, 6)), PREMISE
    for longest in (6, 9):
        actual, counted = pad_left(ids, lengths, longest)
        assert counted.tolist() == [longest] * 5
        for row, length, padded in zip(ids.tolist(), lengths.tolist(), actual.tolist(), strict=True):
            assert padded == [PAD] * (longest - length) + row[:length]
    again = pad_left(*pad_left(ids, lengths, 9), 9)
    assert_close(again, pad_left(ids, lengths, 9), 0)
    short = pad_left(torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, dtype=torch.long), 3)
    assert short[0].tolist() == [[PAD] * 3] * 2


def by_hand(model, ids, lengths):
    """One NSE over words that were padded on the left one sentence at a time."""
    longest = model.config.max_words
    rows = [[PAD] * (longest - n) + row[:n] for row, n in zip(ids.tolist(), lengths.tolist(), strict=True)]
    encoder = nse.NSE(model.config.size, dtype=torch.float64)
    encoder.load_state_dict(model.encoder.nse[0].state_dict())
    return encoder(model.embedding.weight[torch.tensor(rows)])


@pytest.mark.parametrize("attention", ["none", "paper"])
def test_padding_on_the_left_is_read_and_attended_to(attention):
    model, seen = classifier(padding="paper", max_words=7, attention=attention), {}
    with torch.no_grad():
        model.embedding.weight[PAD] = torch.randn(4)
    model.head[0].register_forward_hook(lambda _m, args, _o: seen.update(x=args[0]))
    premise, n, hypothesis, m = batch = pairs()
    model(*batch)
    p, h, _, _ = seen["x"].chunk(4, dim=-1)
    first, second = by_hand(model, premise, n), by_hand(model, hypothesis, m)
    assert_close(h, second.last, 1e-12)
    if attention == "none":
        assert_close(p, first.last, 1e-12)
        return
    assert_close(p, model.attention(first.outputs, torch.full((5,), 7), second.last), 1e-12)
    for b, length in enumerate(n):
        words = model.attention(first.outputs[b : b + 1, 7 - length :], length[None], second.last[b : b + 1])
        assert (p[b] - words[0]).abs().max() > 1e-6  # not what it is without the pads


@pytest.mark.parametrize("encoder", ["nse", "mma", "lstm", "bow"])
@pytest.mark.parametrize("padding", ["masked", "paper"])
def test_the_vector_of_the_padding_matters_only_as_in_the_paper(encoder, padding):
    model, batch = classifier(encoder, padding=padding, max_words=7), pairs()
    before = model(*batch)
    with torch.no_grad():
        model.embedding.weight[PAD] += 1
    after = model(*batch)
    assert torch.equal(before, after) == (padding == "masked")
    assert (before != after).any(dim=-1).all() == (padding == "paper")


def test_a_long_sentence_keeps_its_first_32_words_with_the_papers_padding():
    assert load_recipe("snli/nse").model.max_words == 32
    model = classifier(padding="paper", max_words=32)
    ids, all_of_it, some = torch.randint(2, WORDS, (2, 40)), torch.tensor([40, 33]), torch.tensor([32, 32])
    other, m = torch.randint(2, WORDS, (2, 4)), torch.tensor([4, 2])
    actual = model(ids, all_of_it, other, m)
    assert_close(model(ids[:, :32], some, other, m), actual, 1e-12)
    assert not torch.allclose(model(ids[:, -32:], some, other, m), actual)


# MMA-NSE: the hypothesis reads and writes the premise's memory.


@pytest.mark.parametrize("directions", [1, 2])
def test_the_hypothesis_reads_the_memory_of_the_premise(directions):
    model = classifier("mma", directions=directions)
    x, y = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    n, m = torch.tensor([5, 2]), torch.tensor([3, 1])
    first, second = model.encode_pair(x, n, y, m)
    for k, encoder in enumerate(model.second.nse):
        hand = encoder(reverse_sequences(y, m) if k else y, m, shared=[first.memories[k]])
        assert_close(second.last[:, 4 * k : 4 * k + 4], hand.last, 1e-12)
    other = model.encode_pair(x.flip(2), n, y, m)[1]
    assert ((other.last - second.last).abs().amax(dim=-1) > 1e-9).all()
    written = [encoder.write.weight_ih_l0 for encoder in model.encoder.nse]
    gradients = torch.autograd.grad(second.last.square().sum(), written)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_mma_has_one_encoder_per_sentence():
    model = classifier("mma")
    assert not set(model.encoder.parameters()) & set(model.second.parameters())
    assert model.encoder.nse[0].compose.weight.shape == (8, 8)
    assert model.second.nse[0].compose.weight.shape == (12, 12)
    x, lengths = torch.randn(2, 5, 4, dtype=torch.float64), torch.tensor([5, 2])
    before = model.encode_pair(x, lengths, x, lengths)
    with torch.no_grad():
        model.second.nse[0].write.weight_hh_l0.add_(1)
    after = model.encode_pair(x, lengths, x, lengths)
    assert torch.equal(after[0].last, before[0].last)
    assert not torch.equal(after[1].last, before[1].last)
    assert classifier("nse").second is None


# A sentence: one encoder, and the same head.


def sentence_configurations():
    """Encoders, layers, directions and pools that go together."""
    encoders = [*product(("nse", "lstm"), (1, 2), (1, 2)), ("bow", 1, 1)]
    names = ("encoder", "layers", "directions", "pool")
    pools = ("last", "max", "mean-max")
    return [dict(zip(names, (*encoder, pool), strict=True)) for encoder, pool in product(encoders, pools)]


SENTENCES = pytest.mark.parametrize(
    "settings", sentence_configurations(), ids=lambda settings: "-".join(map(str, settings.values()))
)


def of_sentences(labels=5, **settings):
    torch.manual_seed(0)
    config = SentenceConfig(**{"size": 4, "hidden": 16, **settings})
    return SentenceClassifier(config, WORDS, labels).double().eval()


@SENTENCES
@pytest.mark.parametrize("padding", ["masked", "paper"])
def test_a_sentence_depends_on_neither_batch_nor_padding(settings, padding):
    """Also where it has no words."""
    model = of_sentences(**settings, padding=padding, max_words=7)
    ids = torch.randint(2, WORDS, (5, 6))
    together = model(ids, PREMISE)
    assert together.shape == (5, 5)
    assert together.isfinite().all()
    more = torch.cat([ids, torch.randint(2, WORDS, (5, 3))], dim=1)
    assert_close(model(more, PREMISE), together, 1e-12)
    alone = [model(ids[b : b + 1, :n], PREMISE[b : b + 1]) for b, n in enumerate(PREMISE)]
    assert_close(torch.cat(alone), together, 1e-12)
    nothing = torch.zeros(2, dtype=torch.long)
    empty = model(torch.zeros(2, 0, dtype=torch.long), nothing)
    assert_close(empty, together[2].expand(2, -1), 1e-12)


@SENTENCES
def test_the_head_of_a_sentence_sees_its_pooled_vector(settings):
    model, seen = of_sentences(**settings, embedding_size=3), {}
    model.head[0].register_forward_hook(lambda _m, args, _o: seen.update(x=args[0]))
    ids = torch.randint(2, WORDS, (5, 6))
    scores = model(ids, PREMISE)
    encoded = model.encoder(model.projection(model.embedding(ids)), PREMISE)
    assert_close(seen["x"], encoded.pool(settings["pool"]), 1e-12)
    width = 4 * settings["directions"] * (2 if settings["pool"] == "mean-max" else 1)
    assert seen["x"].shape == (5, width)
    assert_close(scores, model.head(seen["x"]), 1e-12)
    stacked = [module.num_layers for module in model.modules() if isinstance(module, nn.LSTM)]
    each = {"nse": 2, "lstm": 1, "bow": 0}[settings["encoder"]]
    assert stacked == [settings["layers"]] * each * settings["directions"]
    scores.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_a_long_sentence_is_truncated():
    model, whole = of_sentences(max_words=3), of_sentences()
    ids = torch.randint(2, WORDS, (5, 6))
    assert_close(model(ids, PREMISE), whole(ids[:, :3], PREMISE.clamp(max=3)), 1e-12)
    assert not torch.allclose(model(ids, PREMISE)[0], whole(ids, PREMISE)[0])


@pytest.mark.parametrize(("recipe", "hidden", "labels"), [("sst/binary", 1024, 2), ("sst/fine", 300, 5)])
def test_the_sentence_model_has_as_many_parameters_as_in_the_paper(recipe, hidden, labels):
    config = load_recipe(recipe).model
    k = 300
    read, compose, write = 4 * k * (2 * k + 2), 2 * k * (2 * k + 1), 4 * k * (2 * k + k + 2)
    head = k * hidden + hidden + hidden * labels + labels
    with torch.device("meta"):
        model = SentenceClassifier(config, vocab_size=5, labels=labels)
    assert (config.size, config.hidden) == (k, hidden)
    assert parameters(model) == read + compose + write + head


def parameters(model):
    """How many there are beside the vectors of words."""
    return sum(p.numel() for name, p in model.named_parameters() if name != "embedding.weight")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "bow", "layers": 2}, "a bag of words has no directions and no layers"),
        ({"encoder": "lstm", "starts": 1}, "blanks and starts need an NSE as the encoder"),
        ({"layers": 0}, "layers must be at least 1 and at most 64, got 0"),
        ({"embedding_dropout": -0.5}, "embedding_dropout must be at least 0 and below 1, got -0.5"),
        ({"padding": "paper"}, 'padding = "paper" needs max_words'),
    ],
)
def test_invalid_settings_of_a_sentence_model_are_refused(settings, message):
    with pytest.raises(ValueError, match=r"\w") as refused:
        SentenceConfig(**settings)
    named = message.replace(" ", ": ", 1)  # of a number that is out of range, its key
    assert message in str(refused.value) or f"model.{named}" in str(refused.value)
    assignments = [f"model.{key}={value}" for key, value in settings.items()]
    with pytest.raises(ConfigError) as refused:
        load_recipe("sst/binary-lstm", ["model.encoder=nse", *assignments])
    named = message.replace(" ", ": ", 1)  # of a number that is out of range, its key
    assert f"model: {message}" in str(refused.value) or f"model.{named}" in str(refused.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.encoder=mma", 'model.encoder: expected "nse" or "lstm" or "bow", got string "mma"'),
        ("model.attention=paper", "override model.attention: no such key"),
        ("model.word_overlap=true", "override model.word_overlap: no such key"),
    ],
)
def test_a_sentence_model_refuses_settings_of_pairs(assignment, message):
    with pytest.raises(ConfigError) as refused:
        load_recipe("sst/fine", [assignment])
    assert message in str(refused.value)


# Two layers, words that are mapped and dropped, and words that are counted.


@ENCODERS
def test_two_layers_with_projection_and_counts_depend_on_neither_batch_nor_padding(encoder):
    layers = 1 if encoder == "bow" else 2
    model = classifier(
        encoder, layers=layers, embedding_size=3, embedding_dropout=0.4, word_overlap=True, attention="paper"
    )
    with torch.no_grad():
        model.rarity.copy_(torch.rand(WORDS))
    batch = padded_with_pads(pairs())
    together = model(*batch)
    assert together.isfinite().all()
    assert_close(torch.cat([model(*one(batch, b)) for b in range(5)]), together, 1e-12)
    assert len(together.unique(dim=0)) == 5


def padded_with_pads(batch):
    """The same pairs, with padding behind their words."""
    premise, n, hypothesis, m = batch
    clean = [
        F.pad(ids, (0, 2)).masked_fill(torch.arange(ids.shape[1] + 2) >= lengths[:, None], PAD)
        for ids, lengths in ((premise, n), (hypothesis, m))
    ]
    return clean[0], n, clean[1], m


@pytest.mark.parametrize("mapped", [0, 3])
def test_word_dropout_is_only_in_training_and_before_the_projection(mapped):
    model = classifier(embedding_size=mapped, embedding_dropout=0.5)
    ids = torch.randint(2, WORDS, (8, 50))
    words = model.embedding(ids)
    assert torch.equal(model.embed(ids), model.projection(words) if mapped else words)
    model.train()
    seen = model.embed(ids)
    if mapped:
        seen = (seen - model.projection.bias) @ torch.linalg.pinv(model.projection.weight).T
    dropped = seen.abs() < 1e-9
    assert 0.4 < dropped.double().mean() < 0.6
    assert_close(seen[~dropped], 2 * words[~dropped], 1e-9)
    batch = pairs()
    assert not torch.equal(model(*batch), model(*batch))
    model.eval()
    assert torch.equal(model(*batch), model(*batch))


def whole(ids):
    """Ids, and that all of them are words."""
    return ids, torch.full((len(ids),), ids.shape[1])


def test_overlap_equals_a_count_by_hand():
    first = torch.tensor([[5, 6, 7, 6], [5, UNKNOWN, PAD, PAD], [PAD, PAD, PAD, PAD], [9, 8, PAD, PAD]])
    second = torch.tensor([[6, 6, 9, 5], [UNKNOWN, 5, 6, PAD], [5, 6, PAD, PAD], [PAD, UNKNOWN, PAD, PAD]])
    rarity = torch.tensor([100.0, 100.0, 0, 0, 0, 2.0, 1.0, 4.0, 8.0, 16.0])
    actual = measure_overlap(whole(first), whole(second), rarity)
    expected = [
        [3 / 4, (1 + 1 + 2) / (1 + 1 + 16 + 2)],  # 6, 6 and 5 are there, 9 is not
        [1 / 2, 2 / (2 + 1)],  # of 5 and 6 only 5; what is unknown is neither shared nor missing
        [0, 0],
        [0, 0],  # nothing is known that could be shared
    ]
    assert_close(actual, torch.tensor(expected), 1e-6)
    assert_close(measure_overlap(whole(second), whole(first), rarity)[0], torch.tensor([3 / 4, 4 / 8]), 1e-6)
    assert measure_overlap(whole(first[:, :0]), whole(second), rarity).tolist() == [[0, 0]] * 4
    assert measure_overlap(whole(first), whole(second[:, :0]), rarity).tolist() == [[0, 0]] * 4
    cut = measure_overlap((first, torch.tensor([2, 0, 0, 0])), (second, torch.tensor([3, 3, 2, 2])), rarity)
    assert_close(cut[0], torch.tensor([2 / 3, 2 / 18]), 1e-6)  # what lies past an end is no word
    assert cut[1:].tolist() == [[0, 0]] * 3


def test_overlap_of_words_without_rarity_is_zero():
    """A word that every answer has tells nothing: not NaN, but nothing."""
    ids = torch.tensor([[5, 6]])
    assert measure_overlap(whole(ids), whole(ids), torch.zeros(9)).tolist() == [[1, 0]]


@pytest.mark.parametrize("padding", ["masked", "paper"])
def test_the_head_sees_the_overlap(padding):
    model, seen = classifier(word_overlap=True, padding=padding, max_words=7), {}
    model.head[0].register_forward_hook(lambda _m, args, _o: seen.update(x=args[0]))
    with torch.no_grad():
        model.rarity.copy_(torch.arange(WORDS))
    premise, _, hypothesis, _ = batch = padded_with_pads(pairs())
    scores = model(*batch)
    expected = measure_overlap(whole(premise[:, :7]), whole(hypothesis), torch.arange(WORDS).double())
    assert seen["x"].shape == (5, 4 * 4 + 2)
    assert_close(seen["x"][:, -2:], expected, 1e-12)
    assert (expected[0] > 0).all() or (expected[1] > 0).all()
    assert "rarity" in model.state_dict()
    assert not hasattr(classifier(), "rarity")
    scores.sum().backward()
    assert model.head[0].weight.grad[:, -2:].abs().sum() > 0


def test_the_ranking_model_has_as_many_parameters_as_in_the_paper():
    """MMA-NSE attention on WikiQA: two encoders of two layers each, k = 512, words of 300 numbers."""
    k, words, hidden = 512, 300, 1024

    def lstm(size):  # four gates, with weights of the input and of the state, and two biases each
        return 4 * k * (size + k + 2) + 4 * k * (k + k + 2)

    def nse(memories):  # its composition is [o ; m_1 ; ... ]
        c = (1 + memories) * k
        return lstm(k) + c * (c + 1) + lstm(c)

    attention = k * (k + 1) + k * (k + 1) + (k + 1)
    head = 4 * k * hidden + hidden + hidden * 1 + 1
    expected = words * k + k + nse(1) + nse(2) + attention + head
    config = load_recipe("wikiqa/mma-attention").model
    with torch.device("meta"):
        model = PairClassifier(config, vocab_size=7, labels=1)
    assert parameters(model) == expected
    shapes = [tuple(layer.weight.shape) for layer in (model.projection, model.head[0], model.head[3])]
    assert shapes == [(512, 300), (1024, 4 * 512), (1, 1024)]
    assert not model.embedding.weight.requires_grad
