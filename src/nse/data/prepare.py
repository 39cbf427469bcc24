"""Turn published files into ids; the result is cached."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nse.data.cache import (
    FORMAT,
    TARGET,
    EncodedColumn,
    EncodedSplit,
    PreparedData,
    choose_cache_folder,
    load_prepared,
    save_prepared,
)
from nse.data.catalogue import DataSet, get_data_set
from nse.data.readers.word_vectors import find_vector_files, load_vectors
from nse.data.sources import Rows, compute_checksums, find_data_folder, print_log, show_progress
from nse.errors import DataError
from nse.text.tokenize import TOKENIZERS
from nse.text.vectors import WordVectors, measure_coverage
from nse.text.vocabulary import TargetVocabulary, Vocabulary

Log = Callable[[str], None]


def load_or_prepare(name: str, vectors: str | None, data: Path | None, log: Log = print_log) -> PreparedData:
    """Load a data set as ids, or prepare it first.

    A prepared file in the data folder or in its folder `prepared/` is loaded as it is. Else the result is
    cached, and made again if the sizes or checksums of the published files change. Without vectors, any
    prepared file of the data set is used if the published files are missing.

    Args:
        name: Name of the data set.
        vectors: Name of word vectors, such as glove.840B.300d; None for every word, without vectors.
        data: Data folder; None means NSE_DATA, else ./data.
        log: Called with a line about each step; by default prints it to standard error.
    """
    entry, folder, file_name = get_data_set(name), find_data_folder(data), make_file_name(name, vectors)
    for file in (folder / file_name, folder / "prepared" / file_name):
        if file.is_file():
            return _load_checked(file, file_name)
    try:
        files = list_sources(entry, vectors, folder)
    except DataError:
        if vectors is None and (prepared_files := list_prepared_files(name, folder)):
            log(f"reading {prepared_files[0]}, because the published files are not in {folder}")
            return _load_checked(prepared_files[0])
        raise
    cache = choose_cache_folder() / file_name
    stamps = [[file.name, (status := file.stat()).st_size, status.st_mtime_ns] for file in files]
    cached = None
    try:
        cached = load_prepared(cache) if cache.is_file() else None
    except DataError as error:  # it can be prepared again
        log(str(error))
    if cached is not None and _is_current(cached, entry, files, stamps):
        if cached.information.get("stamps") != stamps:
            cached.information["stamps"] = stamps  # so that the files need not be read next time
            with suppress(OSError):
                save_prepared(cached, cache)
        return cached
    log(f"preparing {name}" + (f" with {vectors}" if vectors else ""))
    prepared = prepare(name, vectors, folder)
    prepared.information["stamps"] = stamps
    try:
        save_prepared(prepared, cache)
        log(f"saved in {cache}")
    except OSError as error:
        log(f"not saved, because {cache} cannot be written: {error.strerror}")
    return prepared


def make_file_name(name: str, vectors: str | None) -> str:
    """Return the file name of a data set prepared with vectors."""
    file = f"{name}.{vectors}.safetensors" if vectors else f"{name}.safetensors"
    if Path(file).name != file:
        raise DataError(f"vectors {vectors!r}: expected a name such as glove.840B.300d, not a path")
    return file


def list_prepared_files(name: str, folder: Path) -> list[Path]:
    """List the prepared files of a data set in a data folder."""
    folders = (folder, folder / "prepared")
    return [file for path in folders for file in sorted(path.glob(f"{name}.*safetensors")) if file.is_file()]


def _load_checked(file: Path, file_name: str = "") -> PreparedData:
    """Load a prepared file; raise if its content does not fit its name or today's tokenizer."""
    prepared = load_prepared(file)
    name, vectors = prepared.name, prepared.information["vectors"]
    if file_name and make_file_name(name, vectors) != file_name:
        raise DataError(f"{file}: holds {make_file_name(name, vectors)}; rename it, or remove it")
    made_with, tokenizer = prepared.information.get("tokenizer"), get_data_set(name).tokenizer
    if made_with != tokenizer:
        wrong = f"has the words of the tokenizer {made_with}, and {name} is read with {tokenizer}"
        fix = ("prepare_vectors", name, vectors) if vectors else ("prepare", name)
        raise DataError(f"{file}: {wrong}; remove it or make it again", (*fix, str(file.parent)))
    return prepared


