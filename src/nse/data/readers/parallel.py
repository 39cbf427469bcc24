"""Read English texts and their German translations, line by line, as published (section 4.5 of the paper).

Rows hold lower-case words separated by single spaces; no text is empty.
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

LABELS = ("pair",)  # pairs have no labels: every row has label 0
MAX_WORDS = 25  # per side of a pair of IWSLT 2014; longer pairs are dropped, as in the paper
DEV_STEP = 23  # every 23rd training pair of IWSLT 2014 is for development
LANGUAGES = ("en", "de")

# Names of the two files of each split; `{}` is the language.
MULTI30K = {"train": "train.{}", "dev": "val.{}"}
MULTI30K |= {"test": "test_2016_flickr.{}", "test_2017": "test_2017_flickr.{}"}
EUROPARL = {"train": "train.{}", "dev": "dev.{}", "test": "test.{}"}
PREPARED = {"train": "train.{}", "dev": "valid.{}", "test": "test.{}"}

# Sets of IWSLT 2014 that make up the test split, in this order.
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
OPTIONAL = "TEDX.dev2012"  # German talks, which the archive en-de may lack

ParseLine = Callable[[str], str | None]  # from a line to its text, or None
Tokenize = Callable[[str], list[str]]
FilePair = tuple[DataFile, DataFile]  # English and German, aligned by line


def find_sources(data: str, folder: Path) -> dict[str, DataFile]:
    """Find the files of a data set, by names such as `train.en`, or `TED.tst2012.de` of published talks."""
    names, folders = _choose_names(data, folder)
    wanted = {f"{key}.{code}": name.format(code) for key, name in names.items() for code in LANGUAGES}
    return find_files(data, wanted, folders, "; put the published files there")


def _choose_names(data: str, folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Return the file names of a data set, and the folders to look in."""
    own = folder / data
    if data == "multi30k":
        return MULTI30K, [own, own / "data" / "task1" / "raw"]  # the second in a clone of its repository
    if data == "europarl":
        return EUROPARL, [own]
    for direction in ("en-de", "de-en"):  # the same talks, published twice
        folders = [own, own / direction, folder / direction]
        if find_file(folders, f"train.tags.{direction}.en"):
            tests = {name: f"IWSLT14.{name}.{direction}.{{}}.xml" for name in TESTS}
            if not _is_there(tests[OPTIONAL], folders):
                del tests[OPTIONAL]
            return {"train": f"train.tags.{direction}.{{}}", **tests}, folders
    if any(_is_there(name, [own]) for name in PREPARED.values()):
        whole = _is_there(PREPARED["train"], [own])
        return {split: name for split, name in PREPARED.items() if whole or split != "train"}, [own]
    looked = describe_search("train.tags.en-de.en", [own, folder / "en-de"])
    raise DataError(f"{data}: no {looked}, and no valid.en in {own}; put the published files there")


def _is_there(name: str, folders: Sequence[Path]) -> bool:
    """Return whether the file of one language is there; then the other is required too."""
    return any(find_file(folders, name.format(language)) for language in LANGUAGES)


def read(data: str, folder: Path, raw: bool = False) -> dict[str, Rows]:
    """Read the splits of a data set; pairs with an empty side are dropped.

    For `iwslt14` as published, titles and descriptions of talks count as text. Instead there may be train,
    valid and test files that the usual script leaves: tokenized, in lower case, with escapes. It drops pairs
    of very different lengths before it takes every 23rd, so its dev rows differ.

    With `raw`, texts are tokenized only roughly, which is enough to count pairs, and fast.
    """
    files = find_sources(data, folder)
    published = f"{TESTS[0]}.en" in files  # of IWSLT 2014
    max_words = MAX_WORDS if data == "iwslt14" else inf
    tokenizers: list[Tokenize] = [moses.tokenize_english, moses.tokenize_german]
    if data == "iwslt14" and not published:
        tokenizers = [_split_escaped, _split_escaped]
    if raw:
        tokenizers = [partial(_split_roughly, tokenize=t, max_words=max_words) for t in tokenizers]
    make = partial(_make_rows, tokenizers=tokenizers, max_words=max_words)
    pairs = {key.removesuffix(".en"): (files[key], files[f"{key[:-2]}de"]) for key in list(files)[::2]}
    if not published:
        return {name: make([pair], _read_sides([pair])) for name, pair in pairs.items()}
    train, *tests = pairs.values()
    training = _read_sides([train], _parse_tagged)
    dev = training[DEV_STEP - 1 :: DEV_STEP]
    del training[DEV_STEP - 1 :: DEV_STEP]
    rows = {"train": make([train], training), "dev": make([train], dev)}
    return rows | {"test": make(tests, _read_sides(tests, _parse_segment))}


