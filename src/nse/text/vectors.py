"""Word vectors from files: GloVe's text, or a numpy array beside a list of words; and what they cover."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nse.errors import DataError
from nse.text.published import Progress, Source, find, lines, told

_NAME = re.compile(r"\w[\w.-]*")
_DIMENSION = re.compile(r"\.(\d+)d$")


@dataclass(frozen=True)
class Vectors:
    """Words and their vectors.

    Attributes:
        name: By which they were loaded.
        words: The row of each word; several words may share one.
        rows: [n, d], float16 or float32.
        lowered: Whether the set holds no upper-case letters at all, like glove.6B. Then a word that it
            lacks is looked up in lower case.
    """

    name: str
    words: dict[str, int]
    rows: NDArray[np.floating]
    lowered: bool = False

    @property
    def dimension(self) -> int:
        """d: how many numbers a vector has."""
        return int(self.rows.shape[1])

    def find(self, word: str) -> int | None:
        """The row of a word, or None."""
        row = self.words.get(word)
        return self.words.get(word.lower()) if row is None and self.lowered else row

    def of(self, words: Collection[str]) -> NDArray[np.floating]:
        """[len(words), d], the vectors of these words; zero for a word without one."""
        found = np.zeros((len(words), self.dimension), self.rows.dtype)
        for index, word in enumerate(words):
            if (row := self.find(word)) is not None:
                found[index] = self.rows[row]
        return found

    def select(self, words: Iterable[str]) -> Vectors:
        """The vectors of those of these words that have one, each with a row of its own."""
        found = [word for word in words if self.find(word) is not None]
        return Vectors(self.name, {word: row for row, word in enumerate(found)}, self.of(found))


def load_vectors(
    folder: Path, name: str, wanted: Collection[str] | None = None, progress: Progress | None = None
) -> Vectors:
    """Vectors from a data folder or from `vectors/` in it.

    They lie there as NAME.npy with NAME.words.txt (a word a line) and perhaps NAME.aliases.tsv (more words,
    each with a tab and the row it shares), or as GloVe publishes them: NAME.txt, NAME.txt.gz, NAME.txt.xz,
    or NAME.txt inside NAME.zip; glove.6B.100d is also looked for in glove.6B.zip.

    Args:
        folder: The data folder.
        name: Such as glove.840B.300d; A+B puts two sets side by side, zero where one lacks the word.
        wanted: Only these words are kept, in the order of the alphabet. None means all that there are.
        progress: Told how many bytes of a text file are read.
    """
    sets = [_load_one(folder, part, wanted, progress) for part in name.split("+")]
    if len(sets) == 1:
        return sets[0]
    words = sorted({word for each in sets for word in each.words})
    rows = np.concatenate([each.of(words) for each in sets], axis=1)
    lowered = all(each.lowered for each in sets)
    return Vectors(name, {word: row for row, word in enumerate(words)}, rows, lowered)


def vector_sources(folder: Path, name: str) -> list[Source]:
    """The files that `load_vectors` reads for this name; `DataError` says what is missing."""
    return [source for part in name.split("+") for source in _sources(folder, part)]


def _load_one(folder: Path, name: str, wanted: Collection[str] | None, progress: Progress | None) -> Vectors:
    sources = _sources(folder, name)
    if sources[0].path.suffix == ".npy":
        vectors = _load_array(name, sources)
    else:
        vectors = _load_text(name, sources[0], wanted, progress)
    return vectors if wanted is None else vectors.select(sorted(wanted))


def _sources(folder: Path, name: str) -> list[Source]:
    if not _NAME.fullmatch(name):
        raise DataError(f"vectors {name!r}: expected a name such as glove.840B.300d, or two joined by +")
    places = [folder / "vectors", folder]
    for place in places:
        files = [place / f"{name}{end}" for end in (".npy", ".words.txt", ".aliases.tsv")]
        if files[0].is_file() and files[1].is_file():
            return [Source(file) for file in files if file.is_file()]
    text = find(places, f"{name}.txt", [f"{name}.zip", f"{_DIMENSION.sub('', name)}.zip"])
    if text is None:
        raise DataError(
            f"vectors {name} are not in {places[0]} or {folder}: "
            f"looked for {name}.npy with {name}.words.txt, {name}.txt, .txt.gz, .txt.xz and .zip; "
            f"there is {', '.join(available(folder)) or 'nothing'}. "
            f"`nse data fetch {name}` gets published ones, `nse data status` lists all"
        )
    return [text]


def available(folder: Path) -> list[str]:
    """The names of the vectors in a data folder, archives aside."""
    found = set()
    for file in [*folder.glob("vectors/*"), *folder.glob("*")]:
        if match := re.fullmatch(r"(.+)\.npy|(.+\.\d+d)\.(?:txt|txt\.gz|txt\.xz|zip)", file.name):
            found.add(match[1] or match[2])
    return sorted(found)


def _load_array(name: str, sources: list[Source]) -> Vectors:
    array, listing, *aliases = sources
    rows = open_array(array)
    _check_dimension(name, rows.shape[1], array)
    if not np.isfinite(rows).all():
        broken = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise DataError(f"{array}: row {broken} holds NaN or Inf")
    words: dict[str, int] = {}
    for number, line in lines(listing):
        words[_decoded(listing, number, line)] = number - 1
    if len(words) != len(rows):
        raise DataError(
            f"{listing}: {len(words):,} different words for {len(rows):,} rows of {array.path.name}"
        )
    for source in aliases:
        for number, line in lines(source):
            word, tab, row = _decoded(source, number, line).rpartition("\t")
            if not (tab and row.isascii() and row.isdigit() and int(row) < len(rows)):
                raise DataError(
                    f"{source}: line {number}: expected a word, a tab and a row below {len(rows)}"
                )
            words.setdefault(word, int(row))
    return Vectors(name, words, rows, lowered=all(word == word.lower() for word in words))


def open_array(source: Source) -> NDArray[np.floating]:
    """[n, d], the array of a .npy file, not read until it is used."""
    with told(source):
        try:  # mapped, so that a header cannot claim more than the file holds
            rows = np.load(source.path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise DataError(f"{source}: is not a whole .npy file of numbers: {error}") from None
    if not (isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype in (np.float16, np.float32)):
        raise DataError(f"{source}: expected a .npy array [words, d] of float16 or float32")
    return rows


def _load_text(
    name: str, source: Source, wanted: Collection[str] | None, progress: Progress | None
) -> Vectors:
    """Stream GloVe's text: a word, which may hold spaces, and d numbers on each line."""
    keep = None if wanted is None else {form.encode() for w in wanted for form in (w, w.lower())}
    words: dict[str, int] = {}
    rows: list[NDArray[np.float32]] = []
    lowered = True
    d = None
    for number, line in lines(source, progress):
        if d is None:
            d = line.rstrip().count(b" ")
            _check_dimension(name, d, source)
        word, numbers = _split(source, number, line, d)
        lowered = lowered and _is_lower(word)
        if keep is None or word in keep:
            rows.append(_numbers(source, number, numbers, d))
            words.setdefault(_decoded(source, number, word), len(rows) - 1)
    if d is None:
        raise DataError(f"{source}: is empty; remove it and get it again")
    return Vectors(name, words, np.stack(rows) if rows else np.zeros((0, d), np.float32), lowered)


