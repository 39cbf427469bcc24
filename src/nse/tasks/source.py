"""Where the rows of a task come from: a published data set, or a user's own files."""

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

VECTORS = re.compile(r"\.(npy|zip|txt|txt\.gz|txt\.xz)$")
"""How files of word vectors end."""

NamedSplit = tuple[PreparedData, str]
"""A data set, and the name of the split in it that a model is scored on."""


@dataclass
class DataSource:
    """The section `[data]` of a recipe, and what a task needs to know of such data."""

    name: str = ""
    """Name of the data set."""

    table: ClassVar[str]  # the name of the table that results go to
    inputs: ClassVar[tuple[str, ...]] = ()  # what a model reads, where its kind calls that otherwise

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """List the names by which a recipe picks this source."""
        return get_args(get_type_hints(cls)["name"]) or (cls.name,)

    def prepare(self, folder: Path | None) -> PreparedData:
        """Read every split as ids."""
        raise NotImplementedError

    def prepare_split(self, split: str | None, folder: Path | None, config: ModelConfig) -> NamedSplit:
        """Read a split, or the usual one, as ids of all words, which a model knows or not; and name it."""
        return self.prepare(folder), split or "test"

    def pick(self, rows: LabelledRows, columns: EncodedSplit) -> LabelledRows:
        """Pick the rows to train on."""
        return rows

    def describe(self, prepared: PreparedData, splits: Mapping[str, LabelledRows]) -> dict[str, Any]:
        """Tell what the data is, for the run's folder."""
        told, counts = prepared.information, {name: len(split.labels) for name, split in splits.items()}
        return {
            "name": prepared.name,
            "fingerprint": told.get("fingerprint") or f"{prepared.fingerprint}-{counts['train']}",
            "counts": counts,
            "published": {name: told["rows"][name]["published"] for name in splits},
            "vectors": told["vectors"],
            "coverage": told["coverage"],
        }


