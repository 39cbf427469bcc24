"""A trained model at work: labels of texts, the best answers to a question, translations, traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from nse import hub, tracing
from nse.errors import InputError, NSEError, RunError
from nse.nn.search import Found
from nse.nn.translation import TranslationConfig, Translator
from nse.purpose import classified, columns, purpose, ranked, translator
from nse.reading import Read, Source, as_documents, as_texts, read, source
from nse.tasks import translation
from nse.text.batching import Labelled, Texts, shares
from nse.text.moses import detokenized
from nse.text.vocabulary import Vocabulary
from nse.viz.trace import MemoryTrace, Reading, Text

Pair = tuple[str, str]
Item = TypeVar("Item")


def predict(
    model: hub.Model | str | Path,
    texts: Sequence[str | Pair],
    batch: int = 64,
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
    columns, labels = classified(loaded), loaded.config.labels
    numbers = counted(texts, "texts", numbers)
    rows = []
    for number, item in zip(numbers, texts, strict=True):
        names = [f"{column} {number}" for column in columns]
        rows.append([read(loaded, *each, strict) for each in zip(names, parts(item, names), strict=True)])
    scores = scores_of(loaded, rows, batch, " and ".join(columns), numbers)
    found = []
    for number, item, row, chances in zip(numbers, texts, rows, scores.softmax(-1).tolist(), strict=True):
        best = max(range(len(labels)), key=chances.__getitem__)
        found.append(
            {
                "number": number,
                **({"text": item} if isinstance(item, str) else {"texts": list(item)}),
                "label": labels[best],
                "probabilities": dict(zip(labels, chances, strict=True)),
                "words": sum(len(each.ids) for each in row),
                "cut": sum(each.cut for each in row),
                "unknown": sum(each.unknown for each in row),
                **({"sentences": len(row[0].lengths)} if loaded.config.kind == "document" else {}),
            }
        )
    return found


def rank(
    model: hub.Model | str | Path,
    question: str,
    candidates: Sequence[str],
    batch: int = 64,
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
    columns = ranked(loaded)
    numbers = counted(candidates, "candidates", numbers)
    asked = read(loaded, "question", question, strict)
    rows = []
    for number, candidate in zip(numbers, candidates, strict=True):
        answer = read(loaded, f"candidate {number}", candidate, strict)
        rows.append([asked if column == "question" else answer for column in columns])
    scores = scores_of(loaded, rows, batch, "candidate", numbers)[:, 0]
    chances = scores.sigmoid().tolist()
    order = scores.argsort(descending=True, stable=True).tolist()
    return [
        {
            "rank": place,
            "score": float(scores[row]),
            "probability": chances[row],
            "number": numbers[row],
            "text": candidates[row],
            "words": sum(len(each.ids) for each in rows[row]),
            "cut": sum(each.cut for each in rows[row]),
            "unknown": sum(each.unknown for each in rows[row]),
        }
        for place, row in enumerate(order, start=1)
    ]


def translate(
    model: hub.Model | str | Path,
    texts: Sequence[str],
    beam: int | None = None,
    batch: int = 64,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Translations of sentences; see `translations`, which gives them one by one."""
    return list(translations(model, texts, beam, batch, strict, counted(texts, "texts", numbers)))


