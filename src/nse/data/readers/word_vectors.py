"""Load word vectors from files: GloVe's text, or a numpy array with a list of words.

The files of NAME are NAME.npy and NAME.words.txt (one word per line), perhaps with NAME.aliases.tsv (more
words, each with a tab and the row that it shares), or GloVe's: NAME.txt, NAME.txt.gz, NAME.txt.xz, or
NAME.txt inside NAME.zip; glove.6B.100d is also looked for in glove.6B.zip.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nse.data.sources import DataFile, Progress, explain_read_errors, find_file, parse_lines, read_lines
from nse.errors import DataError
from nse.text.vectors import WordVectors

_NAME = re.compile(r"\w[\w.-]*")
_DIMENSION = re.compile(r"\.(\d+)d$")

Words = Collection[str] | None  # None stands for all words


def load_vectors(
    folder: Path, name: str, wanted: Words = None, progress: Progress | None = None
) -> WordVectors:
    """Load vectors from a data folder or from `vectors/` in it.

    Args:
        folder: Data folder.
        name: Such as glove.840B.300d; A+B concatenates two sets, with zeros where one lacks a word.
        wanted: Words to keep, sorted; None keeps all words of the file.
        progress: Called with the number of bytes of a text file that are read.
    """
    sets = []
    for part in name.split("+"):
        file, *others = _find_set(folder, part)
        vectors = _load_array(part, file, *others) if others else _load_text(part, file, wanted, progress)
        sets.append(vectors if wanted is None else vectors.select(sorted(wanted)))
    if len(sets) == 1:
        return sets[0]
    words = sorted({word for vectors in sets for word in vectors.words})
    rows = np.concatenate([vectors.look_up(words) for vectors in sets], axis=1)
    numbers = {word: row for row, word in enumerate(words)}
    return WordVectors(name, numbers, rows, all(vectors.lowered for vectors in sets))


def find_vector_files(folder: Path, name: str) -> list[DataFile]:
    """Find the files that `load_vectors` reads for this name; raise `DataError` if they are missing."""
    return [file for part in name.split("+") for file in _find_set(folder, part)]


def _find_set(folder: Path, name: str) -> list[DataFile]:
    if not _NAME.fullmatch(name):
        raise DataError(f"vectors {name!r}: expected a name such as glove.840B.300d, or two joined by +")
    folders = [folder / "vectors", folder]
    for path in folders:
        paths = [path / f"{name}{end}" for end in (".npy", ".words.txt", ".aliases.tsv")]
        if paths[0].is_file() and paths[1].is_file():
            return [DataFile(path) for path in paths if path.is_file()]
    archives = [path / f"{stem}.zip" for path in folders for stem in (name, _DIMENSION.sub("", name))]
    text = find_file(folders, f"{name}.txt", archives)
    if text is None:
        names = f"{name}.npy with {name}.words.txt, {name}.txt, .txt.gz, .txt.xz and .zip"
        present = ", ".join(list_vectors(folder)) or "nothing"
        missing = f"vectors {name} are not in {folders[0]} or {folder}"
        raise DataError(f"{missing}: looked for {names}; there is {present}", ("vectors", name))
    return [text]


def list_vectors(folder: Path) -> list[str]:
    """List the names of the vectors in a data folder, except those in archives of several."""
    names = [file.name for file in [*folder.glob("vectors/*"), *folder.glob("*")]]
    pattern = r"(.+)\.npy|(.+\.\d+d)\.(?:txt|txt\.gz|txt\.xz|zip)"
    return sorted({match[1] or match[2] for name in names if (match := re.fullmatch(pattern, name))})


def _load_array(name: str, array: DataFile, listing: DataFile, *aliases: DataFile) -> WordVectors:
    rows = open_array(array)
    _check_dimension(name, rows.shape[1], array)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DataError(f"{array}: row {int(finite.argmin())} holds NaN or Inf")

    def parse_alias(line: str) -> tuple[str, int]:
        word, tab, row = line.rpartition("\t")
        if not (tab and row.isascii() and row.isdigit() and int(row) < len(rows)):
            raise ValueError(f"expected a word, a tab and a row below {len(rows)}")
        return word, int(row)

    words = {word: row for row, word in enumerate(parse_lines(listing, str))}
    if len(words) != len(rows):
        wrong = f"{len(words):,} different words for {len(rows):,} rows of {array.path.name}"
        raise DataError(f"{listing}: {wrong}")
    for word, row in (alias for file in aliases for alias in parse_lines(file, parse_alias)):
        words.setdefault(word, row)
    return WordVectors(name, words, rows, lowered=all(word == word.lower() for word in words))


def open_array(file: DataFile) -> NDArray[np.floating]:
    """Open the array [n, d] of a .npy file, memory-mapped."""
    with explain_read_errors(file):
        try:  # memory-mapped, so that a wrong header cannot claim more than the file holds
            rows = np.load(file.path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise DataError(f"{file}: is not a complete .npy file of numbers: {error}") from None
    if not (isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype in (np.float16, np.float32)):
        raise DataError(f"{file}: expected a .npy array [words, d] of float16 or float32")
    return rows


def _load_text(name: str, file: DataFile, wanted: Words, progress: Progress | None) -> WordVectors:
    """Read GloVe's text: each line is a word, which may hold spaces, and d numbers."""
    keep = None if wanted is None else {form.encode() for w in wanted for form in (w, w.lower())}
    words, rows = dict[str, int](), list[NDArray[np.float32]]()
    lowered, d = True, -1
    for number, line in read_lines(file, progress):
        line = line.rstrip(b" \r")
        if d < 0:
            d = line.rstrip().count(b" ")
            _check_dimension(name, d, file)
        try:
            word, numbers = _split_line(line, d)
            if lowered:
                text = word.decode("utf-8", "replace")
                lowered = text == text.lower()
            if keep is None or word in keep:  # the numbers of most lines are never parsed
                rows.append(_parse_numbers(numbers, d))
                words.setdefault(word.decode("utf-8"), len(rows) - 1)
        except ValueError as error:
            why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise DataError(f"{file}: line {number}: {why}") from None
    if d < 0:
        raise DataError(f"{file}: is empty; remove it and get it again")
    return WordVectors(name, words, np.stack(rows) if rows else np.zeros((0, d), np.float32), lowered)


def _split_line(line: bytes, d: int) -> tuple[bytes, bytes]:
    """Split a line into its word and its numbers."""
    spaces = line.count(b" ")
    if spaces < d or not d:
        raise ValueError(f"expected a word and {d} numbers, got {spaces} numbers")
    cut = line.index(b" ") if spaces == d else len(line.rsplit(b" ", d)[0])
    return line[:cut], line[cut + 1 :]


def _parse_numbers(text: bytes, d: int) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            row = np.array([float(piece) for piece in text.split(b" ")], np.float32)
    except ValueError:
        raise ValueError(f"expected a word and {d} numbers") from None
    if not np.isfinite(row).all():
        raise ValueError("holds NaN or Inf")
    return row


def _check_dimension(name: str, d: int, file: DataFile) -> None:
    """Raise if the name, such as one that ends in .300d, promises another dimension."""
    promised = _DIMENSION.search(name)
    if promised and int(promised[1]) != d:
        raise DataError(f"{file}: expected vectors of {promised[1]} numbers by its name, got {d}")
