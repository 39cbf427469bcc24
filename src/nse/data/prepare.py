"""From published files to ids, once: what was prepared is kept and found again."""

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
    load_prepared,
    save_prepared,
)
from nse.data.catalogue import DataSet, get_data_set
from nse.data.folders import (
    choose_cache_folder,
    compute_checksums,
    find_data_folder,
    print_log,
    show_progress,
)
from nse.data.readers.word_vectors import find_vector_files, load_vectors
from nse.data.sources import Rows
from nse.errors import DataError
from nse.text.tokenize import TOKENIZERS
from nse.text.vectors import WordVectors, measure_coverage
from nse.text.vocabulary import TargetVocabulary, Vocabulary

Log = Callable[[str], None]


def load_or_prepare(name: str, vectors: str | None, data: Path | None, log: Log = print_log) -> PreparedData:
    """Take a data set as ids, made only where it has to be.

    A prepared file in the data folder or in `prepared/` in it is taken as it is. Else the published files are
    prepared, and the result is kept in the cache folder for as long as they stay the same: their sizes and
    times, or else their checksums. Without vectors, any prepared file of the data set will do where the
    published files are not there.

    Args:
        name: Of the data set.
        vectors: Their name, such as glove.840B.300d; None for every word, without vectors.
        data: The data folder; None means NSE_DATA, else ./data.
        log: Called with a line about what is done; prints it on standard error by default.
    """
    entry, folder, called = get_data_set(name), find_data_folder(data), make_file_name(name, vectors)
    for place in (folder, folder / "prepared"):
        if (file := place / called).is_file():
            return _load_named(file, called)
    try:
        files = list_sources(entry, vectors, folder)
    except DataError:
        if vectors is None and (found := list_prepared_files(name, folder)):
            log(f"reading {found[0]}, because the published files are not in {folder}")
            return _load_named(found[0])
        raise
    cached = choose_cache_folder() / called
    stamps = [[file.name, (status := file.stat()).st_size, status.st_mtime_ns] for file in files]
    held = None
    try:
        held = load_prepared(cached) if cached.is_file() else None
    except DataError as error:  # it can be made again
        log(str(error))
    if held is not None and _is_current(held, entry, files, stamps):
        if held.information.get("stamps") != stamps:
            held.information["stamps"] = stamps  # so that next time nobody has to read the files
            with suppress(OSError):
                save_prepared(held, cached)
        return held
    log(f"preparing {name}" + (f" with {vectors}" if vectors else ""))
    prepared = prepare(name, vectors, folder)
    prepared.information["stamps"] = stamps
    try:
        save_prepared(prepared, cached)
        log(f"kept in {cached}")
    except OSError as error:
        log(f"not kept, because {cached} cannot be written: {error.strerror}")
    return prepared


def make_file_name(name: str, vectors: str | None) -> str:
    """Name the file of a data set and vectors."""
    file = f"{name}.{vectors}.safetensors" if vectors else f"{name}.safetensors"
    if Path(file).name != file:
        raise DataError(f"vectors {vectors!r}: expected a name such as glove.840B.300d, not a path")
    return file


def list_prepared_files(name: str, folder: Path) -> list[Path]:
    """List the prepared files of a data set in a data folder."""
    found = [sorted(place.glob(f"{name}.*safetensors")) for place in (folder, folder / "prepared")]
    return [file for files in found for file in files if file.is_file()]


def _load_named(file: Path, called: str = "") -> PreparedData:
    """Load a file that holds what its name says, in the words into which its data set is cut by now."""
    prepared = load_prepared(file)
    name, vectors = prepared.name, prepared.information["vectors"]
    if called and make_file_name(name, vectors) != called:
        raise DataError(f"{file}: holds {make_file_name(name, vectors)}; rename it, or remove it")
    made_with, tokenizer = prepared.information.get("tokenizer"), get_data_set(name).tokenizer
    if made_with != tokenizer:
        wrong = f"has the words of the tokenizer {made_with}, and {name} is read with {tokenizer}"
        fix = ("prepare_vectors", name, vectors) if vectors else ("prepare", name)
        raise DataError(f"{file}: {wrong}; remove it or make it again", (*fix, str(file.parent)))
    return prepared


def _is_current(held: PreparedData, entry: DataSet, files: Sequence[Path], stamps: list[list[Any]]) -> bool:
    """Tell whether a data set was made from these files, unread where they have the same size and time."""
    information = held.information
    sizes = [[source["name"], source["size"]] for source in information["sources"]]
    if information.get("tokenizer") != entry.tokenizer or sizes != [stamp[:2] for stamp in stamps]:
        return False
    return information.get("stamps") == stamps or information["sources"] == _describe(files)


