"""Subwords: frequent words stay whole, rare ones are split into pieces, so that few words are unknown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise

from nse.errors import InputError
from nse.text.vocabulary import TargetVocabulary, Vocabulary, check_words

MARK = "@@"
"""Ends every piece of a word but the last: `spiel@@ platz`."""

MIN_COUNT = 2
"""Two pieces are merged if they are adjacent at least this often."""

UNKNOWN = Vocabulary.SPECIAL[Vocabulary.UNKNOWN]
SPECIAL = frozenset(TargetVocabulary.SPECIAL)
"""Special entries of vocabularies, which no piece may equal."""

Pair = tuple[str, str]


class Pieces:
    """Set of pieces, and how to split words into them.

    A piece that ends in "@@" is never the last of a word: a word that itself ends in "@@" is split before its
    last letter, and joined again unchanged.

    Args:
        pieces: Such as the words of a vocabulary; its special entries are ignored.
    """

    def __init__(self, pieces: Iterable[str]):
        known = set(check_words(pieces, "pieces")) - {*SPECIAL, MARK, ""}
        self.pieces = sorted(known)
        self._last = {piece for piece in known if not piece.endswith(MARK)}
        self._inner = {piece.removesuffix(MARK) for piece in known - self._last}
        self._longest = max(map(len, self._last | self._inner), default=0)

    @classmethod
    def learn(cls, counts: Mapping[str, int], merges: int) -> Pieces:
        """Learn pieces by byte-pair encoding: repeatedly merge the most frequent pair of pieces.

        Every letter of the words is a piece, both inside and at the end of a word. Merged pieces that no
        split of the counted words uses are dropped, so there may be fewer than `merges` of them. Of equally
        frequent pairs the alphabetically first is merged. Learning ends early where no pair occurs twice.

        Args:
            counts: Number of occurrences of each word.
            merges: Maximal number of merges.
        """
        if merges < 0:
            raise InputError(f"merges: expected 0 or more, got {merges}")
        words = [word for word, count in counts.items() if count > 0]
        letters = {piece for letter in set("".join(words)) for piece in (letter, letter + MARK)}
        pieces = cls([*letters, *learn_merges(counts, merges)])
        return cls(letters.union(*map(pieces.split, words)))

    def split(self, word: str) -> list[str]:
        """Split a word, from the left, into the longest known pieces; a letter that is none is "<unk>"."""
        if word in self._last:  # most words
            return [word]
        pieces = []
        start = 0
        while start < len(word):
            end = self._find_end(word, start)
            pieces.append(word[start:end] + (MARK if end < len(word) else "") if end else UNKNOWN)
            start = end or start + 1
        return pieces

    def split_all(self, words: Iterable[str]) -> list[str]:
        """Split each word, and return the pieces of all."""
        return [piece for word in check_words(words, "pieces") for piece in self.split(word)]

    def _find_end(self, word: str, start: int) -> int:
        """Return the end of the longest piece that begins at `start`, or 0."""
        length = len(word)
        if length - start <= self._longest and word[start:] in self._last:
            return length
        ends = range(min(start + self._longest, length - 1), start, -1)
        return next((end for end in ends if word[start:end] in self._inner), 0)

    @staticmethod
    def join(pieces: Iterable[str]) -> list[str]:
        """Join pieces to words; a last word whose end is missing is kept."""
        words: list[str] = []
        prefix = ""
        for piece in check_words(pieces, "pieces"):
            prefix += piece.removesuffix(MARK)
            if not piece.endswith(MARK):
                words.append(prefix)
                prefix = ""
        return [*words, prefix] if prefix else words


def learn_merges(counts: Mapping[str, int], merges: int) -> list[str]:
    """Return the pieces that the most frequent merges make, in their order."""
    known = [(word, count) for word, count in counts.items() if word and count > 0]
    words = [([*(letter + MARK for letter in word[:-1]), word[-1]], count) for word, count in known]
    totals, where = Counter[Pair](), defaultdict[Pair, set[int]](set)
    for number, (pieces, count) in enumerate(words):
        for pair in pairwise(pieces):
            totals[pair] += count
            where[pair].add(number)
    heap = [(-total, pair) for pair, total in totals.items()]
    heapify(heap)
    merged: list[str] = []
    while heap and len(merged) < merges and -heap[0][0] >= MIN_COUNT:
        total, pair = heappop(heap)
        piece = pair[0].removesuffix(MARK) + pair[1]
        # Skip an outdated entry, and a piece that would look as if it did not end a word.
        if totals[pair] != -total or piece.endswith(MARK) != pair[1].endswith(MARK) or piece in SPECIAL:
            continue
        merged.append(piece)
        changes = Counter[Pair]()
        for number in where.pop(pair):  # some words no longer hold the pair, because one of the two has grown
            pieces, count = words[number]
            for before, after in _merge_pair(pieces, pair, piece):
                for neighbour in before:
                    changes[neighbour] -= count
                for neighbour in after:
                    changes[neighbour] += count
                    where[neighbour].add(number)
        for neighbour, change in changes.items():
            totals[neighbour] += change
            if change and totals[neighbour] >= MIN_COUNT:
                heappush(heap, (-totals[neighbour], neighbour))
    return merged


def _merge_pair(pieces: list[str], pair: Pair, piece: str) -> Iterator[tuple[list[Pair], list[Pair]]]:
    """Replace each occurrence of a pair by one piece; yield the pairs around it, before and after."""
    for index in range(len(pieces)):
        if tuple(pieces[index : index + 2]) == pair:
            start = max(index - 1, 0)
            before = list(pairwise(pieces[start : index + 3]))
            pieces[index : index + 2] = [piece]
            yield before, list(pairwise(pieces[start : index + 2]))
