"""A data set as ids in one safetensors file: what training reads.

The tensors are `vocabulary` (the words, each followed by a line feed, in UTF-8), `vectors` [V, d] in float16
where there are some, and for each split SPLIT.labels [N], SPLIT.COLUMN.lengths [N] and SPLIT.COLUMN.ids, the
ids of all texts one after the other; for a ranking also SPLIT.groups [N]. Of documents the lengths are those
of all sentences, and SPLIT.COLUMN.counts [N] tells how many each document has. Of translations `target` holds
the words of the translations, whose ids are of their own; and the words that have vectors come first, so that
`vectors` has a row for those alone. Everything else is one JSON text in the metadata. The same sources give
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from nse.errors import DataError
from nse.files import write_bytes
from nse.text.vocabulary import TargetVocabulary, Vocabulary

FORMAT = 1
KEY = "nse"  # one key alone: safetensors writes several in any order
AGAIN = "remove it, and make it again with `nse data prepare`"

TARGET = "target"
"""The column of translations."""

Ints = NDArray[np.int32]


class Column(NamedTuple):
    """One text of each row, as ids.

    Attributes:
        ids: Of all texts, one after the other.
        lengths: [N], how many of them belong to each row; of documents, to each sentence.
        counts: [N], how many sentences a document has; None where texts are not made of sentences.
    """

    ids: Ints
    lengths: Ints
    counts: Ints | None = None

    @property
    def rows(self) -> int:
        """N."""
        return len(self.lengths if self.counts is None else self.counts)


class Columns(NamedTuple):
    """One split.

    Attributes:
        texts: The columns by name, such as premise and hypothesis.
        labels: [N].
        groups: [N], for a ranking: which question each row belongs to, from 0; None where rows stand alone.
    """

    texts: dict[str, Column]
    labels: Ints
    groups: Ints | None = None


@dataclass(frozen=True)
class Prepared:
    """A data set as ids.

    Attributes:
        name: Of the data set.
        vocabulary: The words that the ids stand for.
        vectors: [V, d], float16, zero for padding and the unknown; None where it was prepared without.
        splits: By name.
        labels: Their names, in the order of their numbers.
        information: Where it comes from: counts, coverage, tokenizer, sources and their checksums.
        target: The words of translations; None where nothing is translated.
    """

    name: str
    vocabulary: Vocabulary
    vectors: NDArray[np.float16] | None
    splits: dict[str, Columns]
    labels: tuple[str, ...]
    information: dict[str, Any]
    target: TargetVocabulary | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any id, length, label, group, word or vector; not with where they were read from."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
            digest.update(np.ascontiguousarray(tensor).data)
        return digest.hexdigest()

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What the file holds, by name."""
        words = np.frombuffer(self.vocabulary.to_bytes(), np.uint8)
        found: dict[str, NDArray[Any]] = {"vocabulary": words}
        if self.vectors is not None:
            found["vectors"] = self.vectors
        if self.target is not None:
            found["target"] = np.frombuffer(self.target.to_bytes(), np.uint8)
        for split, columns in self.splits.items():
            found[f"{split}.labels"] = columns.labels
            if columns.groups is not None:
                found[f"{split}.groups"] = columns.groups
            for name, column in columns.texts.items():
                found[f"{split}.{name}.ids"] = column.ids
                found[f"{split}.{name}.lengths"] = column.lengths
                if column.counts is not None:
                    found[f"{split}.{name}.counts"] = column.counts
        return found

    def words(self, column: str) -> Vocabulary:
        """What the ids of a column stand for."""
        return self.target if self.target is not None and column == TARGET else self.vocabulary


def save(prepared: Prepared, file: Path) -> None:
    """Write a prepared data set; whatever interrupts it, the file is the old one or the new one."""
    metadata = {KEY: json.dumps(prepared.information, sort_keys=True, allow_nan=False)}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in prepared.tensors().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, to_bytes(tensors, metadata))


def load(file: Path) -> Prepared:
    """Read what `save` wrote, strictly; `DataError` says what is wrong with another file."""
    try:
        with safe_open(file, framework="numpy") as opened:
            text = (opened.metadata() or {}).get(KEY)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{file}: is not a whole prepared data set: {error}; {AGAIN}") from None
    try:
        return _built(json.loads(text or "null"), tensors)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{file}: is not a prepared data set of format {FORMAT}: {error}; {AGAIN}") from None


