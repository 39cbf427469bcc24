"""Document sentiment (section 4.4 of the paper): how many stars does a review give?

Recipes NAME/nse-nse, NAME/nse-lstm and NAME/lstm-lstm of the data sets yelp13, imdb and aclimdb: an NSE, or
the baseline's LSTM, over the words of each sentence, and an NSE or LSTM over the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nse.inference.kinds import DOCUMENT
from nse.tasks.recipe import Recipe
from nse.tasks.source import PublishedData
from nse.tasks.task import Examples, Figure, Task, accuracy


@dataclass
class ReviewData(PublishedData):
    """Reviews."""

    table = "documents"
    name: Literal["yelp13", "imdb", "aclimdb"] = "aclimdb"
    """Name of the data set."""
    vectors: str = "glove.6B.100d"
    """Name of the word vectors; `a+b` concatenates two."""


def figures(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute the accuracy, and the mean squared error of the predicted class, in stars."""
    error = squared_error(scores, examples.splits[split].labels, examples.labels)
    return accuracy(recipe, scores, examples, split) | {"mse": error}


def squared_error(scores: Tensor, right: Tensor, labels: Sequence[str]) -> float:
    """Compute the mean squared error of the labels with the highest scores [N, labels]; of none, 0."""
    stars = torch.tensor([float(label) for label in labels])
    wrong = stars[scores.argmax(dim=-1)] - stars[right]
    return float(wrong.square().sum()) / max(len(right), 1)


TASK = Task(
    kind=DOCUMENT,
    sources=(ReviewData,),
    figures=figures,
    shown=(
        Figure("accuracy", "test", "test", scale=100, digits=1),
        Figure("mse", "test", "MSE", digits=2, most=81),
        Figure("accuracy", "dev", "dev", scale=100, digits=1),
        Figure("mse", "dev", "dev MSE", digits=2, most=81),
        Figure("accuracy", "train", "train", scale=100, digits=1),
    ),
    paper={
        "yelp13/nse-nse": {"accuracy": 0.666, "mse": 0.48},
        "yelp13/nse-lstm": {"accuracy": 0.670, "mse": 0.47},
        "imdb/nse-nse": {"accuracy": 0.483, "mse": 1.94},
        "imdb/nse-lstm": {"accuracy": 0.481, "mse": 1.98},
    },
    vectors="glove.6B.100d",
)
