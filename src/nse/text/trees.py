"""Trees in the Penn Treebank's brackets, as the Stanford Sentiment Treebank labels them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nse.errors import InputError

# Only the ASCII space separates: a word may hold a no-break space.
_PIECE = re.compile(r"[()]|[^ ()]+")


@dataclass(eq=False, slots=True)
class Tree:
    """A phrase with its label.

    Attributes:
        label: What the treebank says of the phrase.
        sentence: The words of the whole sentence, shared by all phrases of it.
        start: Where in the sentence the phrase starts.
        stop: Where it ends, that word not among it.
        children: The phrases it is made of; none for a single word.
    """

    label: int
    sentence: Sequence[str] = field(repr=False)
    start: int
    stop: int
    children: list[Tree] = field(repr=False)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the phrase."""
        return tuple(self.sentence[self.start : self.stop])

    def phrases(self) -> Iterator[Tree]:
        """Every labelled phrase, this one first, in the order in which the brackets open."""
        waiting = [self]  # not recursion: a tree may be deeper than Python's stack
        while waiting:
            tree = waiting.pop()
            yield tree
            waiting.extend(reversed(tree.children))


def parse(text: str) -> Tree:
    """A tree such as `(3 (2 The) (4 film))`; `InputError` says what is wrong with another text."""
    words: list[str] = []
    opened: list[Tree] = []
    tree: Tree | None = None
    pieces = iter(_PIECE.findall(text.rstrip("\r\n")))
    for piece in pieces:
        if tree is not None:
            raise InputError(f"tree: expected nothing after the last bracket, got {piece[:40]!r}")
        if piece == "(":
            opened.append(Tree(_label(next(pieces, "")), words, len(words), -1, []))
        elif not opened:
            raise InputError(f"tree: expected an opening bracket, got {piece[:40]!r}")
        elif piece == ")":
            tree = _close(opened)
        elif opened[-1].children or len(words) > opened[-1].start:
            raise InputError(f"tree: expected one word or phrases inside a bracket, got also {piece[:40]!r}")
        else:
            words.append(piece)
    if tree is None:
        raise InputError(
            f"tree: expected {len(opened)} more closing brackets" if opened else "tree: is empty"
        )
    return tree


def _label(piece: str) -> int:
    if not (piece.isascii() and piece.isdigit() and len(piece) < 10):
        raise InputError(f"tree: expected a whole number after an opening bracket, got {piece[:40]!r}")
    return int(piece)


def _close(opened: list[Tree]) -> Tree | None:
    """End the innermost open phrase; the tree, if that was the outermost."""
    tree = opened.pop()
    tree.stop = len(tree.sentence)
    if tree.stop == tree.start:
        raise InputError("tree: expected a word or phrases inside each bracket, got none")
    covered = sum(child.stop - child.start for child in tree.children)
    if tree.children and covered != tree.stop - tree.start:
        raise InputError("tree: expected one word or phrases inside a bracket, got both")
    if not opened:
        return tree
    opened[-1].children.append(tree)
    return None
