"""Tokenizers: functions from a text to its words, by name in `TOKENIZERS`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from nse.text.moses import tokenize_english, tokenize_moses

# The group is not optional: `(\W+)?` also matches nothing, and since Python 3.7 would split between letters.
_RUN = re.compile(r"(\W+)")


def tokenize_paper(text: str) -> list[str]:
    """Split as in the paper's experiments: runs of non-word characters are words too, and case is kept.

    White space around a run is removed, and white space inside it becomes one space: `"Hi", he` gives `"`,
    `Hi`, `",`, `he`.
    """
    pieces = (" ".join(piece.split()) for piece in _RUN.split(text))
    return [piece for piece in pieces if piece]


def tokenize_lower(text: str) -> list[str]:
    """Split as `tokenize_paper` does, in lower case."""
    return tokenize_paper(text.lower())


# Word vectors know one apostrophe, one double quote and two hyphens; treebanks and typesetters use others.
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("`\u2018\u2019\u201a\u201b\u02bc\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2014\u2015", "--"),
        "\u2026": "...",
    }
)
_WHOLE = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lsb-": "[",
    "-rsb-": "]",
    "-lcb-": "{",
    "-rcb-": "}",
    "\u2013": "--",  # an en dash between spaces; inside a word it is a hyphen
}

_CHUNK = re.compile(r"[^ \t\n\r\f\v]+")
# Signs that are words of their own; a comma or a colon is not, between digits, as in 10,000 and 8:30.
_MARK = re.compile(r"""(\.{2,}|-{2,}|[?!]+|[;"()\[\]{}<>$#%£€¥]|(?<!\d)[,:]|[,:](?!\d))""")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
_YEARS = re.compile(r"'\d\ds?")

_ENDINGS = ("n't", "'s", "'m", "'d", "'re", "'ve", "'ll")
_KEPT = frozenset(_ENDINGS) | frozenset(
    _CHUNK.findall("""
        mr. mrs. ms. messrs. dr. prof. rev. gen. sen. rep. gov. capt. cmdr. lt. sgt. col. maj. jr. sr. ph.d.
        st. mt. ft. ave. blvd. inc. co. corp. ltd. bros. dept. assn. univ. vs. etc. al. cf. no. nos. vol.
        approx. est. jan. feb. apr. aug. sept. oct. nov. dec. ariz. calif. conn. fla. okla. pa. tenn. va.
        wash. wis. 't 'n 'n' 'em 'til 'cause 'bout 'round ol' o' th'
    """)
)
"""Words that end in a period, or begin or end with an apostrophe."""

_LONGEST = max(map(len, _KEPT))
_IN_TWO = {"cannot": ("can", "not"), "'tis": ("'t", "is"), "'twas": ("'t", "was")}


def tokenize_treebank(text: str) -> list[str]:
    r"""Split as the Penn Treebank does English, but with the signs of word vectors, in lower case.

    `They don't (Mr. Bob's...)` gives `they`, `do`, `n't`, `(`, `mr.`, `bob`, `'s`, `...`, `)`. Tokenized text
    stays as it is, and its escapes such as `-LRB-`, two backquotes and `\/` become `(`, `"` and `/`. Only
    ASCII white space separates words: three of the Stanford Sentiment Treebank hold a no-break space. The
    period of an abbreviation stays with it also at the end of a sentence, as it does in a treebank's phrases.
    """
    text = text.translate(_SIGNS).replace("''", '"').replace("\\/", "/").replace("\\*", "*").lower()
    return [word for chunk in _CHUNK.findall(text) for word in _split_chunk(chunk)]


def _split_chunk(chunk: str) -> Iterable[str]:
    if chunk.isalpha():  # most words
        return _IN_TWO.get(chunk, (chunk,))
    if chunk in _WHOLE:
        return (_WHOLE[chunk],)
    pieces = _MARK.split(chunk)  # every second piece is a mark
    words = (part for i, piece in enumerate(pieces) for part in ([piece] if i % 2 else _split_piece(piece)))
    return [word for word in words if word]


def _split_piece(piece: str) -> list[str]:
    """Split periods, apostrophes and endings such as 's off a word."""
    start = int(piece.startswith("'"))
    match = _INITIALS.match(piece, start)
    initials = match.end() if match else 0
    endings: list[str] = []
    end = len(piece)  # an index instead of copies, for linear time
    while end > start and not _is_whole(piece, start, end, initials):
        known = (suffix for suffix in _ENDINGS if piece.endswith(suffix, start + 1, end))
        ending = piece[end - 1] if piece[end - 1] in ".'" else next(known, "")
        if not ending:
            break
        endings.append(ending)
        end -= len(ending)
    return [*_split_start(piece[:end]), *reversed(endings)]


def _is_whole(piece: str, start: int, end: int, initials: int) -> bool:
    """Return whether the piece up to `end`, perhaps after a quote, is a word whose ending belongs to it."""
    if end <= initials and piece[end - 1] == ".":
        return piece[start:end] != "i."  # more likely the pronoun at the end of a sentence
    if end > _LONGEST + 1:
        return False
    return piece[:end] in _KEPT or piece[start:end] in _KEPT


def _split_start(word: str) -> Iterable[str]:
    if word in _IN_TWO:
        return _IN_TWO[word]
    if len(word) > 1 and word[0] == "'" and word not in _KEPT and not _YEARS.fullmatch(word):
        return ("'", *_IN_TWO.get(word[1:], (word[1:],)))
    return (word,)


# Windows' ellipsis, quotes and dashes in pages that claim to be Latin-1, and the en dash.
_WINDOWS = str.maketrans(
    "\x85\x91\x92\x93\x94\x96\x97\u2013", "\u2026\u2018\u2019\u201c\u201d\u2014\u2014\u2014"
)
_ALONE = re.compile(r"([/*])")


def tokenize_informal(text: str) -> list[str]:
    """Split as `tokenize_treebank` does, adapted to what people type, so that word vectors know the words.

    `8/10!! well...... **1/2` gives `8`, `/`, `10`, `!`, `!`, `well`, `...`, `*`, `*`, `1`, `/`, `2`: slashes,
    stars and marks stand alone, and longer runs of periods and hyphens become an ellipsis and a dash.
    """
    words = tokenize_treebank(_ALONE.sub(r" \1 ", text.translate(_WINDOWS)))
    return [part for word in words for part in _shorten_run(word)]


def _shorten_run(word: str) -> Iterable[str]:
    if word[0] in "?!":
        return word  # a string: each character is a word
    if word.startswith(".."):
        return ("...",)
    return ("--",) if word.startswith("--") else (word,)


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "paper": tokenize_paper,
    "lower": tokenize_lower,
    "treebank": tokenize_treebank,
    "informal": tokenize_informal,
    "whitespace": str.split,
    "moses": tokenize_moses,
    "moses-en": tokenize_english,
}
"""Tokenizers by the names in recipes and prepared files."""