def _is_current(cached: PreparedData, entry: DataSet, files: Sequence[Path], stamps: list[list[Any]]) -> bool:
    """Return whether a data set was made from these files; they are read only if a time differs."""
    information = cached.information
    sizes = [[source["name"], source["size"]] for source in information["sources"]]
    if information.get("tokenizer") != entry.tokenizer or sizes != [stamp[:2] for stamp in stamps]:
        return False
    return information.get("stamps") == stamps or information["sources"] == _describe_files(files)


def prepare(
    name: str, vectors: str | None, data: Path, entry: DataSet | None = None, min_count: int = 0
) -> PreparedData:
    """Turn published files into ids.

    With vectors, the vocabulary is the words of all splits that have one. Without, it is every word. A
    translation has two vocabularies, of every word each.

    Args:
        name: Name of the data set.
        vectors: Name of word vectors, such as glove.840B.300d.
        data: Data folder.
        entry: How to read a data set that is not in the catalogue.
        min_count: Without vectors, rarer words of the training split are unknown; 0 keeps every word.
    """
    entry = entry or get_data_set(name)
    files = list_sources(entry, vectors, data)  # before anything is read, so that missing files are reported
    splits = entry.read(data)
    columns = {split: list(rows.texts) for split, rows in splits.items()}
    names = [name for name in next(iter(columns.values())) if name != TARGET]
    texts, words = _number_words(splits, names, TOKENIZERS[entry.tokenizer], entry.documents)
    counts = _count_words(words, texts.values())
    word_vectors, known = None, counts.keys()
    if vectors:
        with show_progress(vectors) as progress:
            word_vectors = load_vectors(data, vectors, known, progress)
        known = word_vectors.words.keys()
    elif min_count:
        train_counts = _count_words(words, [texts["train"]])
        known = {word: n for word, n in train_counts.items() if n >= min_count}.keys()
    # A translation may copy a source word that has no vector, so all words are kept.
    kept = (counts.keys() if entry.translation else known) - set(Vocabulary.SPECIAL)
    vocabulary = Vocabulary(sorted(kept, key=lambda word: (word not in known, -counts[word], word)))
    _replace_numbers(texts, words, vocabulary)
    size = len(Vocabulary.SPECIAL) + len(known - set(Vocabulary.SPECIAL))
    totals = {split: {"read": rows.total, "kept": len(rows.labels)} for split, rows in splits.items()}
    for split, total in totals.items():
        total["published"] = entry.published.get(split, total["read"])
    information = {
        "format": FORMAT,
        "data": name,
        "labels": list(entry.labels),
        "tokenizer": entry.tokenizer,
        "vectors": vectors,
        "rows": totals,
        "columns": columns,
        "coverage": asdict(measure_coverage(counts, known)),
        "sources": _describe_files(files),
    }
    if grouped := [split for split, rows in splits.items() if rows.groups is not None]:
        information["groups"] = grouped
    if entry.translation:
        information["known"] = size
    information = json.loads(json.dumps(information))  # as it is after loading
    matrix = _make_matrix(word_vectors, vocabulary.words[:size]) if word_vectors else None
    target = _add_target(splits, texts) if entry.translation else None
    encoded = {}
    for split, rows in splits.items():
        groups = None if rows.groups is None else np.array(rows.groups, np.int32)
        encoded[split] = EncodedSplit(texts[split], np.array(rows.labels, np.int32), groups)
    return PreparedData(name, vocabulary, matrix, encoded, entry.labels, information, target)


