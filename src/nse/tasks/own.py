"""A user's own data: what its four tasks share, which are told apart by the columns of the files.

`own_labels` gives labels to pairs or sentences, `own_ranking` ranks answers, `own_translation` translates.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from nse.config import check_name
from nse.data.cache import Prepared
from nse.data.catalogue import DATA, DataSet
from nse.data.folders import data_folder
from nse.data.prepare import prepare
from nse.data.readers.table import Table, read
from nse.data.readers.table_rows import held_out, labelled, labels_of
from nse.data.sources import DataFile
from nse.data.splits import Rows
from nse.errors import DataError, FieldsError, InputError
from nse.nn.pair import PairClassifier
from nse.nn.text_model import TextConfig, TextModel
from nse.tasks.answers import rarity
from nse.tasks.published import about, give_vectors, vectors_for
from nse.tasks.task import Examples
from nse.text.tensors import Labelled
from nse.text.vocabulary import Vocabulary

SPLITS = ("train", "dev", "test")

MARKS = ("label", "group")
"""Columns that are no texts."""

_ENDING = re.compile(r"\.(npy|zip|txt|txt\.gz|txt\.xz)$")


@dataclass
class Columns:
    """Which column of the files is what."""

    def __post_init__(self) -> None:
        """Refuse columns without a name, and one that would be two things."""
        named = [column for role, column in vars(self).items() if column or role != "group"]
        if "" in named or len(set(named)) != len(named):
            raise ValueError(f"expected a column of its own for each, got {', '.join(map(repr, named))}")


@dataclass
class OwnData:
    """Which files, and how they are read."""

    name: str = "own"
    """What the data is called, in figures and on the model's card."""

    train: str = ""
    """The file to train on: .jsonl, .tsv or .csv, perhaps with .gz, .xz or .bz2 after it."""

    dev: str = ""
    """The file to choose the best epoch by; "" holds a share of the training rows out instead."""

    test: str = ""
    """The file to report on at the end; "" for none."""

    share: float = 0.1
    """How much of the training file is held out where there is no dev file."""

    columns: Columns = field(default_factory=Columns)
    """Which column is what."""

    tokenizer: Literal["paper", "lower", "treebank", "informal", "whitespace", "moses", "moses-en"] = (
        "treebank"
    )
    """How a text becomes words."""

    vectors: str = ""
    """Word vectors by name, or by the path of a file of them; "" learns them from the training file."""

    least: int = 1
    """Without vectors, words that occur less often in the training file are unknown."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; paths become whole ones, so that the run finds its files again."""
        if not self.name.strip() or not self.name.isprintable() or self.name in (*DATA, "logic"):
            raise ValueError(f"name: expected a name that no published data set has, got {self.name!r}")
        if why := check_name(self.name):
            raise FieldsError({"name": why})
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, got {self.share}")
        if self.least < 1:
            raise ValueError(f"least must be at least 1, got {self.least}")
        for key in SPLITS:
            setattr(self, key, whole_path(getattr(self, key)))
        if os.sep in self.vectors or _ENDING.search(self.vectors):
            self.vectors = whole_path(self.vectors)

    def labels(self, train: Table) -> tuple[str, ...]:
        """The labels, in the order of their numbers."""
        return labels_of(train)

    def rows(self, table: Table, labels: Sequence[str]) -> Rows:
        """The rows of a file."""
        return labelled(table, labels)


def whole_path(path: str) -> str:
    """A path from the root of the file system, from the working directory where it is not one yet."""
    if "\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        raise ValueError(f"expected a path in UTF-8 without NUL, got {path!r}")
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def refuse_unlearned(data: OwnData, model: TextConfig) -> None:
    """Refuse vectors that are neither given nor learned."""
    if not data.vectors and not model.trained:
        raise ValueError('vectors = "" needs model.trained = true: nobody else gives the words vectors')


def assignments(data: Mapping[str, str | None], columns: str | None) -> list[str]:
    """What to `--set` for values of `[data]`, and for columns as in `text=review,label=stars`."""
    found = [f"data.{key}={_quoted(value)}" for key, value in data.items() if value is not None]
    for each in columns.split(",") if columns is not None else []:
        role, equals, column = each.partition("=")
        if not (equals and role.strip() and column.strip()):
            raise InputError(f"--columns: expected ROLE=COLUMN, as in text=review,label=stars, got {each!r}")
        found.append(f"data.columns.{role.strip()}={_quoted(column.strip())}")
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML escapes alike


