"""Where the rows of a task come from: a published data set, or a user's own files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_type_hints

from nse.config import check_name
from nse.data.cache import Columns, Prepared
from nse.data.catalogue import DATA, DataSet
from nse.data.folders import data_folder
from nse.data.prepare import obtain, prepare
from nse.data.readers.table import Table, find_labels, hold_out, read_labelled, read_table
from nse.data.sources import DataFile
from nse.data.splits import Rows
from nse.errors import FieldsError, InputError
from nse.inference.folder import ModelConfig
from nse.text.tensors import Labelled

SPLITS = ("train", "dev", "test")

MARKS = ("label", "group")
"""Columns that are no texts."""

VECTORS = re.compile(r"\.(npy|zip|txt|txt\.gz|txt\.xz)$")
"""How files of word vectors end."""


@dataclass
class DataSource:
    """The section `[data]` of a recipe, and what a task needs to know of such data."""

    name: str = ""
    """The data set."""

    table: ClassVar[str]
    """The table that results on it go to, by which `nse table` knows it."""

    inputs: ClassVar[tuple[str, ...]] = ()
    """The columns that a model reads, where they are called otherwise than its kind calls them."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """List the names by which a recipe picks this source."""
        return get_args(get_type_hints(cls)["name"]) or (cls.name,)

    def prepare(self, folder: Path | None) -> Prepared:
        """Read every split as ids."""
        raise NotImplementedError

    def usual_split(self) -> str:
        """Name the split to score a model on."""
        return "test"

    def prepare_split(self, split: str, folder: Path | None, config: ModelConfig) -> Prepared:
        """Read a split, perhaps with others, as ids of all words, which a model knows or not."""
        return self.prepare(folder)

    def pick(self, rows: Labelled, columns: Columns) -> Labelled:
        """Pick the rows to train on."""
        return rows

    def place(self, split: str) -> tuple[str, str]:
        """Say where a split stands, and what to do where it does not fit."""
        return f"{self.name}: {split}", ""

    def describe(self, prepared: Prepared, splits: Mapping[str, Labelled]) -> dict[str, Any]:
        """Tell what the data is, for the run's folder."""
        rows = prepared.information["rows"]
        return {
            "name": prepared.name,
            "fingerprint": f"{prepared.fingerprint}-{len(splits['train'].labels)}",
            "counts": {name: len(split.labels) for name, split in splits.items()},
            "published": {name: rows[name]["published"] for name in splits},
            "vectors": prepared.information["vectors"],
            "coverage": prepared.information["coverage"],
        }


@dataclass
class PublishedData(DataSource):
    """A published data set, of the name in the catalogue."""

    vectors: str = "spacy.md.300d"
    """Word vectors by name, such as glove.840B.300d, the paper's; two joined by + are put side by side."""

    def prepare(self, folder: Path | None) -> Prepared:
        """Take the prepared data set from the data folder or the cache, or prepare it."""
        return obtain(self.name, self.vectors or None, folder)


@dataclass
class ColumnNames:
    """Which column of the files is what."""

    def __post_init__(self) -> None:
        """Refuse columns without a name, and one that would be two things."""
        named = [column for role, column in vars(self).items() if column or role != "group"]
        if "" in named or len(set(named)) != len(named):
            raise ValueError(f"expected a column of its own for each, got {', '.join(map(repr, named))}")


