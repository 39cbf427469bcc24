"""The paper's models of translation, and what they are made of."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nse.errors import ConfigError
from nse.nn.search import BEGIN, PAD
from nse.nn.sentence_encoder import reverse_sequences, run_lstm_to_end
from nse.nn.translator import TranslationConfig, Translator
from nse.ops.types import Memory
from nse.tasks import load_recipe
from oracle.problems import assert_close, list_tensors

WORDS, TARGETS, K = 15, 11, 6
LENGTHS, SIZES = torch.tensor([5, 1, 3, 0]), torch.tensor([2, 4, 0, 3])
MODELS = {"lstm-lstm": ("lstm", "lstm"), "nse-lstm": ("nse", "lstm"), "nse-nse": ("nse", "nse")}
EVERY = pytest.mark.parametrize("name", MODELS)
DIRECTIONS = pytest.mark.parametrize("directions", [1, 2])


def translator(name="nse-nse", **settings):
    torch.manual_seed(0)
    encoder, decoder = MODELS[name]
    settings = {"encoder": encoder, "decoder": decoder, "size": K, "init_range": 0.8, **settings}
    model = Translator(TranslationConfig(**settings), WORDS, TARGETS).double().eval()
    with torch.no_grad():  # a small layer of ReLUs may be all zero otherwise
        model.hidden.bias += 1
        model.decoder.combine.bias += 1
    return model


def texts(lengths, first, words, longest):
    ids = torch.randint(first, words, (len(lengths), longest))
    return ids.masked_fill(torch.arange(longest) >= lengths[:, None], PAD), lengths


def pairs():
    torch.manual_seed(1)
    return (*texts(LENGTHS, 2, WORDS, 5), *texts(SIZES, 4, TARGETS, 4))


def one(batch, b):
    """A pair alone and without padding; a source without words has none either."""
    source, n, target, m = batch
    return source[b : b + 1, : n[b]], n[b : b + 1], target[b : b + 1, : m[b]], m[b : b + 1]


@EVERY
@DIRECTIONS
@pytest.mark.parametrize(
    "settings", [{}, {"embedding_size": 3, "tie_embeddings": True}], ids=["plain", "mapped and tied"]
)
def test_a_pair_depends_on_neither_batch_nor_padding(name, directions, settings):
    """Also where the source or the translation has no words."""
    model, batch = translator(name, directions=directions, **settings), pairs()
    together = model(*batch)
    assert together.shape == (4, 5, TARGETS)
    assert together.isfinite().all()
    source, n, target, m = batch
    wider = model(F.pad(source, (0, 3)), n, F.pad(target, (0, 2)), m)
    for b, size in enumerate(SIZES.tolist()):
        own = together[b, : size + 1]
        assert_close(model(*one(batch, b))[0], own, 1e-12)
        assert_close(wider[b, : size + 1], own, 1e-12)
    assert len(together[:, 0].unique(dim=0)) == 4


@EVERY
@DIRECTIONS
def test_a_word_depends_only_on_those_before_it(name, directions):
    model, (source, n, target, m) = translator(name, directions=directions), pairs()
    target = torch.randint(4, TARGETS, target.shape)
    before = model(source, n, target, m)
    for t in range(4):
        other = target.clone()
        other[:, t] = 4 + (other[:, t] - 3) % (TARGETS - 4)
        after = model(source, n, other, m)
        assert_close(after[:, : t + 1], before[:, : t + 1], 0)
        assert ((after - before)[:, t + 1].abs().amax(dim=-1) > 1e-9).all()


@EVERY
def test_scores_equal_those_of_single_steps(name):
    """What training scores is what a search is message, word by word."""
    model, (source, n, target, m) = translator(name), pairs()
    scores = model(source, n, target, m)
    encoded, now = model.decoder.begin(*model.encode_source(source, n))
    known = [word for word in range(TARGETS) if word not in (PAD, BEGIN)]
    for t, word in enumerate(torch.cat([torch.full((4, 1), BEGIN), target], dim=1).unbind(dim=1)):
        likely, now, _ = model.predict_next(word, encoded, now)
        expected = scores[:, t, known].log_softmax(dim=-1)
        assert_close(likely[:, known], expected, 1e-5)  # message as float32


@EVERY
@DIRECTIONS
def test_an_empty_source_is_read_as_one_pad(name, directions):
    model, (_, _, target, m) = translator(name, directions=directions), pairs()
    nothing, pad = torch.zeros(4, dtype=torch.long), torch.full((4, 1), PAD)
    expected = model(pad, torch.ones_like(nothing), target, m)
    for source in (torch.zeros(4, 0, dtype=torch.long), pad, torch.full((4, 3), PAD)):
        assert_close(model(source, nothing, target, m), expected, 1e-12)
        ids, places, _ = model.translate(source, nothing, max_length=3)
        assert ids.shape == (4, 3)
        assert (places == 0).all()
    assert expected.isfinite().all()


@EVERY
@DIRECTIONS
@pytest.mark.parametrize("tied", [False, True])
def test_gradients_reach_every_parameter(name, directions, tied):
    learned = {"blanks": 2, "starts": 1} if name != "lstm-lstm" else {}
    model = translator(name, directions=directions, tie_embeddings=tied, embedding_size=4, **learned).train()
    scores = model(*pairs())
    scores.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        if parameter_name != "decoder.attention.score.bias":  # softmax does not see it
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
            assert parameter.grad.abs().sum() > 0, parameter_name


def test_tied_scores_are_products_with_the_target_embedding():
    model = translator(tie_embeddings=True)
    assert model.output is None
    assert set(model.state_dict()) >= {"target.weight", "bias"}
    assert not [name for name in model.state_dict() if name.startswith("output")]
    attended = torch.randn(3, 2, K, dtype=torch.float64)
    hidden = (attended @ model.hidden.weight.T + model.hidden.bias).clamp(min=0)
    with torch.no_grad():
        model.bias.uniform_(-1, 1)
    assert_close(model.score_words(attended), hidden @ model.target.weight.T + model.bias, 1e-12)
    (gradient,) = torch.autograd.grad(model.score_words(attended).square().sum(), [model.target.weight])
    assert (gradient.abs().sum(dim=-1) > 0).all()


def test_untied_scores_have_their_own_weights():
    model = translator(tie_embeddings=False)
    assert model.bias is None
    attended = torch.randn(3, K, dtype=torch.float64)
    hidden = (attended @ model.hidden.weight.T + model.hidden.bias).clamp(min=0)
    assert_close(model.score_words(attended), hidden @ model.output.weight.T + model.output.bias, 1e-12)


@EVERY
def test_dropout_is_only_in_training(name):
    batch = pairs()
    for settings in ({"dropout": 0.5}, {"output_dropout": 0.5}, {"embedding_dropout": 0.5}):
        model = translator(name, **settings)
        assert torch.equal(model(*batch), model(*batch))
        model.train()
        assert not torch.equal(model(*batch), model(*batch))


# The encoder


@pytest.mark.parametrize("name", ["lstm-lstm", "nse-lstm"])
def test_the_encoded_source_equals_the_encoders_results(name):
    model, (source, n, *_) = translator(name), pairs()
    actual = model.encode_source(source, n)
    x = model.embedding(source)
    for b, length in enumerate(n.clamp(min=1).tolist()):
        row = x[b : b + 1, :length]
        if name == "lstm-lstm":
            (encoder,) = model.encoders
            inner, lower = encoder.lower(row)
            outputs, upper = encoder.upper(inner)
            states = [s[0, 0] for s in (*lower, *upper)]
            assert actual.memories == ()
        else:
            alone = model.encoders[0].nse(row)
            outputs, states = alone.outputs, [s[0, 0] for s in (*alone.state.read, *alone.state.write)]
            assert_close(actual.memories[0].slots[b, :length], alone.memory.slots[0], 1e-12)
            assert actual.memories[0].lengths[b] == length
        assert_close(actual.outputs[b, :length], outputs[0], 1e-12)
        assert_close([s[b] for s in (*actual.lower, *actual.upper)], states, 1e-12)
    assert_close(model.decoder.begin(*actual)[0].outputs, actual.outputs, 0)


@pytest.mark.parametrize("name", ["lstm-lstm", "nse-nse"])
def test_two_directions_are_joined_averaged_and_side_by_side(name):
    """Outputs joined, states averaged, and a memory of each direction for the decoder."""
    model, (source, n, *_) = translator(name, directions=2), pairs()
    lengths = n.clamp(min=1)
    actual = model.encode_source(source, n)
    x = model.embedding(source)
    forward, back = model.encoders[0](x, lengths), model.encoders[1](reverse_sequences(x, lengths), lengths)
    both = torch.cat([forward.outputs, reverse_sequences(back.outputs, lengths)], dim=-1)
    assert_close(actual.outputs, both @ model.join.weight.T + model.join.bias, 1e-12)
    for states, one_way, other in zip(actual[1:3], forward[1:3], back[1:3], strict=True):
        assert_close(states, [(a + b) / 2 for a, b in zip(one_way, other, strict=True)], 1e-12)
    assert len(actual.memories) == (2 if name == "nse-nse" else 0)
    assert_close(list_tensors(actual.memories), list_tensors([*forward.memories, *back.memories]), 1e-12)
    assert len(model.decoder.begin(*actual)[1].memories) == len(actual.memories)
    if name == "lstm-lstm":  # the second reads from the end: the first word changes its last output alone
        other = x.clone()
        other[:, 0] += 1
        changed = model.encoders[1](reverse_sequences(other, lengths), lengths)
        assert not torch.allclose(changed.upper[0], back.upper[0])
        assert_close(changed.outputs[0, :4], back.outputs[0, :4], 0)


@pytest.mark.parametrize("settings", [{"blanks": 3}, {"starts": 2}, {"blanks": 1, "starts": 2}])
def test_the_decoder_reads_blank_slots_and_start_words(settings):
    model, (source, n, *_) = translator(**settings), pairs()
    actual = model.encode_source(source, n)
    assert actual.outputs.shape[1] == 5
    more = sum(settings.values())
    (memory,) = actual.memories
    assert isinstance(memory, Memory)
    assert memory.slots.shape[1] == 5 + more
    assert memory.lengths.tolist() == [length + more for length in n.clamp(min=1).tolist()]
    assert (
        (model.decoder.begin(*actual)[0].memory_masks[0][:, 0] == 0).sum(dim=1)
    ).tolist() == memory.lengths.tolist()


def test_long_sources_are_truncated():
    model, whole = translator(max_words=2), translator()
    source, n, target, m = pairs()
    actual = model(source, n, target, m)
    assert_close(actual, whole(source[:, :2], n.clamp(max=2), target, m), 1e-12)
    assert not torch.allclose(actual[0], whole(source, n, target, m)[0])


def test_an_lstm_stops_at_each_end():
    lstm, x = nn.LSTM(K, K, batch_first=True, dtype=torch.float64), torch.randn(4, 5, K, dtype=torch.float64)
    lengths = torch.tensor([5, 1, 3, 2])
    x.requires_grad_()
    outputs, (h, c) = run_lstm_to_end(lstm, x, lengths)
    assert outputs.shape == (4, 5, K)
    for b, length in enumerate(lengths.tolist()):
        alone, (last, cell) = lstm(x[b : b + 1, :length])
        assert_close([outputs[b, :length], h[b], c[b]], [alone[0], last[0, 0], cell[0, 0]], 1e-12)
        assert (outputs[b, length:] == 0).all()
    (gradient,) = torch.autograd.grad((outputs.sum() + h.square().sum() + c.sum()), [x])
    for b, length in enumerate(lengths.tolist()):
        assert (gradient[b, length:] == 0).all()
        assert (gradient[b, :length] != 0).any(dim=-1).all()


def test_initial_weights_are_in_the_configured_range():
    config = TranslationConfig(size=K, init_range=0.01, embedding_size=4, directions=2)
    for name, parameter in Translator(config, WORDS, TARGETS).named_parameters():
        assert (parameter.abs().max() <= 0.01) == (name != "embedding.weight"), name


# Sizes and settings


def parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@EVERY
@pytest.mark.parametrize("tied", [False, True])
def test_models_have_as_many_parameters_as_in_the_paper(name, tied):
    """At k = 300 with 25,000 target words; the vectors of source words are not learned."""
    k, V = 300, 25_000

    def lstm(size):  # four gates, with weights of the input and of the state, and two biases each
        return 4 * k * (size + k + 2)

    def linear(size, to):
        return size * to + to

    two = {"lstm": 2 * lstm(k), "nse": lstm(k) + linear(2 * k, 2 * k) + lstm(2 * k)}
    encoder, decoder = MODELS[name]
    attention = linear(k, k) + linear(k, k) + linear(k, 1)
    around = linear(2 * k, k) + attention + linear(2 * k, k)  # what is fed, attended to and combined
    words = V * k + linear(k, k) + (V if tied else linear(k, V))
    config = load_recipe(f"multi30k/{name}", [f"model.tie_embeddings={str(tied).lower()}"]).model
    with torch.device("meta"):
        model = Translator(config, vocab_size=9, target_vocab_size=V)
    assert parameters(model) == two[encoder] + two[decoder] + around + words
    assert not model.embedding.weight.requires_grad


def test_a_second_direction_adds_an_encoder_a_linear_layer_and_a_memory():
    k = 300

    def count(name, directions):
        config = TranslationConfig(
            encoder=name[0], decoder=name[1], size=k, trainable=False, directions=directions
        )
        with torch.device("meta"):
            return parameters(Translator(config, vocab_size=9, target_vocab_size=50))

    lstm = 4 * k * (k + k + 2)
    join = 2 * k * k + k
    assert count(("lstm", "lstm"), 2) - count(("lstm", "lstm"), 1) == 2 * lstm + join
    nse = lstm + 2 * k * (2 * k + 1) + 4 * k * (2 * k + k + 2)
    wider = 3 * k * (3 * k + 1) - 2 * k * (2 * k + 1) + 4 * k * k  # of the decoder, which reads two
    assert count(("nse", "nse"), 2) - count(("nse", "nse"), 1) == nse + join + wider


REFUSED = [
    ({"encoder": "bow"}, 'a bag of words has no states for the decoder: set encoder = "nse" or "lstm"'),
    ({"encoder": "lstm", "decoder": "nse"}, 'decoder = "nse" needs encoder = "nse"'),
    ({"padding": "paper", "max_words": 9}, 'translation needs padding = "masked" and layers = 1'),
    ({"layers": 2}, 'translation needs padding = "masked" and layers = 1'),
    ({"output_dropout": 1.0}, "output_dropout must be at least 0 and below 1, got 1.0"),
    ({"max_target_words": 0}, "max_target_words must be at least 1 and at most 10,000, got 0"),
    ({"beam": 0}, "beam must be at least 1 and at most 100, got 0"),
    ({"length_penalty": -0.5}, "length_penalty must be at least 0 and at most 5, got -0.5"),
    ({"directions": 3}, "directions must be at least 1 and at most 2, got 3"),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ({"size": 0}, "size must be at least 1 and at most 65,536, got 0"),
    ({"encoder": "lstm", "decoder": "lstm", "blanks": 1}, "blanks and starts need an NSE as the encoder"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=lambda value: str(value)[:50])
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=r"\w") as refused:
        TranslationConfig(**settings)
    assert message in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        load_recipe("multi30k/nse-nse", [f"model.{key}={value}" for key, value in settings.items()])
    named = message.replace(" ", ": ", 1)  # of a number that is out of range, its key
    assert message in str(refused.value) or f"model.{named}" in str(refused.value)


@EVERY
@pytest.mark.parametrize("data", ["multi30k", "iwslt14", "europarl"])
def test_every_recipe_has_the_model_of_its_name(data, name):
    recipe = load_recipe(f"{data}/{name}")
    assert (recipe.model.encoder, recipe.model.decoder, recipe.model.size) == (*MODELS[name], 300)
    assert (recipe.data.name, recipe.data.target_vocab_size, recipe.data.max_words) == (data, 25_000, 25)
