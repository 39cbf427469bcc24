"""BLEU against one that is written here: clipped counts, their geometric mean, and the brevity penalty."""

import math
import sys
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nse.metrics.bleu import bleu, get_signature

WORDS = st.sampled_from(["a", "b", "c", "d", ".", ",", "&amp;", "Ä", "a@@", "1.5"])
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6)
WHITE = [chr(n) for n in range(sys.maxunicode + 1) if chr(n).isspace()]
ODD = [letter for letter in WHITE if letter not in " \t\n\r"]


def tokens(text):
    return [word for word in text.split(" ") if word]


def grams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def by_hand(translations, references):
    """Papineni et al. (2002) over a corpus, with one reference, and no smoothing."""
    right, all_of_them = [0] * 4, [0] * 4
    for translation, reference in zip(translations, references, strict=True):
        for n in range(1, 5):
            actual, expected = grams(tokens(translation), n), grams(tokens(reference), n)
            right[n - 1] += sum(min(count, expected[gram]) for gram, count in actual.items())
            all_of_them[n - 1] += sum(actual.values())
    if not all(right):
        return 0.0
    precision = math.prod(r / a for r, a in zip(right, all_of_them, strict=True)) ** 0.25
    length, expected = (sum(len(tokens(text)) for text in texts) for texts in (translations, references))
    return precision * (1.0 if length >= expected else math.exp(1 - expected / length))


@settings(max_examples=300, deadline=None)
@given(PAIRS)
def test_bleu_equals_one_written_by_hand(pairs):
    translations, references = zip(*pairs, strict=True)
    assert bleu(translations, references) == pytest.approx(by_hand(translations, references), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=4, max_size=12), min_size=1, max_size=5), st.data())
def test_bleu_of_nearly_right_translations_equals_one_written_by_hand(references, data):
    """Random ones have hardly ever four words in a row that are right."""
    translations = []
    for words in references:
        kept = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
        translations.append(" ".join(w for i, w in enumerate(words) if i < 5 or kept[i]))
    references = [" ".join(words) for words in references]
    actual = bleu(translations, references)
    assert actual == pytest.approx(by_hand(translations, references), abs=1e-9)
    assert 0 < actual <= 1  # also where all is right and rounding would lead above


def test_bleu_of_an_example_worked_by_hand():
    assert bleu(["the cat sat on the mat"], ["the cat sat on the mat"]) == pytest.approx(1)
    # Of 6, 5, 4 and 3 there are 5, 3, 2 and 1 right; none is too short.
    right = [Fraction(5, 6), Fraction(3, 5), Fraction(2, 4), Fraction(1, 3)]
    expected = float(math.prod(right)) ** 0.25
    assert bleu(["the cat sat on a mat"], ["the cat sat on the mat"]) == pytest.approx(expected)
    # All right, and four words for six.
    actual = bleu(["the cat sat on"], ["the cat sat on the mat"])
    assert actual == pytest.approx(math.exp(1 - 6 / 4))
    # A word too often counts once.
    assert bleu(["a a a a b c d e"], ["a b c d e"]) == pytest.approx((5 / 8 * 4 / 7 * 3 / 6 * 2 / 5) ** 0.25)


def test_bleu_is_of_the_corpus_and_not_a_mean_over_sentences():
    translations, references = ["a b c d", "x"], ["a b c d", "y"]
    assert bleu(translations, references) == pytest.approx((4 / 5) ** 0.25)
    assert bleu(["x"], ["y"]) == 0


def test_bleu_is_not_smoothed():
    """Of three words no four are right, so it is 0, whatever the other counts."""
    assert bleu(["a b c"], ["a b c"]) == 0
    assert bleu(["a b c x d"], ["a b c d"]) == 0
    assert bleu(["a b c d"], ["a b c d"]) == pytest.approx(1)


def test_bleu_of_empty_texts_is_zero():
    assert bleu([], []) == 0
    assert bleu([""], ["a b c d"]) == 0
    assert bleu(["", ""], ["", ""]) == 0
    assert bleu(["a b c d"], [""]) == 0


def test_bleu_compares_tokens_without_changing_them():
    assert bleu(["A b c d"], ["a b c d"]) == 0  # no lower case, and "A" is another word
    assert bleu(["a, b c d"], ["a , b c d"]) == 0
    assert bleu(["&quot; b c d"], ['" b c d']) == 0
    assert bleu(["a@@ b c d", "x"], ["a@@ b c d", "x"]) == pytest.approx(1)


def test_unusual_white_space_does_not_split_a_token():
    """Only for Python are these white space: the program of Moses, which reads bytes, never sees a space."""
    assert len(ODD) > 20
    for letter in ODD:
        odd = f"x{letter}y"
        name = f"U+{ord(letter):04X}"
        assert bleu([f"{odd} b c d"], [f"{odd} b c d e"]) == pytest.approx(math.exp(1 - 5 / 4)), name
        assert bleu([f"a b c {odd}"], ["a b c x y"]) == 0, name


def test_line_separators_do_not_split_a_text():
    assert bleu(["a b c d\n"], ["a b c d"]) == pytest.approx(1)


def test_different_numbers_of_translations_and_references_raise_an_error():
    with pytest.raises(ValueError, match="2 translations for 1 references"):
        bleu(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 translations for 1 references"):
        bleu([], ["a"])


def test_the_signature_says_how_bleu_is_computed():
    fields = dict(part.split(":") for part in get_signature().split("|"))
    assert fields["tok"] == "none"
    assert fields["smooth"] == "none"
    assert fields["case"] == "mixed"
    assert fields["nrefs"] == "1"
    assert fields["version"]
    before = bleu(["a b c d"], ["a b c d e"])
    get_signature()
    assert bleu(["a b c d"], ["a b c d e"]) == before
