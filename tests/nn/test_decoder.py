"""Decoders against the encoder's own steps, the formulas of attention, and loops over words."""

import pytest
import torch
from torch import nn

from nse import NSE, State
from nse.nn.attention import Attention, attend
from nse.nn.decoder import LSTMDecoder, NSEDecoder
from nse.ops import reference
from nse.ops.step import make_score_mask
from nse.ops.types import Memory
from oracle.problems import assert_close, list_tensors

K, LENGTHS = 4, torch.tensor([5, 1, 3])
KINDS = {"lstm": (LSTMDecoder, 0), "nse": (NSEDecoder, 1), "nse of two memories": (NSEDecoder, 2)}
EVERY = pytest.mark.parametrize("kind", KINDS)
OF_NSE = pytest.mark.parametrize("kind", ["nse", "nse of two memories"])


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def made(kind, dropout=0.0):
    """A decoder, its weights large enough to tell words apart."""
    torch.manual_seed(1)
    of, memories = KINDS[kind]
    decoder = (of(K, dropout, memories) if memories else of(K, dropout)).double().eval()
    for parameter in decoder.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    return decoder


def left(kind, L=5):
    """What an encoder leaves: outputs, lengths, memories, and the states of both LSTMs."""
    torch.manual_seed(2)
    memories = tuple(Memory(numbers(3, L, K), LENGTHS) for _ in range(KINDS[kind][1]))
    states = tuple((numbers(3, K), numbers(3, K)) for _ in range(2))
    return numbers(3, L, K), LENGTHS, memories, *states


def begun(decoder, outputs, lengths, memories, lower, upper):
    return decoder.begin(outputs, lower, upper, lengths, memories)


def recurred(decoder, x, lower, upper, memories, masks):
    """Both LSTMs and the memories after one more input, by modules that are tested elsewhere."""
    mask = None if masks[1] is None else masks[1][:, None]
    x = x if masks[0] is None else x * masks[0]
    if isinstance(decoder, LSTMDecoder):
        states = []
        for layer, (h, c) in ((decoder.lower, lower), (decoder.upper, upper)):
            x, (h, c) = layer(x[:, None], (h[None], c[None]))
            states.append((h[0], c[0]))
            x = x[:, 0] if mask is None else x[:, 0] * mask[:, 0]
        return *states, ()
    states = [(h[None], c[None]) for h, c in (lower, upper)]
    if mask is None:
        actual = decoder.nse.step(x, State(*states), memory=memories[0], shared=memories[1:])
        memories = (actual.memory, *actual.shared)
        return *((h[0], c[0]) for h, c in actual.state[:2]), memories
    actual = reference.recurrence(x[:, None], None, memories, *states, decoder.nse.get_weights(), mask)
    slots = tuple(Memory(s, m.lengths) for s, m in zip(actual.memories, memories, strict=True))
    return *((h[0], c[0]) for h, c in (actual.read, actual.write)), slots


def by_hand(decoder, words, outputs, lengths, memories, lower, upper, masks=None):
    """Every step: the word and the last attentional vector, both LSTMs, attention, and the new vector."""
    attended = torch.zeros(len(words), K, dtype=torch.float64)
    for t in range(words.shape[1]):
        x = torch.cat([words[:, t], attended], dim=-1) @ decoder.feed.weight.T + decoder.feed.bias
        each = (None, None) if masks is None else (masks[0][t], masks[1][t])
        lower, upper, memories = recurred(decoder, x, lower, upper, memories, each)
        context = decoder.attention(outputs, lengths, upper[0])
        both = torch.cat([context, upper[0]], dim=-1)
        attended = (both @ decoder.combine.weight.T + decoder.combine.bias).clamp(min=0)
        yield attended, lower, upper, memories


@EVERY
def test_a_step_equals_its_formulas(kind):
    """Of an NSE: the very numbers of `NSE.step` that starts with the encoder's memory and goes on."""
    decoder, encoded, words = made(kind), left(kind), numbers(3, 6, K)
    source, now = begun(decoder, *encoded)
    for t, (attended, lower, upper, memories) in enumerate(by_hand(decoder, words, *encoded)):
        now, weights = decoder.step(words[:, t], source, now)
        assert_close([now.attended, now.lower, now.upper], [attended, lower, upper], 1e-12)
        assert len(now.memories) == len(memories) == KINDS[kind][1]
        for slots, expected in zip(now.memories, memories, strict=True):
            for b, length in enumerate(LENGTHS.tolist()):
                assert_close(slots[b, :length], expected.slots[b, :length], 1e-12)
        for b, length in enumerate(LENGTHS.tolist()):
            assert (weights[b, length:] == 0).all()
            assert_close(
                weights[b, :length] @ encoded[0][b, :length], context(now, decoder, encoded, b), 1e-12
            )
    assert (now.attended > 0).any(dim=-1).all()


def context(now, decoder, encoded, b):
    """What a sentence attends to, alone."""
    outputs, lengths, *_ = encoded
    return decoder.attention(outputs[b : b + 1, : lengths[b]], lengths[b : b + 1], now.upper[0][b : b + 1])[0]


