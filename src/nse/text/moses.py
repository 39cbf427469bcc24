"""English and German as machine translation reads and writes them: words of Moses, in lower case."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

from nse.errors import InputError
from nse.text import tokenize

_UNSEEN = frozenset({"Cc", "Cf", "Cs"})
"""Categories of Unicode: control, format (such as zero-width characters), half of a surrogate pair."""


def english(text: str) -> list[str]:
    """The words of an English text, in lower case; none holds white space of any kind."""
    return _words(text, "en")


def german(text: str) -> list[str]:
    """The words of a German text, in lower case; none holds white space of any kind."""
    return _words(text, "de")


def _words(text: str, language: str) -> list[str]:
    return [word.lower() for word in tokenize.moses(plain(text), language)]


def plain(text: str) -> str:
    """The text without characters that nobody sees, and with one plain space for white space of any kind.

    Else a no-break space or a line separator inside a word would be one word for some programs that compute
    BLEU and two for others, and a word of zero-width characters alone would look empty.
    """
    spaced = " ".join(text.split())
    if spaced.isascii() and spaced.isprintable():  # most are
        return spaced
    seen = "".join(letter for letter in spaced if unicodedata.category(letter) not in _UNSEEN)
    return " ".join(seen.split())  # again: what is gone may have stood between two spaces


def detokenized(words: Sequence[str], language: str = "de") -> str:
    """A text from its words, with spaces as people write them; lower case stays lower case."""
    if isinstance(words, str):  # it would be taken letter by letter
        raise InputError(f"words: expected a list of words, got the text {words[:40]!r}; tokenize it first")
    return _detokenizer(language)(words)


@cache
def _detokenizer(language: str) -> Callable[[Sequence[str]], str]:
    try:
        from sacremoses import MosesDetokenizer
    except ImportError:
        raise InputError("detokenizer: moses needs sacremoses; type `pip install sacremoses`") from None
    detokenizer = MosesDetokenizer(lang=language)
    # Nothing was escaped, so a word that looks like an escape is meant as it is.
    return lambda words: str(detokenizer.detokenize(list(words), unescape=False))