def translations(
    model: hub.Model | str | Path,
    texts: Iterable[str],
    beam: int | None = None,
    batch: int = 64,
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
    return (row for some in in_batches(found, batch) for row in translated(loaded, some, batch, beam))


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


def translated(
    loaded: hub.Model, some: Sequence[Source], batch: int, beam: int | None
) -> Iterator[dict[str, Any]]:
    """What is told of the translations of some sentences."""
    found = written(loaded, [each.words for each in some], batch, beam)
    for each, words in zip(some, found, strict=True):
        yield {
            "number": each.number,
            "text": each.text,
            "translation": detokenized(words) if words else "",
            "words": words,
            "unknown": loaded.vocabulary.encode(each.words).count(Vocabulary.UNKNOWN),
            "cut": each.cut,
        }


def written(
    loaded: hub.Model, sources: Sequence[Sequence[str]], batch: int, beam: int | None = None
) -> list[list[str]]:
    """The words of the translations of sentences, each given as the words or pieces that the model reads.

    At most `batch` translations are followed at a time, those of a beam counted.
    """
    model, config = loaded.model, loaded.config.model
    assert isinstance(model, Translator)
    assert isinstance(config, TranslationConfig)
    assert loaded.target is not None
    device = next(model.parameters()).device
    texts = as_texts([tuple(loaded.vocabulary.encode(words)) for words in sources])
    rows = Labelled((texts,), torch.zeros(len(sources), dtype=torch.long))
    found: list[list[str]] = [[] for _ in sources]
    beam = beam or config.beam
    for index in shares(rows, max(1, batch // beam)):
        told = searched(loaded, texts.select(index).to(device), beam)
        for row, ids, places in zip(index.tolist(), told.ids.tolist(), told.places.tolist(), strict=True):
            if sources[row]:
                given = (ids, places, sources[row])
                found[row] = translation.words(config, loaded.config.pieces, loaded.target, *given)
    return found


def searched(loaded: hub.Model, texts: Texts, beam: int | None) -> Found:
    """The best translations, as ids."""
    assert isinstance(loaded.model, Translator)
    told = loaded.model.translate(texts.ids, texts.lengths, beam)
    if not bool(told.likely.isfinite().all()):
        raise RunError(f"{loaded.folder}: the model's scores are NaN or infinite")
    return told


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
    model, config, found = loaded.model, loaded.config.model, source(loaded, 1, texts[0], strict)
    assert isinstance(model, Translator)
    assert isinstance(config, TranslationConfig)
    assert loaded.target is not None
    if not found.words:
        raise InputError("sentence is empty: give it at least one word")
    given = as_texts([tuple(loaded.vocabulary.encode(found.words))]).to(next(model.parameters()).device)
    with tracing.recorded(model) as calls:
        told = searched(loaded, given, beam)
    ids, places = told.ids[0].tolist(), told.places[0].tolist()
    words = translation.words(config, loaded.config.pieces, loaded.target, ids, places, found.words)
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


def counted(texts: Sequence[Any], name: str, numbers: Sequence[int] | None) -> Sequence[int]:
    """The numbers of texts."""
    if isinstance(texts, str):  # it would be taken letter by letter
        raise InputError(f"{name}: expected a list of texts, got the text {texts[:40]!r}")
    if numbers is None:
        return range(1, len(texts) + 1)
    if len(numbers) != len(texts):
        raise InputError(f"numbers: expected one for each of {len(texts)} {name}, got {len(numbers)}")
    return numbers


def parts(item: str | Pair, names: Sequence[str]) -> Sequence[str]:
    """The texts of an item, one for each name."""
    found = (item,) if isinstance(item, str) else item
    if not isinstance(found, (tuple, list)) or len(found) != len(names):
        got = f"{len(found)}" if isinstance(found, (tuple, list)) else type(item).__name__
        raise InputError(f"texts: expected {len(names)}, {' and '.join(names)}, got {got}")
    return found


def scores_of(
    loaded: hub.Model, rows: Sequence[Sequence[Read]], batch: int, name: str, numbers: Sequence[int]
) -> Tensor:
    """The scores [N, labels] of rows as float64.

    Rows of the same words are read once: in two batches they could differ in the last bit, and one of two
    equal candidates would be ranked above the other.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    keys = [tuple((each.ids, each.lengths) for each in row) for row in rows]
    different = list(dict.fromkeys(keys))
    if not different:
        return torch.zeros(0, len(loaded.config.labels))
    columns = [tuple(zip(*column, strict=True)) for column in zip(*different, strict=True)]
    is_document = loaded.config.kind == "document"
    texts = tuple(as_documents(*column) if is_document else as_texts(column[0]) for column in columns)
    found = scored(loaded.model, Labelled(texts, torch.zeros(len(different), dtype=torch.long)), batch)
    place = {key: at for at, key in enumerate(different)}
    scores = found[[place[key] for key in keys]].double()
    refuse_not_finite(scores, name, numbers)
    return scores


@torch.no_grad()
def scored(model: nn.Module, rows: Labelled, batch: int) -> Tensor:
    """The scores of each row [N, labels], on the host, in the order of the rows."""
    device = next(model.parameters()).device
    scores = torch.zeros(len(rows.labels), 1)
    for index in shares(rows, batch):
        some = model(*rows.select(index).to(device).inputs).float().cpu()
        if some.shape[1] != scores.shape[1]:
            scores = torch.zeros(len(rows.labels), some.shape[1])
        scores[index] = some
    return scores


def refuse_not_finite(scores: Tensor, name: str, numbers: Sequence[int]) -> None:
    """Refuse scores [N, labels] that are no answer: no label and no rank comes out of NaN."""
    wrong = (~scores.isfinite().all(dim=-1)).nonzero().flatten().tolist()
    if wrong:
        first = ", ".join(str(numbers[row]) for row in wrong[:5]) + (", ..." if len(wrong) > 5 else "")
        raise RunError(f"the model's scores are NaN or infinite, for {name} {first}")
