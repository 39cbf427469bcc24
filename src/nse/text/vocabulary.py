"""Words and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from nse.errors import InputError


class Vocabulary:
    """Words in a fixed order, after the special entries: id 0 is padding, 1 stands for every unknown word."""

    MAX_BYTES, MAX_WORDS = 1 << 26, 5_000_000
    """Limits of a vocabulary file: twice the number of words of any published vectors."""

    PAD, UNKNOWN = 0, 1
    SPECIAL: tuple[str, ...] = ("<pad>", "<unk>")

    def __init__(self, words: Sequence[str]):
        self.words = (*self.SPECIAL, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            repeated = next(word for index, word in enumerate(self.words) if self._ids[word] != index)
            raise InputError(f"words: expected each word once, got {repeated!r} twice")
        if not _is_one_line("".join(self.words)):  # one call for all words, which is fast
            broken = next(word for word in self.words if not _is_one_line(word))
            raise InputError(f"words: expected words that fit a line of text, got {broken!r}")
        # A text that spells out a special entry, such as <pad>, holds an unknown word.
        self._ids |= dict.fromkeys(self.SPECIAL, self.UNKNOWN)

    @classmethod
    def from_texts(cls, texts: Iterable[Iterable[str]]) -> Self:
        """Collect the words of tokenized texts, in alphabetical order."""
        return cls(sorted({word for words in texts for word in check_words(words)} - set(cls.SPECIAL)))

    @classmethod
    def from_counts(cls, counts: Counter[str]) -> Self:
        """Order words by frequency, equally frequent ones alphabetically."""
        return cls(sorted(counts.keys() - set(cls.SPECIAL), key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of words."""
        return [self._ids.get(word, self.UNKNOWN) for word in check_words(words)]

    def to_bytes(self) -> bytes:
        """Write one word per line, in the order of the ids, in UTF-8."""
        return "".join(f"{word}\n" for word in self.words).encode("utf-8")

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the result of `to_bytes`; raise `InputError` for anything else."""
        if content.count(b"\n") > cls.MAX_WORDS:
            raise InputError(f"words: expected at most {cls.MAX_WORDS:,}, one per line")
        try:  # split at the line feed alone: a word may hold other characters that end lines
            *words, end = content.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise InputError("words: is not UTF-8") from None
        special = len(cls.SPECIAL)
        if end or tuple(words[:special]) != cls.SPECIAL:
            first = f"{', '.join(cls.SPECIAL[:-1])} and {cls.SPECIAL[-1]}"
            raise InputError(f"words: expected {first} first, one word per line, and a line break last")
        return cls(words[special:])


class TargetVocabulary(Vocabulary):
    """Vocabulary of translations, with entries for their beginning (id 2) and end (id 3)."""

    BEGIN, END = 2, 3
    SPECIAL = (*Vocabulary.SPECIAL, "<bos>", "<eos>")

    def decode(self, ids: Sequence[int], copied: Sequence[int] = (), source: Sequence[str] = ()) -> list[str]:
        """Return the words of a translation, up to the first padding.

        An unknown word is replaced by the source word at its position in `copied`, if a source is given.
        """
        ids = ids[: ids.index(self.PAD)] if self.PAD in ids else ids
        words = [self.words[i] for i in ids]
        for index, position in enumerate(copied[: len(ids)] if source else ()):
            if ids[index] == self.UNKNOWN and position < len(source):
                words[index] = source[position]
        return words


def check_words(words: Iterable[str], name: str = "words") -> Iterable[str]:
    """Return a list of words unchanged; raise for a string, which would be iterated letter by letter."""
    if isinstance(words, str):
        raise InputError(f"{name}: expected a list of {name}, got the text {words[:40]!r}; tokenize it first")
    return words


def _is_one_line(word: str) -> bool:
    """Return whether a word can be a line of a UTF-8 file: no line break, no unpaired surrogate."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in word and "\r" not in word
