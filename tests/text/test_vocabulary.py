"""Words and their ids."""

from collections import Counter

import pytest

from nse import InputError
from nse.text.vocabulary import Vocabulary


def test_two_ids_are_kept_for_padding_and_the_unknown():
    vocabulary = Vocabulary.from_texts([["b", "a"], ["a", "c"], []])
    assert vocabulary.words == ("<pad>", "<unk>", "a", "b", "c")
    assert len(vocabulary) == 5
    assert vocabulary.encode(["a", "zebra", "c"]) == [2, 1, 4]
    assert vocabulary.encode([]) == []


def test_a_text_that_spells_a_special_entry_is_unknown():
    vocabulary = Vocabulary.from_texts([["<pad>", "a", "<unk>"]])
    assert vocabulary.words == ("<pad>", "<unk>", "a")
    assert vocabulary.encode(["<pad>", "<unk>", "a"]) == [1, 1, 2]


def test_a_text_is_not_taken_for_its_words():
    for call in (lambda: Vocabulary.from_texts(["a b"]), lambda: Vocabulary(["a"]).encode("a b")):
        with pytest.raises(InputError, match="expected a list of words, got the text 'a b'"):
            call()


def test_counted_words_come_by_frequency_and_alphabet():
    counts = Counter({"b": 2, "rare": 1, "a": 2, "often": 9, "<pad>": 99})
    assert Vocabulary.from_counts(counts).words[2:] == ("often", "a", "b", "rare")


def test_a_word_given_twice_is_refused():
    with pytest.raises(InputError, match="expected each word once, got 'a' twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(InputError, match="'<pad>' twice"):
        Vocabulary(["<pad>"])


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "\n", "\ud800"])
def test_a_word_that_fits_no_line_is_refused(word):
    with pytest.raises(InputError, match="fit a line"):
        Vocabulary([word])


def test_written_and_read_word_by_word():
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
def test_broken_bytes_are_refused(content, message):
    with pytest.raises(InputError, match=f"words: .*{message}"):
        Vocabulary.from_bytes(content)
