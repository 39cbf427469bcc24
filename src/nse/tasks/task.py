"""What the training loop needs to know of a task: one `Task` at the end of each task's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from nse.text.batching import Pairs
from nse.text.vocabulary import Vocabulary


class Examples(NamedTuple):
    """The data of a task as tensors.

    Attributes:
        splits: By name: "train" to learn from, "dev" to choose by, every other one to report on, once.
        vocabulary: The words that the ids stand for.
    """

    splits: dict[str, Pairs]
    vocabulary: Vocabulary


@dataclass(frozen=True)
class Task:
    """A task, as the loop sees it.

    Attributes:
        recipe: The dataclass of its recipes, with fields `task`, `seed` and `train` (a `Training`).
        examples: From a recipe to the data.
        model: From a recipe and the data to a fresh model.
        scores: From a model and a batch to the scores of the labels [B, labels].
    """

    recipe: type[Any]
    examples: Callable[[Any], Examples]
    model: Callable[[Any, Examples], nn.Module]
    scores: Callable[[nn.Module, Pairs], Tensor]
