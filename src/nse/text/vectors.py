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

    name: str  # such as glove.840B.300d
    words: dict[str, int]  # the row of each word; several words may share one
    rows: NDArray[np.floating]  # [n, d], float16 or float32
    lowered: bool = False  # no word has a capital, as in glove.6B: a missing word is looked up in lower case

    @property
    def dimension(self) -> int:
        """d, the size of a vector."""
        return int(self.rows.shape[1])

    def find_row(self, word: str) -> int | None:
        """Return the row of a word, or None."""
        row = self.words.get(word)
        return self.words.get(word.lower()) if row is None and self.lowered else row

    def look_up(self, words: Collection[str]) -> NDArray[np.floating]:
        """Stack the vectors of words, [len(words), d]; zero for a word without one."""
        vectors = np.zeros((len(words), self.dimension), self.rows.dtype)
        for index, word in enumerate(words):
            if (row := self.find_row(word)) is not None:
                vectors[index] = self.rows[row]
        return vectors

    def select(self, words: Iterable[str]) -> WordVectors:
        """Keep the vectors of these words, each with a row of its own; words without one are left out."""
        known = [word for word in words if self.find_row(word) is not None]
        return WordVectors(self.name, {word: row for row, word in enumerate(known)}, self.look_up(known))


@dataclass(frozen=True)
class Coverage:
    """Number of words of a text, and of those that are known."""

    tokens: int  # words, each as often as it occurs
    types: int  # different words
    known_tokens: int
    known_types: int
    missing: tuple[tuple[str, int], ...]  # the most frequent unknown words, with their counts

    def __str__(self) -> str:
        rows = ("tokens", self.known_tokens, self.tokens), ("types", self.known_types, self.types)
        lines = [f"{name} covered: {n / max(total, 1):.2%} ({n:,} of {total:,})" for name, n, total in rows]
        frequent = ", ".join(f"{word} ({count:,})" for word, count in self.missing)
        return "\n".join([*lines, *([f"most frequent without a vector: {frequent}"] if frequent else [])])


def measure_coverage(counts: Counter[str], known: Container[str], listed: int = 20) -> Coverage:
    """Count the known words of a text, and list the most frequent unknown ones."""
    missing = Counter({word: count for word, count in counts.items() if word not in known})
    frequent = sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:listed]
    total, types = counts.total(), len(counts)
    return Coverage(total, types, total - missing.total(), types - len(missing), tuple(frequent))
