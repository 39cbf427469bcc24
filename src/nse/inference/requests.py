"""What is asked of a model: rows of ids to compute, and how an answer is made of what was computed.

Rows are computed by themselves, whatever the others are, so that requests of several people can be computed
together, and each gets its own answer or error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor

from nse.inference.inputs import Row

Verb = Literal["predict", "rank", "translate", "encode"]
Answers = list[dict[str, Any]]


class Request(NamedTuple):
    """A question to a model, which can take what is asked."""

    what: str  # to compute: "scores", "vectors" or "translations"
    rows: Sequence[Row]  # to compute it of, no two alike: in two batches they could differ in the last bit
    format: Callable[[Tensor], Answers]  # from what was computed of each row to the answer
    beam: int | None = None  # how many translations of a sentence are followed at a time
