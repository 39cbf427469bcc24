"""Ranking of a user's own candidate answers: recipe `own/ranking`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import nn

from nse.data.readers.table import Table
from nse.data.readers.table_rows import ranked
from nse.data.readers.wikiqa import LABELS
from nse.data.splits import Rows
from nse.errors import DataError
from nse.inference.folder import ModelConfig
from nse.metrics import ranking
from nse.nn.pair import PairConfig
from nse.tasks import answers, own
from nse.tasks.published import labelled
from nse.tasks.task import Examples, Task
from nse.text.tensors import Labelled


@dataclass
class RankingColumns(own.Columns):
    """Which column of the files is what."""

    question: str = "question"
    """The question."""

    answer: str = "answer"
    """A candidate answer to it."""

    label: str = "label"
    """Whether it is right: 1, true or yes; or wrong: 0, false or no."""

    group: str = ""
    """What the rows of a question have in common; "" means the question itself."""


@dataclass
class RankingData(own.OwnData):
    """Which files, and how they are read."""

    columns: RankingColumns = field(default_factory=RankingColumns)
    """Which column is what."""

    answerable: bool = False
    """Train only on questions that have a right answer among their candidates."""

    def labels(self, train: Table) -> tuple[str, ...]:
        """Wrong and right."""
        own.OwnData.labels(self, train)  # refuses a file in which all are alike
        return LABELS

    def rows(self, table: Table, labels: Sequence[str]) -> Rows:
        """The rows of a file."""
        return ranked(table)


@dataclass
class RankingRecipe:
    """A run on a user's own questions and answers."""

    task: Literal["own-ranking"] = "own-ranking"
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: RankingData = field(default_factory=RankingData)
    """The data."""
    model: PairConfig = field(default_factory=PairConfig)
    """The model."""
    train: answers.WikiQATraining = field(default_factory=answers.WikiQATraining)
    """How it is trained."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        own.refuse_unlearned(self.data, self.model)


def examples(recipe: RankingRecipe, data: Path | None = None) -> Examples:
    """The files as tensors."""
    read = own.read_splits(recipe.data)
    prepared = own.prepared(recipe.data, read, data)
    splits = {
        split: labelled(columns, answers.COLUMNS, recipe.model) for split, columns in prepared.splits.items()
    }
    for split in splits.keys() - {"train"}:
        refuse_without_choice(recipe.data, split, splits[split])
    if recipe.data.answerable:
        splits["train"] = splits["train"].select(answers.with_right_answers(splits["train"]))
    about = own.told(prepared, splits, read.notes)
    return Examples(splits, prepared.vocabulary, about, own.vectors_of(recipe.model, prepared))


def refuse_without_choice(data: RankingData, split: str, rows: Labelled) -> None:
    """Refuse a split that no ranking can be judged by, before hours of training."""
    assert rows.groups is not None
    if ranking.questions(rows.groups.numpy(), rows.labels.numpy())["mixed"]:
        return
    file = getattr(data, split)
    where, hint = (file, "") if file else (f"{data.train}: what is held out for dev", "; give --dev FILE")
    raise DataError(f"{where}: no question has both a right and a wrong answer to tell apart{hint}")


def model(recipe: RankingRecipe, examples: Examples) -> nn.Module:
    """A model with one score to rank by."""
    return own.pair_model(recipe, examples, labels=1)


def folder(recipe: RankingRecipe) -> ModelConfig:
    """What a model folder says."""
    return ModelConfig(
        kind="ranking",
        task=recipe.task,
        labels=[answers.RIGHT],
        tokenizer=recipe.data.tokenizer,
        data=recipe.data.name,
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(
    RankingRecipe,
    examples,
    model,
    folder,
    answers.COLUMNS,
    paper={},
    loss=answers.loss,
    choose=answers.choose,
    figures=answers.figures,
    shown=answers.SHOWN,
)
