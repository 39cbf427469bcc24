"""Texts become padded batches."""

import pytest
import torch

from nse.text.sampler import draw_batches
from nse.text.tensors import LabelledRows, Texts
from nse.text.vocabulary import Vocabulary


def test_a_batch_is_padded_to_its_longest_text():
    texts = Texts.from_words([["a", "b", "c"], [], ["b"]], Vocabulary(["a", "b", "c"]))
    assert texts.ids.tolist() == [[2, 3, 4], [0, 0, 0], [3, 0, 0]]
    assert texts.lengths.tolist() == [3, 0, 1]
    batch = texts.select(torch.tensor([2, 1]))
    assert batch.ids.tolist() == [[3], [0]]
    assert texts.select(torch.tensor([], dtype=torch.long)).ids.shape == (0, 0)
    assert Texts.from_words([], Vocabulary([])).ids.shape == (0, 0)


def test_texts_are_padded_or_truncated_to_a_given_length():
    texts = Texts.from_words([["a", "b", "c"], [], ["b"]], Vocabulary(["a", "b", "c"]))
    index = torch.tensor([2, 0])
    for longest, ids, lengths in [
        (3, [[3, 0, 0], [2, 3, 4]], [1, 3]),
        (2, [[3, 0], [2, 3]], [1, 2]),
        (5, [[3, 0, 0, 0, 0], [2, 3, 4, 0, 0]], [1, 3]),
        (0, [[], []], [0, 0]),
    ]:
        batch = texts.select(index, longest)
        assert batch.ids.tolist() == ids
        assert batch.lengths.tolist() == lengths
    assert texts.select(index[:0], 4).ids.shape == (0, 4)


@pytest.mark.parametrize("kind", [torch.long, torch.int32])
def test_concatenated_ids_are_truncated_and_padded(kind):
    ids, lengths = torch.tensor([5, 6, 7, 8, 9, 2], dtype=kind), torch.tensor([4, 0, 1, 1], dtype=kind)
    for longest, wanted, kept in [
        (0, [[5, 6, 7, 8], [0, 0, 0, 0], [9, 0, 0, 0], [2, 0, 0, 0]], [4, 0, 1, 1]),
        (9, [[5, 6, 7, 8], [0, 0, 0, 0], [9, 0, 0, 0], [2, 0, 0, 0]], [4, 0, 1, 1]),
        (2, [[5, 6], [0, 0], [9, 0], [2, 0]], [2, 0, 1, 1]),
        (1, [[5], [0], [9], [2]], [1, 0, 1, 1]),
    ]:
        texts = Texts.from_ids(ids, lengths, longest)
        assert texts.ids.tolist() == wanted
        assert texts.lengths.tolist() == kept
        assert texts.ids.dtype == texts.lengths.dtype == torch.long
    assert Texts.from_ids(ids[:0], lengths[1:2], 3).ids.shape == (1, 0)
    assert Texts.from_ids(ids[:0], lengths[:0], 3).ids.shape == (0, 0)


def test_each_text_keeps_its_own_ids():
    lengths = torch.randint(0, 9, (50,))
    whole = torch.randint(2, 99, (int(lengths.sum()),)).split(lengths.tolist())
    texts = Texts.from_ids(torch.cat(whole), lengths, 5)
    assert texts.ids.shape == (50, 5)
    for ids, kept, all_ids in zip(*texts, whole, strict=True):
        assert ids[:kept].tolist() == all_ids[:5].tolist()
        assert not ids[kept:].any()


def test_texts_are_truncated_to_max_words():
    texts = Texts.from_words([["a", "b", "c"], [], ["b"]], Vocabulary(["a", "b", "c"]), max_words=2)
    assert texts.ids.tolist() == [[2, 3], [0, 0], [3, 0]]
    assert texts.lengths.tolist() == [2, 0, 1]


def make_pairs(premises, hypotheses):
    """Make pairs of texts with these numbers of words."""
    vocabulary = Vocabulary(["a"])
    texts = [Texts.from_words([["a"] * n for n in lengths], vocabulary) for lengths in (premises, hypotheses)]
    return LabelledRows(tuple(texts), torch.arange(len(premises)))


