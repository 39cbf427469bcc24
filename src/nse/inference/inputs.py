"""Texts as a model reads them: words, no more than it reads, and their ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from nse.errors import InputError
from nse.text.sentence_splitter import split_sentences
from nse.text.tensors import Documents, LabelledRows, Texts
from nse.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from nse.inference.model import Model

LONGEST = 1_000  # words of a sentence that a model reads if it sets no limit itself, which bounds the time
LONGEST_DOCUMENT = 10_000  # words of a document that are read, likewise
Row = tuple[tuple[Any, ...], ...]  # of each text its ids, of a document those of each sentence


class EncodedText(NamedTuple):
    """A text as a model reads it."""

    name: str  # as errors and traces call it
    text: str  # as it was given
    ids: tuple[Any, ...]  # of the words; of a document those of each sentence
    words: tuple[str, ...]  # no more than the model reads
    unknown: tuple[int, ...]  # the places of words that the model does not know
    cut: int  # how many words were left out


class Item(NamedTuple):
    """Something to answer: a text, or those of a pair."""

    number: int
    texts: tuple[EncodedText, ...]
    given: dict[str, Any]  # the text, or the texts, as the answer repeats them

    @property
    def row(self) -> Row:
        """The ids."""
        return tuple(text.ids for text in self.texts)

    @property
    def counts(self) -> dict[str, int]:
        """How many words were read, left out and not known."""
        return {
            "words": sum(len(text.words) for text in self.texts),
            "cut": sum(text.cut for text in self.texts),
            "unknown": sum(len(text.unknown) for text in self.texts),
        }


def split_texts(given: Any, names: Sequence[str]) -> Sequence[str]:
    """Split what is to be answered into its texts, one for each name."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, (tuple, list)) or len(texts) != len(names):
        got = f"{len(texts)}" if isinstance(texts, (tuple, list)) else type(given).__name__
        raise InputError(f"texts: expected {len(names)}, {' and '.join(names)}, got {got}")
    return texts


def encode_text(model: Model, name: str, text: str, strict: bool, may_be_empty: bool = False) -> EncodedText:
    """Encode a text, cut to what the model reads."""
    check_text(name, text)
    has_sentences, most = model.kind.has_sentences, limit(model)
    split = split_sentences(text) if has_sentences else [text]
    parts = [model.tokenize(part) for part in split] if text.strip() else []
    count = sum(map(len, parts))
    if not count and not may_be_empty:
        raise InputError(f"{name} is empty: give it at least one word")
    if strict and count > most:
        advice = "shorten it, or let it be cut (without strict)"
        raise InputError(f"{name} has {count:,} words and the model reads {most:,}: {advice}")
    words = tuple([word for part in parts for word in part][:most])
    ids = tuple(model.vocabulary.encode(words))
    unknown = tuple(at for at, each in enumerate(ids) if each == Vocabulary.UNKNOWN)
    rows = split_ids(ids, list(map(len, parts)), model.config.model.max_words) if has_sentences else ids
    return EncodedText(name, text, rows, words, unknown, count - len(words))


def check_text(name: str, text: str) -> None:
    """Refuse what is no text, or one that no file could hold."""
    if not isinstance(text, str):
        raise InputError(f"{name}: expected a text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        why = "it holds half of a character, as bytes that are not UTF-8 do"
        raise InputError(f"{name} is no text: {why}") from None


def limit(model: Model) -> int:
    """How many words of a text a model reads."""
    return LONGEST_DOCUMENT if model.kind.has_sentences else model.config.model.max_words or LONGEST


def split_ids(ids: Sequence[int], lengths: Sequence[int], longest: int) -> tuple[tuple[int, ...], ...]:
    """Split the ids of a document, as far as they go, into its sentences; one that is too long is several."""
    sizes = [min(longest, n - first) for n in lengths for first in range(0, max(1, n), longest)]
    places = zip(accumulate(sizes, initial=0), sizes, strict=False)
    return tuple(tuple(ids[start : start + size]) for start, size in places if start < len(ids))


def stack_rows(rows: Sequence[Row], has_sentences: bool) -> LabelledRows:
    """Make tensors of rows, a column for each text."""
    columns: list[Any] = []
    for column in zip(*rows, strict=True):
        counts, flat = join(column)
        if has_sentences:
            lengths, ids = join(flat)
            columns.append(
                Documents.from_sentences(Texts.from_ids(torch.tensor(ids, dtype=torch.long), lengths), counts)
            )
        else:
            columns.append(Texts.from_ids(torch.tensor(flat, dtype=torch.long), counts))
    return LabelledRows(tuple(columns), torch.zeros(len(rows), dtype=torch.long))


def join(parts: Sequence[Sequence[Any]]) -> tuple[torch.Tensor, list[Any]]:
    """Join sequences; returns the length of each [N], and what is in them, one after the other."""
    return torch.tensor(list(map(len, parts)), dtype=torch.long), [each for part in parts for each in part]
