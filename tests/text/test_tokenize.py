"""From texts to words."""

import sys
import time

import pytest

from nse import InputError
from nse.text import tokenize
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
def test_paper_keeps_runs_of_other_characters_as_words(text, words):
    assert TOKENIZERS["paper"](text) == words


def test_paper_words_never_hold_a_line_break():
    text = "".join(f"a{chr(n)}.{chr(n)}b " for n in range(0x3000))
    words = TOKENIZERS["paper"](text)
    assert not [word for word in words if len(word.splitlines()) > 1 or word != word.strip()]


def test_whitespace():
    assert TOKENIZERS["whitespace"](" don't  stop.\n") == ["don't", "stop."]


def test_moses_by_language_and_without_escapes():
    assert TOKENIZERS["moses"]('Don\'t say "A & B" [x].') == [
        *("Don", "'t", "say", '"', "A", "&", "B", '"', "[", "x", "]", ".")
    ]
    assert tokenize.moses("l'eau", "fr") == ["l'", "eau"]


def test_moses_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    tokenize._moses.cache_clear()
    with pytest.raises(InputError, match=r"pip install neural-semantic-encoders\[moses\]"):
        TOKENIZERS["moses"]("a")


@pytest.mark.parametrize("name", ["paper", "whitespace", "moses"])
def test_a_huge_word_takes_time_in_proportion(name):
    start = time.monotonic()
    assert TOKENIZERS[name]("a" * 10_000_000) == ["a" * 10_000_000]
    assert time.monotonic() - start < 60  # quadratic would be days


@pytest.mark.parametrize("letters", [".", "a.", ". ", "a "])
def test_ten_million_other_characters_too(letters):
    words = TOKENIZERS["paper"](letters * 1_000_000)
    assert "".join(words).replace(" ", "") == letters.strip() * 1_000_000
