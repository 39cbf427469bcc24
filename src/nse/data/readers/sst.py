"""The Stanford Sentiment Treebank, as published (section 4.3 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nse.data.splits import Rows
from nse.errors import DataError
from nse.text.published import Source, find_each, lines
from nse.text.trees import Tree, parse

SPLITS = ("train", "dev", "test")
LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY_LABELS = ("negative", "positive")
ARCHIVE = "trainDevTestTrees_PTB.zip"

_FINE = {label: label for label in range(len(LABELS))}
_BINARY = {0: 0, 1: 0, 3: 1, 4: 1}  # what is neutral is neither


def sources(folder: Path) -> dict[str, Source]:
    """Where each split lies, `sst/trees/` or `trees/` in a data folder; `DataError` says what is missing."""
    places = [folder / "sst" / "trees", folder / "trees"]
    # Whole paths: train.txt says too little to be looked for in the folders where the archive may lie.
    archives = [str(place.absolute() / ARCHIVE) for place in (folder / "sst", folder)]
    names = {split: f"{split}.txt" for split in SPLITS}
    otherwise = f"{ARCHIVE} in {folder}; type `nse data fetch sst-fine --data {folder}`"
    return find_each("sst", names, places, archives, otherwise)


def read_fine(folder: Path) -> dict[str, Rows]:
    """Five labels. Every phrase of the training trees, and the whole sentences of the others."""
    return _read(folder, _FINE)


def read_binary(folder: Path) -> dict[str, Rows]:
    """Two labels. As `read_fine`, but what is neutral is dropped."""
    return _read(folder, _BINARY)


def _read(folder: Path, numbers: Mapping[int, int]) -> dict[str, Rows]:
    return {
        split: read_split(source, numbers, phrases=split == "train")
        for split, source in sources(folder).items()
    }


def read_split(source: Source, numbers: Mapping[int, int], phrases: bool) -> Rows:
    """The labelled phrases of one file, tree after tree, in the order in which brackets open.

    Args:
        source: A tree a line.
        numbers: From a label of the treebank to the number of a row's; phrases with another are dropped.
        phrases: Whether every phrase is a row, also one that was there before, or only a whole sentence.
    """
    texts: list[str] = []
    labels: list[int] = []
    read = 0
    for number, line in lines(source):
        try:
            tree = _tree(line)
            for phrase in tree.phrases() if phrases else [tree]:
                read += 1
                if (label := numbers.get(phrase.label)) is not None:
                    texts.append(" ".join(phrase.words))
                    labels.append(label)
        except ValueError as error:
            raise DataError(f"{source}: line {number}: {error}") from None
    return Rows({"sentence": texts}, labels, read)


def _tree(line: bytes) -> Tree:
    """The tree of a line; `ValueError` says what is wrong with it."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    tree = parse(text)
    for phrase in tree.phrases():
        if phrase.label >= len(LABELS):
            raise ValueError(f"label: expected a number from 0 to {len(LABELS) - 1}, got {phrase.label}")
    return tree
