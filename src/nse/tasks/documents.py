"""Document sentiment (section 4.4 of the paper): how many stars does a review give?

The data sets are yelp13, imdb and aclimdb, with the recipes nse-nse, nse-lstm and lstm-lstm each: an NSE or
LSTM over the words of each sentence, and one over the sentences.
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
from nse.tasks.task import Examples, ResultColumn, Task, compute_accuracy


@dataclass
class ReviewData(PublishedData):
    """Published reviews."""

    table = "documents"
    name: Literal["yelp13", "imdb", "aclimdb"] = "aclimdb"
    """Name of the data set."""
    vectors: str = "glove.6B.100d"
    """Name of the word vectors; `a+b` concatenates two."""


def compute_metrics(recipe: Recipe, scores: Tensor, examples: Examples, split: str) -> dict[str, float]:
    """Compute the accuracy and the mean squared error, in stars."""
    error = mean_squared_error(scores, examples.splits[split].labels, examples.labels)
    return compute_accuracy(recipe, scores, examples, split) | {"mse": error}


def mean_squared_error(scores: Tensor, targets: Tensor, names: Sequence[str]) -> float:
    """Compute the mean squared error of scores [N, labels] for labels named by numbers; 0 if N is 0."""
    stars = torch.tensor([float(name) for name in names])
    errors = stars[scores.argmax(dim=-1)] - stars[targets]
    return float(errors.square().sum()) / max(len(targets), 1)


TASK = Task(
    kind=DOCUMENT,
    sources=(ReviewData,),
    compute_metrics=compute_metrics,
    columns=(
        ResultColumn("accuracy", "test", "test", scale=100, digits=1),
        ResultColumn("mse", "test", "MSE", digits=2, maximum=81),
        ResultColumn("accuracy", "dev", "dev", scale=100, digits=1),
        ResultColumn("mse", "dev", "dev MSE", digits=2, maximum=81),
        ResultColumn("accuracy", "train", "train", scale=100, digits=1),
    ),
    paper_results={
        "yelp13/nse-nse": {"accuracy": 0.666, "mse": 0.48},
        "yelp13/nse-lstm": {"accuracy": 0.670, "mse": 0.47},
        "imdb/nse-nse": {"accuracy": 0.483, "mse": 1.94},
        "imdb/nse-lstm": {"accuracy": 0.481, "mse": 1.98},
    },
    paper_vectors="glove.6B.100d",
)