def _built(information: Any, tensors: dict[str, NDArray[Any]]) -> Prepared:
    """What a file holds; `ValueError` and the like where it does not fit together."""
    if not isinstance(information, dict) or information.get("format") != FORMAT:
        raise ValueError("it does not tell its format" if not information else "another format")
    for name in {"vocabulary", "target"} & tensors.keys():
        if tensors[name].dtype != np.uint8:
            raise ValueError(f"{name} is not bytes")
    grouped = _grouped(information)
    splits = {
        split: Columns(
            {
                name: Column(
                    tensors[f"{split}.{name}.ids"],
                    tensors[f"{split}.{name}.lengths"],
                    tensors.get(f"{split}.{name}.counts"),
                )
                for name in names
            },
            tensors[f"{split}.labels"],
            tensors[f"{split}.groups"] if split in grouped else None,
        )
        for split, names in information["columns"].items()
    }
    prepared = Prepared(
        name=information["data"],
        vocabulary=Vocabulary.from_bytes(tensors["vocabulary"].tobytes()),
        vectors=tensors["vectors"] if information["vectors"] is not None else None,
        splits=splits,
        labels=tuple(information["labels"]),
        information=information,
        target=TargetVocabulary.from_bytes(tensors["target"].tobytes()) if "target" in tensors else None,
    )
    if extra := tensors.keys() - prepared.tensors().keys():
        raise ValueError(f"unknown tensors: {', '.join(sorted(extra))}")
    _check(prepared)
    return prepared


def _grouped(information: dict[str, Any]) -> list[str]:
    """The splits whose rows belong to groups: files of other data do not speak of them."""
    grouped = information.get("groups", [])
    if not isinstance(grouped, list) or not all(split in information["columns"] for split in grouped):
        raise ValueError("groups are not a list of splits")
    return grouped


def _check(prepared: Prepared) -> None:
    """Raise ValueError where the numbers do not fit together."""
    for split, columns in prepared.splits.items():
        _check_range(f"{split}.labels", columns.labels, 0, len(prepared.labels))
        if columns.groups is not None:
            _check_groups(f"{split}.groups", columns.groups, len(columns.labels))
        kept, _, _ = (prepared.information["rows"][split][key] for key in ("kept", "read", "published"))
        for name, column in columns.texts.items():
            _check_range(f"{split}.{name}.ids", column.ids, Vocabulary.UNKNOWN, len(prepared.words(name)))
            _check_range(f"{split}.{name}.lengths", column.lengths, 0, len(column.ids) + 1)
            if column.counts is not None:
                _check_range(f"{split}.{name}.counts", column.counts, 0, len(column.lengths) + 1)
                if column.counts.sum(dtype=np.int64) != len(column.lengths):
                    raise ValueError(f"{split}.{name}: the counts do not add up to the sentences")
            if not column.rows == len(columns.labels) == kept:
                raise ValueError(f"{split}.{name}: lengths, labels and rows kept differ in number")
            if column.lengths.sum(dtype=np.int64) != len(column.ids):
                raise ValueError(f"{split}.{name}: the lengths do not add up to the ids")
    if prepared.target is None and any(TARGET in columns.texts for columns in prepared.splits.values()):
        raise ValueError("the words of translations are missing")
    known = len(prepared.vocabulary) if prepared.target is None else prepared.information["known"]
    if not 0 <= known <= len(prepared.vocabulary):
        raise ValueError("known: there are not so many words")
    matrix = prepared.vectors
    if matrix is None:
        return
    if matrix.dtype != np.float16 or matrix.ndim != 2 or len(matrix) != known:
        raise ValueError("vectors are not float16 [words, d]")
    if not np.isfinite(matrix).all() or matrix[: Vocabulary.UNKNOWN + 1].any():
        raise ValueError("vectors hold NaN, Inf, or something for padding and the unknown")


def _check_groups(name: str, groups: NDArray[Any], rows: int) -> None:
    _check_range(name, groups, 0, rows)
    if len(groups) != rows:
        raise ValueError(f"{name}: not one for each label")
    if rows and len(np.unique(groups)) != groups.max() + 1:
        raise ValueError(f"{name}: a number is left out")


def _check_range(name: str, numbers: NDArray[Any], low: int, high: int) -> None:
    if numbers.dtype != np.int32 or numbers.ndim != 1:
        raise ValueError(f"{name}: is not a list of int32")
    if len(numbers) and not (low <= numbers.min() and numbers.max() < high):
        raise ValueError(f"{name}: not every number is from {low} to {high - 1}")