def test_shapes_are_multiples_up_to_the_longest_text():
    pairs = make_pairs([1, 4, 5, 9, 0], [3, 7, 2, 6, 0])
    for index, shape in [([0], (4, 4)), ([0, 1], (4, 7)), ([2], (8, 4)), ([3, 0], (9, 7)), ([4], (0, 0))]:
        assert pairs.compute_shapes([torch.tensor(index)])[0] == shape
        batch = pairs.select(torch.tensor(index), shape)
        assert tuple(texts.ids.shape[1] for texts in batch.texts) == shape
        exact = pairs.select(torch.tensor(index))
        for padded, wanted in zip(batch.texts, exact.texts, strict=True):
            assert padded.lengths.equal(wanted.lengths)
            assert padded.ids[:, : wanted.ids.shape[1]].equal(wanted.ids)
        assert batch.labels.tolist() == index
    assert pairs.lengths.tolist() == [3, 7, 5, 9, 0]


@pytest.mark.parametrize(("multiple", "shapes"), [(4, 76), (16, 20), (1, 301), (1000, 2)])
def test_larger_multiples_give_fewer_shapes(multiple, shapes):
    texts = Texts.from_words([["a"] * n for n in range(301)], Vocabulary(["a"]))
    rows = LabelledRows((texts, texts.select(torch.arange(300, -1, -1))), torch.arange(301))
    found_shapes = [rows.compute_shapes([torch.tensor([n])], multiple)[0] for n in range(301)]
    for n, shape in enumerate(found_shapes):
        for length, padded in zip((n, 300 - n), shape, strict=True):
            assert length <= padded < length + multiple
            assert padded % multiple == 0 or padded == 300  # there are no more ids
    assert len({first for first, _ in found_shapes}) == shapes
    assert rows.compute_shapes([torch.tensor([33, 3])], multiple)[0][0] == found_shapes[33][0]
    if multiple == 4:
        assert [rows.compute_shapes([torch.tensor([n])])[0] for n in range(301)] == found_shapes  # by default


@pytest.mark.parametrize("multiple", [1, 4, 16])
def test_shapes_of_many_batches_equal_those_of_each(multiple):
    lengths = torch.randint(0, 60, (2, 101), generator=torch.Generator().manual_seed(1)).tolist()
    pairs = make_pairs(*lengths)
    todo = draw_batches(101, 8, torch.Generator().manual_seed(2))
    assert len(todo[-1]) == 5
    assert pairs.compute_shapes(todo, multiple) == [
        pairs.compute_shapes([index], multiple)[0] for index in todo
    ]


def test_shapes_never_exceed_the_length_of_the_ids():
    """Texts that a model truncates to 50 words must not be padded to 56."""
    texts = Texts.from_words([["a"] * n for n in (50, 49)], Vocabulary(["a"]))
    assert texts.compute_shapes([torch.tensor([1])])[0] == 50
    assert texts.select(torch.tensor([1]), 50).ids.tolist() == [[2] * 49 + [0]]


def test_rows_may_have_one_text():
    texts = Texts.from_words([["a", "b"], ["b"], []], Vocabulary(["a", "b"]))
    rows = LabelledRows((texts,), torch.tensor([4, 0, 2]))
    assert rows.groups is None
    assert rows.lengths.tolist() == [2, 1, 0]
    assert rows.compute_shapes([torch.tensor([1])])[0] == (2,)
    for batch in (rows.select(torch.tensor([2, 1])), rows.select(torch.tensor([2, 1]), (1,))):
        assert [tensor.tolist() for tensor in batch.inputs] == [[[0], [3]], [0, 1]]
        assert (batch.labels.tolist(), batch.groups) == ([2, 0], None)
    assert rows.to(torch.device("cpu")).groups is None
    with pytest.raises(ValueError, match="zip"):
        rows.select(torch.tensor([0]), (2, 2))


def test_rows_keep_the_questions_that_they_answer():
    vocabulary = Vocabulary(["a", "b"])
    answers = Texts.from_words([["a"], ["a", "b"], []], vocabulary)
    questions = Texts.from_words([["b"], ["b"], ["b", "b", "b"]], vocabulary)
    rows = LabelledRows((answers, questions), torch.tensor([0, 1, 1]), torch.tensor([7, 7, 9]))
    assert rows.lengths.tolist() == [1, 2, 3]
    batch = rows.to(torch.device("cpu")).select(torch.tensor([2, 0]))
    ids, lengths, other_ids, other_lengths = batch.inputs  # as a model takes them
    assert (ids.tolist(), lengths.tolist()) == ([[0], [2]], [0, 1])
    assert (other_ids.tolist(), other_lengths.tolist()) == ([[3, 3, 3], [3, 0, 0]], [3, 1])
    assert (batch.labels.tolist(), batch.groups.tolist()) == ([1, 0], [9, 7])


