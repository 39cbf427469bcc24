"""A data set as ids in one safetensors file: what training reads.

The tensors are `vocabulary` (the words, each followed by a line feed, in UTF-8), `vectors` [V, d] in float16
where there are some, and for each split SPLIT.labels [N], SPLIT.COLUMN.lengths [N] and SPLIT.COLUMN.ids, the
ids of all texts one after the other; for a ranking also SPLIT.groups [N]. Of documents the lengths are those
of all sentences, and SPLIT.COLUMN.counts [N] tells how many each document has. Of translations `target` holds
the words of the translations, whose ids are of their own; and the words that have vectors come first, so that
`vectors` has a row for those alone. Everything else is one JSON text in the metadata, with a checksum of all.
The same sources give the same bytes.
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
AGAIN = "remove it and prepare the data again"

TARGET = "target"  # the column of translations
Ints = NDArray[np.int32]


class EncodedColumn(NamedTuple):
    """One text of each row, as ids."""

    ids: Ints  # of all texts, one after the other
    lengths: Ints  # [N], how many of them belong to each row; of documents, to each sentence
    counts: Ints | None = None  # [N], how many sentences a document has; None where texts have none

    @property
    def rows(self) -> int:
        """N: how many rows there are."""
        return len(self.lengths if self.counts is None else self.counts)


class EncodedSplit(NamedTuple):
    """One split."""

    texts: dict[str, EncodedColumn]  # by name, such as premise and hypothesis
    labels: Ints  # [N]
    groups: Ints | None = None  # [N], of a ranking: the question of each row, from 0


@dataclass(frozen=True)
class PreparedData:
    """A data set as ids."""

    name: str
    vocabulary: Vocabulary
    vectors: NDArray[np.float16] | None  # [V, d], zero for padding and the unknown
    splits: dict[str, EncodedSplit]
    labels: tuple[str, ...]  # their names, in the order of their numbers
    information: dict[str, Any]  # where it comes from: counts, coverage, tokenizer, sources, their checksums
    target: TargetVocabulary | None = None  # the words of translations

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any id, length, label, group, word or vector; not with where they were read from."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.to_tensors().items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
            digest.update(np.ascontiguousarray(tensor).data)
        return digest.hexdigest()

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Name what the file holds."""
        found: dict[str, NDArray[Any] | None] = {"vectors": self.vectors}
        for name, known in (("vocabulary", self.vocabulary), ("target", self.target)):
            found[name] = None if known is None else np.frombuffer(known.to_bytes(), np.uint8)
        for split, columns in self.splits.items():
            found |= {f"{split}.labels": columns.labels, f"{split}.groups": columns.groups}
            for name, column in columns.texts.items():
                found |= {f"{split}.{name}.{part}": each for part, each in column._asdict().items()}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def get_vocabulary(self, column: str) -> Vocabulary:
        """Return what the ids of a column stand for."""
        return self.target if self.target is not None and column == TARGET else self.vocabulary


def save_prepared(prepared: PreparedData, file: Path) -> None:
    """Write a prepared data set; whatever interrupts it, the file is the old one or the new one."""
    information = prepared.information | {"checksum": _compute_checksum(prepared)}
    metadata = {KEY: json.dumps(information, sort_keys=True, allow_nan=False)}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in prepared.to_tensors().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, to_bytes(tensors, metadata))


def load_prepared(file: Path) -> PreparedData:
    """Read what `save` wrote, strictly; `DataError` says what is wrong with another file."""
    try:
        with safe_open(file, framework="numpy") as opened:
            text = (opened.metadata() or {}).get(KEY)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{file}: is not a whole prepared data set: {error}; {AGAIN}") from None
    try:
        return _build(json.loads(text or "null"), tensors)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{file}: is not a prepared data set of format {FORMAT}: {error}; {AGAIN}") from None


def _build(information: Any, tensors: dict[str, NDArray[Any]]) -> PreparedData:
    """Build what a file holds; `ValueError` and the like where it is not what was written."""
    if not isinstance(information, dict) or information.get("format") != FORMAT:
        raise ValueError("it does not tell its format" if not information else "another format")
    checksum = information.pop("checksum", None)
    splits = {}
    for split, names in information["columns"].items():
        texts = {}
        for name in names:
            ids, lengths, counts = (f"{split}.{name}.{part}" for part in EncodedColumn._fields)
            texts[name] = EncodedColumn(tensors[ids], tensors[lengths], tensors.get(counts))
        splits[split] = EncodedSplit(texts, tensors[f"{split}.labels"], tensors.get(f"{split}.groups"))
    vocabulary = Vocabulary.from_bytes(tensors["vocabulary"].tobytes())
    target = TargetVocabulary.from_bytes(tensors["target"].tobytes()) if "target" in tensors else None
    name, labels = information["data"], tuple(information["labels"])
    prepared = PreparedData(name, vocabulary, tensors.get("vectors"), splits, labels, information, target)
    if extra := tensors.keys() - prepared.to_tensors().keys():
        raise ValueError(f"unknown tensors: {', '.join(sorted(extra))}")
    if checksum is None:  # a file from before there were any
        _check_ids(prepared)
    elif checksum != _compute_checksum(prepared):
        raise ValueError("its words, ids, labels, groups or figures are not those that were written")
    return prepared


def _check_ids(prepared: PreparedData) -> None:
    """Refuse ids, lengths and labels that stand for nothing."""
    for split, columns in prepared.splits.items():
        numbers = {"labels": (columns.labels, len(prepared.labels) or 1)}
        for name, (ids, lengths, counts) in columns.texts.items():
            numbers[name] = ids, len(prepared.get_vocabulary(name))
            sentences = lengths if counts is None else counts
            fits = lengths.sum() == len(ids) and len(sentences) == len(columns.labels)
            if not fits or lengths.min(initial=0) < 0:
                raise ValueError(f"{split}.{name}: the lengths do not fit the ids and labels")
        for name, (values, known) in numbers.items():
            if len(values) and not 0 <= values.min() <= values.max() < known:
                raise ValueError(f"{split}.{name}: expected numbers from 0 below {known:,}")


def _compute_checksum(prepared: PreparedData) -> str:
    told = json.dumps(prepared.information, sort_keys=True) + prepared.fingerprint
    return hashlib.sha256(told.encode()).hexdigest()
