"""English text and its translation into German, line by line, as published (section 4.5 of the paper).

Texts come as words in lower case with one plain space between two: `text.split(" ")` gives them, and only the
empty text, which no row holds, has none.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from pathlib import Path

from nse.data.sources import DataFile, Rows, describe_search, find_file, find_files, parse_lines
from nse.errors import DataError
from nse.text import moses

LABELS = ("pair",)  # a pair has no label; every row is given the first, 0
LONGEST = 25  # words on either side of a pair of IWSLT 2014; longer pairs are dropped, as in the paper
EVERY = 23  # of the training pairs of IWSLT 2014, from 1, those that this divides are for development
LANGUAGES = ("en", "de")

# From a split to the name of its two files, in which `{}` stands for the language.
MULTI30K = {"train": "train.{}", "dev": "val.{}"}
MULTI30K |= {"test": "test_2016_flickr.{}", "test_2017": "test_2017_flickr.{}"}
EUROPARL = {"train": "train.{}", "dev": "dev.{}", "test": "test.{}"}
PREPARED = {"train": "train.{}", "dev": "valid.{}", "test": "test.{}"}

# Sets of IWSLT 2014 that are the test split together, in this order.
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
OPTIONAL = "TEDX.dev2012"  # of talks in German: the archive en-de need not have it

Take = Callable[[str], str | None]  # from a line to its text; None where it holds none
Split = Callable[[str], list[str]]  # from a text to its words
Pair = tuple[DataFile, DataFile]  # English and German: each line of one translates the same line of the other


def find_sources(data: str, folder: Path) -> dict[str, DataFile]:
    """Find the files of a data set, by names such as `train.en`, or `TED.tst2012.de` of published talks."""
    names, places = _choose_names(data, folder)
    wanted = {f"{key}.{each}": name.format(each) for key, name in names.items() for each in LANGUAGES}
    return find_files(data, wanted, places, "; put the published files there")


def _choose_names(data: str, folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Choose how files are called and where they are looked for."""
    place = folder / data
    if data == "multi30k":
        return MULTI30K, [place, place / "data" / "task1" / "raw"]  # also of a clone
    if data == "europarl":
        return EUROPARL, [place]
    for direction in ("en-de", "de-en"):  # the same talks, published twice
        places = [place, place / direction, folder / direction]
        if find_file(places, f"train.tags.{direction}.en"):
            tests = {name: f"IWSLT14.{name}.{direction}.{{}}.xml" for name in TESTS}
            if not _is_there(tests[OPTIONAL], places):
                del tests[OPTIONAL]
            return {"train": f"train.tags.{direction}.{{}}", **tests}, places
    if any(_is_there(name, [place]) for name in PREPARED.values()):
        whole = _is_there(PREPARED["train"], [place])
        return {split: name for split, name in PREPARED.items() if whole or split != "train"}, [place]
    looked = describe_search("train.tags.en-de.en", [place, folder / "en-de"])
    raise DataError(f"{data}: no {looked}, and no valid.en in {place}; put the published files there")


def _is_there(name: str, places: Sequence[Path]) -> bool:
    """Tell whether the file of a language is there: then the other has to be there too."""
    return any(find_file(places, name.format(language)) for language in LANGUAGES)


