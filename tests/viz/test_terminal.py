"""Word associations in a terminal."""

import io

import numpy as np
import pytest
from rich.console import Console

from nse.viz.terminal import render_associations, shade
from viz.made_traces import own, random_trace, trace

KEYS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.0, 1.0, 0.0]])


def printed(one, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(render_associations(one, width))
    lines = console.file.getvalue().split("\n")
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]


def test_each_word_has_the_slot_it_was_composed_with():
    rows = printed(trace(own(["dogs", "bark", "loudly"], z=KEYS)))
    assert [row[:4] for row in rows] == [
        ["dogs", "bark", "0.20", "0.70"],  # its own slot has the larger weight
        ["bark", "loudly", "0.60", ""],
        ["loudly", "bark", "1.00", ""],
    ]
    assert rows[0][4] == "██ ░░"


@pytest.mark.parametrize("words", [5, 14, 22, 29, 40])
def test_keys_are_shown_only_if_the_terminal_is_wide_enough(words):
    one = random_trace(words)
    for width in (80, 120, 300):
        rows = printed(one, width)
        memory = one.readings[0].memories[0]
        assert [row[0] for row in rows] == list(memory.slots)
        assert [row[1] for row in rows] == [memory.slots[slot] for slot in memory.composed]
        assert all(len(row) == 5 for row in rows) == (44 + 3 * words <= width)


def test_markup_and_escapes_in_words_are_not_interpreted():
    rows = printed(trace(own(["[bold]", "a\x1bb"])))
    assert [row[0] for row in rows] == ["[bold]", "a\ufffdb"]


def test_larger_weights_have_darker_shades():
    assert [shade(w) for w in (0.0, 0.3, 0.5, 0.7, 1.0)] == ["  ", "░░", "▒▒", "▓▓", "██"]
    assert shade(-0.5) == "  "
    assert shade(7.0) == "██"