def _read_sides(pairs: Iterable[FilePair], parse: ParseLine = str) -> list[tuple[str, str]]:
    """Read the texts of pairs of files, one pair after the other."""
    sides: list[tuple[str, str]] = []
    for pair in pairs:
        english, german = ([text for text in parse_lines(file, parse) if text is not None] for file in pair)
        if len(english) != len(german):
            wrong = f"expected as many lines of text in both, got {len(english)} and {len(german)}"
            raise DataError(f"{pair[0]} and {pair[1]}: {wrong}; remove both and get them again")
        sides += zip(english, german, strict=True)
    return sides


def _make_rows(
    pairs: Sequence[FilePair], sides: list[tuple[str, str]], tokenizers: list[Tokenize], max_words: float
) -> Rows:
    """Tokenize texts; pairs with an empty side, or with more than `max_words` on one, are dropped."""
    texts: dict[str, list[str]] = {"source": [], "target": []}
    for side in sides:
        words = [tokenize(text) for tokenize, text in zip(tokenizers, side, strict=True)]
        if all(words) and max(map(len, words)) <= max_words:
            for column, tokens in zip(texts.values(), words, strict=True):
                column.append(" ".join(tokens))
    if not texts["source"]:
        wanted = "pairs with words on both sides" + ("" if max_words == inf else f", {max_words} at most")
        wrong = f"expected {wanted}, got none in {len(sides)} lines for a split"
        names = ", ".join(f"{english} and {german}" for english, german in pairs)
        raise DataError(f"{names}: {wrong}; remove them and get them again")
    return Rows(texts, [0] * len(texts["source"]), len(sides), tokenized=True)


def _split_roughly(text: str, tokenize: Tokenize, max_words: float) -> list[str]:
    """Split at spaces where that is enough to know whether a text is empty or too long.

    No tokenizer gives fewer words than that, nor more than there are runs of ASCII letters and other signs.
    """
    words = moses.normalize_spaces(text).split()
    is_sure = max_words == inf or len(words) > max_words or len(_PARTS.findall(text)) <= max_words
    return words if is_sure else tokenize(text)


_PARTS = re.compile(r"[A-Za-z0-9]+|\S")
_METADATA = re.compile(r"</?(?:url|keywords|speaker|talkid|reviewer|translator|doc)\b")
_TITLE_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)(?:</seg>|$)")
_ESCAPE = re.compile("&(?:apos|quot|amp|lt|gt|#124|#91|#93);")  # all that Moses writes


def _parse_tagged(line: str) -> str | None:
    """Return the text of a line of a training file, or None for metadata of a talk."""
    line = moses.normalize_spaces(line)
    return None if _METADATA.match(line) else _TITLE_TAGS.sub("", line)


def _parse_segment(line: str) -> str | None:
    """Return the text of a line of a test set, which need not be valid XML."""
    match = _SEGMENT.search(moses.normalize_spaces(line))
    # The training text has straight apostrophes only, and Moses knows no others.
    return html.unescape(match[1]).replace("\u2019", "'") if match else None


def _split_escaped(text: str) -> list[str]:
    """Split a text that Moses tokenized and escaped."""
    words = moses.normalize_spaces(text).split()
    return [_ESCAPE.sub(lambda escape: html.unescape(escape[0]), word.lower()) for word in words]
