"""Texts are split into words."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nse import InputError
from nse.text import moses, tokenize
from nse.text.tokenize import TOKENIZERS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A person on a horse, jumping.", ["A", "person", "on", "a", "horse", ",", "jumping", "."]),
        ("don't", ["don", "'", "t"]),
        ('He said: "Hi."', ["He", "said", ': "', "Hi", '."']),
        ("well . \n\t ! yes", ["well", ". !", "yes"]),
        ("letters", ["letters"]),
        ("N/A", ["N", "/", "A"]),
        ("Café_1  naïve\u00a0x", ["Café_1", "naïve", "x"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_paper_tokenizer_keeps_runs_of_other_characters_as_words(text, words):
    assert TOKENIZERS["paper"](text) == words


def test_paper_words_never_hold_a_line_break():
    text = "".join(f"a{chr(n)}.{chr(n)}b " for n in range(0x3000))
    words = TOKENIZERS["paper"](text)
    assert not [word for word in words if len(word.splitlines()) > 1 or word != word.strip()]


@pytest.mark.parametrize("text", ["Who is St. Lucia?", "HOW ARE CAVES FORMED", "Café, naïve", ""])
def test_lower_tokenizer_equals_paper_tokenizer_in_lower_case(text):
    assert TOKENIZERS["lower"](text) == [word.lower() for word in TOKENIZERS["paper"](text)]


RAW = {
    'Don\'t stop, "Bob".': 'do n\'t stop , " bob " .',
    "They can't, won't and cannot.": "they ca n't , wo n't and can not .",
    "It's the dogs' and Bob's; I'd've, we'll, they're, I'm": (
        "it 's the dogs ' and bob 's ; i 'd 've , we 'll , they 're , i 'm"
    ),
    "\u2018Hi\u2019 \u201cso\u201d\u2014it\u2019s\u2026": "' hi ' \" so \" -- it 's ...",
    "'Tis true, 'twas.": "'t is true , 't was .",
    "Mr. Smith met J.R.R. Tolkien vs. the U.S.": "mr. smith met j.r.r. tolkien vs. the u.s.",
    "He left. She (Ann) stayed.": "he left . she ( ann ) stayed .",
    "so do I. J. Doe's U.S.'s": "so do i . j. doe 's u.s. 's",
    "He said 'no way.' twice": "he said ' no way . ' twice",
    "rock 'n' roll of the '70s, ol' dogs, 'em": "rock 'n' roll of the '70s , ol' dogs , 'em",
    "O'Neill's hors-d'oeuvre at 8:30": "o'neill 's hors-d'oeuvre at 8:30",
    "It cost $1,234.50, up 3.5%: a lot": "it cost $ 1,234.50 , up 3.5 % : a lot",
    "wait...what?! no!!": "wait ... what ?! no !!",
    "a well-made film--really -- a 90-minute one - yes": (
        "a well-made film -- really -- a 90-minute one - yes"
    ),
    "one \u2013 two, 1990\u20131995": "one -- two , 1990\u20131995",
    "writer/director of R&B [sic] {x} <b>": "writer/director of r&b [ sic ] { x } < b >",
    "#1 for £5 and 5€": "# 1 for £ 5 and 5 €",
    "etc.) and (etc.), etc...": "etc. ) and ( etc. ) , etc ...",
    "a@b.com, www.c.org.": "a@b.com , www.c.org .",
    "Straße ÉTÉ İ": "straße été i\u0307",
    " \n\t ": "",
    "": "",
}


@pytest.mark.parametrize("text", RAW)
def test_treebank_splits_raw_text(text):
    assert TOKENIZERS["treebank"](text) == RAW[text].split()


def test_treebank_tokenizer_keeps_words_of_the_treebank():
    for words in (expected.split() for expected in RAW.values()):
        assert TOKENIZERS["treebank"](" ".join(words)) == words


def test_treebank_tokenizer_resolves_escapes():
    text = r"-LRB- -RRB- -LSB- -RSB- -LCB- -RCB- `` Hi '' ` x ' and\/or \*\*\* \/ n't 's '' -LRB-x"
    words = r"""( ) [ ] { } " hi " ' x ' and/or *** / n't 's " -lrb-x"""
    assert TOKENIZERS["treebank"](text) == words.split()


def test_treebank_tokenizer_splits_at_ascii_white_space_only():
    text = "8\u00a01\\/2\u2028x a\tb\nc\rd\x0be\x0cf"
    assert TOKENIZERS["treebank"](text) == ["8\u00a01/2\u2028x", *"abcdef"]