@EVERY
def test_teacher_forcing_equals_single_steps(kind):
    decoder, encoded, words = made(kind), left(kind), numbers(3, 6, K)
    source, now = begun(decoder, *encoded)
    actual = decoder.teacher_force(words, source, now)
    assert actual.shape == (3, 6, K)
    for t in range(6):
        now, _ = decoder.step(words[:, t], source, now)
        assert_close(actual[:, t], now.attended, 1e-12)


@EVERY
def test_the_first_step_starts_from_zeros_and_the_encoders_states(kind):
    decoder, encoded = made(kind), left(kind)
    *_, lower, upper = encoded
    source, now = begun(decoder, *encoded)
    assert (now.attended == 0).all()
    assert now.attended.shape == (3, K)
    assert_close([now.lower, now.upper], [lower, upper], 0)
    assert_close(now.memories, [memory.slots for memory in encoded[2]], 0)
    word = numbers(3, K)
    alone, _ = decoder.step(word, source, now)
    x = word @ decoder.feed.weight[:, :K].T + decoder.feed.bias  # nothing of a vector before
    expected, *_ = recurred(decoder, x, lower, upper, encoded[2], (None, None))
    assert_close(alone.lower, expected, 1e-12)
    other, _ = decoder.step(word, source, now._replace(attended=numbers(3, K)))
    assert not torch.allclose(other.lower[0], alone.lower[0])


@EVERY
def test_the_attentional_vector_is_fed_into_the_next_step(kind):
    """A change of the outputs alone, which only attention sees, reaches the LSTMs one step later."""
    decoder, words = made(kind), numbers(3, 2, K)
    outputs, *others = left(kind)
    states = []
    for each in (outputs, outputs + 1):
        source, now = begun(decoder, each, *others)
        first, _ = decoder.step(words[:, 0], source, now)
        states.append((first, decoder.step(words[:, 1], source, first)[0]))
    (first, second), (other_first, other_second) = states
    assert_close(first.lower, other_first.lower, 0)
    assert ((second.lower[0] - other_second.lower[0]).abs().amax(dim=-1) > 1e-6).all()


@EVERY
def test_a_sentence_depends_on_neither_batch_nor_padding(kind):
    decoder, encoded, words = made(kind), left(kind), numbers(3, 4, K)
    actual = decoder.teacher_force(words, *begun(decoder, *encoded))
    outputs, lengths, memories, lower, upper = encoded
    wide = torch.cat([outputs, numbers(3, 3, K)], dim=1)
    wider = tuple(Memory(torch.cat([m.slots, numbers(3, 2, K)], dim=1), m.lengths) for m in memories)
    for b, length in enumerate(lengths.tolist()):
        wide[b, length:] = 100.0
        for memory in wider:
            memory.slots[b, length:] = -100.0
    assert_close(
        decoder.teacher_force(words, *begun(decoder, wide, lengths, wider, lower, upper)), actual, 1e-12
    )
    for b, length in enumerate(lengths.tolist()):
        row = slice(b, b + 1)
        alone = begun(
            decoder,
            outputs[row, :length],
            lengths[row],
            tuple(Memory(m.slots[row, :length]) for m in memories),  # no lengths: all are real
            *((h[row], c[row]) for h, c in (lower, upper)),
        )
        assert_close(decoder.teacher_force(words[row], *alone), actual[row], 1e-12)


@EVERY
def test_select_can_repeat_rows(kind):
    """As a search does: the rows that go on, in any order, some of them twice."""
    decoder, encoded, words = made(kind), left(kind), numbers(3, 2, K)
    source, now = begun(decoder, *encoded)
    now, _ = decoder.step(words[:, 0], source, now)
    rows = torch.tensor([2, 0, 0, 1])
    expected, weights = decoder.step(words[:, 1], source, now)
    actual, taken = decoder.step(words[rows, 1], source.select(rows), now.select(rows))
    assert_close(list_tensors(actual), [each[rows] for each in list_tensors(expected)], 1e-12)
    assert_close(taken, weights[rows], 1e-12)


# Gradients


@OF_NSE
def test_the_gradient_of_the_memory_equals_a_finite_difference(kind):
    """The memory alone: outputs, which are attended to, and states are held."""
    decoder, words = made(kind), numbers(3, 3, K)
    outputs, lengths, memories, lower, upper = left(kind)
    slots = [memory.slots.requires_grad_() for memory in memories]
    weighting = numbers(3, K)

    def last():
        encoded = outputs, lengths, tuple(Memory(s, lengths) for s in slots), lower, upper
        return (decoder.teacher_force(words, *begun(decoder, *encoded))[:, -1] * weighting).sum()

    gradients = torch.autograd.grad(last(), slots)
    for each, gradient in zip(slots, gradients, strict=True):
        for b, length in enumerate(lengths.tolist()):
            assert (gradient[b, :length].abs().sum(dim=-1) > 0).all()
            assert (gradient[b, length:] == 0).all()
            for place in ((b, 0, 1), (b, length - 1, 3)):
                step = 1e-6
                with torch.no_grad():
                    each[place] += step
                    above = last()
                    each[place] -= 2 * step
                    below = last()
                    each[place] += step
                assert gradient[place].item() == pytest.approx(
                    ((above - below) / (2 * step)).item(), abs=1e-8
                )


