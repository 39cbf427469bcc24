"""Store a data set as ids in one safetensors file, which training reads.

Tensors:
    vocabulary: The words, each followed by a line feed, in UTF-8.
    vectors: [V, d], float16, if there are vectors.
    SPLIT.labels: [N].
    SPLIT.COLUMN.ids: Concatenated ids of all texts.
    SPLIT.COLUMN.lengths: [N], lengths of the texts; of documents, lengths of all sentences.
    SPLIT.COLUMN.counts: [N], of documents: number of sentences.
    SPLIT.groups: [N], of a ranking.
    target: Of translations: words of the column `target`, which have ids of their own. The words of
        `vocabulary` that have a vector come first then, and `vectors` has rows for them alone.

The metadata is one JSON text, with a checksum of everything. The same sources give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
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
KEY = "nse"  # a single key, because safetensors writes several in any order
AGAIN = "remove it and prepare the data again"

TARGET = "target"  # the column of translations
Ints = NDArray[np.int32]


class EncodedColumn(NamedTuple):
    """One text per row, as ids."""

    ids: Ints  # concatenated ids of all texts
    lengths: Ints  # [N], number of ids of each text; of documents, of each sentence
    counts: Ints | None = None  # [N], of documents: number of sentences

    @property
    def rows(self) -> int:
        """N, the number of rows."""
        return len(self.lengths if self.counts is None else self.counts)


class EncodedSplit(NamedTuple):
    """Columns, labels and groups of one split."""

    texts: dict[str, EncodedColumn]  # by name, such as premise and hypothesis
    labels: Ints  # [N]
    groups: Ints | None = None  # [N], of a ranking: index of the question of each row


@dataclass(frozen=True)
class PreparedData:
    """Data set as ids."""

    name: str
    vocabulary: Vocabulary
    vectors: NDArray[np.float16] | None  # [V, d], zero for padding and the unknown
    splits: dict[str, EncodedSplit]
    labels: tuple[str, ...]  # names of the labels, by index
    information: dict[str, Any]  # counts, coverage, tokenizer, and the sources with their checksums
    target: TargetVocabulary | None = None  # the words of translations

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all ids, lengths, labels, groups, words and vectors; independent of the source files."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.to_tensors().items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
            digest.update(np.ascontiguousarray(tensor).data)
        return digest.hexdigest()

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return the tensors of the file, by name."""
        tensors: dict[str, NDArray[Any] | None] = {"vectors": self.vectors}
        for name, words in (("vocabulary", self.vocabulary), ("target", self.target)):
            tensors[name] = None if words is None else np.frombuffer(words.to_bytes(), np.uint8)
        for split, rows in self.splits.items():
            tensors |= {f"{split}.labels": rows.labels, f"{split}.groups": rows.groups}
            for name, column in rows.texts.items():
                tensors |= {f"{split}.{name}.{part}": ids for part, ids in column._asdict().items()}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def get_vocabulary(self, column: str) -> Vocabulary:
        """Return the vocabulary of a column."""
        return self.target if self.target is not None and column == TARGET else self.vocabulary


def choose_cache_folder() -> Path:
    """Return the folder of prepared files: NSE_CACHE, else ~/.cache/nse."""
    try:
        return Path(os.environ.get("NSE_CACHE") or "~/.cache/nse").expanduser()
    except RuntimeError:
        wrong = "there is no home folder to keep prepared files in: name a folder in NSE_CACHE"
        raise DataError(wrong) from None


def save_prepared(prepared: PreparedData, file: Path) -> None:
    """Write a prepared data set, atomically."""
    information = prepared.information | {"checksum": _compute_checksum(prepared)}
    metadata = {KEY: json.dumps(information, sort_keys=True, allow_nan=False)}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in prepared.to_tensors().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, to_bytes(tensors, metadata))


def load_prepared(file: Path) -> PreparedData:
    """Load a prepared data set; raise `DataError` for any other file."""
    try:
        with safe_open(file, framework="numpy") as opened:
            text = (opened.metadata() or {}).get(KEY)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{file}: is not a complete prepared data set: {error}; {AGAIN}") from None
    try:
        return _build(json.loads(text or "null"), tensors)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{file}: is not a prepared data set of format {FORMAT}: {error}; {AGAIN}") from None


def _build(information: Any, tensors: dict[str, NDArray[Any]]) -> PreparedData:
    """Build a data set from the content of a file; raise `ValueError` or a similar error if that is wrong."""
    if not isinstance(information, dict) or information.get("format") != FORMAT:
        raise ValueError("it has no format" if not information else "another format")
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
    if checksum is None:  # files of early versions have none
        _check_ids(prepared)
    elif checksum != _compute_checksum(prepared):
        raise ValueError("its words, ids, labels, groups or figures do not match its checksum")
    return prepared


def _check_ids(prepared: PreparedData) -> None:
    """Raise for ids and labels out of range, and for lengths that do not add up."""
    for split, rows in prepared.splits.items():
        limits = {"labels": (rows.labels, len(prepared.labels) or 1)}
        for name, (ids, lengths, counts) in rows.texts.items():
            limits[name] = ids, len(prepared.get_vocabulary(name))
            sentences = lengths if counts is None else counts
            fits = lengths.sum() == len(ids) and len(sentences) == len(rows.labels)
            if not fits or lengths.min(initial=0) < 0:
                raise ValueError(f"{split}.{name}: the lengths do not fit the ids and labels")
        for name, (values, limit) in limits.items():
            if len(values) and not 0 <= values.min() <= values.max() < limit:
                raise ValueError(f"{split}.{name}: expected numbers from 0 below {limit:,}")


def _compute_checksum(prepared: PreparedData) -> str:
    content = json.dumps(prepared.information, sort_keys=True) + prepared.fingerprint
    return hashlib.sha256(content.encode()).hexdigest()
