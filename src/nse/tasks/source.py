"""Sources of data: published data sets and your own files. They are the `[data]` sections of recipes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_type_hints

from nse.config import check_name
from nse.data.cache import EncodedSplit, PreparedData
from nse.data.catalogue import DATA, DataSet
from nse.data.prepare import load_or_prepare, prepare
from nse.data.readers import logic
from nse.data.readers.table import MAX_LISTED, hold_out, list_labels, make_rows, read_table
from nse.data.records import BadLineError
from nse.data.sources import SPLITS, DataFile, Rows, find_data_folder
from nse.errors import FieldsError, InputError
from nse.inference.folder import ModelConfig
from nse.text.tensors import LabelledRows

VECTOR_FILE = re.compile(r"\.(npy|zip|txt|txt\.gz|txt\.xz)$")

NamedSplit = tuple[PreparedData, str]
"""Data set, and the name of its split to score a model on."""


@dataclass
class DataSource:
    """Base class of the `[data]` sections."""

    name: str = ""
    """Name of the data set."""

    table: ClassVar[str]  # name of the table of results
    inputs: ClassVar[tuple[str, ...]] = ()  # names of the texts, if not those of the kind of model

    @classmethod
    def list_names(cls) -> tuple[str, ...]:
        """List the values of `data.name` that select this source."""
        return get_args(get_type_hints(cls)["name"]) or (cls.name,)

    def prepare(self, folder: Path | None) -> PreparedData:
        """Load all splits as word ids."""
        raise NotImplementedError

    def prepare_split(self, split: str | None, folder: Path | None, config: ModelConfig) -> NamedSplit:
        """Load a split, by default the test set, with all of its words to score a model of `config`."""
        return self.prepare(folder), split or "test"

    def select_rows(self, rows: LabelledRows, split: EncodedSplit) -> LabelledRows:
        """Select the rows to train on."""
        return rows

    def describe(self, prepared: PreparedData, splits: Mapping[str, LabelledRows]) -> dict[str, Any]:
        """Describe the data for data.json in the run folder."""
        about, counts = prepared.information, {name: len(split.labels) for name, split in splits.items()}
        return {
            "name": prepared.name,
            "fingerprint": about.get("fingerprint") or f"{prepared.fingerprint}-{counts['train']}",
            "counts": counts,
            "published": {name: about["rows"][name]["published"] for name in splits},
            "vectors": about["vectors"],
            "coverage": about["coverage"],
        }


@dataclass
class PublishedData(DataSource):
    """Published data set of the catalogue, by its name there."""

    vectors: str = "spacy.md.300d"
    """Name of the word vectors; `a+b` concatenates two. The paper's are glove.840B.300d."""

    def prepare(self, folder: Path | None) -> PreparedData:
        """Load the data set from the data folder or the cache, or prepare it."""
        return load_or_prepare(self.name, self.vectors or None, folder)


@dataclass
class ColumnNames:
    """Base class of the names of columns in your own files."""

    def __post_init__(self) -> None:
        """Raise ValueError if a name is empty or used twice."""
        names = [column for role, column in vars(self).items() if column or role != "group"]
        if "" in names or len(set(names)) != len(names):
            raise ValueError(f"expected a different column for each role, got {', '.join(map(repr, names))}")


