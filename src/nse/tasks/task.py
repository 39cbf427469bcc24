"""What the training loop needs to know of a task: one `Task` at the end of each task's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from nse.hub import ModelConfig
from nse.text.batching import Pairs
from nse.text.vocabulary import Vocabulary


class Examples(NamedTuple):
    """The data of a task as tensors.

    Attributes:
        splits: By name: "train" to learn from, "dev" to choose by, every other one to report on, once.
        vocabulary: The words that the ids stand for.
        about: What the data is: its name, counts, and a fingerprint by which a resumed run knows it again.
        vectors: [V, d], the vectors of the words, where they are given.
    """

    splits: dict[str, Pairs]
    vocabulary: Vocabulary
    about: dict[str, Any]
    vectors: Tensor | None = None


class GetExamples(Protocol):
    """How a task gets its data."""

    def __call__(self, recipe: Any, data: Path | None = None) -> Examples:
        """The data of a recipe; `data` is the folder of the published files, `None` the usual one."""
        ...


@dataclass(frozen=True)
class Task:
    """A task, as the loop sees it.

    Attributes:
        recipe: The dataclass of its recipes, with fields `task`, `seed` and `train` (a `Training`).
        examples: From a recipe, and the folder of the published data where it needs one, to the data.
        model: From a recipe and the data to a fresh model.
        scores: From a model and a batch to the scores of the labels [B, labels].
        folder: From a recipe to what a model folder says of the model, to be loaded without the recipe.
    """

    recipe: type[Any]
    examples: GetExamples
    model: Callable[[Any, Examples], nn.Module]
    scores: Callable[[nn.Module, Pairs], Tensor]
    folder: Callable[[Any], ModelConfig]
