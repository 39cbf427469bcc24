"""What is asked of a loaded model: texts, read and found good, and how the answer is told.

Reading refuses what the model cannot take; `batches` works on what was read; telling makes an answer of
that. Questions of several people can so be computed in one batch, and each gets its own answer or error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nse.errors import InputError, RunError
from nse.inference import folder as hub
from nse.inference.inputs import Read, Source, read, source
from nse.inference.kinds import classified, columns, ranked, translator
from nse.text.moses import detokenized
from nse.text.vocabulary import Vocabulary

Pair = tuple[str, str]

What = Literal["scores", "vectors", "translations"]
"""What is computed of rows; see `nse.inference.batches.computed`."""


class Asked(NamedTuple):
    """A question to a model.

    Attributes:
        what: To compute. Questions of the same kind can be computed together.
        rows: Of each row it is computed by itself, whatever the others are.
        tell: From what was computed of each row, in their order, to the answer.
        beam: For translations: how many of each are followed at a time.
    """

    what: What
    rows: Sequence[Any]
    tell: Callable[[Any], Any]
    beam: int | None = None


def labels(
    loaded: hub.Model, texts: Sequence[str | Pair], strict: bool = False, numbers: Sequence[int] | None = None
) -> Asked:
    """Which labels texts have; see `nse.inference.api.predict`."""
    names, known = classified(loaded), loaded.config.labels
    numbers = counted(texts, "texts", numbers)
    rows = []
    for number, item in zip(numbers, texts, strict=True):
        called = [f"{name} {number}" for name in names]
        rows.append([read(loaded, *each, strict) for each in zip(called, parts(item, called), strict=True)])

    def tell(scores: Tensor) -> list[dict[str, Any]]:
        refuse_not_finite(scores, " and ".join(names), numbers)
        chances = scores.double().softmax(-1).tolist()
        return [prediction(loaded, known, *each) for each in zip(numbers, texts, rows, chances, strict=True)]

    return Asked("scores", rows, tell)


def prediction(
    loaded: hub.Model,
    known: Sequence[str],
    number: int,
    item: str | Pair,
    row: Sequence[Read],
    chances: Sequence[float],
) -> dict[str, Any]:
    """What is told of a text and its label."""
    best = max(range(len(known)), key=chances.__getitem__)
    return {
        "number": number,
        **({"text": item} if isinstance(item, str) else {"texts": list(item)}),
        "label": known[best],
        "probabilities": dict(zip(known, chances, strict=True)),
        **how_read(row),
        **({"sentences": len(row[0].lengths)} if loaded.config.kind == "document" else {}),
    }


def how_read(row: Sequence[Read]) -> dict[str, int]:
    """How many words of texts were read, left out and not known."""
    return {
        "words": sum(len(each.ids) for each in row),
        "cut": sum(each.cut for each in row),
        "unknown": sum(each.unknown for each in row),
    }


def ranking(
    loaded: hub.Model,
    question: str,
    candidates: Sequence[str],
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> Asked:
    """Which candidates answer a question best; see `nse.inference.api.rank`."""
    names = ranked(loaded)
    numbers = counted(candidates, "candidates", numbers)
    asked = read(loaded, "question", question, strict)
    rows = []
    for number, candidate in zip(numbers, candidates, strict=True):
        answer = read(loaded, f"candidate {number}", candidate, strict)
        rows.append([asked if name == "question" else answer for name in names])

    def tell(scores: Tensor) -> list[dict[str, Any]]:
        refuse_not_finite(scores, "candidate", numbers)
        found = scores[:, 0].double()
        chances = found.sigmoid().tolist()
        order = found.argsort(descending=True, stable=True).tolist()
        return [
            {
                "rank": place,
                "score": float(found[row]),
                "probability": chances[row],
                "number": numbers[row],
                "text": candidates[row],
                **how_read(rows[row]),
            }
            for place, row in enumerate(order, start=1)
        ]

    return Asked("scores", rows, tell)


def vectors(
    loaded: hub.Model, texts: Sequence[str], strict: bool = False, numbers: Sequence[int] | None = None
) -> Asked:
    """The vectors of texts; see `api.encode`. What is told is the vectors and how texts were read."""
    columns(loaded)  # which refuses a configuration that disagrees with itself
    name = "document" if loaded.config.kind == "document" else "sentence"
    numbers = counted(texts, "texts", numbers)
    rows = [
        [read(loaded, f"{name} {number}", text, strict)] for number, text in zip(numbers, texts, strict=True)
    ]

    def tell(found: Tensor) -> tuple[NDArray[np.float32], list[dict[str, int]]]:
        refuse_not_finite(found, name, numbers)
        return found.numpy(), [how_read(row) for row in rows]

    return Asked("vectors", rows, tell)


def translations(
    loaded: hub.Model,
    texts: Sequence[str],
    beam: int | None = None,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> Asked:
    """The translations of sentences; see `nse.inference.api.translate`."""
    translator(loaded)
    numbers = counted(texts, "texts", numbers)
    rows = [source(loaded, *each, strict) for each in zip(numbers, texts, strict=True)]

    def tell(found: Sequence[list[str]]) -> list[dict[str, Any]]:
        return [translated(loaded, *each) for each in zip(rows, found, strict=True)]

    return Asked("translations", rows, tell, beam)


def translated(loaded: hub.Model, each: Source, words: list[str]) -> dict[str, Any]:
    """What is told of a translation."""
    return {
        "number": each.number,
        "text": each.text,
        "translation": detokenized(words) if words else "",
        "words": words,
        "unknown": loaded.vocabulary.encode(each.words).count(Vocabulary.UNKNOWN),
        "cut": each.cut,
    }


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


def refuse_not_finite(found: Tensor, name: str, numbers: Sequence[int]) -> None:
    """Refuse rows [N, n] that are no answer: no label, no rank and no vector comes out of NaN."""
    wrong = (~found.isfinite().all(dim=-1)).nonzero().flatten().tolist()
    if wrong:
        first = ", ".join(str(numbers[row]) for row in wrong[:5]) + (", ..." if len(wrong) > 5 else "")
        raise RunError(f"the model's scores are NaN or infinite, for {name} {first}")
