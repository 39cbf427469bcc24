"""English and German as machine translation reads and writes them: words of Moses, in lower case."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

from nse.errors import InputError
from nse.text.vocabulary import check_words

_UNSEEN = frozenset({"Cc", "Cf", "Cs"})
"""Categories of Unicode: control, format (such as zero-width characters), half of a surrogate pair."""


def tokenize_moses(text: str, language: str = "en") -> list[str]:
    """Split a text as the Moses toolkit does for a language, nothing escaped."""
    return list(_sacremoses("Tokenizer", language).tokenize(text, escape=False))


def tokenize_english(text: str) -> list[str]:
    """Split an English text into words in lower case, of which none holds white space of any kind."""
    return [word.lower() for word in tokenize_moses(normalize_spaces(text), "en")]


def tokenize_german(text: str) -> list[str]:
    """Split a German text into words in lower case, of which none holds white space of any kind."""
    return [word.lower() for word in tokenize_moses(normalize_spaces(text), "de")]


def normalize_spaces(text: str) -> str:
    """Drop characters that nobody sees from a text, and write one plain space for white space of any kind.

    Else a no-break space or a line separator inside a word would be one word for some programs that compute
    BLEU and two for others, and a word of zero-width characters alone would look empty.
    """
    spaced = " ".join(text.split())
    if spaced.isascii() and spaced.isprintable():  # most are
        return spaced
    seen = "".join(letter for letter in spaced if unicodedata.category(letter) not in _UNSEEN)
    return " ".join(seen.split())  # again: what is gone may have stood between two spaces


def detokenize(words: Sequence[str], language: str = "de") -> str:
    """Write words as a text, with spaces as people write them; lower case stays lower case."""
    check_words(words)
    # Nothing was escaped, so a word that looks like an escape is meant as it is.
    return str(_sacremoses("Detokenizer", language).detokenize(list(words), unescape=False))


@cache
def _sacremoses(tool: str, language: str) -> Any:
    try:
        import sacremoses
    except ImportError:
        raise InputError(f"{tool.lower()}: moses needs sacremoses; type `pip install sacremoses`") from None
    return getattr(sacremoses, f"Moses{tool}")(lang=language)
