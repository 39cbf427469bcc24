"""Batches of texts."""

import pytest
import torch

from nse.text.batching import Pairs, Texts, batches
from nse.text.vocabulary import Vocabulary


def test_texts_are_padded_and_batches_no_further_than_needed():
    texts = Texts.of([["a", "b", "c"], [], ["b"]], Vocabulary(["a", "b", "c"]))
    assert texts.ids.tolist() == [[2, 3, 4], [0, 0, 0], [3, 0, 0]]
    assert texts.lengths.tolist() == [3, 0, 1]
    some = texts.select(torch.tensor([2, 1]))
    assert some.ids.tolist() == [[3], [0]]
    assert texts.select(torch.tensor([], dtype=torch.long)).ids.shape == (0, 0)
    assert Texts.of([], Vocabulary([])).ids.shape == (0, 0)


def test_texts_of_a_given_length_are_padded_or_cut():
    texts = Texts.of([["a", "b", "c"], [], ["b"]], Vocabulary(["a", "b", "c"]))
    index = torch.tensor([2, 0])
    for longest, ids, lengths in [
        (3, [[3, 0, 0], [2, 3, 4]], [1, 3]),
        (2, [[3, 0], [2, 3]], [1, 2]),
        (5, [[3, 0, 0, 0, 0], [2, 3, 4, 0, 0]], [1, 3]),
        (0, [[], []], [0, 0]),
    ]:
        some = texts.select(index, longest)
        assert some.ids.tolist() == ids
        assert some.lengths.tolist() == lengths
    assert texts.select(index[:0], 4).ids.shape == (0, 4)


@pytest.mark.parametrize("kind", [torch.long, torch.int32])
def test_flat_ids_are_cut_and_padded_to_the_longest_that_is_kept(kind):
    ids, lengths = torch.tensor([5, 6, 7, 8, 9, 2], dtype=kind), torch.tensor([4, 0, 1, 1], dtype=kind)
    for longest, wanted, kept in [
        (0, [[5, 6, 7, 8], [0, 0, 0, 0], [9, 0, 0, 0], [2, 0, 0, 0]], [4, 0, 1, 1]),
        (9, [[5, 6, 7, 8], [0, 0, 0, 0], [9, 0, 0, 0], [2, 0, 0, 0]], [4, 0, 1, 1]),
        (2, [[5, 6], [0, 0], [9, 0], [2, 0]], [2, 0, 1, 1]),
        (1, [[5], [0], [9], [2]], [1, 0, 1, 1]),
    ]:
        texts = Texts.flat(ids, lengths, longest)
        assert texts.ids.tolist() == wanted
        assert texts.lengths.tolist() == kept
        assert texts.ids.dtype == texts.lengths.dtype == torch.long
    assert Texts.flat(ids[:0], lengths[1:2], 3).ids.shape == (1, 0)
    assert Texts.flat(ids[:0], lengths[:0], 3).ids.shape == (0, 0)


def test_flat_ids_are_whose_they_are_whatever_the_others_lengths():
    lengths = torch.randint(0, 9, (50,))
    whole = torch.randint(2, 99, (int(lengths.sum()),)).split(lengths.tolist())
    texts = Texts.flat(torch.cat(whole), lengths, 5)
    assert texts.ids.shape == (50, 5)
    for ids, kept, given in zip(*texts, whole, strict=True):
        assert ids[:kept].tolist() == given[:5].tolist()
        assert not ids[kept:].any()


def test_words_are_cut_to_the_longest():
    texts = Texts.of([["a", "b", "c"], [], ["b"]], Vocabulary(["a", "b", "c"]), longest=2)
    assert texts.ids.tolist() == [[2, 3], [0, 0], [3, 0]]
    assert texts.lengths.tolist() == [2, 0, 1]


def pairs_of(premises, hypotheses):
    """Pairs of so many words each."""
    vocabulary = Vocabulary(["a"])
    texts = [Texts.of([["a"] * n for n in lengths], vocabulary) for lengths in (premises, hypotheses)]
    return Pairs(*texts, torch.arange(len(premises)))


def test_shapes_of_buckets_are_multiples_up_to_the_longest():
    pairs = pairs_of([1, 4, 5, 9, 0], [3, 7, 2, 6, 0])
    for index, shape in [([0], (4, 4)), ([0, 1], (4, 7)), ([2], (8, 4)), ([3, 0], (9, 7)), ([4], (0, 0))]:
        assert pairs.shape(torch.tensor(index)) == shape
        batch = pairs.select(torch.tensor(index), shape)
        assert (batch.premise.ids.shape[1], batch.hypothesis.ids.shape[1]) == shape
        exact = pairs.select(torch.tensor(index))
        assert batch.premise.lengths.equal(exact.premise.lengths)
        assert batch.premise.ids[:, : exact.premise.ids.shape[1]].equal(exact.premise.ids)
        assert batch.labels.tolist() == index
    assert pairs.shape(torch.tensor([], dtype=torch.long)) == (0, 0)
    assert pairs.lengths.tolist() == [3, 7, 5, 9, 0]


def test_pairs_stay_together():
    vocabulary = Vocabulary(["a", "b"])
    premises = Texts.of([["a"], ["b"]], vocabulary)
    hypotheses = Texts.of([["a", "b"], ["b"]], vocabulary)
    pairs = Pairs(premises, hypotheses, torch.tensor([2, 0]))
    batch = pairs.to(torch.device("cpu")).select(torch.tensor([1]))
    assert batch.premise.ids.tolist() == batch.hypothesis.ids.tolist() == [[3]]
    assert batch.labels.tolist() == [0]


def test_batches_hold_every_example_once():
    assert [b.tolist() for b in batches(5, 2)] == [[0, 1], [2, 3], [4]]
    shuffled = torch.cat(batches(100, 7, torch.Generator().manual_seed(0)))
    assert shuffled.tolist() != list(range(100))
    assert sorted(shuffled.tolist()) == list(range(100))


def test_buckets_hold_every_example_once_and_similar_lengths_together():
    lengths = torch.randint(1, 60, (3000,))
    generator = torch.Generator().manual_seed(0)
    epoch, another = (batches(3000, 16, generator, lengths) for _ in range(2))
    again = batches(3000, 16, torch.Generator().manual_seed(0), lengths)
    assert [b.tolist() for b in epoch] == [b.tolist() for b in again]
    assert [b.tolist() for b in epoch] != [b.tolist() for b in another]
    for each in (epoch, another):
        assert sorted(torch.cat(each).tolist()) == list(range(3000))
        assert sorted(map(len, each)) == [3000 % 16] + [16] * (3000 // 16)
        spread = [int(lengths[b].max() - lengths[b].min()) for b in each]
        assert sum(spread) / len(spread) < 4
        means = [lengths[b].float().mean().item() for b in each]
        assert means != sorted(means)  # short and long batches come mixed


def test_buckets_in_the_order_of_the_examples():
    lengths = torch.tensor([3, 1, 2, 1])
    assert [b.tolist() for b in batches(4, 3, lengths=lengths)] == [[1, 3, 2], [0]]
