"""Word vectors from files: GloVe's text, or a numpy array beside a list of words.

NAME.npy lies there with NAME.words.txt (a word a line) and perhaps NAME.aliases.tsv (more words, each with a
tab and the row it shares), or as GloVe publishes them: NAME.txt, NAME.txt.gz, NAME.txt.xz, or NAME.txt inside
NAME.zip; glove.6B.100d is also looked for in glove.6B.zip.
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


def load_vectors(
    folder: Path, name: str, wanted: Collection[str] | None = None, progress: Progress | None = None
) -> WordVectors:
    """Load vectors from a data folder or from `vectors/` in it.

    Args:
        folder: The data folder.
        name: Such as glove.840B.300d; A+B puts two sets side by side, zero where one lacks the word.
        wanted: Only these words are kept, in the order of the alphabet. None means all that there are.
        progress: Called with how many bytes of a text file are read.
    """
    sets = [_load_one(folder, part, wanted, progress) for part in name.split("+")]
    if len(sets) == 1:
        return sets[0]
    words = sorted({word for each in sets for word in each.words})
    rows = np.concatenate([each.look_up(words) for each in sets], axis=1)
    numbers = {word: row for row, word in enumerate(words)}
    return WordVectors(name, numbers, rows, all(each.lowered for each in sets))


def find_vector_files(folder: Path, name: str) -> list[DataFile]:
    """Find the files that `load_vectors` reads for this name; `DataError` says what is missing."""
    return [file for part in name.split("+") for file in _find_sources(folder, part)]


def _load_one(
    folder: Path, name: str, wanted: Collection[str] | None, progress: Progress | None
) -> WordVectors:
    file, *others = _find_sources(folder, name)
    vectors = _load_array(name, file, *others) if others else _load_text(name, file, wanted, progress)
    return vectors if wanted is None else vectors.select(sorted(wanted))


def _find_sources(folder: Path, name: str) -> list[DataFile]:
    if not _NAME.fullmatch(name):
        raise DataError(f"vectors {name!r}: expected a name such as glove.840B.300d, or two joined by +")
    places = [folder / "vectors", folder]
    for place in places:
        paths = [place / f"{name}{end}" for end in (".npy", ".words.txt", ".aliases.tsv")]
        if paths[0].is_file() and paths[1].is_file():
            return [DataFile(path) for path in paths if path.is_file()]
    archives = [place / f"{each}.zip" for place in places for each in (name, _DIMENSION.sub("", name))]
    text = find_file(places, f"{name}.txt", archives)
    if text is None:
        names = f"{name}.npy with {name}.words.txt, {name}.txt, .txt.gz, .txt.xz and .zip"
        there = ", ".join(list_vectors(folder)) or "nothing"
        missing = f"vectors {name} are not in {places[0]} or {folder}"
        raise DataError(f"{missing}: looked for {names}; there is {there}", ("vectors", name))
    return [text]


def list_vectors(folder: Path) -> list[str]:
    """List the names of the vectors in a data folder, archives aside."""
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
    """Open the array [n, d] of a .npy file, not read until it is used."""
    with explain_read_errors(file):
        try:  # mapped, so that a header cannot claim more than the file holds
            rows = np.load(file.path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise DataError(f"{file}: is not a whole .npy file of numbers: {error}") from None
    if not (isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype in (np.float16, np.float32)):
        raise DataError(f"{file}: expected a .npy array [words, d] of float16 or float32")
    return rows


def _load_text(
    name: str, file: DataFile, wanted: Collection[str] | None, progress: Progress | None
) -> WordVectors:
    """Read GloVe's text: a word, which may hold spaces, and d numbers on each line."""
    keep = None if wanted is None else {form.encode() for w in wanted for form in (w, w.lower())}
    words, rows = dict[str, int](), list[NDArray[np.float32]]()
    lowered, d = True, -1
    for number, line in read_lines(file, progress):
        line = line.rstrip(b" \r")
        if d < 0:
            d = line.rstrip().count(b" ")
            _check_dimension(name, d, file)
        try:
            word, numbers = _cut_word(line, d)
            if lowered:
                text = word.decode("utf-8", "replace")
                lowered = text == text.lower()
            if keep is None or word in keep:  # most lines are only looked at so far
                rows.append(_parse_numbers(numbers, d))
                words.setdefault(word.decode("utf-8"), len(rows) - 1)
        except ValueError as error:
            why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise DataError(f"{file}: line {number}: {why}") from None
    if d < 0:
        raise DataError(f"{file}: is empty; remove it and get it again")
    return WordVectors(name, words, np.stack(rows) if rows else np.zeros((0, d), np.float32), lowered)


def _cut_word(line: bytes, d: int) -> tuple[bytes, bytes]:
    """Cut the word of a line off its numbers."""
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
    """Refuse vectors of which the name, such as one that ends in .300d, promises other sizes."""
    promised = _DIMENSION.search(name)
    if promised and int(promised[1]) != d:
        raise DataError(f"{file}: expected vectors of {promised[1]} numbers by its name, got {d}")
