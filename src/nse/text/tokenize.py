"""From a text to its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from nse.errors import InputError

# The group is not optional: `(\W+)?` also matches nothing, and since Python 3.7 would split between letters.
_RUN = re.compile(r"(\W+)")


def paper(text: str) -> list[str]:
    """As in the paper's experiments: runs of non-word characters are words too, and case is kept.

    A run loses the white space around it, and white space inside it counts as one space: `"Hi", he` gives
    `"`, `Hi`, `",`, `he`.
    """
    pieces = (" ".join(piece.split()) for piece in _RUN.split(text))
    return [piece for piece in pieces if piece]


def whitespace(text: str) -> list[str]:
    """What stands between white space."""
    return text.split()


def moses(text: str, language: str = "en") -> list[str]:
    """As the Moses toolkit does for a language, nothing escaped."""
    return _moses(language)(text)


@cache
def _moses(language: str) -> Callable[[str], list[str]]:
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        raise InputError(
            "tokenizer: moses needs sacremoses; type `pip install neural-semantic-encoders[moses]`"
        ) from None
    tokenizer = MosesTokenizer(lang=language)
    return lambda text: list(tokenizer.tokenize(text, escape=False))


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "paper": paper,
    "whitespace": whitespace,
    "moses": moses,
}
"""By the name that recipes and prepared files give them."""
