"""Words and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from nse import files
from nse.errors import DataError, InputError
from nse.files import read_bounded


class Vocabulary:
    """Words in a fixed order. Id 0 is padding and id 1 any word that is not here.

    Args:
        words: The known words, without the special entries.
    """

    LONGEST, MOST = 1 << 26, 5_000_000
    """Bytes of a file that are read, and words that it may have: twice as many as any published vectors."""

    PAD, UNKNOWN = 0, 1
    SPECIAL: tuple[str, ...] = ("<pad>", "<unk>")

    def __init__(self, words: Sequence[str]):
        self.words = (*self.SPECIAL, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(word for index, word in enumerate(self.words) if self._ids[word] != index)
            raise InputError(f"words: expected each word once, got {twice!r} twice")
        broken = next((word for word in self.words if not _fits_a_line(word)), None)
        if broken is not None:
            raise InputError(f"words: expected words that fit a line of text, got {broken!r}")
        # A text that spells out a special entry means neither padding nor anything else that is known.
        self._ids |= dict.fromkeys(self.SPECIAL, self.UNKNOWN)

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]]) -> Self:
        """The words of these texts, each given as its words, in the order of the alphabet."""
        found = {word for words in texts for word in _words(words)}
        return cls(sorted(found - set(cls.SPECIAL)))

    @classmethod
    def counted(cls, counts: Counter[str]) -> Self:
        """These words, the most frequent first, equally frequent ones in the order of the alphabet."""
        return cls(sorted(counts.keys() - set(cls.SPECIAL), key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of words."""
        return [self._ids.get(word, self.UNKNOWN) for word in _words(words)]

    def to_bytes(self) -> bytes:
        """A word a line, in the order of the ids, in UTF-8."""
        return "".join(f"{word}\n" for word in self.words).encode("utf-8")

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` gave; `InputError` says what is wrong with anything else."""
        if content.count(b"\n") > cls.MOST:
            raise InputError(f"words: expected at most {cls.MOST:,}, a word a line")
        try:  # split at the line feed alone: a word may hold other characters that end lines
            *words, end = content.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise InputError("words: is not UTF-8") from None
        special = len(cls.SPECIAL)
        if end or tuple(words[:special]) != cls.SPECIAL:
            first = f"{', '.join(cls.SPECIAL[:-1])} and {cls.SPECIAL[-1]}"
            raise InputError(f"words: expected {first} first, a word a line, and a line break last")
        return cls(words[special:])

    def save(self, file: Path) -> None:
        """Write a word a line, in the order of the ids."""
        files.write_bytes(file, self.to_bytes())

    @classmethod
    def load(cls, file: Path) -> Self:
        """What `save` wrote; `DataError` names a file that is something else."""
        try:
            return cls.from_bytes(read_bounded(file, cls.LONGEST))
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from None
        except InputError as error:
            raise DataError(f"{file}: is no vocabulary: {error}") from None


class TargetVocabulary(Vocabulary):
    """The words that a translation is made of: also where it begins (id 2) and ends (id 3)."""

    BEGIN, END = 2, 3
    SPECIAL = (*Vocabulary.SPECIAL, "<bos>", "<eos>")

    def decode(self, ids: Sequence[int], places: Sequence[int] = (), source: Sequence[str] = ()) -> list[str]:
        """Give the words of a translation, which padding ends.

        Args:
            ids: Of the words.
            places: For each of them the place of the source word that was most attended to.
            source: The source words that stand in for unknown ones; none if unknown words stay unknown.
        """
        found = list(ids[: ids.index(self.PAD)] if self.PAD in ids else ids)
        words = [self.words[each] for each in found]
        for at, place in enumerate(places[: len(found)] if source else ()):
            if found[at] == self.UNKNOWN and place < len(source):
                words[at] = source[place]
        return words


def _words(words: Iterable[str]) -> Iterable[str]:
    if isinstance(words, str):  # it would be taken letter by letter
        raise InputError(f"words: expected a list of words, got the text {words[:40]!r}; tokenize it first")
    return words


def _fits_a_line(word: str) -> bool:
    """Whether a word has no line break, and no half of a surrogate pair, which no file can hold."""
    if "\n" in word or "\r" in word:
        return False
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)
