"""Words are split into pieces and joined again."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nse import InputError
from nse.text import subwords
from nse.text.subwords import Pieces
from nse.text.vocabulary import TargetVocabulary

COUNTS = {"spielplatz": 2, "spiel": 9, "platz": 8, "spielt": 3, "sitzplatz": 2, "der": 40}


def test_frequent_words_stay_whole_and_others_are_split():
    pieces = Pieces.learn(COUNTS, 14)
    assert [pieces.split(word) for word in ("der", "spiel", "platz")] == [["der"], ["spiel"], ["platz"]]
    assert pieces.split("spielplatz") == ["spiel@@", "platz"]
    assert pieces.split("sitzplatz") == ["s@@", "itz@@", "platz"]
    assert pieces.split("platzspiel") == ["p@@", "l@@", "a@@", "t@@", "z@@", "spiel"]
    assert pieces.split("") == []
    assert Pieces.join(["der", "spiel@@", "platz", "."]) == ["der", "spielplatz", "."]


def test_every_letter_is_a_piece_inside_and_at_the_end():
    pieces = Pieces.learn({"ab": 1, "": 5, "never": 0}, 10)
    assert pieces.pieces == ["a", "a@@", "b", "b@@"]
    assert pieces.split("bba") == ["b@@", "b@@", "a"]
    assert Pieces.learn({}, 3).pieces == []


def test_the_longest_known_piece_is_taken_from_the_left():
    pieces = Pieces(["a", "a@@", "b@@", "b", "ab@@", "abb@@", "ba", "c@@"])
    assert pieces.split("abba") == ["abb@@", "a"]
    assert pieces.split("aba") == ["ab@@", "a"]
    assert pieces.split("aabba") == ["a@@", "abb@@", "a"]
    assert pieces.split("abb") == ["ab@@", "b"]  # abb@@ cannot end a word
    assert pieces.split("cba") == ["c@@", "ba"]


def test_each_letter_without_a_piece_is_unknown():
    pieces = Pieces.learn({"ab": 3, "b": 1}, 5)
    assert pieces.split("a?b") == ["a@@", "<unk>", "b"]
    assert pieces.split("\u4e00\u4e01") == ["<unk>", "<unk>"]
    assert pieces.split("ab\u4e00") == ["a@@", "b@@", "<unk>"]  # ab was never seen inside a word
    assert Pieces(["a@@"]).split("aa") == ["a@@", "<unk>"]
    assert Pieces([]).split("a") == ["<unk>"]


def test_pieces_can_be_restored_from_a_vocabulary():
    learned = Pieces.learn(COUNTS, 12)
    vocabulary = TargetVocabulary.from_bytes(TargetVocabulary(learned.pieces).to_bytes())
    again = Pieces(vocabulary.words)
    assert again.pieces == learned.pieces
    assert [again.split(word) for word in COUNTS] == [learned.split(word) for word in COUNTS]


def test_a_word_without_its_last_piece_is_kept():
    assert Pieces.join(["so", "spiel@@"]) == ["so", "spiel"]
    assert Pieces.join(["spiel@@", "pla@@"]) == ["spielpla"]
    assert Pieces.join([]) == Pieces.join(["@@"]) == []
    assert Pieces.join(["a@@", "<unk>", "b"]) == ["a<unk>", "b"]


def test_words_that_end_like_pieces_are_joined_unchanged():
    counts = {"@@": 50, "a@@": 50, "a@": 20, "@": 9, "@@a": 30, "b@@b": 30}
    pieces = Pieces.learn(counts, 30)
    assert pieces.split("@@") == ["@@@", "@"]
    assert pieces.split("a@@") == ["a@@@", "@"]
    assert pieces.split("@@a") == ["@@a"]
    for word in [*counts, "@@@", "ab@@", "@@@@@"]:
        assert Pieces.join([*pieces.split(word), *pieces.split("a@")]) == [word, "a@"]
    known = Pieces(["a", "a@@"])  # without a piece for the sign, it is unknown
    assert known.split("a@@") == ["a@@", "<unk>", "<unk>"]
    assert Pieces(["@@", "", "a"]).pieces == ["a"]


@pytest.mark.parametrize("special", TargetVocabulary.SPECIAL)
def test_no_piece_equals_a_special_entry(special):
    pieces = Pieces.learn({special: 50}, 30)
    assert special not in pieces.pieces
    assert len(pieces.split(special)) == 2
    assert Pieces.join(pieces.split(special)) == [special]


def test_of_equally_frequent_pairs_the_alphabetically_first_is_merged():
    assert subwords.learn_merges({"xy": 2, "ab": 2, "cd": 3}, 9) == ["cd", "ab", "xy"]
    assert subwords.learn_merges({"ab": 1, "cd": 1}, 9) == []
    assert subwords.learn_merges({"abab": 2}, 9) == ["ab", "ab@@", "abab"]


def test_pieces_that_no_word_uses_are_dropped():
    assert subwords.learn_merges({"der": 9}, 5) == ["de@@", "der"]
    assert Pieces.learn({"der": 9}, 5).pieces == ["d", "d@@", "der", "e", "e@@", "r", "r@@"]


@pytest.mark.parametrize("call", [lambda: Pieces("abc"), lambda: Pieces.join("abc")])
def test_a_string_instead_of_a_list_of_pieces_is_an_error(call):
    with pytest.raises(InputError, match="pieces: expected a list of pieces, got the text 'abc'"):
        call()


def test_a_negative_number_of_merges_is_an_error():
    with pytest.raises(InputError, match="merges: expected 0 or more, got -1"):
        Pieces.learn(COUNTS, -1)


def learn_merges_slowly(counts, merges):
    """Learn the same merges, but count every pair anew each time."""
    words = {word: [*(f"{letter}@@" for letter in word[:-1]), word[-1]] for word in counts}
    merged = []
    while len(merged) < merges:
        totals = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                totals[pair] += counts[word]
        allowed = {pair: total for pair, total in totals.items() if total > 1 and pair[1] != "@"}
        if not allowed:
            break
        best = min(allowed, key=lambda pair: (-allowed[pair], pair))
        merged.append(best[0][:-2] + best[1])
        for word, pieces in words.items():
            words[word] = merge_pair(pieces, best, merged[-1])
    return merged


def merge_pair(pieces, pair, piece):
    after = []
    rest = list(pieces)
    while rest:
        if tuple(rest[:2]) == pair:
            after.append(piece)
            rest = rest[2:]
        else:
            after.append(rest.pop(0))
    return after


SMALL = st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 9), max_size=12)


@given(SMALL, st.integers(0, 40))
def test_merges_equal_those_of_a_slow_implementation(counts, merges):
    assert subwords.learn_merges(counts, merges) == learn_merges_slowly(counts, merges)


LETTERS = "ab@<>unkpd\u00e4\u00df\U0001f600"


@given(
    st.dictionaries(st.text(LETTERS, min_size=1, max_size=8), st.integers(1, 9), max_size=12),
    st.integers(0, 30),
    st.lists(st.text(LETTERS, min_size=1, max_size=12)),
)
def test_words_of_known_letters_are_joined_unchanged(counts, merges, words):
    pieces = Pieces.learn({LETTERS: 1, **counts}, merges)
    cut = [piece for word in [*words, *counts] for piece in pieces.split(word)]
    assert set(cut) <= set(pieces.pieces)
    assert Pieces.join(cut) == [*words, *counts]
    assert len(pieces.pieces) <= 2 * len(LETTERS) + merges
    assert Pieces(pieces.pieces).pieces == pieces.pieces


@given(st.sets(st.text("ab@", max_size=5)), st.text("ab@c", max_size=12))
def test_pieces_cover_every_letter_once(known, word):
    pieces = Pieces(known)
    cut = pieces.split(word)
    sizes = [1 if piece == "<unk>" else len(piece.removesuffix("@@")) for piece in cut]
    assert sum(sizes) == len(word)
    assert set(cut) <= {*pieces.pieces, "<unk>"}


def test_several_words_are_split():
    pieces = Pieces.learn({"abab": 9, "ab": 9, "c": 9}, 5)
    words = ["c", "ababab", "", "cab"]
    assert pieces.split_all(words) == [piece for word in words for piece in pieces.split(word)]
    assert Pieces.join(pieces.split_all(words)) == ["c", "ababab", "cab"]
    with pytest.raises(InputError):
        pieces.split_all("abab")


def test_a_huge_word_takes_linear_time():
    pieces = Pieces.learn({"abab": 9, "ab": 9}, 5)
    word = "ab" * 100_000
    cut = pieces.split(word)
    assert Pieces.join(cut) == [word]
