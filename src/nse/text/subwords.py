"""Pieces of words: frequent words stay whole, rare ones are cut, so that few words are unknown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise

from nse.errors import InputError
from nse.text.vocabulary import TargetVocabulary, Vocabulary, check_words

MARK = "@@"
"""Ends every piece of a word but the last: `spiel@@ platz`."""

FEWEST = 2
"""How often two pieces must stand side by side to be merged."""

UNKNOWN = Vocabulary.SPECIAL[Vocabulary.UNKNOWN]
SPECIAL = frozenset(TargetVocabulary.SPECIAL)
"""Entries of vocabularies that no piece may be spelled as."""

Pair = tuple[str, str]


class Pieces:
    """A set of pieces, which is all that is needed to cut words.

    A piece that ends in "@@" is never the last of a word, whatever the word: a word that ends in "@@" itself
    is cut before its last letter, and put together again as it was.

    Args:
        pieces: Such as the words of a vocabulary; its special entries are left out.
    """

    def __init__(self, pieces: Iterable[str]):
        known = set(check_words(pieces, "pieces")) - {*SPECIAL, MARK, ""}
        self.pieces = sorted(known)
        self._last = {piece for piece in known if not piece.endswith(MARK)}
        self._inner = {piece.removesuffix(MARK) for piece in known - self._last}
        self._longest = max(map(len, self._last | self._inner), default=0)

    @classmethod
    def learn(cls, counts: Mapping[str, int], merges: int) -> Pieces:
        """Learn pieces by byte-pair encoding: the most frequent pair of pieces is merged, again and again.

        Every letter of the words is a piece, both inside and at the end of a word, and stays one. Merged
        pieces that no cut of the counted words uses are dropped, so there may be fewer than `merges` of them.
        Of equally frequent pairs the first in the order of the alphabet is merged. It ends early where no
        pair is there twice.

        Args:
            counts: How often each word is there.
            merges: How many there may be.
        """
        if merges < 0:
            raise InputError(f"merges: expected 0 or more, got {merges}")
        words = [word for word, count in counts.items() if count > 0]
        letters = {piece for letter in set("".join(words)) for piece in (letter, letter + MARK)}
        pieces = cls([*letters, *learn_merges(counts, merges)])
        return cls(letters.union(*map(pieces.split, words)))

    def split(self, word: str) -> list[str]:
        """Cut off the longest known piece from the left, again and again; a letter without one is "<unk>"."""
        if word in self._last:  # most are
            return [word]
        found = []
        start = 0
        while start < len(word):
            end = self._find_end(word, start)
            found.append(word[start:end] + (MARK if end < len(word) else "") if end else UNKNOWN)
            start = end or start + 1
        return found

    def split_all(self, words: Iterable[str]) -> list[str]:
        """Cut these words, one after the other."""
        return [piece for word in check_words(words, "pieces") for piece in self.split(word)]

    def _find_end(self, word: str, start: int) -> int:
        """Find where the longest piece from here ends; 0 where there is none."""
        size = len(word)
        if size - start <= self._longest and word[start:] in self._last:
            return size
        ends = range(min(start + self._longest, size - 1), start, -1)
        return next((end for end in ends if word[start:end] in self._inner), 0)

    @staticmethod
    def join(pieces: Iterable[str]) -> list[str]:
        """Put the words of these pieces together. The last is a word also where its end is missing."""
        words: list[str] = []
        begun = ""
        for piece in check_words(pieces, "pieces"):
            begun += piece.removesuffix(MARK)
            if not piece.endswith(MARK):
                words.append(begun)
                begun = ""
        return [*words, begun] if begun else words


def learn_merges(counts: Mapping[str, int], merges: int) -> list[str]:
    """Merge the most frequent pair of pieces, again and again; returns what that gives, in its order."""
    known = [(word, count) for word, count in counts.items() if word and count > 0]
    words = [([*(letter + MARK for letter in word[:-1]), word[-1]], count) for word, count in known]
    totals, where = Counter[Pair](), defaultdict[Pair, set[int]](set)
    for number, (pieces, count) in enumerate(words):
        for pair in pairwise(pieces):
            totals[pair] += count
            where[pair].add(number)
    heap = [(-total, pair) for pair, total in totals.items()]
    heapify(heap)
    found: list[str] = []
    while heap and len(found) < merges and -heap[0][0] >= FEWEST:
        total, pair = heappop(heap)
        piece = pair[0].removesuffix(MARK) + pair[1]
        # Else it was counted again since, or would look like one that does not end a word.
        if totals[pair] != -total or piece.endswith(MARK) != pair[1].endswith(MARK) or piece in SPECIAL:
            continue
        found.append(piece)
        changes = Counter[Pair]()
        for number in where.pop(pair):  # some no longer hold it, because one of the two has grown
            pieces, count = words[number]
            for before, after in _merge(pieces, pair, piece):
                for each in before:
                    changes[each] -= count
                for each in after:
                    changes[each] += count
                    where[each].add(number)
        for each, change in changes.items():
            totals[each] += change
            if change and totals[each] >= FEWEST:
                heappush(heap, (-totals[each], each))
    return found


def _merge(pieces: list[str], pair: Pair, piece: str) -> Iterator[tuple[list[Pair], list[Pair]]]:
    """Write a pair of these pieces as one, wherever it is; yields the pairs around it, before and after."""
    for place in range(len(pieces)):
        if tuple(pieces[place : place + 2]) == pair:
            start = max(place - 1, 0)
            before = list(pairwise(pieces[start : place + 3]))
            pieces[place : place + 2] = [piece]
            yield before, list(pairwise(pieces[start : place + 2]))
