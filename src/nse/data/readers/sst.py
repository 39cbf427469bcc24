"""Read the Stanford Sentiment Treebank, as published (section 4.3 of the paper).

Trees are bracketed as in the Penn Treebank, such as `(3 (2 The) (4 film))`: each phrase has a label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from nse.data.sources import SPLITS, DataFile, Rows, find_files, parse_lines

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY_LABELS = ("negative", "positive")
ARCHIVE = "trainDevTestTrees_PTB.zip"

_FINE = {label: label for label in range(len(LABELS))}
_BINARY = {0: 0, 1: 0, 3: 1, 4: 1}  # without neutral

# Only the ASCII space separates: a word may hold a no-break space.
_PIECE = re.compile(r"[()]|[^ ()]+")


def find_sources(folder: Path) -> dict[str, DataFile]:
    """Find each split, in `sst/trees/` or `trees/` of the data folder."""
    names = {split: f"{split}.txt" for split in SPLITS}
    folders = [folder / "sst" / "trees", folder / "trees"]  # elsewhere, train.txt says too little
    archives = [folder / "sst" / ARCHIVE, folder / ARCHIVE]
    return find_files("sst", names, folders, f" in {folder}", archives, ("fetch", "sst-fine", str(folder)))


def read(folder: Path, binary: bool = False) -> dict[str, Rows]:
    """Read every phrase of the training trees, and the sentences of the others.

    With `binary`, there are two labels instead of five, and neutral phrases are dropped.
    """
    numbers, rows = _BINARY if binary else _FINE, {}
    for split, file in find_sources(folder).items():
        trees = parse_lines(file, parse_tree)
        phrases = [phrase for tree in trees for phrase in (tree if split == "train" else tree[:1])]
        kept = [phrase for phrase in phrases if phrase.label in numbers]
        texts = [" ".join(phrase.words) for phrase in kept]
        rows[split] = Rows({"sentence": texts}, [numbers[phrase.label] for phrase in kept], len(phrases))
    return rows


@dataclass
class Phrase:
    """Phrase with its label: the words of its sentence from `start` to before `stop`."""

    label: int
    sentence: list[str]
    start: int
    stop: int = -1  # until its bracket closes

    @property
    def words(self) -> list[str]:
        """Words of the phrase, not stored, because a tree may be deep."""
        return self.sentence[self.start : self.stop]


def parse_tree(text: str) -> list[Phrase]:
    """Parse a tree into its phrases, in the order of opening brackets; raise `ValueError` for bad syntax."""
    words, phrases, opened = list[str](), list[Phrase](), list[Phrase]()  # `opened` are not closed yet
    pieces = iter(_PIECE.findall(text.rstrip("\r\n")))
    for piece in pieces:
        if phrases and not opened:
            raise ValueError(f"tree: expected nothing after the last bracket, got {piece[:40]!r}")
        has_content = bool(opened) and len(words) > opened[-1].start
        if piece == "(":
            if has_content and opened[-1] is phrases[-1]:  # the content is a word
                raise ValueError("tree: expected one word or phrases inside a bracket, got both")
            phrases.append(Phrase(_parse_label(next(pieces, "")), words, len(words)))
            opened.append(phrases[-1])
        elif not opened:
            raise ValueError(f"tree: expected an opening bracket, got {piece[:40]!r}")
        elif piece == ")":
            if not has_content:
                raise ValueError("tree: expected a word or phrases inside each bracket, got none")
            opened.pop().stop = len(words)
        elif has_content:
            raise ValueError(f"tree: expected one word or phrases inside a bracket, got also {piece[:40]!r}")
        else:
            words.append(piece)
    if not phrases:
        raise ValueError("tree: is empty")
    if opened:
        raise ValueError(f"tree: expected {len(opened)} more closing brackets")
    return phrases


def _parse_label(piece: str) -> int:
    if not (piece.isascii() and piece.isdigit() and len(piece) < 10):
        raise ValueError(f"tree: expected a whole number after an opening bracket, got {piece[:40]!r}")
    if int(piece) >= len(LABELS):
        raise ValueError(f"label: expected a number from 0 to {len(LABELS) - 1}, got {int(piece)}")
    return int(piece)
