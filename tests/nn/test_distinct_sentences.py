"""For answers each distinct sentence of a batch is encoded once, and the scores are the same."""

import pytest
import torch

import nse
from faults.made_models import save_model
from nse.nn.attention import Alignment
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.nn.sentence_encoder import find_distinct

WORDS = 30

PAIRS = [
    {"pool": "last"},
    {"pool": "max", "directions": 2},
    {"pool": "mean-max", "attention": "aligned", "starts": 1},
    {"pool": "mean-max", "attention": "aligned", "directions": 2, "blanks": 2, "embedding_size": 7},
    {"pool": "last", "attention": "aligned", "reader": "nse", "starts": 2, "blanks": 1},
    {"pool": "last", "attention": "paper", "word_overlap": True, "directions": 2},
    {"pool": "mean-max", "attention": "aligned", "max_words": 4, "padding": "paper"},
    {"pool": "max", "encoder": "lstm", "attention": "aligned"},
    {"pool": "max", "encoder": "bow"},
    {"encoder": "mma"},
    {"layers": 2, "max_words": 4},
]


def batch(rows, longest, seed, shortest=0):
    """Ids padded with anything, and lengths, none of them sorted; the last text is the first once more."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (rows, longest), generator=generator)
    lengths = torch.randint(shortest, longest + 1, (rows,), generator=generator)
    ids[-1, : lengths[0]], lengths[-1] = ids[0, : lengths[0]], lengths[0]
    return ids, lengths


def made(kind, config, labels=3):
    torch.manual_seed(0)
    model = kind(config, WORDS, labels).eval()
    for parameter in model.parameters():  # large enough that every part has a say
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return model


def count_encoded(model):
    """Note the number of sentences of each call of the encoder."""
    counts = []
    model.encoder.register_forward_hook(lambda _, inputs, __: counts.append(len(inputs[0])))
    return counts


@pytest.mark.parametrize("settings", PAIRS, ids=str)
@pytest.mark.parametrize(("first", "second"), [(9, 5), (1, 6), (4, 4)])
def test_pairs_are_scored_as_in_training(settings, first, second):
    model = made(PairClassifier, PairConfig(**{"size": 5, "hidden": 6, **settings}))
    inputs = [*batch(7, first, 1), *batch(7, second, 2)]
    before = [each.clone() for each in inputs]
    with torch.inference_mode():
        scores, vectors = model(*inputs), model.represent(*inputs[:2])
    torch.testing.assert_close(scores, model(*inputs), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(vectors, model.represent(*inputs[:2]), rtol=1e-5, atol=1e-5)
    assert vectors.std() > 0.01  # or it would be no wonder
    assert all(torch.equal(*each) for each in zip(inputs, before, strict=True))


@pytest.mark.parametrize(
    "settings", [{}, {"directions": 2, "pool": "max"}, {"starts": 1, "embedding_size": 9}], ids=str
)
def test_sentences_are_scored_as_in_training(settings):
    model = made(SentenceClassifier, SentenceConfig(**{"size": 6, "hidden": 4, **settings}))
    for rows, longest in ((6, 8), (2, 1), (3, 40)):
        inputs = batch(rows, longest, longest)
        with torch.inference_mode():
            scores = model(*inputs)
        torch.testing.assert_close(scores, model(*inputs), rtol=1e-5, atol=1e-5)


def test_empty_sentences_are_scored_as_in_training():
    model = made(PairClassifier, PairConfig(size=5, hidden=6, starts=1, pool="max", attention="aligned"))
    ids, none = torch.ones(3, 4, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    with torch.inference_mode():
        scores = model(ids, none, ids, none + 2)
        assert model(ids[:0], none[:0], ids[:0], none[:0]).shape == (0, 3)
    torch.testing.assert_close(scores, model(ids, none, ids, none + 2), rtol=1e-5, atol=1e-5)


def test_each_distinct_sentence_is_encoded_once_for_answers_only():
    model = made(PairClassifier, PairConfig(size=4, hidden=4, pool="max", attention="aligned"))
    counts = count_encoded(model)
    ids, lengths = torch.tensor([[3, 4, 5], [3, 4, 9], [6, 0, 0], [3, 4, 5]]), torch.tensor([3, 2, 1, 3])
    other, other_lengths = torch.tensor([[3, 4], [6, 8], [7, 7], [7, 7]]), torch.tensor([2, 1, 2, 2])
    with torch.inference_mode():
        model(ids, lengths, other, other_lengths)  # 3 4 5, 3 4, 6, 7 7
        model.represent(ids, lengths)
    assert counts == [4, 3]
    with torch.no_grad():  # as traces and exports compute
        model(ids, lengths, other, other_lengths)
    with torch.inference_mode():
        model.train()(ids, lengths, other, other_lengths)  # dropout differs from sentence to sentence
    assert counts == [4, 3, 8, 8]


def test_distinct_sentences_are_found_whatever_their_padding_holds():
    ids, lengths = torch.tensor([[1, 2, 7], [1, 0, 0], [1, 2, 9], [1, 2, 0]]), torch.tensor([2, 1, 2, 3])
    found, found_lengths, index = find_distinct(ids, lengths)
    assert len(found) == 3
    assert index[0] == index[2]
    for row, length in enumerate(lengths.tolist()):
        assert found_lengths[index[row]] == length
        assert torch.equal(found[index[row], :length], ids[row, :length])


def test_contributions_of_words_give_the_comparison_of_all_four_parts():
    torch.manual_seed(0)
    alignment = Alignment(6, 5, dropout=0.5).eval()
    p, h, n, m = torch.randn(3, 4, 6), torch.randn(3, 7, 6), torch.tensor([4, 0, 2]), torch.tensor([7, 1, 3])
    expected = alignment(p, n, h, m)
    contributions = [alignment.compute_contributions(words, lengths) for words, lengths in ((p, n), (h, m))]
    for actual, wanted in zip(alignment(p, n, h, m, contributions), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)
    assert expected[0].std() > 0.01


def test_a_trace_shows_both_sentences_of_a_pair_that_are_equal(tmp_path):
    save_model(tmp_path / "mine")
    trace = nse.load(tmp_path / "mine").trace("all dogs bark", "all dogs bark")
    assert [reading.name for reading in trace.readings[:2]] == ["premise", "hypothesis"]


def test_for_answers_each_distinct_word_is_projected_once():
    model, seen = made(SentenceClassifier, SentenceConfig(size=4, hidden=3, embedding_size=7)), []
    model.projection.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape))
    ids = torch.tensor([[5, 2, 5, 0], [2, 9, 0, 0]])
    wanted = model.embed(ids)
    with torch.inference_mode():
        got = model.embed(ids)
    assert seen == [(2, 4, 7), (4, 7)]
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