def read(data: str, folder: Path, raw: bool = False) -> dict[str, Rows]:
    """Read the splits of a data set; pairs of which a side has no words are dropped.

    As published, titles and descriptions of the talks of `iwslt14` are text. Else there may be train, valid
    and test as a usual script leaves them: split into words, in lower case, with escapes. It drops pairs of
    very different lengths before it takes every 23rd, so the rows for development are not the same.

    Where `raw`, texts are not split as they should be, which is enough to count pairs, and fast.
    """
    files = find_sources(data, folder)
    published = f"{TESTS[0]}.en" in files  # of IWSLT 2014
    longest = LONGEST if data == "iwslt14" else inf
    splits: list[Split] = [moses.tokenize_english, moses.tokenize_german]
    if data == "iwslt14" and not published:
        splits = [_split_escaped, _split_escaped]
    if raw:
        splits = [partial(_split_roughly, split=split, longest=longest) for split in splits]
    make = partial(_make_rows, splits=splits, longest=longest)
    pairs = {key.removesuffix(".en"): (files[key], files[f"{key[:-2]}de"]) for key in list(files)[::2]}
    if not published:
        return {name: make([pair], _read_sides([pair])) for name, pair in pairs.items()}
    train, *tests = pairs.values()
    training = _read_sides([train], _take_tagged)
    dev = training[EVERY - 1 :: EVERY]
    del training[EVERY - 1 :: EVERY]
    rows = {"train": make([train], training), "dev": make([train], dev)}
    return rows | {"test": make(tests, _read_sides(tests, _take_segment))}


def _read_sides(pairs: Iterable[Pair], take: Take = str) -> list[tuple[str, str]]:
    """Read the texts of pairs of files, one after the other."""
    sides: list[tuple[str, str]] = []
    for pair in pairs:
        english, german = ([text for text in parse_lines(file, take) if text is not None] for file in pair)
        if len(english) != len(german):
            wrong = f"expected as many lines of text in both, got {len(english)} and {len(german)}"
            raise DataError(f"{_name(pair)}: {wrong}; remove both and get them again")
        sides += zip(english, german, strict=True)
    return sides


def _name(pair: Pair) -> str:
    return " and ".join(map(str, pair))


def _make_rows(
    pairs: Sequence[Pair], sides: Sequence[tuple[str, str]], splits: Sequence[Split], longest: float
) -> Rows:
    """Split texts into words; pairs with an empty side, or one of more words than `longest`, are dropped."""
    texts: dict[str, list[str]] = {"source": [], "target": []}
    for side in sides:
        words = [split(text) for split, text in zip(splits, side, strict=True)]
        if all(words) and max(map(len, words)) <= longest:
            for column, each in zip(texts.values(), words, strict=True):
                column.append(" ".join(each))
    if not texts["source"]:
        wanted = "pairs with words on both sides" + ("" if longest == inf else f", {longest} at most")
        wrong = f"expected {wanted}, got none in {len(sides)} lines for a split"
        raise DataError(f"{', '.join(map(_name, pairs))}: {wrong}; remove them and get them again")
    return Rows(texts, [0] * len(texts["source"]), len(sides), tokenized=True)


def _split_roughly(text: str, split: Split, longest: float) -> list[str]:
    """Split at spaces where that is enough to know whether a text has no words, or too many.

    No split gives fewer words than that, nor more than there are runs of ASCII letters and other signs.
    """
    words = moses.normalize_spaces(text).split()
    sure = longest == inf or len(words) > longest or len(_PARTS.findall(text)) <= longest
    return words if sure else split(text)


_PARTS = re.compile(r"[A-Za-z0-9]+|\S")
_ABOUT = re.compile(r"</?(?:url|keywords|speaker|talkid|reviewer|translator|doc)\b")
_AROUND = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)(?:</seg>|$)")
_ESCAPE = re.compile("&(?:apos|quot|amp|lt|gt|#124|#91|#93);")  # all that Moses writes


def _take_tagged(line: str) -> str | None:
    """Take the text of a line of a training file; None where it tells about a talk."""
    line = moses.normalize_spaces(line)
    return None if _ABOUT.match(line) else _AROUND.sub("", line)


def _take_segment(line: str) -> str | None:
    """Take the text of a line of a test set, which need not be good XML."""
    found = _SEGMENT.search(moses.normalize_spaces(line))
    # The training text has straight apostrophes alone, and Moses knows no others.
    return html.unescape(found[1]).replace("\u2019", "'") if found else None


def _split_escaped(text: str) -> list[str]:
    """Split a text that Moses has split and escaped."""
    words = moses.normalize_spaces(text).split()
    return [_ESCAPE.sub(lambda found: html.unescape(found[0]), word.lower()) for word in words]