@dataclass
class OwnFiles(DataSource):
    """Your own files."""

    fixed_labels: ClassVar[tuple[str, ...]] = ()  # labels that do not depend on the training file
    label_ids: ClassVar[Mapping[str, int]] = {}  # ids of labels as written in the files, if not their order

    name: str = "own"
    """Name of the data in results and on the model card."""
    train: str = ""
    """Training file: .jsonl, .tsv or .csv, also compressed (.gz, .xz, .bz2)."""
    dev: str = ""
    """Dev file; "" holds out `dev_fraction` of the training rows."""
    test: str = ""
    """Test file; "" for none."""
    dev_fraction: float = 0.1
    """Fraction of the training rows held out as the dev set if there is no dev file."""
    columns: ColumnNames = field(default_factory=ColumnNames)
    """Names of the columns."""
    tokenizer: Literal["paper", "lower", "treebank", "informal", "whitespace", "moses", "moses-en"] = (
        "treebank"
    )
    """Tokenizer of the texts."""
    vectors: str = ""
    """Name or file of pretrained word vectors; "" learns them from the training file."""
    min_count: int = 1
    """Without pretrained vectors, words that occur less often in the training file are unknown."""

    def __post_init__(self) -> None:
        """Check the values and make paths absolute, so that a resumed run finds its files."""
        if not self.name.strip() or not self.name.isprintable() or self.name in (*DATA, logic.NAME):
            raise ValueError(f"name: expected a name that no published data set has, got {self.name!r}")
        if why := check_name(self.name):
            raise FieldsError({"name": why})
        if not 0 < self.dev_fraction < 1:
            raise ValueError(f"dev_fraction must be above 0 and below 1, got {self.dev_fraction}")
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")
        for key in SPLITS:
            setattr(self, key, make_absolute(getattr(self, key)))
        if os.sep in self.vectors or VECTOR_FILE.search(self.vectors):
            self.vectors = make_absolute(self.vectors)

    def prepare_split(self, split: str | None, folder: Path | None, config: ModelConfig) -> NamedSplit:
        """Load a split, by default test or else dev, with the model's tokenizer and labels."""
        split = split or ("test" if self.test else "dev")
        available = [name for name in SPLITS if getattr(self, name) or name == "dev"]
        if split not in available:
            raise InputError(f"split: there is no {split!r}; there are {', '.join(available)}")
        self.tokenizer, self.vectors, self.min_count = config.tokenizer, "", 0
        return self.prepare(folder, (split,), tuple(config.labels) or self.fixed_labels), split

    def prepare(
        self, folder: Path | None, splits: Sequence[str] = SPLITS, labels: tuple[str, ...] = ()
    ) -> PreparedData:
        """Load splits as word ids; without a dev file, dev is held out of the training rows."""
        rows, labels, notes = self.read_rows(splits, labels)
        rows = {split: rows[split] for split in splits if split in rows}
        files = {split: DataFile(Path(getattr(self, split) or self.train)) for split in rows}
        folder, vectors = find_data_folder(folder) if self.vectors else Path(), self.vectors or None
        if os.sep in self.vectors:
            folder, vectors = Path(self.vectors).parent, VECTOR_FILE.sub("", Path(self.vectors).name)
        translation = hasattr(self.columns, "target")
        entry = DataSet(labels, self.tokenizer, lambda _: files, lambda _: rows, translation=translation)
        prepared = prepare(self.name, vectors, folder, entry, self.min_count if "train" in rows else 0)
        prepared.information["notes"] = notes
        return prepared

    def read_rows(
        self, splits: Sequence[str], labels: tuple[str, ...]
    ) -> tuple[dict[str, Rows], tuple[str, ...], list[str]]:
        """Read the rows of splits and, if labels or dev depend on it, of train.

        Returns:
            The rows by split, the labels, and notes for the log.
        """
        needs_train = not labels or ("dev" in splits and not self.dev)
        if not self.train and (needs_train or "train" in splits):
            raise InputError(f"{self.name}: there is no file to train on", ("train",))
        columns = {role: column for role, column in vars(self.columns).items() if column}
        tables, rows = {}, {}
        for split in SPLITS:
            if (file := getattr(self, split)) and (split in splits or (needs_train and split == "train")):
                table = tables[split] = read_table(Path(file), columns, partial(self.check_row, labels))
                in_table = list_labels(table) if "label" in columns and not labels else ()
                labels = labels or self.fixed_labels or in_table
                rows[split] = make_rows(table, self.label_ids or {name: n for n, name in enumerate(labels)})
        if self.dev or "train" not in rows:
            return rows, labels, []
        rows["train"], rows["dev"] = hold_out(tables["train"], rows["train"], self.dev_fraction)
        count = f"{rows['dev'].total:,} of the {rows['dev'].total + rows['train'].total:,} rows"
        note = f"dev is {count} of {Path(self.train).name}, held out of training"
        return rows, labels, [note]

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Raise BadLineError if the label does not occur in the training rows."""
        if labels and row["label"] not in labels:
            names = ", ".join(labels[:MAX_LISTED]) + (", ..." if len(labels) > MAX_LISTED else "")
            raise BadLineError(f"the label {row['label'][:40]!r} is not one that was trained on: {names}")

    def describe(self, prepared: PreparedData, splits: Mapping[str, LabelledRows]) -> dict[str, Any]:
        """Describe the data and its files; the fingerprint depends on the names of the labels too."""
        about, information = super().describe(prepared, splits), prepared.information
        content = f"{about['fingerprint']}{json.dumps(prepared.labels)}"
        about |= {"fingerprint": hashlib.sha256(content.encode()).hexdigest()}
        about |= {"files": information["sources"], "notes": information["notes"]}
        return about | ({"labels": list(prepared.labels)} if hasattr(self.columns, "label") else {})


def make_absolute(path: str) -> str:
    """Make a path absolute, with ~ expanded; "" stays."""
    if "\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        raise ValueError(f"expected a path in UTF-8 without NUL, got {path!r}")
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def list_assignments(data: Mapping[str, str | None], columns: str | None) -> list[str]:
    """List recipe overrides for keys of `[data]` and for columns such as `text=review,label=stars`."""
    texts = {f"data.{key}": value for key, value in data.items() if value is not None}
    for part in columns.split(",") if columns is not None else []:
        role, equals, column = part.partition("=")
        if not (equals and role.strip() and column.strip()):
            raise InputError(f"columns: expected ROLE=COLUMN, as in text=review,label=stars, got {part!r}")
        texts[f"data.columns.{role.strip()}"] = column.strip()
    # the escapes of JSON are TOML's
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in texts.items()]
