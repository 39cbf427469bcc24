"""From published files to ids, once: what was prepared is kept and found again."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nse.data.cache import FORMAT, TARGET, Column, Columns, Ints, Prepared, load, save
from nse.data.catalogue import DataSet, data_set
from nse.data.folders import cache_folder, checksum, data_folder
from nse.data.splits import Rows
from nse.errors import DataError, explain_errors
from nse.text.published import Progress, Source
from nse.text.tokenize import TOKENIZERS
from nse.text.vectors import Vectors, coverage, load_vectors, vector_sources
from nse.text.vocabulary import TargetVocabulary, Vocabulary

Log = Callable[[str], None]


def obtain(
    name: str,
    vectors: str | None,
    data: Path | None,
    log: Log = lambda _: None,
    progress: Progress | None = None,
) -> Prepared:
    """A data set as ids, made only where it has to be.

    A prepared file in the data folder or in `prepared/` in it is taken as it is. Else the published files are
    prepared, and the result is kept in the cache folder for as long as they stay the same. Without vectors,
    any prepared file of the data set will do where the published files are not there.

    Args:
        name: Of the data set.
        vectors: Their name, such as glove.840B.300d; None for every word, without vectors.
        data: The data folder; None means NSE_DATA, else ./data.
        log: Told what is done, in a line.
        progress: Told how far a text file of vectors is read.
    """
    entry = data_set(name)
    folder = data_folder(data)
    for place in (folder, folder / "prepared"):
        if (file := place / file_name(name, vectors)).is_file():
            return _expected(file, load(file), name, vectors)
    try:
        files = sources(entry, vectors, folder)
    except DataError:
        if vectors is None and (found := prepared_files(name, folder)):
            log(f"reading {found[0]}, because the published files are not in {folder}")
            return _in_its_words(found[0], load(found[0]))
        raise
    cached = cache_folder() / file_name(name, vectors)
    if (known := _still_good(cached, entry, files, log)) is not None:
        return known
    log(f"preparing {name}" + (f" with {vectors}" if vectors else ""))
    prepared = prepare(name, vectors, folder, progress)
    try:
        save(prepared, cached)
        log(f"kept in {cached}")
    except OSError as error:
        log(f"not kept, because {cached} cannot be written: {error.strerror}")
    return prepared


def file_name(name: str, vectors: str | None) -> str:
    """What the file of a data set and vectors is called."""
    file = f"{name}.{vectors}.safetensors" if vectors else f"{name}.safetensors"
    if Path(file).name != file:
        raise DataError(f"vectors {vectors!r}: expected a name such as glove.840B.300d, not a path")
    return file


def prepared_files(name: str, folder: Path) -> list[Path]:
    """The prepared files of a data set in a data folder."""
    return [
        file
        for place in (folder, folder / "prepared")
        for file in sorted(place.glob(f"{name}.*safetensors"))
        if file.is_file()
    ]


def _expected(file: Path, prepared: Prepared, name: str, vectors: str | None) -> Prepared:
    held = file_name(prepared.name, prepared.information["vectors"])
    if held != file_name(name, vectors):
        raise DataError(f"{file}: holds {held}; rename it, or remove it")
    return _in_its_words(file, prepared)


def _in_its_words(file: Path, prepared: Prepared) -> Prepared:
    """The same, if its texts were cut into words as its data set is by now."""
    name, vectors = prepared.name, prepared.information["vectors"]
    made_with, tokenizer = prepared.information.get("tokenizer"), data_set(name).tokenizer
    if made_with != tokenizer:
        given = f" --vectors {vectors}" if vectors else ""
        raise DataError(
            f"{file}: has the words of the tokenizer {made_with}, and {name} is read with {tokenizer}; make "
            f"it again with `nse data prepare {name}{given} --out {file.parent}`, or remove it"
        )
    return prepared


def _still_good(cached: Path, entry: DataSet, files: list[Path], log: Log) -> Prepared | None:
    """What the cache holds, if it was made from these very files, and with the same words."""
    if not cached.is_file():
        return None
    try:
        prepared = load(cached)
    except DataError as error:  # it can be made again
        log(str(error))
        return None
    held = prepared.information
    same = held.get("sources") == [described(file) for file in files]
    return prepared if same and held.get("tokenizer") == entry.tokenizer else None


def prepare(name: str, vectors: str | None, data: Path, progress: Progress | None = None) -> Prepared:
    """From published files to ids.

    With vectors, the vocabulary is the words of all splits that have one, and every other word is unknown.
    Without, it is every word, and so are both vocabularies of a translation.

    Args:
        name: Of the data set.
        vectors: Their name, such as glove.840B.300d.
        data: The data folder.
        progress: Told how far a text file of vectors is read.
    """
    return prepare_set(name, data_set(name), vectors, data, progress)


def prepare_set(
    name: str,
    entry: DataSet,
    vectors: str | None,
    data: Path,
    progress: Progress | None = None,
    least: int = 0,
) -> Prepared:
    """From the files of any data set to ids; see `prepare`.

    Args:
        name: What it is called.
        entry: How it is read.
        vectors: Their name.
        data: The data folder.
        progress: Told how far a text file of vectors is read.
        least: Without vectors, known words are those that occur so often in train; 0 means every word.
    """
    files = sources(entry, vectors, data)  # before anything is read: what is missing is told at once
    rows = entry.read(data)
    columns = [name for name in next(iter(rows.values())).texts if name != TARGET]
    splits, counts = _numbered(rows, columns, TOKENIZERS[entry.tokenizer], entry.documents)
    found = load_vectors(data, vectors, counts.keys(), progress) if vectors else None
    learned = _frequent(splits["train"], counts, columns, least) if least else counts
    known = Counter({word: counts[word] for word in (found.words if found else learned)})
    vocabulary, target = Vocabulary.counted(known), None
    vectors_of = vocabulary
    if entry.translation:
        # A translation may take over a word of the source that has no vector: all of them are kept.
        others = Counter({word: n for word, n in counts.items() if word not in known})
        vocabulary = Vocabulary([*_listed(vocabulary), *_listed(Vocabulary.counted(others))])
        splits, target = _with_target(rows, splits)
    table = np.array(vocabulary.encode(counts), np.int32)  # from the order of appearance to ids
    information: dict[str, Any] = {
        "format": FORMAT,
        "data": name,
        "labels": list(entry.labels),
        "tokenizer": entry.tokenizer,
        "vectors": vectors,
        "rows": {
            split: {"read": each.read, "kept": len(each.labels), "published": entry.published[split]}
            for split, each in rows.items()
        },
        "columns": {split: list(each.texts) for split, each in rows.items()},
        "coverage": asdict(coverage(counts, known)),
        "sources": [described(file) for file in files],
    }
    if grouped := [split for split, each in rows.items() if each.groups is not None]:
        information["groups"] = grouped
    if entry.translation:
        information["known"] = len(vectors_of)
    return Prepared(
        name=name,
        vocabulary=vocabulary,
        vectors=_matrix(found, vectors_of) if found else None,
        splits={split: _mapped(each, columns, table) for split, each in splits.items()},
        labels=entry.labels,
        information=json.loads(json.dumps(information)),  # as it will be read back
        target=target,
    )


def _frequent(train: Columns, counts: Counter[str], columns: Sequence[str], least: int) -> list[str]:
    """The words that occur so often in train, from words numbered as in `counts`."""
    seen = sum(np.bincount(train.texts[name].ids, minlength=len(counts)) for name in columns)
    return [word for word, n in zip(counts, np.asarray(seen).tolist(), strict=True) if n >= least]


def _listed(vocabulary: Vocabulary) -> tuple[str, ...]:
    return vocabulary.words[len(vocabulary.SPECIAL) :]


def _with_target(
    rows: Mapping[str, Rows], splits: dict[str, Columns]
) -> tuple[dict[str, Columns], TargetVocabulary]:
    """The column of translations as well; their words by how frequent they are in train, then the others."""
    found, counts = _numbered(rows, [TARGET], _spaced)
    learned = found["train"].texts[TARGET].ids if "train" in found else np.zeros(0, np.int32)
    seen = np.bincount(learned, minlength=len(counts)).tolist()
    order = sorted(zip(counts, seen, strict=True), key=lambda each: (-each[1], each[0]))
    target = TargetVocabulary([word for word, _ in order if word not in TargetVocabulary.SPECIAL])
    table = np.array(target.encode(counts), np.int32)
    return {
        split: columns._replace(texts=columns.texts | _mapped(found[split], [TARGET], table).texts)
        for split, columns in splits.items()
    }, target


def sources(entry: DataSet, vectors: str | None, data: Path) -> list[Path]:
    """Every file that `prepare` reads; `DataError` says what is missing."""
    found: list[Source] = list(entry.sources(data).values())
    if vectors:
        found += vector_sources(data, vectors)
    return list(dict.fromkeys(source.path for source in found))


def described(file: Path) -> dict[str, Any]:
    """A source by its name, size and checksum."""
    with explain_errors(f"{file}: cannot be read", DataError):
        return {"name": file.name, "size": file.stat().st_size, "sha256": checksum(file)}


def _numbered(
    rows: Mapping[str, Rows],
    names: Sequence[str],
    tokenize: Callable[[str], list[str]],
    documents: bool = False,
) -> tuple[dict[str, Columns], Counter[str]]:
    """Words numbered as they appear, and how often each does: lists of words would fill the memory."""
    numbers: dict[str, int] = {}
    splits = {}
    for split, each in rows.items():
        words = _spaced if each.tokenized else tokenize
        texts = {name: _column(each.texts[name], words, documents, numbers) for name in names}
        groups = None if each.groups is None else np.array(each.groups, np.int32)
        splits[split] = Columns(texts, np.array(each.labels, np.int32), groups)
    totals = np.zeros(len(numbers), np.int64)
    for columns in splits.values():
        for column in columns.texts.values():
            totals += np.bincount(column.ids, minlength=len(numbers))
    return splits, Counter(dict(zip(numbers, totals.tolist(), strict=True)))


def _column(
    texts: Iterable[str], tokenize: Callable[[str], list[str]], documents: bool, numbers: dict[str, int]
) -> Column:
    """One column; words that were not met before get the next number."""
    flat, lengths, counts = array("i"), array("i"), array("i")
    for text in texts:
        sentences = text.split("\n") if documents and text else [text] if not documents else []
        for sentence in sentences:
            words = tokenize(sentence)
            flat.extend(numbers.setdefault(word, len(numbers)) for word in words)
            lengths.append(len(words))
        counts.append(len(sentences))
    found = (np.array(each, np.int32) for each in (flat, lengths, counts))
    return Column(*found) if documents else Column(next(found), next(found))


def _spaced(text: str) -> list[str]:
    """The words of a text that is nothing but words with a space between."""
    return text.split(" ") if text else []


def _mapped(columns: Columns, names: Sequence[str], table: Ints) -> Columns:
    """These columns by the numbers of a table, the others as they are."""
    texts = {
        name: column._replace(ids=table[column.ids]) if name in names else column
        for name, column in columns.texts.items()
    }
    return columns._replace(texts=texts)


def _matrix(vectors: Vectors, vocabulary: Vocabulary) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        matrix = vectors.of(vocabulary.words).astype(np.float16)
    if not np.isfinite(matrix).all():
        raise DataError(f"vectors {vectors.name}: hold numbers that are too large for float16")
    matrix[[Vocabulary.PAD, Vocabulary.UNKNOWN]] = 0  # also where a set has a vector called <unk>
    return matrix
