"""Words and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from nse.errors import InputError


class Vocabulary:
    """Words in a fixed order, after the special entries: id 0 is padding, and 1 any word that is not here."""

    MAX_BYTES, MAX_WORDS = 1 << 26, 5_000_000
    """Bytes of a file that are read, and words that it may have: twice as many as any published vectors."""

    PAD, UNKNOWN = 0, 1
    SPECIAL: tuple[str, ...] = ("<pad>", "<unk>")

    def __init__(self, words: Sequence[str]):
        self.words = (*self.SPECIAL, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(word for index, word in enumerate(self.words) if self._ids[word] != index)
            raise InputError(f"words: expected each word once, got {twice!r} twice")
        if not _fits_a_line("".join(self.words)):  # all at once, which is fast
            broken = next(word for word in self.words if not _fits_a_line(word))
            raise InputError(f"words: expected words that fit a line of text, got {broken!r}")
        # A text that spells out a special entry means neither padding nor anything else that is known.
        self._ids |= dict.fromkeys(self.SPECIAL, self.UNKNOWN)

    @classmethod
    def from_texts(cls, texts: Iterable[Iterable[str]]) -> Self:
        """Collect the words of these texts, each given as its words, in the order of the alphabet."""
        return cls(sorted({word for words in texts for word in check_words(words)} - set(cls.SPECIAL)))

    @classmethod
    def from_counts(cls, counts: Counter[str]) -> Self:
        """Order words by how frequent they are, equally frequent ones by the alphabet."""
        return cls(sorted(counts.keys() - set(cls.SPECIAL), key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of words."""
        return [self._ids.get(word, self.UNKNOWN) for word in check_words(words)]

    def to_bytes(self) -> bytes:
        """Write a word a line, in the order of the ids, in UTF-8."""
        return "".join(f"{word}\n" for word in self.words).encode("utf-8")

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` gave; `InputError` says what is wrong with anything else."""
        if content.count(b"\n") > cls.MAX_WORDS:
            raise InputError(f"words: expected at most {cls.MAX_WORDS:,}, a word a line")
        try:  # split at the line feed alone: a word may hold other characters that end lines
            *words, end = content.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise InputError("words: is not UTF-8") from None
        special = len(cls.SPECIAL)
        if end or tuple(words[:special]) != cls.SPECIAL:
            first = f"{', '.join(cls.SPECIAL[:-1])} and {cls.SPECIAL[-1]}"
            raise InputError(f"words: expected {first} first, a word a line, and a line break last")
        return cls(words[special:])


class TargetVocabulary(Vocabulary):
    """The words that a translation is made of: also where it begins (id 2) and ends (id 3)."""

    BEGIN, END = 2, 3
    SPECIAL = (*Vocabulary.SPECIAL, "<bos>", "<eos>")

    def decode(self, ids: Sequence[int], places: Sequence[int] = (), source: Sequence[str] = ()) -> list[str]:
        """Give the words of a translation, which padding ends.

        For an unknown one stands the word of the source, where it is given, at the place attended to most.
        """
        ids = ids[: ids.index(self.PAD)] if self.PAD in ids else ids
        words = [self.words[number] for number in ids]
        for at, place in enumerate(places[: len(ids)] if source else ()):
            if ids[at] == self.UNKNOWN and place < len(source):
                words[at] = source[place]
        return words


def check_words(words: Iterable[str], what: str = "words") -> Iterable[str]:
    """Return a list of words as it is, and refuse a text, which would be taken letter by letter."""
    if isinstance(words, str):
        raise InputError(f"{what}: expected a list of {what}, got the text {words[:40]!r}; tokenize it first")
    return words


def _fits_a_line(word: str) -> bool:
    """Tell whether a word has no line break, and no half of a surrogate pair, which no file can hold."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in word and "\r" not in word
