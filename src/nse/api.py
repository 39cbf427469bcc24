"""A trained model at work: the labels of sentences and of pairs, and the best answers to a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nse import hub
from nse.errors import InputError, ModelError, RunError
from nse.tasks import TASKS
from nse.text.batching import Labelled, Texts, batches
from nse.text.vocabulary import Vocabulary

LONGEST = 1_000
"""Words of a sentence that a model reads if it sets no limit itself, which bounds the time."""

USUAL = 64
"""Words of a long sentence: a batch of longer ones has fewer of them, which bounds the memory."""

SHOWN = 200
"""Characters of a text that are shown to a person."""

Pair = tuple[str, str]


class Read(NamedTuple):
    """A text as a model reads it.

    Attributes:
        ids: Of its words, no more than the model reads.
        cut: How many words were left out.
    """

    ids: tuple[int, ...]
    cut: int

    @property
    def unknown(self) -> int:
        """How many of the words that are read the model does not know."""
        return self.ids.count(Vocabulary.UNKNOWN)


def predict(
    model: hub.Model | str | Path,
    texts: Sequence[str | Pair],
    batch: int = 64,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """What a classifier says to sentences, or to pairs of them.

    Args:
        model: What `hub.load` gave or takes: a shipped model's name, a run or a model folder.
        texts: Sentences for a model of sentences, else pairs, such as of a premise and a hypothesis.
        batch: How many at a time; the answer is the same whatever it is, but for rounding.
        strict: Refuse a text that is longer than the model reads, instead of cutting it.
        numbers: What to call the texts; 1, 2, 3 and so on by default.

    Returns:
        In the order of the texts: number, text (of a pair `texts`), label, probabilities (by label), words
        (how many were read), cut (how many were left out), unknown (how many of those read are not known).

    Raises:
        InputError: A text is empty, or the model ranks.
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
    for number, item, row, shares in zip(numbers, texts, rows, scores.softmax(-1).tolist(), strict=True):
        best = max(range(len(labels)), key=shares.__getitem__)
        found.append(
            {
                "number": number,
                **({"text": item} if isinstance(item, str) else {"texts": list(item)}),
                "label": labels[best],
                "probabilities": dict(zip(labels, shares, strict=True)),
                "words": sum(len(each.ids) for each in row),
                "cut": sum(each.cut for each in row),
                "unknown": sum(each.unknown for each in row),
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


def ready(model: hub.Model | str | Path) -> hub.Model:
    """A model that is loaded."""
    return model if isinstance(model, hub.Model) else hub.load(model)


def columns(loaded: hub.Model) -> tuple[str, ...]:
    """What a model takes, in its order, by the columns of its task's data."""
    config = loaded.config
    if config.task not in TASKS:
        raise ModelError(f"{loaded.folder}: expected a task of {', '.join(TASKS)}, got {config.task!r}")
    found = TASKS[config.task].columns
    if len(found) != (1 if config.kind == "sentence" else 2):
        raise ModelError(
            f"{loaded.folder}: config.json disagrees with itself: a model of kind {config.kind!r} cannot "
            f"take {' and '.join(found)}, as its task {config.task} does"
        )
    return found


def classified(loaded: hub.Model) -> tuple[str, ...]:
    """What a classifier takes; a model that ranks is refused."""
    if ranks(loaded):
        raise InputError(
            f"model: {loaded.folder} ranks candidate answers to a question and tells no labels apart; "
            "use `nse rank`, in Python nse.api.rank"
        )
    return columns(loaded)


def ranked(loaded: hub.Model) -> tuple[str, ...]:
    """What a model that ranks takes; a classifier is refused."""
    if not ranks(loaded):
        what = "a sentence" if loaded.config.kind == "sentence" else "a pair of sentences"
        raise InputError(
            f"model: {loaded.folder} gives {what} a label ({', '.join(loaded.config.labels)}) and ranks "
            "nothing; use `nse predict`, in Python nse.api.predict"
        )
    found = columns(loaded)
    if "question" not in found:
        raise ModelError(
            f"{loaded.folder}: config.json disagrees with itself: it has one label, as a model that ranks, "
            f"and its task {loaded.config.task} asks no question"
        )
    return found


def ranks(loaded: hub.Model) -> bool:
    """Whether a model gives a pair one score to rank by, instead of one for each label."""
    return loaded.config.kind == "pair" and len(loaded.config.labels) == 1


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


def read(loaded: hub.Model, name: str, text: str, strict: bool) -> Read:
    """A text as ids, cut to what the model reads.

    Raises:
        InputError: There is nothing to read, it is no text, or it is longer than may be.
    """
    if not isinstance(text, str):
        raise InputError(f"{name}: expected a text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{name} is no text: it holds half of a character, as bytes that are not UTF-8 do"
        ) from None
    words = loaded.tokenize(text) if text.strip() else []
    if not words:
        raise InputError(f"{name} is empty: give it at least one word")
    longest = limit(loaded)
    if strict and len(words) > longest:
        raise InputError(
            f"{name} has {len(words):,} words and the model reads {longest:,}: shorten it, or let it be cut "
            "(without strict)"
        )
    return Read(tuple(loaded.vocabulary.encode(words[:longest])), max(0, len(words) - longest))


def limit(loaded: hub.Model) -> int:
    """How many words of a text a model reads."""
    return loaded.config.model.longest or LONGEST


def scores_of(
    loaded: hub.Model, rows: Sequence[Sequence[Read]], batch: int, name: str, numbers: Sequence[int]
) -> Tensor:
    """The scores [N, labels] of rows as float64.

    Rows of the same words are read once: in two batches they could differ in the last bit, and one of two
    equal candidates would be ranked above the other.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    keys = [tuple(each.ids for each in row) for row in rows]
    different = list(dict.fromkeys(keys))
    if not different:
        return torch.zeros(0, len(loaded.config.labels))
    texts = tuple(as_texts(column) for column in zip(*different, strict=True))
    found = scored(loaded.model, Labelled(texts, torch.zeros(len(different), dtype=torch.long)), batch)
    place = {key: at for at, key in enumerate(different)}
    scores = found[[place[key] for key in keys]].double()
    refuse_not_finite(scores, name, numbers)
    return scores


def as_texts(ids: Sequence[tuple[int, ...]]) -> Texts:
    """Texts of ids."""
    flat = torch.tensor([each for text in ids for each in text], dtype=torch.long)
    return Texts.flat(flat, torch.tensor([len(text) for text in ids]))


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


def shares(rows: Labelled, batch: int) -> Iterator[Tensor]:
    """Rows of similar length, and no more words at once than a batch of usual ones has."""
    for index in batches(len(rows.labels), batch, lengths=rows.lengths):
        if len(index):
            longest = max(1, int(rows.lengths[index].max()))
            yield from index.split(max(1, batch * USUAL // longest))


def refuse_not_finite(scores: Tensor, name: str, numbers: Sequence[int]) -> None:
    """Refuse scores [N, labels] that are no answer: no label and no rank comes out of NaN."""
    wrong = (~scores.isfinite().all(dim=-1)).nonzero().flatten().tolist()
    if wrong:
        first = ", ".join(str(numbers[row]) for row in wrong[:5]) + (", ..." if len(wrong) > 5 else "")
        raise RunError(f"the model's scores are NaN or infinite, for {name} {first}")


def describe_predictions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each prediction: its label, how sure the model is, the other labels, the text."""
    told = []
    for row in rows:
        sure = sorted(row["probabilities"].items(), key=lambda each: -each[1])
        label, *others = (f"{name} {100 * share:.1f}%" for name, share in sure)
        rest = f" ({', '.join(others)})" if others else ""
        text = " | ".join(shown(text) for text in row.get("texts", [row.get("text")]))
        told.append((f"{label}{rest}", f"{text}{missed(row)}"))
    width = max((len(label) for label, _ in told), default=0)
    return [f"{label:<{width}}  {text}" for label, text in told]


def describe_ranking(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each candidate under a heading: rank, score, number, text."""
    return [
        f"{'rank':>4}  {'score':>8}  {'line':>4}  sentence",
        *(
            f"{row['rank']:>4}  {row['score']:>8.4f}  {row['number']:>4}  {shown(row['text'])}{missed(row)}"
            for row in rows
        ),
    ]


def missed(row: dict[str, Any]) -> str:
    """Which words had no say, if any."""
    unknown = f"{row['unknown']:,} of {row['words']:,} words unknown" if row["unknown"] else ""
    cut = f"{row['cut']:,} words cut" if row["cut"] else ""
    return f"  [{'; '.join(filter(None, (unknown, cut)))}]" if unknown or cut else ""


def shown(text: str) -> str:
    """A text on a line: not endless, and nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:SHOWN])
    return f"{line}..." if len(text) > SHOWN else line
