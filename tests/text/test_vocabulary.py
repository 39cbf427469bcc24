"""Words are mapped to ids and back."""

from collections import Counter

import pytest

from nse import InputError
from nse.text.vocabulary import Vocabulary


def test_two_ids_stand_for_padding_and_unknown_words():
    vocabulary = Vocabulary.from_texts([["b", "a"], ["a", "c"], []])
    assert vocabulary.words == ("<pad>", "<unk>", "a", "b", "c")
    assert len(vocabulary) == 5
    assert vocabulary.encode(["a", "zebra", "c"]) == [2, 1, 4]
    assert vocabulary.encode([]) == []


def test_a_word_that_equals_a_special_entry_is_unknown():
    vocabulary = Vocabulary.from_texts([["<pad>", "a", "<unk>"]])
    assert vocabulary.words == ("<pad>", "<unk>", "a")
    assert vocabulary.encode(["<pad>", "<unk>", "a"]) == [1, 1, 2]


def test_a_string_instead_of_a_list_of_words_is_an_error():
    for call in (lambda: Vocabulary.from_texts(["a b"]), lambda: Vocabulary(["a"]).encode("a b")):
        with pytest.raises(InputError, match="expected a list of words, got the text 'a b'"):
            call()


def test_words_from_counts_are_sorted_by_frequency_then_alphabet():
    counts = Counter({"b": 2, "rare": 1, "a": 2, "often": 9, "<pad>": 99})
    assert Vocabulary.from_counts(counts).words[2:] == ("often", "a", "b", "rare")


def test_a_repeated_word_is_an_error():
    with pytest.raises(InputError, match="expected each word once, got 'a' twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(InputError, match="'<pad>' twice"):
        Vocabulary(["<pad>"])


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "\n", "\ud800"])
def test_a_word_that_is_not_one_line_is_an_error(word):
    with pytest.raises(InputError, match="fit a line"):
        Vocabulary([word])


def test_a_written_vocabulary_is_read_unchanged():
    words = ["a", "no\u00a0break", "line\u2028end", "\x85", "\x1c", "", "ä", "𝄞", " "]
    content = Vocabulary(words).to_bytes()
    assert Vocabulary.from_bytes(content).words == ("<pad>", "<unk>", *words)
    assert content.split(b"\n")[:3] == [b"<pad>", b"<unk>", b"a"]
    assert Vocabulary.from_bytes(Vocabulary([]).to_bytes()).words == ("<pad>", "<unk>")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "one word per line"),
        (b"a\nb\n", "<pad> and <unk> first"),
        (b"<pad>\n<unk>\na\ntrunc", "a line break last"),
        (b"<pad>\n<unk>\na\na\n", "'a' twice"),
        (b"<pad>\n<unk>\n\xff\n", "not UTF-8"),
        (b"<pad>\n<unk>\n" + b"\n" * Vocabulary.MAX_WORDS, "expected at most 5,000,000"),
    ],
)
def test_broken_bytes_are_an_error(content, message):
    with pytest.raises(InputError, match=f"words: .*{message}"):
        Vocabulary.from_bytes(content)
