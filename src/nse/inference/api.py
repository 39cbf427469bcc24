"""A trained model at work: labels of texts, the best answers to a question, translations, vectors, traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from nse.errors import InputError, NSEError
from nse.inference import folder as hub
from nse.inference import requests as asking
from nse.inference import tracing
from nse.inference.batches import answered, searched, translated, words_of
from nse.inference.inputs import Read, Source, as_texts, read, source
from nse.inference.kinds import columns, purpose, translator
from nse.inference.requests import Pair
from nse.nn.translator import Translator
from nse.text.moses import detokenized
from nse.text.vocabulary import Vocabulary
from nse.viz.trace import MemoryTrace, Reading, Text

Item = TypeVar("Item")

BATCH = 128
"""Texts computed at a time: on two cores fewer are slower, and more are not faster."""


def predict(
    model: hub.Model | str | Path,
    texts: Sequence[str | Pair],
    batch: int = BATCH,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """What a classifier says to sentences, to pairs of them, or to documents.

    Args:
        model: What `hub.load` gave or takes: a shipped model's name, a run or a model folder.
        texts: Sentences or documents for a model of such, else pairs, as of a premise and a hypothesis.
        batch: How many at a time; the answer is the same whatever it is, but for rounding.
        strict: Refuse a text that is longer than the model reads, instead of cutting it.
        numbers: What to call the texts; 1, 2, 3 and so on by default.

    Returns:
        In the order of the texts: number, text (of a pair `texts`), label, probabilities (by label), words
        (how many were read), cut (how many were left out), unknown (how many of those read are not known);
        of a document also sentences (how many were read; a very long one counts as several).

    Raises:
        InputError: A text is empty, or the model ranks or translates.
        RunError: The model's scores are not finite.
    """
    loaded = ready(model)
    found: list[dict[str, Any]] = answered(loaded, asking.labels(loaded, texts, strict, numbers), batch)
    return found


def rank(
    model: hub.Model | str | Path,
    question: str,
    candidates: Sequence[str],
    batch: int = BATCH,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Candidate answers to a question, the best first; of equal ones the earlier first.

    Args:
        model: What `hub.load` gave or takes: a run or a model folder, of a model that ranks.
        question: The question.
        candidates: Sentences, one of which may answer it.
        batch: How many at a time; the answer is the same whatever it is, but for rounding.
        strict: Refuse a text that is longer than the model reads, instead of cutting it.
        numbers: What to call the candidates; 1, 2, 3 and so on by default.

    Returns:
        A dictionary for each candidate: rank (from 1), score (the higher the better), probability (that the
        candidate is right, as far as the model knows), number, text, and of candidate and question together
        words (how many were read), cut (how many were left out), unknown (how many of those read are not
        known).

    Raises:
        InputError: The question or a candidate is empty, or the model does not rank.
        RunError: The model's scores are not finite.
    """
    loaded = ready(model)
    asked = asking.ranking(loaded, question, candidates, strict, numbers)
    found: list[dict[str, Any]] = answered(loaded, asked, batch)
    return found


