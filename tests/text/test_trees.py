"""Labelled trees in brackets."""

import pytest

from nse import InputError
from nse.text.trees import parse


def test_every_phrase_has_its_label_and_words():
    tree = parse("(3 (2 (2 The) (2 film)) (4 (3 is) (4 great)))\n")
    assert tree.label == 3
    assert tree.words == ("The", "film", "is", "great")
    assert [(phrase.label, " ".join(phrase.words)) for phrase in tree.phrases()] == [
        (3, "The film is great"),
        (2, "The film"),
        (2, "The"),
        (2, "film"),
        (4, "is great"),
        (3, "is"),
        (4, "great"),
    ]
    assert [child.label for child in tree.children] == [2, 4]


def test_only_the_ascii_space_separates():
    assert parse("(3 (2 2\u00a01/2) (2 x\u2028y))").words == ("2\u00a01/2", "x\u2028y")
    assert parse("(2 one)").words == ("one",)


def test_a_tree_deeper_than_the_stack():
    depth = 100_000
    tree = parse("".join(f"({n % 5} (2 w{n}) " for n in range(depth)) + "(4 end)" + ")" * depth)
    assert len(tree.words) == depth + 1
    assert sum(1 for _ in tree.phrases()) == 2 * depth + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("(2", "1 more closing brackets"),
        ("(3 (2 a)", "1 more closing brackets"),
        ("(2 a) (2 b)", r"nothing after the last bracket, got '\('"),
        ("(2 a))", r"nothing after the last bracket, got '\)'"),
        ("word", "expected an opening bracket, got 'word'"),
        (")", r"expected an opening bracket, got '\)'"),
        ("(x a)", "a whole number after an opening bracket, got 'x'"),
        ("(-1 a)", "a whole number after an opening bracket, got '-1'"),
        ("(² a)", "a whole number after an opening bracket"),
        ("((2 a))", "a whole number after an opening bracket"),
        ("(2)", "expected a word or phrases"),
        ("(2 a b)", "got also 'b'"),
        ("(3 (2 a) b)", "got also 'b'"),
        ("(3 a (2 b))", "got both"),
    ],
)
def test_a_broken_tree_is_told(text, message):
    with pytest.raises(InputError, match=message):
        parse(text)
