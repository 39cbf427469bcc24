"""What each word was composed with, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nse.errors import InputError

SHADES = " ░▒▓█"


class Association(NamedTuple):
    """A word and the slot it read most, as in the paper's association graphs."""

    word: str
    slot: str  # the word that the slot started as
    weight: float
    weights: list[float]  # of all slots


def associations(
    words: Sequence[str], keys: NDArray[Any], slots: Sequence[str] | None = None
) -> list[Association]:
    """For each word, the slot with the largest weight; its own slot only if there is no other.

    Args:
        words: The T words that were read.
        keys: z [T, L], the weight of each slot at each word.
        slots: What the L slots started as; the words themselves by default.
    """
    own = slots is None
    slots = words if slots is None else slots
    if keys.shape != (len(words), len(slots)):
        raise InputError(f"keys: expected shape {(len(words), len(slots))}, got {keys.shape}")
    found = []
    for t, (word, z) in enumerate(zip(words, keys, strict=True)):
        others = np.array(z, dtype=float)
        if own and len(slots) > 1:
            others[t] = -1.0  # the paper shows the second best where a word reads itself
        best = int(others.argmax())
        found.append(Association(word, slots[best], float(z[best]), [float(weight) for weight in z]))
    return found


def shade(weight: float) -> str:
    """A weight from 0 to 1 as a block, empty to full."""
    step = min(int(weight * len(SHADES)), len(SHADES) - 1)
    return SHADES[max(step, 0)] * 2
