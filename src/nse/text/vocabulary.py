"""Words and their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nse.errors import InputError


class Vocabulary:
    """Words in a fixed order. Id 0 is padding and id 1 any word that is not here.

    Args:
        words: The known words, without the two special entries.
    """

    PAD, UNKNOWN = 0, 1
    SPECIAL = ("<pad>", "<unk>")

    def __init__(self, words: Sequence[str]):
        self.words = (*self.SPECIAL, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(word for index, word in enumerate(self.words) if self._ids[word] != index)
            raise InputError(f"words: expected each word once, got {twice!r} twice")

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        """The words of these texts, in the order of the alphabet."""
        return cls(sorted({word for text in texts for word in text.split()} - set(cls.SPECIAL)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """The ids of a text whose words are separated by white space."""
        return [self._ids.get(word, self.UNKNOWN) for word in text.split()]
