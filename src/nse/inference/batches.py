"""From texts as a model reads them to what it computes: scores, vectors, translations, in batches.

Rows of any length and in any number go in; they are sorted by length, computed so many at a time, and come
out in their order. Of the same texts it is computed once: in two batches they could differ in the last bit,
and one of two equal candidates would be ranked above the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from nse.errors import InputError, RunError
from nse.inference import folder as hub
from nse.inference.inputs import Read, Source, as_documents, as_texts
from nse.inference.requests import Asked
from nse.nn.search import Found
from nse.nn.translator import TranslationConfig, Translator
from nse.text.sampler import shares
from nse.text.subwords import Pieces
from nse.text.tensors import Labelled, Texts
from nse.text.vocabulary import Vocabulary

Computed = Tensor | list[list[str]]
"""Of each row, in their order: scores or a vector [N, n], or the words of a translation."""

Row = Sequence[Read]
"""The texts of a row, in the order in which the model takes them."""

_threads: ThreadPoolExecutor | None = None
"""Those that compute batches side by side, if that was asked for."""


def side_by_side() -> None:
    """Let this process compute as many batches at a time as it has cores, from now on, each on one core.

    For a process that does nothing else, on a CPU. By default all cores work at one batch; its steps are
    small, and after each of them they wait for each other.
    """
    global _threads
    torch.set_num_threads(1)
    _threads = ThreadPoolExecutor(cores())


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def of_each(function: Callable[[Tensor], Any], shares: Iterable[Tensor]) -> Iterator[Any]:
    """What a function gives for shares of rows, in their order; side by side, if that was asked for."""
    return _threads.map(function, shares) if _threads else map(function, shares)


def at_once(batch: int, rows: int) -> int:
    """How many rows to compute at a time: side by side no more than leaves some for every core."""
    return min(batch, max(1, -(-rows // cores()))) if _threads else batch


def answered(loaded: hub.Model, asked: Asked, batch: int) -> Any:
    """The answer to one question."""
    return asked.tell(computed(loaded, asked, batch))


def computed(loaded: hub.Model, asked: Asked, batch: int) -> Computed:
    """What a question asks for of each of its rows; `tell` makes an answer of it."""
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    with torch.inference_mode():
        if asked.what == "translations":
            return translated(loaded, asked.rows, batch, asked.beam)
        if asked.what == "vectors":
            return per_row(loaded, asked.rows, batch, getattr(loaded.model, "represent"))  # noqa: B009
        return per_row(loaded, asked.rows, batch)


def per_row(
    loaded: hub.Model, rows: Sequence[Row], batch: int, function: Callable[..., Tensor] | None = None
) -> Tensor:
    """What a function of a batch of texts gives for each row [N, n], by default the model's scores."""
    keys = [tuple((each.ids, each.lengths) for each in row) for row in rows]
    different = list(dict.fromkeys(keys))
    if not different:
        return torch.zeros(0, measure_width(loaded, function))
    columns = [tuple(zip(*column, strict=True)) for column in zip(*different, strict=True)]
    is_document = loaded.config.kind == "document"
    texts = tuple(as_documents(*column) if is_document else as_texts(column[0]) for column in columns)
    labelled = Labelled(texts, torch.zeros(len(different), dtype=torch.long))
    found = scored(loaded.model, labelled, batch, function)
    place = {key: at for at, key in enumerate(different)}
    return found[[place[key] for key in keys]]


def measure_width(loaded: hub.Model, function: Callable[..., Tensor] | None) -> int:
    """Count the numbers that a function of a text gives, by default the model's scores: those of one word."""
    if function is None:
        return len(loaded.config.labels)
    word = Read((Vocabulary.UNKNOWN,), 0, (1,) if loaded.config.kind == "document" else ())
    return per_row(loaded, [[word]], 1, function).shape[1]


def scored(
    model: nn.Module, rows: Labelled, batch: int, function: Callable[..., Tensor] | None = None
) -> Tensor:
    """What a function of a batch gives for each row [N, n], on the host, in the order of the rows."""
    device = next(model.parameters()).device

    @torch.inference_mode()  # which is of a thread
    def one(index: Tensor) -> Tensor:
        return (function or model)(*rows.select(index).to(device).inputs).float().cpu()

    # The longest first, so that no core waits long for another in the end.
    index = list(shares(rows, at_once(batch, len(rows.labels))))[::-1]
    if not index:
        return torch.zeros(0, 1)
    found = torch.cat(list(of_each(one, index)))
    return found[torch.cat(index).argsort()]


def translated(
    loaded: hub.Model, sources: Sequence[Source], batch: int, beam: int | None = None
) -> list[list[str]]:
    """The words of the translations of sentences.

    At most `batch` translations are followed at a time, those of a beam counted.
    """
    return written(loaded, [each.words for each in sources], batch, beam)


def written(
    loaded: hub.Model, sources: Sequence[Sequence[str]], batch: int, beam: int | None = None
) -> list[list[str]]:
    """The words of translations, of sentences given as the words or pieces that the model reads."""
    model, config = loaded.model, loaded.config.model
    assert isinstance(model, Translator)
    assert isinstance(config, TranslationConfig)
    assert loaded.target is not None
    device = next(model.parameters()).device
    texts = as_texts([tuple(loaded.vocabulary.encode(words)) for words in sources])
    rows = Labelled((texts,), torch.zeros(len(sources), dtype=torch.long))
    beam = beam or config.beam

    @torch.inference_mode()  # which is of a thread
    def one(index: Tensor) -> Found:
        return searched(loaded, texts.select(index).to(device), beam)

    index = list(shares(rows, at_once(max(1, batch // beam), len(sources))))
    found: list[list[str]] = [[] for _ in sources]
    for some, told in zip(index, of_each(one, index), strict=True):
        for row, ids, places in zip(some.tolist(), told.ids.tolist(), told.places.tolist(), strict=True):
            if sources[row]:
                found[row] = words_of(loaded, ids, places, sources[row])
    return found


def words_of(
    loaded: hub.Model, ids: Sequence[int], places: Sequence[int], source: Sequence[str]
) -> list[str]:
    """Put a translation into words: pieces joined, unknown ones from the source if so configured."""
    assert isinstance(loaded.config.model, TranslationConfig)
    assert loaded.target is not None
    words = loaded.target.decode(ids, places, source if loaded.config.model.replace else ())
    return Pieces.join(words) if loaded.config.pieces else words


def searched(loaded: hub.Model, texts: Texts, beam: int | None) -> Found:
    """The best translations, as ids."""
    assert isinstance(loaded.model, Translator)
    told = loaded.model.translate(texts.ids, texts.lengths, beam)
    if not bool(told.likely.isfinite().all()):
        raise RunError(f"{loaded.folder}: the model's scores are NaN or infinite")
    return told
