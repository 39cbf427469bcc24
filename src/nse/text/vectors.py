"""Word vectors, and how much of a text they cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors."""

    name: str  # by which they were loaded
    words: dict[str, int]  # the row of each word; several words may share one
    rows: NDArray[np.floating]  # [n, d], float16 or float32
    lowered: bool = False  # no word has a capital, as in glove.6B: one that is missing is looked up without

    @property
    def dimension(self) -> int:
        """d: how many numbers a vector has."""
        return int(self.rows.shape[1])

    def find(self, word: str) -> int | None:
        """Find the row of a word, or None."""
        row = self.words.get(word)
        return self.words.get(word.lower()) if row is None and self.lowered else row

    def look_up(self, words: Collection[str]) -> NDArray[np.floating]:
        """Stack the vectors of these words, [len(words), d]; zero for a word without one."""
        found = np.zeros((len(words), self.dimension), self.rows.dtype)
        for index, word in enumerate(words):
            if (row := self.find(word)) is not None:
                found[index] = self.rows[row]
        return found

    def select(self, words: Iterable[str]) -> WordVectors:
        """Take the vectors of those of these words that have one, each with a row of its own."""
        found = [word for word in words if self.find(word) is not None]
        return WordVectors(self.name, {word: row for row, word in enumerate(found)}, self.look_up(found))


@dataclass(frozen=True)
class Coverage:
    """How much of a text some words cover."""

    tokens: int  # words, each as often as it occurs
    types: int  # different words
    known_tokens: int
    known_types: int
    missing: tuple[tuple[str, int], ...]  # the most frequent words that are not covered, with their counts

    def __str__(self) -> str:
        rows = ("tokens", self.known_tokens, self.tokens), ("types", self.known_types, self.types)
        lines = [f"{name} covered: {n / max(total, 1):.2%} ({n:,} of {total:,})" for name, n, total in rows]
        frequent = ", ".join(f"{word} ({count:,})" for word, count in self.missing)
        return "\n".join([*lines, *([f"most frequent without a vector: {frequent}"] if frequent else [])])


def measure_coverage(counts: Counter[str], known: Container[str], most: int = 20) -> Coverage:
    """Measure how much of a text, given as the counts of its words, is known; and what most often is not."""
    missing = Counter({word: count for word, count in counts.items() if word not in known})
    frequent = sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:most]
    total, types = counts.total(), len(counts)
    return Coverage(total, types, total - missing.total(), types - len(missing), tuple(frequent))