def encode(
    model: hub.Model | str | Path,
    texts: Sequence[str],
    batch: int = BATCH,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """A vector for each text: what the model's encoder makes of it, pooled as the model does it.

    Args:
        model: What `hub.load` gave or takes, of any model. One of pairs reads each text by itself, with the
            encoder of its first text; of a translator the vector is its encoder's last state.
        texts: Sentences, or documents for a model of such.
        batch: How many at a time; the answer is the same whatever it is, but for rounding.
        strict: Refuse a text that is longer than the model reads, instead of cutting it.
        numbers: What to call the texts; 1, 2, 3 and so on by default.

    Returns:
        [N, d], in the order of the texts.

    Raises:
        InputError: A text is empty.
        RunError: A vector is not finite.
    """
    loaded = ready(model)
    found: NDArray[np.float32]
    found, _ = answered(loaded, asking.vectors(loaded, texts, strict, numbers), batch)
    return found


def translate(
    model: hub.Model | str | Path,
    texts: Sequence[str],
    beam: int | None = None,
    batch: int = BATCH,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Translations of sentences; see `translations`, which gives them one by one."""
    return list(translations(model, texts, beam, batch, strict, asking.counted(texts, "texts", numbers)))


def translations(
    model: hub.Model | str | Path,
    texts: Iterable[str],
    beam: int | None = None,
    batch: int = BATCH,
    strict: bool = False,
    numbers: Iterable[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Translations of sentences, in their order, as soon as a batch of them is there.

    Args:
        model: What `hub.load` gave or takes, of a model that translates: a shipped one, a run or a folder.
        texts: Sentences. No more than a batch of them are read ahead, so that they may be endless.
        beam: How many translations of each are followed at a time; as the model is configured by default.
        batch: How many at a time; the answer is the same whatever it is, but for rounding.
        strict: Refuse a text that is longer than the model reads, instead of cutting it.
        numbers: What to call the texts; 1, 2, 3 and so on by default.

    Returns:
        A dictionary for each text: number, text, translation, words (of the translation), unknown (how many
        of the words that were read are not known), cut (how many words were left out). The translation of a
        text without words has none.

    Raises:
        InputError: A text is too long or none at all, once those before it are translated; or the model does
            not translate.
        RunError: The model's scores are not finite.
    """
    loaded = ready(model)
    translator(loaded)
    if batch < 1 or (beam is not None and beam < 1):
        raise InputError(f"batch and beam: expected at least 1, got {batch} and {beam}")
    if isinstance(texts, str):  # it would be taken letter by letter
        raise InputError(f"texts: expected a list of texts, got the text {texts[:40]!r}")
    found = (source(loaded, *each, strict) for each in zip(numbers or count(1), texts, strict=False))
    return (
        row for some in in_batches(found, batch) for row in told_of_translations(loaded, some, batch, beam)
    )


def in_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """So many items at a time; those before a mistake come before the mistake is told."""
    some: list[Item] = []
    try:
        for item in items:
            some.append(item)
            if len(some) == size:
                yield some
                some = []
    except NSEError:
        if some:
            yield some
        raise
    if some:
        yield some


def told_of_translations(
    loaded: hub.Model, some: Sequence[Source], batch: int, beam: int | None
) -> Iterator[dict[str, Any]]:
    """What is told of the translations of some sentences."""
    with torch.inference_mode():
        found = translated(loaded, some, batch, beam)
    yield from (asking.translated(loaded, *each) for each in zip(some, found, strict=True))


def trace(
    model: hub.Model | str | Path, *texts: str, beam: int | None = None, strict: bool = False
) -> MemoryTrace:
    """What the memories of a model did with texts, and what the model says to them.

        trace("snli", "Two dogs play in the snow.", "The animals are outdoors.")

    Args:
        model: What `hub.load` gave or takes: a shipped model's name, a run or a model folder.
        texts: What the model takes: a sentence, a document, a premise and a hypothesis, a sentence to
            translate; for a model that ranks a question and candidates, as many as you like.
        beam: As for `translate`.
        strict: Refuse a text that is longer than the model reads, instead of cutting it.

    Raises:
        InputError: A text is empty, there are too few or too many, or the model has no memory.
        RunError: The model's scores are not finite.
    """
    loaded = ready(model)
    tracing.refuse_memoryless(loaded)
    command = purpose(loaded)[1]
    if command == "translate":
        return trace_of_translation(loaded, texts, beam, strict)
    if command == "rank":
        return trace_of_ranking(loaded, texts, strict)
    names = columns(loaded)
    if len(texts) != len(names):
        wanted = f"{len(names)}, {' and '.join(names)}"
        raise InputError(f"texts: expected {wanted}, got {len(texts)}")
    found = [read(loaded, name, text, strict) for name, text in zip(names, texts, strict=True)]
    with tracing.recorded(loaded.model) as calls:
        [row] = predict(loaded, [texts[0] if len(texts) == 1 else (texts[0], texts[1])], strict=strict)
    told = told_of(loaded, names, texts, found)
    readings: list[Reading]
    if loaded.config.kind == "document":
        readings = tracing.of_document(loaded.model, calls, told[0], found[0].lengths)
    elif loaded.config.kind == "pair":
        readings = tracing.of_pair(loaded.model, calls, *told)
    else:
        readings = tracing.of_sentence(loaded.model, calls, told[0])
    said = {"label": row["label"], "probabilities": row["probabilities"]}
    return MemoryTrace(tracing.about(loaded), tuple(told), tuple(readings), said)


def trace_of_ranking(loaded: hub.Model, texts: Sequence[str], strict: bool) -> MemoryTrace:
    """What the memories did with a question and each of its candidates."""
    if len(texts) < 2:
        raise InputError(f"texts: expected a question and at least one candidate, got {len(texts)}")
    question, *candidates = texts
    ranking = rank(loaded, question, candidates, strict=strict)
    shown = ("rank", "number", "text", "score", "probability")
    asked = read(loaded, "question", question, strict)
    [told] = told_of(loaded, ["question"], [question], [asked])
    every, readings = [told], []
    for number, candidate in enumerate(candidates, start=1):
        name = f"candidate {number}"
        [answer] = told_of(loaded, [name], [candidate], [read(loaded, name, candidate, strict)])
        of_this = replace(told, name=f"question, for {name}")
        with tracing.recorded(loaded.model) as calls:
            rank(loaded, question, [candidate], strict=strict)
        pair = [of_this if column == "question" else answer for column in columns(loaded)]
        readings += tracing.of_pair(loaded.model, calls, *pair)
        every.append(answer)
    said = {"ranking": [{name: row[name] for name in shown} for row in ranking]}
    return MemoryTrace(tracing.about(loaded), tuple(every), tuple(readings), said)


def trace_of_translation(
    loaded: hub.Model, texts: Sequence[str], beam: int | None, strict: bool
) -> MemoryTrace:
    """What the memories did with a sentence and its translation."""
    if len(texts) != 1:
        raise InputError(f"texts: expected one, a sentence to translate, got {len(texts)}")
    model, found = loaded.model, source(loaded, 1, texts[0], strict)
    assert isinstance(model, Translator)
    assert loaded.target is not None
    if not found.words:
        raise InputError("sentence is empty: give it at least one word")
    given = as_texts([tuple(loaded.vocabulary.encode(found.words))]).to(next(model.parameters()).device)
    with tracing.recorded(model) as calls:
        told = searched(loaded, given, beam)
    ids, places = told.ids[0].tolist(), told.places[0].tolist()
    words = words_of(loaded, ids, places, found.words)
    text = tracing.text_of(loaded, "sentence", texts[0], found.words, found.cut)
    target = tuple(each for each in ids if each != Vocabulary.PAD)
    readings = tracing.of_translation(model, calls, text, target, loaded.target, given.ids)
    said = {"translation": detokenized(words) if words else "", "words": words}
    return MemoryTrace(tracing.about(loaded), (text,), tuple(readings), said)


def told_of(
    loaded: hub.Model, names: Sequence[str], texts: Sequence[str], found: Sequence[Read]
) -> list[Text]:
    """Texts as a trace tells them."""
    rows = zip(names, texts, found, strict=True)
    return [tracing.text_of(loaded, name, text, each.words, each.cut) for name, text, each in rows]


def ready(model: hub.Model | str | Path) -> hub.Model:
    """A model that is loaded."""
    return model if isinstance(model, hub.Model) else hub.load(model)
