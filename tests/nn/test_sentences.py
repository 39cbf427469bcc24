"""Sentence encoders against loops over single sentences."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nse.nn import sentence_encoder as sentences
from nse.nn.sentence_encoder import (
    BagOfWords,
    Encoded,
    LSTMSentence,
    NSESentence,
    reverse_sequences,
    run_lstm,
    take_last,
)
from oracle.problems import assert_close, list_tensors

LENGTHS = torch.tensor([5, 1, 0, 3])
KIND = {"dtype": torch.float64}


def words(T=5, k=4):
    return torch.randn(4, T, k, **KIND)


def made(kind, *sizes, **settings):
    return kind(*sizes, **settings).double().eval()


def encoders():
    """Every encoder, of one layer and of two, in one direction and in both."""
    yield "bow", made(BagOfWords, 0.0)
    for layers, directions in product((1, 2), (1, 2)):
        yield f"lstm-{layers}-{directions}", made(LSTMSentence, 4, 0.0, directions, layers=layers)
        yield f"nse-{layers}-{directions}", made(NSESentence, 4, 0.0, directions, layers=layers)


def each_alone(encoder, x, lengths):
    """Outputs and last of every sentence, encoded without any other and without padding; of none, zero."""
    for row, length in zip(x, lengths.tolist(), strict=True):
        yield encoder(row[None, :length], torch.tensor([length])) if length else None


@pytest.mark.parametrize("name", [name for name, _ in encoders()])
def test_a_sentence_depends_on_neither_batch_nor_padding(name):
    encoder, x = dict(encoders())[name], words()
    together, padded = encoder(x, LENGTHS), encoder(torch.cat([x, words(3)], dim=1), LENGTHS)
    for b, alone in enumerate(each_alone(encoder, x, LENGTHS)):
        n = int(LENGTHS[b])
        for actual in (together, padded):
            assert (actual.outputs[b, n:] == 0).all()
            if alone is None:
                assert (actual.last[b] == 0).all()
            else:
                assert_close(
                    [actual.outputs[b, :n], actual.last[b]], [alone.outputs[0], alone.last[0]], 1e-12
                )
    assert together.lengths.tolist() == LENGTHS.tolist()
    assert together.outputs.shape[-1] == together.last.shape[-1] == (8 if name.endswith("-2") else 4)


def test_reverse_sequences_reverses_each_sentence():
    x = words()
    expected = x.clone()
    for b, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            expected[b, t] = x[b, length - 1 - t]
    assert torch.equal(reverse_sequences(x, LENGTHS), expected)
    assert torch.equal(reverse_sequences(expected, LENGTHS), x)
    assert not torch.equal(expected, x)


def test_take_last_takes_the_last_output():
    x = words()
    for b, length in enumerate(LENGTHS.tolist()):
        expected = x[b, length - 1] if length else torch.zeros(4)
        assert take_last(x, LENGTHS)[b].tolist() == expected.tolist()


@pytest.mark.parametrize("pool", ["last", "max", "mean-max"])
def test_pooling_equals_a_loop(pool):
    # All negative: a zero of the padding must not be taken for the largest.
    outputs, last = -words().abs() - 1, words()[:, 0]
    for b, length in enumerate(LENGTHS):
        outputs[b, length:] = 0
    pooled = Encoded(outputs, LENGTHS, last).pool(pool)
    for b, length in enumerate(LENGTHS.tolist()):
        means, highest = [0.0] * 4, [0.0] * 4
        for unit in range(4 if length else 0):
            values = [outputs[b, t, unit].item() for t in range(length)]
            means[unit], highest[unit] = sum(values) / length, max(values)
        expected = {"last": last[b].tolist(), "max": highest, "mean-max": means + highest}[pool]
        assert pooled[b].tolist() == pytest.approx(expected, abs=1e-12)


def test_concatenated_embeddings_are_zero_in_the_padding():
    x, outputs = words(), words()
    beside = Encoded(outputs, LENGTHS, x[:, 0]).concat_embeddings(x).outputs
    assert torch.equal(beside[..., 4:], outputs)
    for b, length in enumerate(LENGTHS):
        assert torch.equal(beside[b, :length, :4], x[b, :length])
        assert (beside[b, length:, :4] == 0).all()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_ignores_the_padding(directions, layers, monkeypatch):
    """A CUDA device runs over the padding, a CPU packs: the same numbers and gradients."""
    encoder, x = made(LSTMSentence, 4, 0.0, directions, layers=layers), words().requires_grad_()
    actual = []
    for runs in (run_lstm, lambda lstm, x, _: lstm(x)[0]):
        monkeypatch.setattr(sentences, "run_lstm", runs)
        encoded = encoder(x, LENGTHS)
        loss = encoded.outputs.square().sum() + encoded.last.sum()
        gradients = torch.autograd.grad(loss, [x, *encoder.parameters()])
        actual.append((encoded.outputs, encoded.last, gradients))
    assert_close(*actual, 1e-12)
    assert all(gradient.abs().sum() > 0 for gradient in actual[0][2])


def test_two_directions_equal_a_bidirectional_lstm():
    encoder = made(LSTMSentence, 4, 0.0, 2)
    bidirectional = nn.LSTM(4, 4, bidirectional=True, batch_first=True, **KIND)
    back = {f"{name}_reverse": weight for name, weight in encoder.back.state_dict().items()}
    bidirectional.load_state_dict(encoder.lstm.state_dict() | back)
    x, lengths = words(), torch.tensor([5, 1, 2, 3])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs, (h, _) = bidirectional(packed)
    actual = encoder(x, lengths)
    assert_close(actual.outputs, pad_packed_sequence(outputs, batch_first=True)[0], 1e-12)
    assert_close(actual.last, torch.cat([h[0], h[1]], dim=-1), 1e-12)


@pytest.mark.parametrize("directions", [1, 2])
def test_two_layers_equal_an_lstm_over_the_outputs_of_another(directions):
    """Each direction has two of its own: the second reads the outputs of the same direction alone."""
    encoder, x = made(LSTMSentence, 4, 0.0, directions, layers=2), words()
    actual = encoder(x, LENGTHS)
    for d, stacked in enumerate([encoder.lstm, encoder.back][:directions]):
        layers = [nn.LSTM(4, 4, batch_first=True, **KIND) for _ in range(2)]
        for number, layer in enumerate(layers):
            own = [f"{name}_l{number}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            weights = [stacked.state_dict()[name] for name in own]
            layer.load_state_dict(dict(zip(layer.state_dict(), weights, strict=True)))
        units = slice(4 * d, 4 * d + 4)
        for b, length in enumerate(LENGTHS.tolist()):
            if length:
                row = x[b : b + 1, :length].flip(1) if d else x[b : b + 1, :length]
                outputs = layers[1](layers[0](row)[0])[0][0]
                assert_close(actual.last[b, units], outputs[-1], 1e-12)
                assert_close(actual.outputs[b, :length, units], outputs.flip(0) if d else outputs, 1e-12)


def test_the_second_nse_reads_from_the_last_word_to_the_first():
    encoder, x = made(NSESentence, 4, 0.0, 2), words()
    actual = encoder(x, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        row = x[b : b + 1, :length]
        there, back = encoder.nse[0](row), encoder.nse[1](row.flip(1))
        assert_close(actual.outputs[b, :length, :4], there.outputs[0], 1e-12)
        assert_close(actual.outputs[b, :length, 4:], back.outputs[0].flip(0), 1e-12)
        assert_close(actual.last[b], torch.cat([there.last[0], back.last[0]]), 1e-12)
        for memory, alone in zip(actual.memories, (there.memory, back.memory), strict=True):
            assert memory.lengths[b] == length
            assert_close(memory.slots[b, :length], alone.slots[0], 1e-12)


@pytest.mark.parametrize("directions", [1, 2])
def test_each_direction_reads_the_memory_of_its_direction(directions):
    first, second = made(NSESentence, 4, 0.0, directions), made(NSESentence, 4, 0.0, directions, shared=1)
    x, y, lengths = words(), words(3), torch.tensor([2, 3, 3, 0])
    memories = first(x, LENGTHS).memories
    assert len(memories) == directions
    actual = second(y, lengths, memories)
    hand = second.nse[0](y, lengths, shared=[memories[0]])
    assert_close([actual.outputs[..., :4], actual.last[..., :4]], [hand.outputs, hand.last], 1e-12)
    if directions == 2:
        hand = second.nse[1](reverse_sequences(y, lengths), lengths, shared=[memories[1]])
        assert_close(actual.last[..., 4:], hand.last, 1e-12)


@pytest.mark.parametrize("directions", [1, 2])
def test_with_the_papers_padding_pads_are_read(directions):
    encoder, x = made(NSESentence, 4, 0.0, directions, padding="paper"), words()
    actual, whole = encoder(x, LENGTHS), encoder(x, torch.full((4,), 5))
    assert actual.lengths.tolist() == [5] * 4
    assert_close(list_tensors(actual), list_tensors(whole), 0)
    assert (actual.outputs != 0).all()


def test_every_direction_has_blanks_and_starts():
    encoder = NSESentence(4, 0.0, 2, blanks=3, starts=2)
    assert [nse.blank.shape for nse in encoder.nse] == [(3, 4)] * 2
    assert [nse.start.shape for nse in encoder.nse] == [(2, 4)] * 2


def test_a_bag_of_words_is_the_mean_of_its_words():
    x = words()
    actual = made(BagOfWords, 0.0)(x, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        expected = sum(x[b, t] for t in range(length)) / max(length, 1)
        assert_close(actual.last[b], expected * torch.ones(4, **KIND), 1e-12)


@pytest.mark.parametrize("kind", [BagOfWords, LSTMSentence, NSESentence])
def test_dropout_is_only_in_training(kind):
    encoder = kind(0.5) if kind is BagOfWords else kind(4, 0.5)
    x = words().float()
    assert not torch.equal(encoder(x, LENGTHS).last, encoder(x, LENGTHS).last)
    encoder.eval()
    assert torch.equal(encoder(x, LENGTHS).last, encoder(x, LENGTHS).last)