def list_sources(entry: DataSet, vectors: str | None, data: Path) -> list[Path]:
    """List every file that `prepare` reads; raise `DataError` if one is missing."""
    files = [*entry.find_sources(data).values(), *(find_vector_files(data, vectors) if vectors else ())]
    return list(dict.fromkeys(file.path for file in files))


def _describe_files(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the name, size and checksum of each file."""
    try:
        with show_progress("checksums") as progress:
            sums = zip(files, compute_checksums(files, progress), strict=True)
        return [{"name": file.name, "size": file.stat().st_size, "sha256": sha256} for file, sha256 in sums]
    except OSError as error:
        raise DataError(f"{error.filename or files[0].parent}: cannot be read: {error.strerror}") from None


Texts = dict[str, dict[str, EncodedColumn]]  # the columns of each split
Tokenize = Callable[[str], list[str]]


def _number_words(
    splits: Mapping[str, Rows], names: Sequence[str], tokenize: Tokenize, documents: bool = False
) -> tuple[Texts, list[str]]:
    """Number words by first occurrence, because lists of words would fill the memory; return words too."""
    numbers: dict[str, int] = {}
    texts: Texts = {}
    for split, rows in splits.items():
        cut = _split_spaced if rows.tokenized else tokenize
        texts[split] = {name: _number_column(rows.texts[name], cut, documents, numbers) for name in names}
    return texts, list(numbers)


def _number_column(
    texts: Iterable[str], tokenize: Tokenize, documents: bool, numbers: dict[str, int]
) -> EncodedColumn:
    """Number the words of one column; new words get the next numbers."""
    flat, lengths, counts = array("i"), array("i"), array("i")
    for text in texts:
        sentences = [text] if not documents else text.split("\n") if text else []
        for sentence in sentences:
            words = tokenize(sentence)
            flat.extend(numbers.setdefault(word, len(numbers)) for word in words)
            lengths.append(len(words))
        counts.append(len(sentences))
    parts = [np.array(part, np.int32) for part in (flat, lengths, counts)]
    return EncodedColumn(*parts[: 3 if documents else 2])


def _split_spaced(text: str) -> list[str]:
    """Split a tokenized text."""
    return text.split(" ") if text else []


def _count_words(words: Sequence[str], splits: Iterable[Mapping[str, EncodedColumn]]) -> Counter[str]:
    """Count numbered words in splits."""
    totals = np.zeros(len(words), np.int64)
    for column in (column for columns in splits for column in columns.values()):
        totals += np.bincount(column.ids, minlength=len(words))
    return Counter(dict(zip(words, totals.tolist(), strict=True)))


def _replace_numbers(texts: Texts, words: Sequence[str], vocabulary: Vocabulary) -> None:
    """Replace the numbers of words by their ids in a vocabulary, in place."""
    table = np.array(vocabulary.encode(words), np.int32)
    for columns in texts.values():
        columns.update({name: column._replace(ids=table[column.ids]) for name, column in columns.items()})


def _add_target(splits: Mapping[str, Rows], texts: Texts) -> TargetVocabulary:
    """Add the column of translations; its vocabulary is sorted by frequency in the training split."""
    targets, words = _number_words(splits, [TARGET], _split_spaced)
    vocabulary = TargetVocabulary.from_counts(_count_words(words, [targets.get("train", {})]))
    _replace_numbers(targets, words, vocabulary)
    for split, columns in texts.items():
        columns.update(targets[split])
    return vocabulary


def _make_matrix(vectors: WordVectors, words: Sequence[str]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        matrix = vectors.look_up(words).astype(np.float16)
    if not np.isfinite(matrix).all():
        raise DataError(f"vectors {vectors.name}: hold numbers that are too large for float16")
    matrix[[Vocabulary.PAD, Vocabulary.UNKNOWN]] = 0  # even if there is a vector called <unk>
    return matrix
