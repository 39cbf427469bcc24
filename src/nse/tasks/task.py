"""What the training loop needs to know of a task: one `Task` at the end of each task's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from nse.inference.folder import ModelConfig
from nse.ops.dispatch import choose
from nse.text.tensors import Labelled
from nse.text.vocabulary import TargetVocabulary, Vocabulary


class Examples(NamedTuple):
    """The data of a task as tensors.

    Attributes:
        splits: By name: "train" to learn from, "dev" to choose by, every other one to report on, once.
        vocabulary: The words that the ids stand for.
        about: What the data is: its name, counts, and a fingerprint by which a resumed run knows it again.
        vectors: [V, d], the vectors of the words, where they are given.
        target: The words of translations, where there are some.
        pairs: By split, the words of each source sentence and of its translation, with a space between.
    """

    splits: dict[str, Labelled]
    vocabulary: Vocabulary
    about: dict[str, Any]
    vectors: Tensor | None = None
    target: TargetVocabulary | None = None
    pairs: dict[str, list[tuple[str, str]]] | None = None


class GetExamples(Protocol):
    """How a task gets its data."""

    def __call__(self, recipe: Any, data: Path | None = None) -> Examples:
        """The data of a recipe; `data` is the folder of the published files, `None` the usual one."""
        ...


Judged = tuple[Tensor, Tensor]
"""A loss, and how many rows are right."""


def judged(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> Judged:
    """The cross-entropy of scores [B, labels], and how many of them are highest at the right label."""
    if scores.is_cuda and choose("auto", scores.device) == "triton":
        from nse.ops.triton import cross_entropy as triton_judge  # only machines with a GPU have triton

        if triton_judge.covered(scores, labels):
            loss, right, _ = triton_judge.judged(scores, labels, smoothing)
            return loss, right
    loss = F.cross_entropy(scores, labels, label_smoothing=smoothing)
    return loss, (scores.detach().argmax(dim=-1) == labels).sum()


def cross_entropy(recipe: Any, scores: Tensor, batch: Labelled) -> Judged:
    """The loss where one of several labels is right."""
    return judged(scores, batch.labels, recipe.train.smoothing)


def scores_of(recipe: Any, model: nn.Module, batch: Labelled) -> Tensor:
    """What a model says of rows: scores [B, labels]."""
    scores: Tensor = model(*batch.inputs)
    return scores.float()


def accuracy(recipe: Any, scores: Tensor, examples: Examples, split: str) -> float:
    """The part of a split's rows whose highest score [N, labels] is at the right label."""
    labels = examples.splits[split].labels
    right = int((scores.argmax(dim=-1) == labels).sum())
    return right / max(len(labels), 1)


def accuracy_alone(recipe: Any, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Accuracy is all there is to report."""
    return {"accuracy": accuracy(recipe, scores, examples, split)}


class Figure(NamedTuple):
    """A column of a task's table: a measure of a split, how it is written, and the most it can be."""

    measure: str
    split: str
    heading: str
    scale: int = 1
    digits: int = 3
    most: float = 1.0


ACCURACY = tuple(Figure("accuracy", split, split, scale=100, digits=1) for split in ("test", "dev", "train"))
"""In percent."""


@dataclass(frozen=True)
class Task:
    """A task, as the loop sees it.

    Attributes:
        recipe: The dataclass of its recipes, with fields `task`, `seed` and `train` (a `Training`).
        examples: From a recipe, and the folder of the published data where it needs one, to the data.
        model: From a recipe and the data to a fresh model.
        folder: From a recipe to what a model folder says of the model, to be loaded without the recipe.
        columns: The columns of a prepared data set, in the order in which a model takes them.
        paper: The paper's test figures by recipe and measure, in the order of its table.
        loss: From a recipe, scores [B, labels] and their rows to the loss, and how many rows are right.
        choose: From a recipe, the answers to a split, the data and the split's name to the figure that an
            epoch is chosen by on dev.
        figures: Likewise to what is reported of the split, by measure.
        shown: The columns of its table; the first is of the measure that `choose` looks at.
        answers: From a recipe, a model and rows to the model's answers [B, n]: by default its scores.
        vectors: The word vectors that the paper's figures were made with.
    """

    recipe: type[Any]
    examples: GetExamples
    model: Callable[[Any, Examples], nn.Module]
    folder: Callable[[Any], ModelConfig]
    columns: tuple[str, ...]
    paper: dict[str, dict[str, float]]
    loss: Callable[[Any, Tensor, Labelled], Judged] = cross_entropy
    choose: Callable[[Any, Tensor, Examples, str], float] = accuracy
    figures: Callable[[Any, Tensor, Examples, str], dict[str, float]] = accuracy_alone
    shown: tuple[Figure, ...] = ACCURACY
    answers: Callable[[Any, nn.Module, Labelled], Tensor] = scores_of
    vectors: str = "glove.840B.300d"
