"""English and German words as machine translation uses them: by Moses, in lower case."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

from nse.errors import InputError
from nse.text.vocabulary import check_words

_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
"""Unicode categories: control, format (such as zero-width characters), unpaired surrogates."""


def tokenize_moses(text: str, language: str = "en") -> list[str]:
    """Split a text as the Moses toolkit does for a language, without its escapes."""
    return list(_load_tool("Tokenizer", language).tokenize(text, escape=False))


def tokenize_english(text: str) -> list[str]:
    """Split an English text into lower-case words, none of which holds white space of any kind."""
    return [word.lower() for word in tokenize_moses(normalize_spaces(text), "en")]


def tokenize_german(text: str) -> list[str]:
    """Split a German text into lower-case words, none of which holds white space of any kind."""
    return [word.lower() for word in tokenize_moses(normalize_spaces(text), "de")]


def normalize_spaces(text: str) -> str:
    """Remove invisible characters, and replace white space of any kind by one plain space.

    Otherwise programs that compute BLEU would disagree on whether a no-break space or a line separator
    divides a word, and a word of zero-width characters would look empty.
    """
    spaced = " ".join(text.split())
    if spaced.isascii() and spaced.isprintable():  # most texts
        return spaced
    visible = "".join(letter for letter in spaced if unicodedata.category(letter) not in _INVISIBLE)
    return " ".join(visible.split())  # again: the removed character may have stood between two spaces


def detokenize(words: Sequence[str], language: str = "de") -> str:
    """Join words to a text, with spaces as people write them; lower case stays lower case."""
    check_words(words)
    # Words were not escaped, so one that looks like an escape is meant literally.
    return str(_load_tool("Detokenizer", language).detokenize(list(words), unescape=False))


@cache
def _load_tool(tool: str, language: str) -> Any:
    try:
        import sacremoses
    except ImportError:
        raise InputError(f"{tool.lower()}: moses needs sacremoses; type `pip install sacremoses`") from None
    return getattr(sacremoses, f"Moses{tool}")(lang=language)