@dataclass
class OwnFiles(DataSource):
    """A user's own files."""

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

    columns: ColumnNames = field(default_factory=ColumnNames)
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
            setattr(self, key, complete_path(getattr(self, key)))
        if os.sep in self.vectors or VECTORS.search(self.vectors):
            self.vectors = complete_path(self.vectors)

    def prepare(self, folder: Path | None) -> Prepared:
        """Read the files as ids; without a dev file, dev is held out of train."""
        return self.read(SPLITS, folder)

    def usual_split(self) -> str:
        """Name the split to score a model on: dev where there is no test file."""
        return "test" if self.test else "dev"

    def prepare_split(self, split: str, folder: Path | None, config: ModelConfig) -> Prepared:
        """Read one split as the model does: by its tokenizer, every word, with its labels."""
        there = [each for each in SPLITS if getattr(self, each) or each == "dev"]
        if split not in there:
            raise InputError(f"split: there is no {split!r}; there are {', '.join(there)}")
        self.tokenizer, self.vectors, self.least = config.tokenizer, "", 0
        return self.read((split,), folder, tuple(config.labels))

    def read(
        self, wanted: Sequence[str], folder: Path | None, labels: tuple[str, ...] | None = None
    ) -> Prepared:
        """Read splits as ids; of those wanted that have no file, dev is held out of train."""
        holding = not self.dev and "dev" in wanted
        needed = dict.fromkeys([*wanted, *(["train"] if holding or labels is None else [])])
        if "train" in needed and not self.train:
            raise InputError(f"{self.name}: there is no file to train on: name it with --train FILE")
        tables = {split: self.read_file(file) for split in needed if (file := getattr(self, split))}
        labels = self.find_labels(tables["train"]) if labels is None else labels
        rows, notes = {split: self.make_rows(table, labels) for split, table in tables.items()}, []
        if not self.dev and "train" in rows:
            rows["train"], rows["dev"] = hold_out(tables["train"], rows["train"], self.share)
            held, file = rows["dev"].read, Path(self.train).name
            notes = [
                f"dev is {held:,} of the {held + rows['train'].read:,} rows of {file}, held out of training; "
                "--dev FILE names others"
            ]
        rows = {split: rows[split] for split in wanted if split in rows}
        prepared = self.encode(rows, labels, folder)
        prepared.information["notes"] = notes
        return prepared

    def read_file(self, file: str) -> Table:
        """Read the columns of a file."""
        named = {role: column for role, column in vars(self.columns).items() if column}
        marks = {role: named.pop(role) for role in MARKS if role in named}
        return read_table(Path(file), named, marks)

    def find_labels(self, train: Table) -> tuple[str, ...]:
        """List the labels, in the order of their numbers."""
        return find_labels(train)

    def make_rows(self, table: Table, labels: Sequence[str]) -> Rows:
        """Make the rows of a file."""
        return read_labelled(table, labels)

    def encode(self, rows: Mapping[str, Rows], labels: tuple[str, ...], folder: Path | None) -> Prepared:
        """Turn rows into ids, with the vectors of their words."""
        files = {split: DataFile(Path(getattr(self, split) or self.train)) for split in rows}
        entry = DataSet(
            about="your own",
            published={split: each.read for split, each in rows.items()},
            labels=labels,
            tokenizer=self.tokenizer,
            sources=lambda _: files,
            read=lambda _: rows,
            translation=any("target" in each.texts for each in rows.values()),
        )
        place, vectors = data_folder(folder) if self.vectors else Path(), self.vectors or None
        if os.sep in self.vectors:
            place, vectors = Path(self.vectors).parent, VECTORS.sub("", Path(self.vectors).name)
        least = self.least if "train" in rows else 0
        return prepare(self.name, vectors, place, entry, least)

    def place(self, split: str) -> tuple[str, str]:
        """Say where a split stands, and what to do where it does not fit."""
        file, held = getattr(self, split), f"{self.train}: what is held out for dev"
        return (file, "") if file else (held, "; give --dev FILE")

    def describe(self, prepared: Prepared, splits: Mapping[str, Labelled]) -> dict[str, Any]:
        """Tell also of its files; the fingerprint knows the labels' names too."""
        everything = super().describe(prepared, splits)
        named = f"{everything['fingerprint']}{json.dumps(prepared.labels)}"
        return everything | {
            "fingerprint": hashlib.sha256(named.encode()).hexdigest(),
            "files": prepared.information["sources"],
            "notes": prepared.information["notes"],
            **({"labels": list(prepared.labels)} if "label" in vars(self.columns) else {}),
        }


def complete_path(path: str) -> str:
    """Complete a path from the working directory, where it does not begin at the root."""
    if "\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        raise ValueError(f"expected a path in UTF-8 without NUL, got {path!r}")
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def list_assignments(data: Mapping[str, str | None], columns: str | None) -> list[str]:
    """List what to `--set` for values of `[data]`, and for columns as in `text=review,label=stars`."""
    texts = {f"data.{key}": value for key, value in data.items() if value is not None}
    for each in columns.split(",") if columns is not None else []:
        role, equals, column = each.partition("=")
        if not (equals and role.strip() and column.strip()):
            raise InputError(f"--columns: expected ROLE=COLUMN, as in text=review,label=stars, got {each!r}")
        texts[f"data.columns.{role.strip()}"] = column.strip()
    # the escapes of JSON are TOML's
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in texts.items()]
