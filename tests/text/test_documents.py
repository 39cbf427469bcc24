"""The sentences of documents become one batch of sequences, with any padding."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nse.text.sampler import LONG_SENTENCE, draw_batches, draw_bounded_batches
from nse.text.tensors import MULTIPLE, Documents, LabelledRows, Texts, round_up
from nse.text.vocabulary import Vocabulary

SENTENCES = st.lists(st.integers(2, 99), max_size=5)
DOCUMENTS = st.lists(st.lists(SENTENCES, max_size=6), min_size=1, max_size=7)
FEW = [[[5, 6], [7]], [], [[], [8, 9, 10]], [[]], [[11]]]


def make_documents(documents):
    """Make documents from lists of sentences, each a list of ids."""
    sentences = [sentence for document in documents for sentence in document]
    flat = torch.tensor([word for sentence in sentences for word in sentence], dtype=torch.long)
    lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
    return Documents.from_sentences(
        Texts.from_ids(flat, lengths), torch.tensor([len(document) for document in documents])
    )


def list_words(batch):
    """List the documents of a batch, as `make_documents` takes them."""
    return [
        [batch.ids[row, : batch.lengths[row]].tolist() for row in rows[:count].tolist()]
        for rows, count in zip(batch.rows, batch.counts.tolist(), strict=True)
    ]


def assert_holds(batch, wanted):
    """Check that a batch holds these documents in order, and no other sentence or word."""
    assert list_words(batch) == wanted
    used_rows = [
        row for rows, n in zip(batch.rows.tolist(), batch.counts.tolist(), strict=True) for row in rows[:n]
    ]
    assert used_rows == list(range(len(used_rows)))
    assert not batch.lengths[len(used_rows) :].any()
    assert int(batch.lengths.sum()) == sum(len(sentence) for document in wanted for sentence in document)
    assert (batch.rows < len(batch.ids)).all()
    for ids, length in zip(batch.ids[: len(used_rows)], batch.lengths.tolist(), strict=False):
        assert not ids[length:].any()


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.data())
def test_a_batch_holds_its_documents_with_any_padding(made, data):
    docs = make_documents(made)
    rows = st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=9)
    index = torch.tensor(data.draw(rows, label="index"))
    wanted = [made[i] for i in index.tolist()]
    assert_holds(docs.select(index), wanted)
    more = data.draw(st.tuples(*[st.integers(0, 5)] * 3), label="more")
    shape = tuple(n + m for n, m in zip(docs.compute_shape(index), more, strict=True))
    batch = docs.select(index, shape)
    assert (*batch.ids.shape, batch.rows.shape[1]) == (shape[0], shape[2], shape[1])
    assert_holds(batch, wanted)
    assert_holds(docs.select(index, docs.compute_shapes([index])[0]), wanted)


def test_documents_have_counts_starts_and_longest_sentences():
    docs = make_documents(FEW)
    assert docs.counts.tolist() == [2, 0, 2, 1, 1]
    assert docs.starts.tolist() == [0, 2, 2, 4, 5]
    assert docs.longest.tolist() == [2, 0, 3, 0, 1]
    assert docs.compute_shape(torch.tensor([0, 2])) == (4, 2, 3)
    assert docs.compute_shape(torch.tensor([1])) == (1, 1, 1)  # no tensor is empty
    assert docs.compute_shape(torch.tensor([4, 4, 4])) == (3, 1, 1)


def test_a_batch_equals_one_computed_by_hand():
    batch = make_documents(FEW).select(torch.tensor([2, 1, 0]), (5, 3, 4))
    assert batch.ids[:4].tolist() == [[0, 0, 0, 0], [8, 9, 10, 0], [5, 6, 0, 0], [7, 0, 0, 0]]
    assert batch.lengths.tolist() == [0, 3, 2, 1, 0]
    assert batch.rows.tolist() == [[0, 1, 0], [0, 0, 0], [2, 3, 0]]
    assert batch.counts.tolist() == [2, 0, 2]


@pytest.mark.parametrize("count", [0, 1, 200])
def test_a_document_may_have_any_number_of_sentences(count):
    long = [[2 + i % 90, 3][: i % 3] for i in range(count)]
    made = [FEW[0], long, FEW[2]]
    docs = make_documents(made)
    for index in ([1], [0, 1, 2], [2, 1, 1, 0], [0, 2]):
        rows = torch.tensor(index)
        wanted = [made[i] for i in index]
        for shape in (None, docs.compute_shapes([rows])[0]):
            assert_holds(docs.select(rows, shape), wanted)


@pytest.mark.parametrize("made", [[[]], [[], [], []], [[[]], [[], []]], [[], [[]]]])
def test_documents_may_have_no_words(made):
    docs = make_documents(made)
    for index in (torch.arange(len(made)), torch.tensor([0])):
        batch = docs.select(index)
        assert_holds(batch, [made[i] for i in index.tolist()])
        assert batch.ids.numel() > 0


def test_a_split_without_documents_has_no_batches():
    docs = LabelledRows((make_documents([]),), torch.zeros(0, dtype=torch.long))
    assert docs.lengths.tolist() == docs.sizes.tolist() == []
    assert list(draw_bounded_batches(docs, 4)) == []


@pytest.mark.parametrize(("bits", "wanted"), [(1, [1, 2, 4, 8, 16]), (2, [1, 2, 3, 4, 6, 8, 12, 16])])
def test_round_up_equals_values_computed_by_hand(bits, wanted):
    docs = [round_up(n, bits) for n in range(1, 17)]
    assert docs == [min(w for w in wanted if w >= n) for n in range(1, 17)]
    assert round_up(0, bits) == 1


@given(st.integers(1, 10**6), st.integers(1, 5))
def test_round_up_is_never_smaller_nor_much_larger(n, bits):
    docs = round_up(n, bits)
    assert n <= docs < n * (1 + 2 ** (1 - bits))
    assert round_up(docs, bits) == docs
    assert bin(docs).rstrip("0").count("1") <= bits


def draw_documents(count=500, seed=1):
    """Draw documents of up to 200 sentences, most of few."""
    draw = random.Random(seed)
    return make_documents(
        [
            [[2] * draw.randint(0, 40) for _ in range(min(200, int(draw.expovariate(0.1))))]
            for _ in range(count)
        ]
    )


@pytest.mark.parametrize("multiple", [1, MULTIPLE, 16])
def test_shapes_are_large_enough_and_few(multiple):
    docs = draw_documents()
    todo = draw_batches(500, 4, torch.Generator().manual_seed(1), docs.lengths)
    shapes = docs.compute_shapes(todo, multiple)
    assert len(shapes) == len(todo)
    for index, shape in zip(todo, shapes, strict=True):
        assert all(s >= n for s, n in zip(shape, docs.compute_shape(index), strict=True))
        assert docs.compute_shapes([index], multiple)[0] == shape
        assert min(multiple, 40) <= shape[2] <= max(multiple, 64)  # the longest sentence has 40 words
        assert shape[0] < 1.5 * max(2, int(docs.counts[index].sum()))
    assert len({docs.compute_shape(index) for index in todo}) > 2 * len(set(shapes))
    for column, most in zip(zip(*shapes, strict=True), (20, 24, 12), strict=True):
        assert len(set(column)) <= most


def test_shapes_of_many_batches_equal_those_of_each():
    rows = LabelledRows((draw_documents(101),), torch.arange(101))
    todo = draw_batches(101, 8, torch.Generator().manual_seed(2))
    assert rows.compute_shapes(todo, 4) == [rows.compute_shapes([index], 4)[0] for index in todo]
    for index, shape in zip(todo, rows.compute_shapes(todo, 4), strict=True):
        padded, exact = rows.select(index, shape), rows.select(index)
        assert list_words(padded.texts[0]) == list_words(exact.texts[0])
        assert padded.labels.tolist() == index.tolist()
        assert len(padded.inputs) == 4


def test_shapes_of_texts_beside_documents_equal_those_of_each():
    """A row may have a column of each kind."""
    texts = Texts.from_words([["a"] * n for n in (3, 0, 9, 1, 5)], Vocabulary(["a"]))
    rows = LabelledRows((texts, make_documents(FEW)), torch.arange(5))
    todo = [torch.tensor([0, 1]), torch.tensor([4, 2])]
    assert rows.compute_shapes(todo) == [rows.compute_shapes([index])[0] for index in todo]
    assert [text for text, _ in rows.compute_shapes(todo)] == [4, 9]
    assert rows.sizes.tolist() == [max(3, 2 * 3), 0, max(9, 2 * 3), max(1, 1 * 3), max(5, 1 * 3)]
    batch = rows.select(todo[1], rows.compute_shapes([todo[1]])[0])
    assert batch.texts[0].ids.shape == (2, 9)
    assert list_words(batch.texts[1]) == [FEW[4], FEW[2]]


def test_documents_are_sorted_by_sentences_and_then_by_words():
    made = [[[5] * words for _ in range(count)] for count in (3, 1, 2) for words in (4, 0, 9)]
    order = make_documents(made).lengths.argsort().tolist()
    keys = [(len(made[i]), len(made[i][0])) for i in order]
    assert keys == sorted(keys)
    assert len(set(make_documents(made).lengths.tolist())) == 9


def count_words(docs, index):
    """Count the words of a batch once its sentences are padded to the longest."""
    sentences, _, words = docs.compute_shape(index)
    return sentences * words


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_bounded_batches_limit_the_words_and_hold_every_row(batch):
    docs = draw_documents(300)
    rows = LabelledRows((docs,), torch.zeros(300, dtype=torch.long))
    batches = list(draw_bounded_batches(rows, batch))
    assert sorted(torch.cat(batches).tolist()) == list(range(300))
    for index in batches:
        assert 1 <= len(index) <= batch
        assert len(index) == 1 or count_words(docs, index) <= batch * LONG_SENTENCE
    if batch == 8:  # as the lengths are, not one by one
        assert max(map(len, batches)) == 8


def test_bounded_batches_count_padded_sentences():
    """Sentences are padded to the longest of the batch, so the sizes of documents alone are too small."""
    docs = make_documents([[[2]] * 200] * 16 + [[[2] * 200]] * 16)
    rows = LabelledRows((docs,), torch.zeros(32, dtype=torch.long))
    batches = list(draw_bounded_batches(rows, 32))
    assert sorted(torch.cat(batches).tolist()) == list(range(32))
    for index in batches:
        assert len(index) == 1 or count_words(docs, index) <= 32 * LONG_SENTENCE


def test_bounded_batches_of_texts_limit_the_words():
    texts = Texts.from_words([["a"] * n for n in (500, 3, 0, 200, 7)], Vocabulary(["a"]))
    rows = LabelledRows((texts,), torch.zeros(5, dtype=torch.long))
    # Of four with at most 200 words only one at a time has no more than 4 * 64.
    assert [index.tolist() for index in draw_bounded_batches(rows, 4)] == [[2], [1], [4], [3], [0]]
    assert [index.tolist() for index in draw_bounded_batches(rows, 3)] == [[2, 1, 4], [3], [0]]


def test_documents_move_to_a_device(device):
    docs = make_documents(FEW)
    target_device = torch.device(device)
    index = torch.tensor([2, 1, 0])
    moved = docs.to(target_device).select(index.to(target_device), docs.compute_shapes([index])[0])
    assert {tensor.device.type for tensor in moved} == {device}
    assert_holds(moved.to(torch.device("cpu")), [FEW[2], FEW[1], FEW[0]])
