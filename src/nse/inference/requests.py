"""What is asked of a model: rows of ids to compute, and how an answer is made of what was computed.

Making a request refuses what the model cannot take. Rows are computed by themselves, whatever the others
are, so that requests of several people can be computed together, and each gets its own answer or error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor

from nse.errors import InputError
from nse.inference.inputs import Item, Row, encode_text
from nse.inference.kinds import refuse_not_finite

if TYPE_CHECKING:
    from nse.inference.model import Model

Pair = tuple[str, str]
Verb = Literal["predict", "rank", "translate", "encode"]
What = Literal["scores", "vectors", "translations"]


class Request(NamedTuple):
    """A question to a model."""

    what: str  # to compute: "scores", "vectors" or "translations"
    rows: Sequence[Row]  # to compute it of, no two alike: in two batches they could differ in the last bit
    format: Callable[[Tensor], list[dict[str, Any]]]  # from what was computed of each row to the answer
    beam: int | None = None  # how many translations of a sentence are followed at a time


def make_request(
    model: Model,
    verb: Verb,
    texts: Sequence[Any],
    *,
    question: str = "",
    beam: int | None = None,
    strict: bool = False,
    numbers: Sequence[int] | None = None,
) -> Request:
    """Make a request of texts, which are called by these numbers, by default 1, 2, 3 and so on.

    Raises:
        InputError: The model does something else, or a text is empty, is none, or is too long and strict.
    """
    numbers = number_texts(texts, "candidates" if verb == "rank" else "texts", numbers)
    if verb == "encode":
        return request_vectors(model, texts, numbers, strict)
    model.require(verb)
    return request_items(model, list(model.kind.encode_items(model, texts, numbers, strict, question)), beam)


def request_items(model: Model, items: Sequence[Item], beam: int | None = None) -> Request:
    """Request answers of the model's kind."""
    return join_rows(model.kind.what, items, lambda values: model.kind.format(model, items, values), beam)


def request_vectors(model: Model, texts: Sequence[str], numbers: Sequence[int], strict: bool) -> Request:
    """Request a vector of each text, read by itself."""
    noun = model.kind.noun
    named = zip(numbers, texts, strict=True)
    items = [Item(n, (encode_text(model, f"{noun} {n}", text, strict),)) for n, text in named]

    def format_rows(values: Tensor) -> list[dict[str, Any]]:
        refuse_not_finite(values, noun, numbers)
        rows = zip(items, values.numpy(), strict=True)
        return [{"number": item.number, **item.given, "vector": v, **item.count_words()} for item, v in rows]

    return join_rows("vectors", items, format_rows)


def join_rows(
    what: str, items: Sequence[Item], format_values: Callable[[Tensor], Any], beam: int | None = None
) -> Request:
    """Request each different row once."""
    rows = [item.row for item in items]
    place = {row: at for at, row in enumerate(dict.fromkeys(rows))}
    index = [place[row] for row in rows]
    return Request(what, list(place), lambda values: format_values(values[index]), beam)


def number_texts(texts: Sequence[Any], name: str, numbers: Sequence[int] | None) -> Sequence[int]:
    """Number texts."""
    if isinstance(texts, str):  # it would be taken letter by letter
        raise InputError(f"{name}: expected a list of texts, got the text {texts[:40]!r}")
    if numbers is None:
        return range(1, len(texts) + 1)
    if len(numbers) != len(texts):
        raise InputError(f"numbers: expected one for each of {len(texts)} {name}, got {len(numbers)}")
    return numbers