LEAVES = st.one_of(
    st.from_regex(r"[a-z]+(-[a-z]+)?|[0-9]+([.,][0-9]+)?", fullmatch=True).filter(
        lambda word: word != "cannot"
    ),
    st.sampled_from(
        TOKENIZERS["whitespace"](
            "n't 's 're 'll mr. j. u.s. e.t etc. no. ... -- ' , . ; : ?! $ % anti- o'clock ol' '70s"
        )
    ),
)


@given(st.lists(LEAVES))
def test_treebank_tokenizer_keeps_tokenized_text(words):
    assert TOKENIZERS["treebank"](" ".join(words)) == words


@given(st.text("ab.i'\u2018`\"-,:8?$(\u00a0 s/*nt"), st.text("ab.i'\u2019`\"-,:8?$( sntd"))
def test_treebank_tokenizer_is_idempotent_and_splits_independently(text, more):
    treebank = TOKENIZERS["treebank"]
    assert treebank(f"{text} {more}") == treebank(text) + treebank(more)
    words = treebank(text)
    assert treebank(" ".join(words)) == words
    assert all(words)


TYPED = {
    "A solid 8/10!! Well...... no": "a solid 8 / 10 ! ! well ... no",
    "***1/2 out of ****. What?!": "* * * 1 / 2 out of * * * * . what ? !",
    "Horror/comedy---I didn't laugh": "horror / comedy -- i did n't laugh",
    "one \x96 two\x85 \x93Bob\x92s\x94 a\x97b": 'one -- two ... " bob \'s " a -- b',
    "a well-made film, e.g. Mr. Bean's (1997)": "a well-made film , e.g. mr. bean 's ( 1997 )",
    "/ * ! ?": "/ * ! ?",
    "": "",
}


@pytest.mark.parametrize("text", TYPED)
def test_informal_tokenizer_gives_words_that_vectors_know(text):
    assert TOKENIZERS["informal"](text) == TYPED[text].split()


@given(st.text("ab.i'`\"-,:8?!$(/* \x96\x85snt"))
def test_informal_tokenizer_drops_only_repetitions(text):
    words = TOKENIZERS["informal"](text)
    assert all(words)
    assert TOKENIZERS["informal"](" ".join(words)) == words
    treebank = TOKENIZERS["treebank"](text.replace("\x96", "\u2014").replace("\x85", "..."))
    assert join_letters(words) == join_letters(treebank)


def join_letters(words):
    """Join words without what `tokenize_informal` shortens."""
    return "".join(words).replace(".", "").replace("-", "")


def test_whitespace_tokenizer_splits_at_white_space():
    assert TOKENIZERS["whitespace"](" don't  stop.\n") == ["don't", "stop."]


def test_moses_tokenizer_knows_languages_and_does_not_escape():
    assert TOKENIZERS["moses"]('Don\'t say "A & B" [x].') == [
        *("Don", "'t", "say", '"', "A", "&", "B", '"', "[", "x", "]", ".")
    ]
    assert tokenize.tokenize_moses("l'eau", "fr") == ["l'", "eau"]


def test_the_error_without_sacremoses_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    moses._load_tool.cache_clear()
    with pytest.raises(InputError, match=r"pip install sacremoses"):
        TOKENIZERS["moses"]("a")


@pytest.mark.parametrize("name", ["paper", "lower", "treebank", "whitespace", "moses"])
def test_a_huge_word_takes_linear_time(name):
    start = time.monotonic()
    assert TOKENIZERS[name]("a" * 1_000_000) == ["a" * 1_000_000]
    assert time.monotonic() - start < 60  # quadratic would be days


@pytest.mark.parametrize(
    "letters",
    [
        *(
            "'",
            "a.",
            "'.",
            "a'",
            "'s",
            "n't",
            "a.a'.",
            "1,",
            "a,",
            "--a",
            "-",
            "*",
            "?",
            "$a",
            "i.",
            ".a'd've",
            " ",
        )
    ],
)
def test_treebank_tokenizer_takes_linear_time(letters):
    size = 30_000 // len(letters)
    start = time.monotonic()
    for text in (letters * size, "x" + letters * size, letters * size + "x"):
        kept = text.replace("''", '"').replace(" ", "")
        assert "".join(TOKENIZERS["treebank"](text)) == kept
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("letters", [".", "a.", ". ", "a "])
def test_ten_million_unusual_characters_take_linear_time(letters):
    words = TOKENIZERS["paper"](letters * 1_000_000)
    assert "".join(words).replace(" ", "") == letters.strip() * 1_000_000