def test_both_texts_of_a_pair_are_selected_together():
    vocabulary = Vocabulary(["a", "b"])
    premises = Texts.from_words([["a"], ["b"]], vocabulary)
    hypotheses = Texts.from_words([["a", "b"], ["b"]], vocabulary)
    pairs = LabelledRows((premises, hypotheses), torch.tensor([2, 0]))
    batch = pairs.to(torch.device("cpu")).select(torch.tensor([1]))
    assert [texts.ids.tolist() for texts in batch.texts] == [[[3]], [[3]]]
    assert batch.labels.tolist() == [0]


def test_batches_hold_every_example_once():
    assert [b.tolist() for b in draw_batches(5, 2)] == [[0, 1], [2, 3], [4]]
    shuffled = torch.cat(draw_batches(100, 7, torch.Generator().manual_seed(0)))
    assert shuffled.tolist() != list(range(100))
    assert sorted(shuffled.tolist()) == list(range(100))


def test_batches_by_length_hold_every_example_once():
    lengths = torch.randint(1, 60, (3000,))
    generator = torch.Generator().manual_seed(0)
    epoch, another = (draw_batches(3000, 16, generator, lengths) for _ in range(2))
    again = draw_batches(3000, 16, torch.Generator().manual_seed(0), lengths)
    assert [b.tolist() for b in epoch] == [b.tolist() for b in again]
    assert [b.tolist() for b in epoch] != [b.tolist() for b in another]
    for batches_of_epoch in (epoch, another):
        assert sorted(torch.cat(batches_of_epoch).tolist()) == list(range(3000))
        assert sorted(map(len, batches_of_epoch)) == [3000 % 16] + [16] * (3000 // 16)
        spread = [int(lengths[b].max() - lengths[b].min()) for b in batches_of_epoch]
        assert sum(spread) / len(spread) < 4
        means = [lengths[b].float().mean().item() for b in batches_of_epoch]
        assert means != sorted(means)  # short and long batches come mixed


def test_batches_by_length_keep_the_order_without_a_generator():
    lengths = torch.tensor([3, 1, 2, 1])
    assert [b.tolist() for b in draw_batches(4, 3, lengths=lengths)] == [[1, 3, 2], [0]]


def count_runs(groups):
    """Count where a group begins."""
    return 1 + int((groups[1:] != groups[:-1]).sum())


@pytest.mark.parametrize("batch", [1, 4, 20, 1000])
def test_examples_of_a_group_stand_together(batch):
    groups = torch.randint(0, 40, (500,))  # not in order, and of different sizes
    groups[groups == 3] = 77  # and a number may be left out
    first, second = (
        draw_batches(500, batch, torch.Generator().manual_seed(5), groups=groups) for _ in range(2)
    )
    assert [b.tolist() for b in first] == [b.tolist() for b in second]
    whole = torch.cat(first)
    assert sorted(whole.tolist()) == list(range(500))
    assert count_runs(groups[whole]) == len(groups.unique())
    assert [len(b) for b in first[:-1]] == [batch] * (len(first) - 1)
    assert len(first) == -(-500 // batch)


def test_groups_and_their_examples_are_shuffled():
    groups = torch.arange(10).repeat_interleave(6)
    generator = torch.Generator().manual_seed(1)
    epochs = [torch.cat(draw_batches(60, 8, generator, groups=groups)) for _ in range(2)]
    for whole in epochs:
        order = groups[whole].unique_consecutive().tolist()
        assert order != sorted(order)
        inside = [whole[groups[whole] == group].tolist() for group in range(10)]
        assert any(rows != sorted(rows) for rows in inside)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_groups_keep_the_order_without_a_generator():
    groups = torch.tensor([4, 1, 4, 0, 1])
    assert [b.tolist() for b in draw_batches(5, 2, groups=groups)] == [[0, 2], [1, 4], [3]]
    (many,) = draw_batches(300, 300, groups=torch.arange(300) % 3)
    assert many.tolist() == [*range(0, 300, 3), *range(1, 300, 3), *range(2, 300, 3)]
    lengths = torch.tensor([5, 4, 3, 2, 1])
    assert torch.cat(draw_batches(5, 2, lengths=lengths, groups=groups)).tolist() == [0, 2, 1, 4, 3]
