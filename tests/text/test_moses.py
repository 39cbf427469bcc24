"""English and German words for machine translation."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nse import InputError
from nse.text import moses


def test_both_languages_are_tokenized_in_lower_case_without_escapes():
    assert moses.tokenize_english("The Dogs' owner doesn't run, <b> & [x]!") == [
        *("the", "dogs", "'", "owner", "doesn", "'t", "run", ",", "<", "b", ">", "&", "[", "x", "]", "!")
    ]
    assert moses.tokenize_german('Die Größe beträgt z. B. 3,5 m, "ÄH".') == [
        *("die", "größe", "beträgt", "z.", "b.", "3,5", "m", ",", '"', "äh", '"', ".")
    ]
    assert moses.tokenize_english("") == moses.tokenize_german(" \n\u00a0\u200b") == []


@pytest.mark.parametrize(
    "space",
    ["\u00a0", "\u2028", "\u2029", "\u0085", "\u3000", "\u202f", "\t", "\r\n", "\x0b", "\x0c", "\x1c"],
)
def test_white_space_of_any_kind_separates_words(space):
    assert moses.normalize_spaces(f"{space}a{space}{space}b ") == "a b"
    assert (
        moses.tokenize_english(f"One{space}dog") == moses.tokenize_german(f"One{space}dog") == ["one", "dog"]
    )


@pytest.mark.parametrize("unseen", ["\x00", "\x7f", "\x80", "\u00ad", "\u200b", "\u200d", "\ufeff", "\ud800"])
def test_invisible_characters_are_removed(unseen):
    assert moses.normalize_spaces(f"{unseen}do{unseen}g {unseen} runs") == "dog runs"
    assert moses.tokenize_german(f"{unseen}Hu{unseen}nd {unseen} läuft") == ["hund", "läuft"]


@given(st.text(st.characters(exclude_categories=[])) | st.text(" .,'\u00a0\u2028\u200bAIß\u0130"))
def test_words_never_hold_white_space(text):
    for words in (moses.tokenize_english(text), moses.tokenize_german(text)):
        line = " ".join(words)
        assert (line.split(" ") if line else []) == line.split() == words
        assert len(line.splitlines()) <= 1
        assert line.encode("utf-8").decode("utf-8") == line
        assert line == moses.normalize_spaces(line)
        assert bool(words) == bool(moses.normalize_spaces(text))


def test_words_are_detokenized():
    text = 'der hund (er läuft) sagt: "nein, 3,5 m."'
    assert moses.detokenize(moses.tokenize_german(text)) == text
    assert moses.detokenize(["it", "'s", "a", "dog", "."], "en") == "it's a dog."
    assert moses.detokenize(["&amp;", "ja"]) == "&amp; ja"
    assert moses.detokenize([]) == ""


def test_detokenizing_a_string_is_an_error():
    with pytest.raises(InputError, match="words: expected a list of words, got the text 'der hund'"):
        moses.detokenize("der hund")


def test_the_error_without_sacremoses_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    moses._load_tool.cache_clear()
    for call in (
        lambda: moses.tokenize_english("a"),
        lambda: moses.tokenize_german("a"),
        lambda: moses.detokenize(["a"]),
    ):
        with pytest.raises(InputError, match=r"pip install sacremoses"):
            call()
