"""Strings to ids and batches."""

import pytest
import torch

from nse import InputError
from nse.text.batching import Pairs, Texts, batches
from nse.text.vocabulary import Vocabulary


def test_vocabulary_keeps_two_ids_for_padding_and_the_unknown():
    vocabulary = Vocabulary.of(["b a", "a c"])
    assert vocabulary.words == ("<pad>", "<unk>", "a", "b", "c")
    assert len(vocabulary) == 5
    assert vocabulary.encode(" a  zebra c ") == [2, 1, 4]
    assert vocabulary.encode("") == []


def test_a_word_given_twice_is_refused():
    with pytest.raises(InputError, match="expected each word once, got 'a' twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(InputError, match="'<pad>' twice"):
        Vocabulary(["<pad>"])


def test_texts_are_padded_and_batches_no_further_than_needed():
    texts = Texts.of(["a b c", "", "b"], Vocabulary(["a", "b", "c"]))
    assert texts.ids.tolist() == [[2, 3, 4], [0, 0, 0], [3, 0, 0]]
    assert texts.lengths.tolist() == [3, 0, 1]
    some = texts.select(torch.tensor([2, 1]))
    assert some.ids.tolist() == [[3], [0]]
    assert texts.select(torch.tensor([], dtype=torch.long)).ids.shape == (0, 0)
    assert Texts.of([], Vocabulary([])).ids.shape == (0, 0)


def test_pairs_stay_together():
    vocabulary = Vocabulary(["a", "b"])
    pairs = Pairs(Texts.of(["a", "b"], vocabulary), Texts.of(["a b", "b"], vocabulary), torch.tensor([2, 0]))
    batch = pairs.to(torch.device("cpu")).select(torch.tensor([1]))
    assert batch.premise.ids.tolist() == batch.hypothesis.ids.tolist() == [[3]]
    assert batch.labels.tolist() == [0]


def test_batches_hold_every_example_once():
    assert [b.tolist() for b in batches(5, 2)] == [[0, 1], [2, 3], [4]]
    shuffled = torch.cat(batches(100, 7, torch.Generator().manual_seed(0)))
    assert shuffled.tolist() != list(range(100))
    assert sorted(shuffled.tolist()) == list(range(100))