@EVERY
def test_gradients_of_the_encoders_results_pass_gradcheck(kind):
    decoder, words = made(kind), numbers(2, 2, K).requires_grad_()
    outputs, _, memories, lower, upper = left(kind, L=3)
    leaves = [outputs[:2], *(m.slots[:2] for m in memories), *(each[:2] for each in (*lower, *upper))]
    leaves = [each.clone().requires_grad_() for each in leaves]

    def attended(words, outputs, *others):
        slots, (h, c, g, d) = others[:-4], others[-4:]
        lengths = torch.tensor([3, 2])
        own = tuple(Memory(each, lengths) for each in slots)
        return decoder.teacher_force(words, *begun(decoder, outputs, lengths, own, (h, c), (g, d)))

    assert torch.autograd.gradcheck(attended, (words, *leaves))


@OF_NSE
def test_the_encoder_learns_through_its_memory(kind):
    """Where neither its outputs nor its states are seen, an encoder has a gradient all the same."""
    decoder, lengths = made(kind), LENGTHS
    encoders = [NSE(K, dtype=torch.float64) for _ in range(KINDS[kind][1])]
    x = numbers(3, 5, K)
    actual = [encoder(x, lengths) for encoder in encoders]
    states = [(h[0].detach(), c[0].detach()) for h, c in actual[0].state[:2]]
    memories = tuple(each.memory for each in actual)
    source, now = begun(decoder, actual[0].outputs.detach(), lengths, memories, *states)
    decoder.teacher_force(numbers(3, 4, K), source, now).square().sum().backward()
    for encoder in encoders:
        for name, parameter in encoder.named_parameters():
            assert parameter.grad.abs().sum() > 0, name


# Attention


def test_attend_equals_attention():
    attention, words, question = Attention(K).double(), numbers(3, 5, K), numbers(3, K)
    keys, shut = attention.key(words), make_score_mask(LENGTHS, words)
    actual, weights = attend(words, keys, shut, attention.query(question), attention.score)
    assert_close(actual, attention(words, LENGTHS, question), 1e-12)
    assert_close(torch.einsum("bt,btk->bk", weights, words), actual, 1e-12)
    assert_close(weights.sum(dim=-1), torch.ones(3), 1e-12)
    scores = attention.score(torch.relu(keys + attention.query(question)[:, None])).squeeze(-1)
    for b, length in enumerate(LENGTHS.tolist()):
        assert_close(weights[b, :length], scores[b, :length].softmax(dim=-1), 1e-12)


# Dropout


@EVERY
def test_every_step_has_its_own_dropout_masks(kind):
    decoder, ahead = made(kind, 0.3), numbers(5, 400, K)
    assert decoder.draw_masks(ahead) == [(None, None)] * 5
    assert made(kind).train().draw_masks(ahead) == [(None, None)] * 5
    lower, upper = zip(*decoder.train().draw_masks(ahead), strict=True)
    for masks, size in ((lower, K), (upper, K * max(1, KINDS[kind][1] + 1))):
        assert [mask.shape for mask in masks] == [(400, size)] * 5
        for mask in masks:
            kept = mask != 0
            assert 0.65 < kept.double().mean() < 0.75
            assert_close(mask[kept], torch.full_like(mask[kept], 1 / 0.7), 1e-12)
        assert all(not torch.equal(a, b) for a in masks for b in masks if a is not b)
    assert not torch.equal(decoder.draw_masks(ahead)[0][0], lower[0])


@EVERY
def test_dropout_is_on_the_input_of_both_lstms(kind):
    decoder, encoded, words = made(kind, 0.5).train(), left(kind), numbers(3, 4, K)
    source, now = begun(decoder, *encoded)
    torch.manual_seed(7)
    actual = decoder.teacher_force(words, source, now)
    torch.manual_seed(7)
    masks = list(zip(*decoder.draw_masks(words.transpose(0, 1)), strict=True))
    expected = [attended for attended, *_ in by_hand(decoder, words, *encoded, masks=masks)]
    assert_close(actual, torch.stack(expected, dim=1), 1e-12)
    assert not torch.allclose(decoder.teacher_force(words, source, now), actual)
    decoder.eval()
    assert torch.equal(decoder.teacher_force(words, source, now), decoder.teacher_force(words, source, now))


def test_begin_prepares_keys_and_masks_of_the_source():
    decoder, outputs = made("nse"), numbers(2, 3, K)
    states = [(numbers(2, K), numbers(2, K)) for _ in range(2)]
    source, now = decoder.begin(outputs, *states, torch.tensor([3, 1]), (Memory(outputs),))
    lowest = torch.finfo(torch.float64).min
    assert source.score_mask[:, 0].tolist() == [[0, 0, 0], [0, lowest, lowest]]
    assert_close(source.keys, decoder.attention.key(outputs), 0)
    (slots,), (shut,) = now.memories, source.memory_masks
    assert slots is outputs
    assert (shut == 0).all()  # a memory without lengths has no padding