def prepare(
    name: str, vectors: str | None, data: Path, entry: DataSet | None = None, least: int = 0
) -> PreparedData:
    """Turn published files into ids.

    With vectors, the vocabulary is the words of all splits that have one, and every other word is unknown.
    Without, it is every word, and so are both vocabularies of a translation.

    Args:
        name: Of the data set.
        vectors: Their name, such as glove.840B.300d.
        data: The data folder.
        entry: How the data set is read, where it is not in the catalogue.
        least: Without vectors, known words are those that occur so often in train; 0 means every word.
    """
    entry = entry or get_data_set(name)
    files = list_sources(entry, vectors, data)  # before anything is read: what is missing is told at once
    rows = entry.read(data)
    columns = {split: list(each.texts) for split, each in rows.items()}
    names = [name for name in next(iter(columns.values())) if name != TARGET]
    texts, words = _number_words(rows, names, TOKENIZERS[entry.tokenizer], entry.documents)
    counts = _count_words(words, texts.values())
    found, known = None, counts.keys()
    if vectors:
        with show_progress(vectors) as progress:
            found = load_vectors(data, vectors, known, progress)
        known = found.words.keys()
    elif least:
        known = {word: n for word, n in _count_words(words, [texts["train"]]).items() if n >= least}.keys()
    # A translation may take over a word of the source that has no vector: all of them are kept.
    kept = (counts.keys() if entry.translation else known) - set(Vocabulary.SPECIAL)
    vocabulary = Vocabulary(sorted(kept, key=lambda word: (word not in known, -counts[word], word)))
    _replace_numbers(texts, words, vocabulary)
    size = len(Vocabulary.SPECIAL) + len(known - set(Vocabulary.SPECIAL))
    information = {
        "format": FORMAT,
        "data": name,
        "labels": list(entry.labels),
        "tokenizer": entry.tokenizer,
        "vectors": vectors,
        "rows": {
            split: {
                "read": each.read,
                "kept": len(each.labels),
                "published": entry.published.get(split, each.read),
            }
            for split, each in rows.items()
        },
        "columns": columns,
        "coverage": asdict(measure_coverage(counts, known)),
        "sources": _describe(files),
    }
    if grouped := [split for split, each in rows.items() if each.groups is not None]:
        information["groups"] = grouped
    if entry.translation:
        information["known"] = size
    information = json.loads(json.dumps(information))  # as it will be read back
    matrix = _make_matrix(found, vocabulary.words[:size]) if found else None
    target = _add_target(rows, texts) if entry.translation else None
    splits = {}
    for split, each in rows.items():
        groups = None if each.groups is None else np.array(each.groups, np.int32)
        splits[split] = EncodedSplit(texts[split], np.array(each.labels, np.int32), groups)
    return PreparedData(name, vocabulary, matrix, splits, entry.labels, information, target)


def list_sources(entry: DataSet, vectors: str | None, data: Path) -> list[Path]:
    """Find every file that `prepare` reads; `DataError` says what is missing."""
    found = [*entry.find_sources(data).values(), *(find_vector_files(data, vectors) if vectors else ())]
    return list(dict.fromkeys(file.path for file in found))


def _describe(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Tell name, size and checksum of each file."""
    try:
        with show_progress("checksums") as progress:
            sums = zip(files, compute_checksums(files, progress), strict=True)
        return [{"name": file.name, "size": file.stat().st_size, "sha256": known} for file, known in sums]
    except OSError as error:
        raise DataError(f"{error.filename or files[0].parent}: cannot be read: {error.strerror}") from None


Texts = dict[str, dict[str, EncodedColumn]]  # the columns of each split
Tokenize = Callable[[str], list[str]]


def _number_words(
    rows: Mapping[str, Rows], names: Sequence[str], tokenize: Tokenize, documents: bool = False
) -> tuple[Texts, list[str]]:
    """Number words as they appear, because lists of words would fill the memory; returns them too."""
    numbers: dict[str, int] = {}
    texts: Texts = {}
    for split, each in rows.items():
        cut = _split_spaced if each.tokenized else tokenize
        texts[split] = {name: _number_column(each.texts[name], cut, documents, numbers) for name in names}
    return texts, list(numbers)


def _number_column(
    texts: Iterable[str], tokenize: Tokenize, documents: bool, numbers: dict[str, int]
) -> EncodedColumn:
    """Number the words of one column; those that were not met before get the next number."""
    flat, lengths, counts = array("i"), array("i"), array("i")
    for text in texts:
        sentences = [text] if not documents else text.split("\n") if text else []
        for sentence in sentences:
            words = tokenize(sentence)
            flat.extend(numbers.setdefault(word, len(numbers)) for word in words)
            lengths.append(len(words))
        counts.append(len(sentences))
    found = (np.array(each, np.int32) for each in (flat, lengths, counts))
    return EncodedColumn(*found) if documents else EncodedColumn(next(found), next(found))


def _split_spaced(text: str) -> list[str]:
    """Split a text that is nothing but words with a space between."""
    return text.split(" ") if text else []


def _count_words(words: Sequence[str], splits: Iterable[Mapping[str, EncodedColumn]]) -> Counter[str]:
    """Count numbered words in some splits."""
    totals = np.zeros(len(words), np.int64)
    for column in (column for columns in splits for column in columns.values()):
        totals += np.bincount(column.ids, minlength=len(words))
    return Counter(dict(zip(words, totals.tolist(), strict=True)))


def _replace_numbers(texts: Texts, words: Sequence[str], vocabulary: Vocabulary) -> None:
    """Write ids in the place of the numbers of words."""
    table = np.array(vocabulary.encode(words), np.int32)
    for columns in texts.values():
        columns.update({name: column._replace(ids=table[column.ids]) for name, column in columns.items()})


def _add_target(rows: Mapping[str, Rows], texts: Texts) -> TargetVocabulary:
    """Add the column of translations; their words by how frequent they are in train, then the others."""
    targets, words = _number_words(rows, [TARGET], _split_spaced)
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
    matrix[[Vocabulary.PAD, Vocabulary.UNKNOWN]] = 0  # also where a set has a vector called <unk>
    return matrix