def _split(source: Source, number: int, line: bytes, d: int) -> tuple[bytes, bytes]:
    """The word of a line, and its numbers still as text: most lines are only looked at so far."""
    line = line.rstrip(b" \r")
    spaces = line.count(b" ")
    if spaces < d or not d:
        raise DataError(f"{source}: line {number}: expected a word and {d} numbers, got {spaces} numbers")
    cut = line.index(b" ") if spaces == d else len(line.rsplit(b" ", d)[0])
    return line[:cut], line[cut + 1 :]


def _numbers(source: Source, number: int, text: bytes, d: int) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            row = np.array([float(piece) for piece in text.split(b" ")], np.float32)
    except ValueError:
        raise DataError(f"{source}: line {number}: expected a word and {d} numbers") from None
    if not np.isfinite(row).all():
        raise DataError(f"{source}: line {number}: holds NaN or Inf")
    return row


def _is_lower(word: bytes) -> bool:
    if word.isascii():
        return word == word.lower()
    text = word.decode("utf-8", "replace")
    return text == text.lower()


def _decoded(source: Source, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{source}: line {number}: is not UTF-8") from None


def _check_dimension(name: str, d: int, source: Source) -> None:
    """A name that ends in .300d promises vectors of 300 numbers."""
    told_by_name = _DIMENSION.search(name)
    if told_by_name and int(told_by_name[1]) != d:
        raise DataError(f"{source}: expected vectors of {told_by_name[1]} numbers by its name, got {d}")


@dataclass(frozen=True)
class Coverage:
    """How much of a text some words cover.

    Attributes:
        tokens: Words of the text, each as often as it occurs.
        types: Different words of the text.
        known_tokens: How many of the tokens are covered.
        known_types: How many of the types are covered.
        missing: The most frequent words that are not, with their counts.
    """

    tokens: int
    types: int
    known_tokens: int
    known_types: int
    missing: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return "\n".join(self._told())

    def _told(self) -> Iterator[str]:
        for name, known, total in [
            ("tokens", self.known_tokens, self.tokens),
            ("types", self.known_types, self.types),
        ]:
            yield f"{name} covered: {known / max(total, 1):.2%} ({known:,} of {total:,})"
        if self.missing:
            frequent = ", ".join(f"{word} ({count:,})" for word, count in self.missing)
            yield f"most frequent without a vector: {frequent}"


def coverage(counts: Counter[str], known: Container[str], most: int = 20) -> Coverage:
    """How much of a text, given as the counts of its words, is in `known`; and what most often is not."""
    missing = {word: count for word, count in counts.items() if word not in known}
    frequent = sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:most]
    return Coverage(
        tokens=counts.total(),
        types=len(counts),
        known_tokens=counts.total() - sum(missing.values()),
        known_types=len(counts) - len(missing),
        missing=tuple(frequent),
    )
