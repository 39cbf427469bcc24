"""What a terminal shows, from key matrices made by hand."""

import numpy as np
import pytest

from nse import InputError
from nse.viz.terminal import associations, shade

KEYS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.0, 1.0, 0.0]])


def test_each_word_gets_the_slot_it_read_most_but_not_its_own():
    found = associations(["dogs", "bark", "loudly"], KEYS)
    assert [(a.word, a.slot, a.weight) for a in found] == [
        ("dogs", "bark", 0.2),  # it read itself with 0.7
        ("bark", "loudly", 0.6),
        ("loudly", "bark", 1.0),
    ]
    assert found[0].weights == [0.7, 0.2, 0.1]


def test_a_lone_word_reads_itself():
    assert associations(["yes"], np.array([[1.0]]))[0].slot == "yes"


def test_slots_of_another_memory_have_their_own_words():
    found = associations(["what"], np.array([[0.9, 0.1]]), slots=["a", "memory"])
    assert found[0].slot == "a"


def test_shape_is_checked():
    with pytest.raises(InputError, match=r"keys: expected shape \(2, 2\), got \(3, 3\)"):
        associations(["a", "b"], KEYS)


def test_shades_grow_with_the_weight():
    assert [shade(w) for w in (0.0, 0.3, 0.5, 0.7, 1.0)] == ["  ", "░░", "▒▒", "▓▓", "██"]
    assert shade(-0.5) == "  "
    assert shade(7.0) == "██"
