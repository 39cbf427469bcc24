"""English text and its translation into German, line by line, as published (section 4.5 of the paper).

Texts come as words in lower case with one plain space between two: `text.split(" ")` gives them, and only the
empty text, which no row holds, has none.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from nse.data.splits import Rows
from nse.errors import DataError
from nse.text import moses
from nse.text.published import Source, find, lines

LABELS = ("pair",)
"""A pair has no label; every row is given the first, 0."""

LONGEST = 25
"""Words on either side of a pair of IWSLT 2014; longer pairs are dropped, as in the paper."""

EVERY = 23
"""Of the training pairs of IWSLT 2014, numbered from 1, those that this divides are for development."""

LANGUAGES = ("en", "de")

MULTI30K = {
    "train": "train.{}",
    "dev": "val.{}",
    "test": "test_2016_flickr.{}",
    "test_2017": "test_2017_flickr.{}",
}
EUROPARL = {"train": "train.{}", "dev": "dev.{}", "test": "test.{}"}
PREPARED = {"train": "train.{}", "dev": "valid.{}", "test": "test.{}"}
"""From a split to the name of its two files, in which `{}` stands for the language."""

TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
"""Sets of IWSLT 2014 that are the test split together, in this order."""

OPTIONAL = "TEDX.dev2012"  # of talks in German: the archive en-de need not have it

Take = Callable[[str], str | None]
"""From a line to its text; None where it holds none."""

Split = Callable[[str], list[str]]
"""From a text to its words."""

RAW: tuple[Split, Split] = (moses.english, moses.german)


class Pair(NamedTuple):
    """Two files, of which each line of one translates the same line of the other."""

    english: Source
    german: Source

    def __str__(self) -> str:
        return f"{self.english} and {self.german}"


def multi30k_sources(folder: Path) -> dict[str, Source]:
    """Where the files lie, `multi30k/` or a clone of that name; `DataError` says what is missing."""
    return _named(_multi30k(folder))


def read_multi30k(folder: Path) -> dict[str, Rows]:
    """Descriptions of photographs: train, dev, test (of 2016) and test_2017."""
    return {split: read_split([pair]) for split, pair in _multi30k(folder).items()}


def count_multi30k(folder: Path) -> dict[str, int]:
    """How many rows each split has, without a look at their words."""
    return {split: _count(pair) for split, pair in _multi30k(folder).items()}


def _multi30k(folder: Path) -> dict[str, Pair]:
    place = folder / "multi30k"
    return _pairs("multi30k", MULTI30K, [place, place / "data" / "task1" / "raw"])


def europarl_sources(folder: Path) -> dict[str, Source]:
    """Where the files lie, `europarl/` in a data folder; `DataError` says what is missing."""
    return _named(_europarl(folder))


def read_europarl(folder: Path) -> dict[str, Rows]:
    """Short speech in the European Parliament: train, dev and test, cut and filtered beforehand."""
    return {split: read_split([pair]) for split, pair in _europarl(folder).items()}


def count_europarl(folder: Path) -> dict[str, int]:
    """How many rows each split has, without a look at their words."""
    return {split: _count(pair) for split, pair in _europarl(folder).items()}


def _europarl(folder: Path) -> dict[str, Pair]:
    return _pairs("europarl", EUROPARL, [folder / "europarl"])


def iwslt14_sources(folder: Path) -> dict[str, Source]:
    """Where the files of TED talks lie, as published or else prepared; `DataError` says what is missing."""
    return _named(_published(folder) or _prepared(folder))


def read_iwslt14(folder: Path) -> dict[str, Rows]:
    """TED talks: train, dev and test, of which pairs of more than 25 words on a side are dropped.

    Of the published files, every 23rd training pair is for development, and all sets for development and
    tests together are the test. Titles and descriptions of talks are text too. Where those files are not
    there, `iwslt14/` may hold train, valid and test as a usual script leaves them: split into words, in lower
    case, with escapes. That script drops pairs of very different lengths before it takes every 23rd, so
    the rows for development are not the same. Its training files may be missing: then so is the split.
    """
    if published := _published(folder):
        return _read_published(published)
    return {
        split: read_split([pair], words=(_unescaped, _unescaped), longest=LONGEST)
        for split, pair in _prepared(folder).items()
    }


def count_iwslt14(folder: Path) -> dict[str, int]:
    """How many rows each split has; how long they are is known only when they are read."""
    return {split: len(rows.labels) for split, rows in read_iwslt14(folder).items()}


def _published(folder: Path) -> dict[str, Pair]:
    """The training files and the sets, nothing where there is no English training file."""
    for direction in ("en-de", "de-en"):  # the same talks, published twice
        places = [folder / "iwslt14", folder / "iwslt14" / direction, folder / direction]
        if not find(places, f"train.tags.{direction}.en"):
            continue
        names = {name: f"IWSLT14.{name}.{direction}.{{}}.xml" for name in TESTS}
        if not _any(places, names[OPTIONAL]):
            del names[OPTIONAL]
        return _pairs("iwslt14", {"train": f"train.tags.{direction}.{{}}", **names}, places)
    return {}


def _prepared(folder: Path) -> dict[str, Pair]:
    places = [folder / "iwslt14"]
    if not any(_any(places, name) for name in PREPARED.values()):
        raise DataError(
            f"iwslt14: no train.tags.en-de.en in {places[0]} or {folder / 'en-de'}, plain, .gz or .xz, "
            f"and no valid.en in {places[0]}; put the published files there"
        )
    names = PREPARED
    if not _any(places, names["train"]):
        names = {split: name for split, name in names.items() if split != "train"}
    return _pairs("iwslt14", names, places)


def _read_published(pairs: Mapping[str, Pair]) -> dict[str, Rows]:
    training = _sides(pairs["train"], _tagged)
    tests = [pair for name, pair in pairs.items() if name != "train"]
    dev = training[EVERY - 1 :: EVERY]
    train = [sides for number, sides in enumerate(training, start=1) if number % EVERY]
    return {
        "train": _rows(train, [pairs["train"]], RAW, LONGEST),
        "dev": _rows(dev, [pairs["train"]], RAW, LONGEST),
        "test": read_split(tests, _segment, longest=LONGEST),
    }


def read_split(
    pairs: Sequence[Pair], take: Take = str, words: tuple[Split, Split] = RAW, longest: float = inf
) -> Rows:
    """The rows of pairs of files, one after another; pairs of which a side has no words are dropped.

    Args:
        pairs: Which files.
        take: From a line to its text.
        words: From a text to its words, in English and in German.
        longest: Pairs of which a side has more words are dropped too.
    """
    return _rows([sides for pair in pairs for sides in _sides(pair, take)], pairs, words, longest)


def _rows(
    sides: Iterable[tuple[str, str]], pairs: Sequence[Pair], words: tuple[Split, Split], longest: float
) -> Rows:
    english, german = words
    sources: list[str] = []
    targets: list[str] = []
    read = 0
    for text, translation in sides:
        read += 1
        source, target = english(text), german(translation)
        if source and target and max(len(source), len(target)) <= longest:
            sources.append(" ".join(source))
            targets.append(" ".join(target))
    if not sources:
        raise DataError(
            f"{', '.join(map(str, pairs))}: expected pairs with words on both sides{_at_most(longest)}, "
            f"got none in {read} lines for a split; remove them and get them again"
        )
    return Rows({"source": sources, "target": targets}, [0] * len(sources), read, tokenized=True)


def _count(pair: Pair) -> int:
    """How many rows `read_split` gives where pairs may be long."""
    return sum(bool(moses.plain(text) and moses.plain(other)) for text, other in _sides(pair, str))


def _at_most(longest: float) -> str:
    return "" if longest == inf else f", {longest} at most"


def _sides(pair: Pair, take: Take) -> list[tuple[str, str]]:
    english, german = (_texts(source, take) for source in pair)
    if len(english) != len(german):
        raise DataError(
            f"{pair}: expected as many lines of text in both, got {len(english)} and {len(german)}; "
            "remove both and get them again"
        )
    return list(zip(english, german, strict=True))


def _texts(source: Source, take: Take) -> list[str]:
    texts = []
    for number, line in lines(source):
        try:
            text = take(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(f"{source}: line {number}: is not UTF-8; remove it and get it again") from None
        if text is not None:
            texts.append(text)
    return texts


_ABOUT = re.compile(r"</?(?:url|keywords|speaker|talkid|reviewer|translator|doc)\b")
_AROUND = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)(?:</seg>|$)")


def _tagged(line: str) -> str | None:
    """The text of a line of a training file; None where it tells about a talk."""
    line = moses.plain(line)
    return None if _ABOUT.match(line) else _AROUND.sub("", line)


def _segment(line: str) -> str | None:
    """The text of a line of a test set, which need not be good XML."""
    found = _SEGMENT.search(moses.plain(line))
    # The training text has straight apostrophes alone, and Moses knows no others.
    return html.unescape(found[1]).replace("\u2019", "'") if found else None


_ESCAPES = {
    "&apos;": "'",
    "&quot;": '"',
    "&amp;": "&",
    "&#124;": "|",
    "&lt;": "<",
    "&gt;": ">",
    "&#91;": "[",
    "&#93;": "]",
}
_ESCAPE = re.compile("|".join(_ESCAPES))


def _unescaped(text: str) -> list[str]:
    """The words of a text that Moses has split and escaped."""
    return [_ESCAPE.sub(lambda found: _ESCAPES[found[0]], word.lower()) for word in moses.plain(text).split()]


def _pairs(data: str, names: Mapping[str, str], places: Sequence[Path]) -> dict[str, Pair]:
    return {
        key: Pair(*(_found(data, places, name.format(language)) for language in LANGUAGES))
        for key, name in names.items()
    }


def _any(places: Sequence[Path], name: str) -> bool:
    """Whether the file of a language is there: then the other has to be there too."""
    return any(find(places, name.format(language)) for language in LANGUAGES)


def _found(data: str, places: Sequence[Path], name: str) -> Source:
    if source := find(places, name):
        return source
    where = " or ".join(map(str, places))
    raise DataError(f"{data}: no {name} in {where}, plain, .gz or .xz; put the published files there")


def _named(pairs: Mapping[str, Pair]) -> dict[str, Source]:
    """The files by names such as `train.en`."""
    return {
        f"{name}.{language}": source
        for name, pair in pairs.items()
        for language, source in zip(LANGUAGES, pair, strict=True)
    }
