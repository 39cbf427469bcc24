"""Turn texts into what a model computes: tokens, truncated to its maximum length, and their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from nse.errors import InputError
from nse.text.sentence_splitter import split_sentences
from nse.text.tensors import Documents, LabelledRows, Texts
from nse.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from nse.inference.model import Model

Row = tuple[tuple[Any, ...], ...]  # ids of each text; of a document the ids of each sentence
Verb = Literal["predict", "rank", "translate", "encode"]
Answers = list[dict[str, Any]]


class EncodedText(NamedTuple):
    """Text as a model reads it."""

    name: str  # in errors and traces
    text: str  # original text
    ids: tuple[Any, ...]  # of the words; of a document the ids of each sentence
    words: tuple[str, ...]  # truncated to the model's maximum length
    unknown: tuple[int, ...]  # positions of words that are not in the vocabulary
    cut: int  # number of truncated words


class Item(NamedTuple):
    """Text or pair of texts to answer."""

    number: int
    texts: tuple[EncodedText, ...]
    echo: dict[str, Any]  # original text or texts, for the answer

    @property
    def row(self) -> Row:
        """Ids of the texts."""
        return tuple(text.ids for text in self.texts)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of words read, truncated and unknown."""
        return {
            "words": sum(len(text.words) for text in self.texts),
            "cut": sum(text.cut for text in self.texts),
            "unknown": sum(len(text.unknown) for text in self.texts),
        }


class Request(NamedTuple):
    """Rows for a model to compute, and the function that makes answers of the results.

    The result of a row does not depend on other rows, so requests of several users can share a batch.
    """

    output: str  # "scores", "vectors" or "translations"
    rows: Sequence[Row]  # without duplicates, which in two batches could differ in the last bit
    format: Callable[[Tensor], Answers]  # from the results of the rows to the answers
    beam: int | None = None  # beam size of a translation


def split_texts(value: Any, names: Sequence[str]) -> Sequence[str]:
    """Split a text or a pair into a text for each name."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (tuple, list)) or len(texts) != len(names):
        got = f"{len(texts)}" if isinstance(texts, (tuple, list)) else type(value).__name__
        raise InputError(f"texts: expected {len(names)}, {' and '.join(names)}, got {got}")
    return texts


def encode_text(model: Model, name: str, text: str, strict: bool, may_be_empty: bool = False) -> EncodedText:
    """Encode a text, truncated to the model's maximum length; `strict` refuses a longer one."""
    check_text(name, text)
    has_sentences, max_words = model.kind.has_sentences, model.max_words
    split = split_sentences(text) if has_sentences else [text]
    parts = [model.tokenize(part) for part in split] if text.strip() else []
    count = sum(map(len, parts))
    if not count and not may_be_empty:
        raise InputError(f"{name} is empty: give it at least one word")
    if strict and count > max_words:
        advice = "shorten it, or allow truncation (strict=False)"
        raise InputError(f"{name} has {count:,} words and the model reads {max_words:,}: {advice}")
    words = tuple([word for part in parts for word in part][:max_words])
    ids = tuple(model.vocabulary.encode(words))
    unknown = tuple(position for position, word_id in enumerate(ids) if word_id == Vocabulary.UNKNOWN)
    rows = split_ids(ids, list(map(len, parts)), model.config.model.max_words) if has_sentences else ids
    return EncodedText(name, text, rows, words, unknown, count - len(words))


def check_text(name: str, text: str) -> None:
    """Raise an `InputError` if a value is not a text, or cannot be written as UTF-8."""
    if not isinstance(text, str):
        raise InputError(f"{name}: expected a text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name}: not valid Unicode: it holds half of a surrogate pair") from None


def split_ids(ids: Sequence[int], lengths: Sequence[int], max_length: int) -> tuple[tuple[int, ...], ...]:
    """Split the ids of a document into sentences of these lengths, none longer than `max_length`."""
    sizes = [min(max_length, n - first) for n in lengths for first in range(0, max(1, n), max_length)]
    starts = accumulate(sizes, initial=0)
    return tuple(tuple(ids[i : i + size]) for i, size in zip(starts, sizes, strict=False) if i < len(ids))


def stack_rows(rows: Sequence[Row], has_sentences: bool) -> LabelledRows:
    """Stack rows as tensors, a column for each text; labels are zeros."""
    columns: list[Any] = []
    for column in zip(*rows, strict=True):
        counts, flat = concatenate(column)
        if has_sentences:
            lengths, ids = concatenate(flat)
            sentences = Texts.from_ids(torch.tensor(ids, dtype=torch.long), lengths)
            columns.append(Documents.from_sentences(sentences, counts))
        else:
            columns.append(Texts.from_ids(torch.tensor(flat, dtype=torch.long), counts))
    return LabelledRows(tuple(columns), torch.zeros(len(rows), dtype=torch.long))


def concatenate(parts: Sequence[Sequence[Any]]) -> tuple[Tensor, list[Any]]:
    """Concatenate sequences; return their lengths [N] and the items."""
    return torch.tensor(list(map(len, parts)), dtype=torch.long), [item for part in parts for item in part]
