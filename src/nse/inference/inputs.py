"""Texts as a loaded model reads them: words, no more than it reads, and their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from nse.errors import InputError
from nse.inference import folder as hub
from nse.text.sentence_splitter import sentences
from nse.text.tensors import Documents, Texts
from nse.text.vocabulary import Vocabulary

LONGEST = 1_000
"""Words of a sentence that a model reads if it sets no limit itself, which bounds the time."""

LONGEST_DOCUMENT = 10_000
"""Words of a document that are read, likewise."""


class Read(NamedTuple):
    """A text as a model reads it.

    Attributes:
        ids: Of its words, no more than the model reads.
        cut: How many words were left out.
        lengths: Of a document, how many of the words each of its sentences has.
        words: Those whose ids they are.
    """

    ids: tuple[int, ...]
    cut: int
    lengths: tuple[int, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def unknown(self) -> int:
        """How many of the words that are read the model does not know."""
        return self.ids.count(Vocabulary.UNKNOWN)


class Source(NamedTuple):
    """A sentence to translate.

    Attributes:
        number: What it is called.
        text: As it was given.
        words: Or pieces of words, no more than the model reads.
        cut: How many were left out.
    """

    number: int
    text: str
    words: list[str]
    cut: int


def source(loaded: hub.Model, number: int, text: str, strict: bool) -> Source:
    """A sentence to translate, cut to what the model reads."""
    name = f"sentence {number}"
    words = loaded.tokenize(checked(name, text))
    kept = words[: allowed(loaded, name, len(words), strict)]
    return Source(number, text, kept, len(words) - len(kept))


def read(loaded: hub.Model, name: str, text: str, strict: bool) -> Read:
    """A text as ids, cut to what the model reads.

    Raises:
        InputError: There is nothing to read, it is no text, or it is longer than may be.
    """
    is_document, text = loaded.config.kind == "document", checked(name, text)
    parts = [loaded.tokenize(each) for each in (sentences(text) if is_document else [text])]
    words = [word for part in parts for word in part]
    if not words:
        raise InputError(f"{name} is empty: give it at least one word")
    kept = words[: allowed(loaded, name, len(words), strict)]
    given, longest = [len(part) for part in parts], loaded.config.model.longest
    lengths = in_sentences(given, len(kept), longest) if is_document else ()
    return Read(tuple(loaded.vocabulary.encode(kept)), len(words) - len(kept), lengths, tuple(kept))


def checked(name: str, text: str) -> str:
    """A text, or nothing where it is blank; what is no text is refused."""
    if not isinstance(text, str):
        raise InputError(f"{name}: expected a text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{name} is no text: it holds half of a character, as bytes that are not UTF-8 do"
        ) from None
    return text if text.strip() else ""


def allowed(loaded: hub.Model, name: str, words: int, strict: bool) -> int:
    """How many words of a text are read; if strict, one of more words is refused."""
    longest = limit(loaded)
    if strict and words > longest:
        raise InputError(
            f"{name} has {words:,} words and the model reads {longest:,}: shorten it, or let it be cut "
            "(without strict)"
        )
    return longest


def limit(loaded: hub.Model) -> int:
    """How many words of a text a model reads."""
    return LONGEST_DOCUMENT if loaded.config.kind == "document" else loaded.config.model.longest or LONGEST


def in_sentences(lengths: Sequence[int], words: int, longest: int) -> tuple[int, ...]:
    """How many of a document's first words are in each sentence; one that is too long is several."""
    found, left = [], words
    for length in lengths:
        for first in range(0, max(1, length), longest):
            if left > 0:
                found.append(min(longest, length - first, left))
                left -= found[-1]
    return tuple(found)


def as_texts(ids: Sequence[tuple[int, ...]]) -> Texts:
    """Texts of ids."""
    flat = torch.tensor([each for text in ids for each in text], dtype=torch.long)
    return Texts.flat(flat, torch.tensor([len(text) for text in ids]))


def as_documents(ids: Sequence[tuple[int, ...]], lengths: Sequence[tuple[int, ...]]) -> Documents:
    """Documents of ids, and how many of them are in each sentence."""
    flat = torch.tensor([each for text in ids for each in text], dtype=torch.long)
    each = torch.tensor([length for document in lengths for length in document], dtype=torch.long)
    return Documents.of(Texts.flat(flat, each), torch.tensor([len(document) for document in lengths]))