@dataclass
class PublishedData(DataSource):
    """A published data set, of the name in the catalogue."""

    vectors: str = "spacy.md.300d"
    """Name of the word vectors; `a+b` concatenates two. The paper's are glove.840B.300d."""

    def prepare(self, folder: Path | None) -> PreparedData:
        """Take the prepared data set from the data folder or the cache, or prepare it."""
        return load_or_prepare(self.name, self.vectors or None, folder)


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

    labels_known: ClassVar[tuple[str, ...]] = ()  # where they are not those of the training file
    numbers: ClassVar[Mapping[str, int]] = {}  # of labels as they are written, where these are others

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
        """Refuse what cannot be meant; paths become whole ones, so that the run finds its files again."""
        if not self.name.strip() or not self.name.isprintable() or self.name in (*DATA, logic.NAME):
            raise ValueError(f"name: expected a name that no published data set has, got {self.name!r}")
        if why := check_name(self.name):
            raise FieldsError({"name": why})
        if not 0 < self.dev_fraction < 1:
            raise ValueError(f"dev_fraction must be above 0 and below 1, got {self.dev_fraction}")
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")
        for key in SPLITS:
            setattr(self, key, complete_path(getattr(self, key)))
        if os.sep in self.vectors or VECTORS.search(self.vectors):
            self.vectors = complete_path(self.vectors)

    def prepare_split(self, split: str | None, folder: Path | None, config: ModelConfig) -> NamedSplit:
        """Read one split as the model does: by its tokenizer, every word, with its labels."""
        chosen = split or ("test" if self.test else "dev")
        there = [each for each in SPLITS if getattr(self, each) or each == "dev"]
        if chosen not in there:
            raise InputError(f"split: there is no {chosen!r}; there are {', '.join(there)}")
        self.tokenizer, self.vectors, self.min_count = config.tokenizer, "", 0
        return self.prepare(folder, (chosen,), tuple(config.labels) or self.labels_known), chosen

    def prepare(
        self, folder: Path | None, wanted: Sequence[str] = SPLITS, labels: tuple[str, ...] = ()
    ) -> PreparedData:
        """Read splits as ids; of those wanted that have no file, dev is held out of train."""
        rows, labels, notes = self.read_rows(wanted, labels)
        rows = {split: rows[split] for split in wanted if split in rows}
        files = {split: DataFile(Path(getattr(self, split) or self.train)) for split in rows}
        place, vectors = find_data_folder(folder) if self.vectors else Path(), self.vectors or None
        if os.sep in self.vectors:
            place, vectors = Path(self.vectors).parent, VECTORS.sub("", Path(self.vectors).name)
        translation = hasattr(self.columns, "target")
        entry = DataSet(labels, self.tokenizer, lambda _: files, lambda _: rows, translation=translation)
        prepared = prepare(self.name, vectors, place, entry, self.min_count if "train" in rows else 0)
        prepared.information["notes"] = notes
        return prepared

    def read_rows(
        self, wanted: Sequence[str], labels: tuple[str, ...]
    ) -> tuple[dict[str, Rows], tuple[str, ...], list[str]]:
        """Read the rows of splits, and of train where they need it; give also labels, and what to tell."""
        first = not labels or ("dev" in wanted and not self.dev)
        if not self.train and (first or "train" in wanted):
            raise InputError(f"{self.name}: there is no file to train on", ("train",))
        named = {role: column for role, column in vars(self.columns).items() if column}
        tables, rows = {}, {}
        for split in SPLITS:
            if (file := getattr(self, split)) and (split in wanted or (first and split == "train")):
                table = tables[split] = read_table(Path(file), named, partial(self.check_row, labels))
                found = list_labels(table) if "label" in named and not labels else ()
                labels = labels or self.labels_known or found
                rows[split] = make_rows(table, self.numbers or {name: n for n, name in enumerate(labels)})
        if self.dev or "train" not in rows:
            return rows, labels, []
        rows["train"], rows["dev"] = hold_out(tables["train"], rows["train"], self.dev_fraction)
        held = f"{rows['dev'].total:,} of the {rows['dev'].total + rows['train'].total:,} rows"
        note = f"dev is {held} of {Path(self.train).name}, held out of training"
        return rows, labels, [note]

    def check_row(self, labels: tuple[str, ...], row: dict[str, str]) -> None:
        """Refuse a label that train does not have."""
        if labels and row["label"] not in labels:
            shown = ", ".join(labels[:MAX_LISTED]) + (", ..." if len(labels) > MAX_LISTED else "")
            raise BadLineError(f"the label {row['label'][:40]!r} is not one that was trained on: {shown}")

    def describe(self, prepared: PreparedData, splits: Mapping[str, LabelledRows]) -> dict[str, Any]:
        """Tell also of its files; the fingerprint knows the labels' names too."""
        everything, told = super().describe(prepared, splits), prepared.information
        named = f"{everything['fingerprint']}{json.dumps(prepared.labels)}"
        everything |= {"fingerprint": hashlib.sha256(named.encode()).hexdigest()}
        everything |= {"files": told["sources"], "notes": told["notes"]}
        return everything | ({"labels": list(prepared.labels)} if hasattr(self.columns, "label") else {})


def complete_path(path: str) -> str:
    """Complete a path from the working directory, where it does not begin at the root."""
    if "\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        raise ValueError(f"expected a path in UTF-8 without NUL, got {path!r}")
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def list_assignments(data: Mapping[str, str | None], columns: str | None) -> list[str]:
    """List overrides of a recipe for values of `[data]`, and for columns as in `text=review,label=stars`."""
    texts = {f"data.{key}": value for key, value in data.items() if value is not None}
    for each in columns.split(",") if columns is not None else []:
        role, equals, column = each.partition("=")
        if not (equals and role.strip() and column.strip()):
            raise InputError(f"columns: expected ROLE=COLUMN, as in text=review,label=stars, got {each!r}")
        texts[f"data.columns.{role.strip()}"] = column.strip()
    # the escapes of JSON are TOML's
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in texts.items()]
