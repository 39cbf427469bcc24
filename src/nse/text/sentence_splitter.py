"""Split raw English text into sentences, by rules.

1. `<br>` in any form and an empty line end a sentence. Any other white space is one space.
2. `!` and `?`, with the closing quotes and brackets after them, end a sentence before a letter or a digit;
   after a closed quote or bracket, not before a small letter: `"Why?" he said`.
3. So does a full stop, but
    - never after a title or a similar word (`Mr.`, `vs.`, `e.g.`), nor after `No.` before a digit;
    - after initials (`J.`, `U.S.`, `a.m.`) and words such as `etc.` only before a word of `_STARTS`, which
      begins sentences but hardly ever names;
    - not after a number alone, which counts the items of a list.
4. An ellipsis, perhaps with spaces inside, ends a sentence only before a capital.
5. Where the space is missing, the next sentence has to begin with a capital. A full stop must then stand
   between a word or number and a capitalised word, and the whole must not look like an address or a file:
   `great.The acting`, but not `U.S.A`, `e.g.Foo` or `www.Foo.com`.

Only `_REACH` characters around a mark are read, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BREAK = re.compile(r"</?br\s*/?>|\n\s*\n", re.IGNORECASE)
_ALNUM = re.compile(r"[^\W_]")
_LETTERS = re.compile(r"[^\W\d_]+")

_OPENING = "\"'`\u201c\u2018\u00ab([{*~-\u2013\u2014"
_CLOSING = "\"'\u201d\u2019\u00bb)]}*"
_MARKS = re.compile(rf"([.!?…]+(?: [.!?…]+)*)([{re.escape(_CLOSING)}]*)")
_GAP = re.compile(rf"( ?)[{re.escape(_OPENING)} ]*")
_IN_WORDS = str.maketrans(dict.fromkeys("'\u2019-", ""))

_REACH = 32
"""Number of characters that are read before and after a mark."""

_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]|ph\.d", re.IGNORECASE)
_CHUNK = re.compile(r"\S+")

_NEVER = frozenset(
    _CHUNK.findall("""
        mr mrs ms messrs mme mlle dr prof rev fr hon pres gov sen gen col maj capt cpt cmdr lt sgt pvt det
        insp vs vol eds dir feat cf e.g i.e eg ie et viz a.k.a aka approx esp incl fig pp p.s ps www
    """)
)
"""Abbreviations that never end a sentence, without the full stop."""

_SOMETIMES = frozenset(
    _CHUNK.findall("""
        etc jr sr esq inc co corp ltd bros dept univ assn rep st mt ft ave blvd rd al ed ex est
        min mins hr hrs sec secs yr yrs jan feb apr aug sept oct nov dec
    """)
)
"""Abbreviations that may also be the last word of a sentence."""

_STARTS = frozenset(
    _CHUNK.findall("""
        The This That These Those There Here Then They He She It We You I My His Her Its Our Your Their A An
        And But So Or Yet If When While What Who Where Why How Which Not Yes In On At As For To From With
        Without After Before Although Though Because However Also All Some Most Many One Even Just Now Well Oh
        Is Are Was Were Do Does Did Can Could Would Should Maybe Perhaps Overall Other Another Every Everyone
        Everything Nothing Both Unfortunately Basically Instead Despite Since Once Only Too
    """)
)
"""Words that most likely begin a sentence when capitalised."""


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences with single spaces, none empty; only white space and `<br>` are removed."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in _BREAK.split(text))
    return [sentence for paragraph in paragraphs for sentence in _split(paragraph)]


def _split(text: str) -> Iterator[str]:
    """Split a text whose white space is single spaces."""
    start, first = 0, _ALNUM.search(text)  # marks before the first letter or digit end no sentence
    for marks in _MARKS.finditer(text):
        if first and marks.start() > first.start() and _ends_sentence(text, start, marks):
            yield text[start : marks.end()]
            start = marks.end() + (text[marks.end()] == " ")
            first = _ALNUM.search(text, start)
    if start < len(text):
        yield text[start:]


def _ends_sentence(text: str, start: int, marks: re.Match[str]) -> bool:
    """Return whether the sentence from `start` ends with these marks, and another follows."""
    mark, closing = marks.groups()
    gap = _GAP.match(text, marks.end())
    assert gap  # the pattern also matches the empty string
    after = text[gap.end() : gap.end() + _REACH]
    if not after[:1].isalnum():
        return False
    before = text[max(start, marks.start() - _REACH) : marks.start()]
    if mark == ".":
        rule = _ends_before_space if gap[1] else _ends_without_space
        return rule(before, after, bool(closing))
    if gap[1] and ("!" in mark or "?" in mark):
        return not (closing and after[0].islower())
    word = _find_last_word(before)
    return after[0].isupper() and not ("//" in word or "@" in word or word.lower().startswith("www."))


def _ends_before_space(before: str, after: str, closed: bool) -> bool:
    """Return whether a full stop before a space ends a sentence."""
    word = _find_last_word(before)
    small = word.lower()
    if small in _NEVER or (small == "no" and after[0].isdigit()):
        return False
    if small in _SOMETIMES or (word != "I" and _INITIALS.fullmatch(word)):
        return _is_start(after)
    if before.isdigit() and len(before) <= 2:
        return False
    return not (closed and after[0].islower())


def _ends_without_space(before: str, after: str, closed: bool) -> bool:
    """Return whether a full stop without a space after it ends a sentence."""
    word = _find_last_word(before)
    if closed or word.lower() in _NEVER:
        return False
    if word.lower() in _SOMETIMES:
        return _is_start(after)
    letters = word.translate(_IN_WORDS)
    is_word = len(letters) > 1 and letters.isalpha() and letters[-1].islower()  # else initials, an address
    if not is_word and not (len(word) > 2 and word.replace("/", "").isdigit()):
        return False
    start = _LETTERS.match(after)
    if not start or not (start[0].istitle() and (len(start[0]) > 1 or start[0] in "IA")):
        return False
    rest = after[start.end() : start.end() + 2]
    return not (rest[:1] == "." and rest[1:].islower()) and rest[:1] not in ("/", "@", "_")


def _find_last_word(before: str) -> str:
    """Return the last word, without opening signs before it and closing ones after it."""
    return before.rstrip().rpartition(" ")[2].lstrip(_OPENING).rstrip(_CLOSING)


def _is_start(after: str) -> bool:
    """Return whether a text begins with a word that begins sentences."""
    start = _LETTERS.match(after)
    if not start or start[0] not in _STARTS:
        return False
    return len(start[0]) > 1 or after[1:2] != "."  # another initial