class Splits(NamedTuple):
    """The rows of files, what their labels are called, and what to tell of them."""

    rows: dict[str, Rows]
    labels: tuple[str, ...]
    notes: list[str]


def read_splits(
    data: OwnData, wanted: Sequence[str] = SPLITS, labels: tuple[str, ...] | None = None
) -> Splits:
    """The rows of splits; of those wanted that have no file, dev is held out of train.

    Args:
        data: Files and columns.
        wanted: Which splits.
        labels: What they are called; `None` means as in the training file.
    """
    holding = not data.dev and "dev" in wanted
    needed = dict.fromkeys([*wanted, *(["train"] if holding or labels is None else [])])
    if "train" in needed and not data.train:
        raise InputError(f"{data.name}: there is no file to train on: name it with --train FILE")
    tables = {split: _table(data, file) for split in needed if (file := getattr(data, split))}
    labels = data.labels(tables["train"]) if labels is None else labels
    rows = {split: data.rows(table, labels) for split, table in tables.items()}
    notes = []
    if not data.dev and "train" in rows:
        train, dev = held_out(tables["train"], rows["train"], data.share)
        notes.append(
            f"dev is {dev.read:,} of the {dev.read + train.read:,} rows of {Path(data.train).name}, held out "
            "of training; --dev FILE names others"
        )
        rows |= {"train": train, "dev": dev}
    return Splits({split: rows[split] for split in wanted if split in rows}, labels, notes)


def _table(data: OwnData, file: str) -> Table:
    named = {role: column for role, column in vars(data.columns).items() if column}
    marks = {role: column for role, column in named.items() if role in MARKS}
    return read(Path(file), {role: named[role] for role in named if role not in marks}, marks)


def prepared(
    data: OwnData, splits: Splits, folder: Path | None = None, translation: bool = False
) -> Prepared:
    """Rows as ids, with the vectors of their words.

    Args:
        data: How they are read.
        splits: The rows.
        folder: The data folder, where vectors are given by name.
        translation: Whether a column is a translation of another.
    """
    files = {split: DataFile(Path(getattr(data, split) or data.train)) for split in splits.rows}
    entry = DataSet(
        about="your own",
        published={split: rows.read for split, rows in splits.rows.items()},
        labels=splits.labels,
        tokenizer=data.tokenizer,
        sources=lambda _: files,
        read=lambda _: splits.rows,
        translation=translation,
    )
    place, vectors = _vectors(data.vectors, folder)
    least = data.least if "train" in splits.rows else 0
    return prepare(data.name, vectors, place, entry, least)


def _vectors(vectors: str, folder: Path | None) -> tuple[Path, str | None]:
    """The folder in which vectors are looked for, and their name."""
    if not vectors:
        return Path(), None
    if os.sep not in vectors:
        return data_folder(folder), vectors
    return Path(vectors).parent, _ENDING.sub("", Path(vectors).name)


def told(found: Prepared, splits: dict[str, Labelled], notes: list[str]) -> dict[str, Any]:
    """What the data is, for the run's folder: also its files; the fingerprint knows the labels' names too."""
    if not len(splits["train"].labels):
        raise DataError(f"{found.name}: no row is left to train on")
    everything = about(found, splits)
    named = f"{everything['fingerprint']}{json.dumps(found.labels)}"
    fingerprint = hashlib.sha256(named.encode()).hexdigest()
    return everything | {
        "fingerprint": fingerprint,
        "files": found.information["sources"],
        "notes": notes,
    }


def vectors_of(model: TextConfig, found: Prepared) -> Tensor | None:
    """The vectors of the words, where they are given."""
    return None if found.vectors is None else vectors_for(model, found)


def give_words(made: TextModel, examples: Examples) -> None:
    """Give a model the vectors of its words; those that are learned start at random, the unknown at zero."""
    if examples.vectors is not None:
        give_vectors(made, examples)
        return
    with torch.no_grad():
        made.embedding.weight[Vocabulary.UNKNOWN] = 0  # as where vectors are given


def pair_model(recipe: Any, examples: Examples, labels: int) -> PairClassifier:
    """A model of pairs, which knows how rare words are where it counts them."""
    made = PairClassifier(recipe.model, len(examples.vocabulary), labels)
    give_words(made, examples)
    if recipe.model.counts:
        made.rarity.copy_(rarity(examples.splits["train"].texts[0], len(examples.vocabulary)))
    return made
