"""Searches over a made-up model whose probabilities are known, against a list of all translations."""

import math
from itertools import product

import pytest
import torch

from nse.nn.decoder import DecoderSource, DecoderState
from nse.nn.search import BEGIN, END, beam_search, greedy
from nse.nn.text_model import PAD
from nse.nn.translator import TranslationConfig, Translator
from oracle.problems import assert_close

V, MOST = 6, 4
WORDS = [1, 4, 5]  # what a translation may hold: neither padding, nor begin, nor end
ALL = sum(len(WORDS) ** n for n in range(MOST + 1))
"""How many translations there are, those that are cut off included."""


class Table:
    """A model whose next word depends on the row, the step and the last word, as a table says.

    The table of a row travels as the source's outputs and the step as what was attended to, so a search that
    mixes rows up is message wrong numbers.
    """

    def __init__(self):
        self.calls = 0

    def predict_next(self, word, source, now):
        self.calls += 1
        rows, t = torch.arange(len(word)), now.attended[:, 0].long()
        likely = source.outputs[rows, t, word].clone()
        return likely, now._replace(attended=now.attended + 1), place_of(word, t)


def place_of(word, t):
    return (3 * word + t) % 7


def tables(rows, seed, sharp=1.0):
    """Log probabilities [rows, steps, last word, next word]; padding and begin are never next."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, MOST, V, V, generator=generator) * sharp
    scores[..., [PAD, BEGIN]] = float("-inf")
    return scores.log_softmax(dim=-1)


def asked(table):
    """The source and the standing of a search."""
    nothing = torch.zeros(len(table), 1)
    source = DecoderSource(table, nothing, nothing)
    return source, DecoderState((nothing, nothing), (nothing, nothing), nothing)


def everything(table):
    """Every translation of one row: its words, its log probability and how many words that counts."""
    for n in range(MOST + 1):
        for words in product(WORDS, repeat=n):
            spelled = [*words, END] if n < MOST else [*words]  # the last one is cut off before its end
            pairs = zip([BEGIN, *spelled], spelled, strict=False)
            total = sum(table[t, before, after].item() for t, (before, after) in enumerate(pairs))
            yield list(words), total, len(spelled)


def best(table, penalty):
    return max(everything(table), key=lambda actual: actual[1] / actual[2] ** penalty)[0]


def words_of(ids):
    """A translation; padding is behind it alone."""
    words = [word for word in ids.tolist() if word != PAD]
    assert ids.tolist() == words + [PAD] * (len(ids) - len(words))
    return words


def message(table, search, *settings):
    """The translations of every row, after a look at their places."""
    ids, places, _ = search(Table(), *asked(table), MOST, *settings)
    assert ids.shape == places.shape == (len(table), MOST)
    for row, place in zip(ids, places, strict=True):
        words = words_of(row)
        before = [BEGIN, *words]
        expected = [int(place_of(torch.tensor(before[t]), t)) for t in range(len(words))]
        assert place.tolist() == expected + [0] * (MOST - len(words))
    return [words_of(row) for row in ids]


def by_steps(table, beam, penalty):
    """Beam search with lists: what has ended competes with what goes on, each by its own length."""
    kept = [([], 0.0, 0, False)]
    for t in range(MOST):
        grown = []
        for words, total, size, ended in kept:
            if ended:
                grown.append((words, total, size, True))
                continue
            last = words[-1] if words else BEGIN
            for word in (*WORDS, END):
                new = words if word == END else [*words, word]
                grown.append((new, total + table[t, last, word].item(), size + 1, word == END))
        kept = sorted(grown, key=lambda actual: -actual[1] / actual[2] ** penalty)[:beam]
    return kept[0][0]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_of_all_translations_finds_the_best(seed, penalty):
    table = tables(8, seed)
    actual = message(table, beam_search, ALL, penalty)
    assert actual == [best(row, penalty) for row in table]
    assert len(set(map(len, actual))) > 1


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_small_beam_keeps_the_best_candidates_at_each_step(beam, penalty):
    table = tables(30, seed=5)
    actual = message(table, beam_search, beam, penalty)
    assert actual == [by_steps(row, beam, penalty) for row in table]


def test_a_beam_finds_better_translations_than_greedy_search():
    table = tables(200, seed=1)
    scores = []
    for beam in (1, 2, 4, ALL):
        known = [{tuple(words): total for words, total, _ in everything(row)} for row in table[:40]]
        actual = message(table[:40], beam_search, beam, 0.0)
        scores.append(sum(each[tuple(words)] for each, words in zip(known, actual, strict=True)))
    assert scores == sorted(scores)
    assert scores[0] < scores[1] < scores[-1]


def greedily(table):
    words, last = [], BEGIN
    for t in range(MOST):
        last = max((*WORDS, END), key=lambda word: table[t, last, word].item())
        if last == END:
            break
        words.append(last)
    return words


def test_greedy_search_takes_the_best_next_word():
    table = tables(60, seed=2)
    actual = message(table, greedy)
    assert actual == [greedily(row) for row in table]
    assert {len(words) for words in actual} == {0, 1, 2, 3, 4}
    for penalty in (0.0, 1.0):
        assert message(table, beam_search, 1, penalty) == actual


def chain(*steps):
    """A table of one row: of each last word, the probabilities of the next ones."""
    table = torch.full((1, MOST, V, V), float("-inf"))
    for last, following in steps:
        for word, probability in following.items():
            table[0, :, last, word] = math.log(probability)
    for last in range(V):
        if table[0, 0, last].isinf().all():
            table[0, :, last, END] = 0.0
    return table


def test_the_penalty_sets_the_length_of_a_translation():
    """The empty one has probability 0.4; three words have 0.6 * 0.8 ** 3, and more for each of them."""
    table = chain(
        (BEGIN, {END: 0.4, 4: 0.6}), (4, {5: 0.8, END: 0.2}), (5, {1: 0.8, END: 0.2}), (1, {END: 0.8, 4: 0.2})
    )
    assert message(table, beam_search, ALL, 0.0) == [[]]
    assert message(table, beam_search, ALL, 1.0) == [[4, 5, 1]]
    assert message(table, greedy) == [[4, 5, 1]]


def test_a_beam_looks_past_the_best_first_word():
    """Greedily 4, after which nothing is likely; the best begins with 5."""
    table = chain((BEGIN, {4: 0.6, 5: 0.4}), (4, {1: 0.25, 4: 0.25, 5: 0.25, END: 0.25}), (5, {1: 1.0}))
    assert message(table, greedy)[0][0] == 4
    assert message(table, beam_search, 2, 0.0) == [[5, 1]]


@pytest.mark.parametrize("beam", [1, 3, ALL])
def test_translations_that_never_end_are_truncated(beam):
    table = chain((BEGIN, {4: 1.0}), (4, {5: 1.0}), (5, {4: 1.0}))
    assert message(table, beam_search, beam, 1.0) == message(table, greedy) == [[4, 5, 4, 5]]
    for most in (1, 2, 3):
        for ids, places, _ in (
            greedy(Table(), *asked(table), most),
            beam_search(Table(), *asked(table), most, beam, 1.0),
        ):
            assert ids.tolist() == [[4, 5, 4, 5][:most]]
            assert places.shape == (1, most)


@pytest.mark.parametrize("search", [(greedy,), (beam_search, 1, 1.0), (beam_search, 2, 1.0)])
def test_the_search_stops_when_all_translations_have_ended(search):
    """An end that comes as certain leaves nothing else to follow."""
    table = chain((BEGIN, {END: 0.9, 4: 0.1}), (4, {END: 1.0})).expand(3, -1, -1, -1)
    model = Table()
    ids, *_ = search[0](model, *asked(table), MOST, *search[1:])
    assert ids.tolist() == [[0] * MOST] * 3
    assert model.calls <= 2


@pytest.mark.parametrize("beam", [2, 7, ALL])
def test_impossible_words_are_never_chosen(beam):
    """Also where more are followed than there can be."""
    table = chain((BEGIN, {4: 0.5, END: 0.5}), (4, {END: 1.0}))
    for penalty in (0.0, 1.0):
        (words,) = message(table, beam_search, beam, penalty)
        assert words in ([], [4])


@pytest.mark.parametrize("search", [(greedy,), (beam_search, 3, 1.0), (beam_search, ALL, 0.5)])
def test_a_row_does_not_depend_on_its_batch(search):
    table = tables(12, seed=9)
    together = message(table, *search)
    assert together == [message(row[None], *search)[0] for row in table]
    order = torch.tensor([5, 5, 0, 11, 3])
    assert message(table[order], *search) == [together[i] for i in order.tolist()]


# The same of a real model.


def translator(**settings):
    torch.manual_seed(3)
    config = TranslationConfig(**{"size": 8, "max_target_words": 7, "init_range": 1.0, **settings})
    return Translator(config, vocab_size=12, target_vocab_size=9).eval()


def sources():
    ids, lengths = torch.randint(2, 12, (6, 5)), torch.tensor([5, 1, 3, 0, 2, 4])
    return ids.masked_fill(torch.arange(5) >= lengths[:, None], PAD), lengths


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("decoder", ["nse", "lstm"])
def test_translations_have_the_models_probabilities(decoder, beam):
    model, (ids, lengths) = translator(decoder=decoder, beam=beam), sources()
    actual, places, likely = model.translate(ids, lengths)
    assert actual.shape == places.shape == (6, 7)
    for b, row in enumerate(actual):
        words = words_of(row)
        assert not {PAD, BEGIN, END} & set(words)
        assert (places[b, : len(words)] < max(1, int(lengths[b]))).all()
        alone, place, chance = model.translate(ids[b : b + 1, : max(1, lengths[b])], lengths[b : b + 1])
        assert_close([alone[0], place[0]], [row, places[b]], 0)
        assert_close(chance[0], likely[b], 1e-5)
    assert len(actual.unique(dim=0)) > 1
    assert model.translate(ids, lengths, max_length=3)[0].shape == (6, 3)
    assert_close(model.translate(ids, lengths, beam=beam)[:2], (actual, places), 0)


@pytest.mark.parametrize("decoder", ["nse", "lstm"])
def test_padding_and_begin_have_probability_zero(decoder):
    model, (ids, lengths) = translator(decoder=decoder), sources()
    source, now = model.decoder.begin(*model.encode_source(ids, lengths))
    likely, _, place = model.predict_next(torch.full((6,), BEGIN), source, now)
    assert (likely[:, [PAD, BEGIN]] == float("-inf")).all()
    others = [word for word in range(9) if word not in (PAD, BEGIN)]
    assert likely[:, others].isfinite().all()
    assert_close(likely.exp().sum(dim=-1), torch.ones(6), 1e-6)
    target = torch.zeros(6, 0, dtype=torch.long)
    scores = model(ids, lengths, target, torch.zeros(6, dtype=torch.long))[:, 0]
    assert_close(likely[:, others], scores[:, others].log_softmax(dim=-1), 1e-5)
    assert (place < lengths.clamp(min=1)).all()


@pytest.mark.parametrize("decoder", ["nse", "lstm"])
def test_a_beams_translation_is_at_least_as_likely_as_greedy(decoder):
    """By the model's own scores of whole translations."""
    model, (ids, lengths) = translator(decoder=decoder, length_penalty=0.0, max_target_words=3), sources()

    def likelihood(actual):
        sizes = (actual != PAD).sum(dim=1)
        scores = model(ids, lengths, actual, sizes)
        scores[..., [PAD, BEGIN]] = float("-inf")
        expected = torch.nn.functional.pad(actual, (0, 1)).scatter(1, sizes[:, None], END)
        each = scores.log_softmax(dim=-1).gather(2, expected[..., None])[..., 0]
        counted = torch.arange(4) < (sizes + 1).clamp(max=3)[:, None]  # cut off, without an end
        return each.masked_fill(~counted, 0).sum(dim=1)

    every = 1 + 6 + 36 + 216
    message = [model.translate(ids, lengths, beam=n) for n in (every, 1)]
    for actual in message:
        assert_close(actual.log_probs, likelihood(actual.ids), 1e-4)
    best_of_all, greedy_ones = (actual.ids for actual in message)
    assert (likelihood(best_of_all) >= likelihood(greedy_ones) - 1e-5).all()
    for words in product([1, 4, 5, 6, 7, 8], repeat=2):
        given = torch.tensor([[*words, PAD]]).expand(6, -1)
        assert (likelihood(best_of_all) >= likelihood(given) - 1e-5).all()
