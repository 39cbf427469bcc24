"""Raw English text is split into sentences."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nse.text.sentence_splitter import split_sentences

# In each text a bar stands where it is expected to be split.
SPLIT = [
    "A dog ran.| It was fast!| Was it?| Yes.",
    "one line\nof a dog. | Two\tspaces  here",
    # closing quotes and brackets belong to the sentence
    'He said "no." |Then he left.',
    "She left (at last!) |We stayed.",
    '"Why?" he asked. |"Who knows!" she said.',
    "He called it 'art.'| I did not.",
    "\u201cSo long.\u201d |\u2018Bye.\u2019 |(The end.)",
    # runs
    "What?! |No!!! |Never...!? |Ever.",
    "So bad ! ! ! |Go away . |Now",
    # abbreviations
    "Mr. Fox met Mrs. Hen and Dr. Owl vs. The Cats.| They ate.",
    "No. 5 is alive. |No. |I say no. |He says no.",
    "See J. R. R. Rabbit and D.W. Duck, A. A. Bear. |They are fine.",
    "Dogs, cats etc. are here. |Birds, bees, etc. |They are not.",
    "The U.S. Navy left at 5 p.m. on Sunday. |He saw the U.S. |It was big.",
    "Some animals, e.g. The Cat, i.e. Tom, bark. |A.k.a. The Dog.",
    "So do I. |Bob too. |It is plan B. |But why?",
    "He lives on Elm St. |The house is red. |St. Bob is not there.",
    "They ate (cheese etc.) |Then they slept.",
    "He has a Ph.D. from there. |P.S. He is a dog.",
    # numbers
    "It cost 3.5 coins, not 1,000.50. |That is version 2.0.1. |9 of 10. |12 dogs.",
    "1. The dog. |2. The cat. |10.) The bird.",
    # ellipses
    "it was...ok, and then... nothing. |Well... |So it is\u2026 |Yes\u2026 no",
    'He waited . . . and waited . . . |Nobody came... |"Oh," he said.',
    "...And so it goes. ... and goes",
    # small letters
    "i liked it. |it was fun! |was it? |yes.",
    # a missing space
    "It was great.|The acting was good!|Was it?|Yes it was...|I think.|A dog.|I'm sure.",
    "It won in 1999.|The score is 8/10.|It's (very) good).|We know.",
    "Cats etc.|The end .|They left.",
    "U.S.A and e.g.Foo and Mr.Fox and J.Fox at www.Foo.com, www.Foo or my.Foo.com.",
    "Open Foo.txt, foo.Bar/x, a/b.Foo, http://x.org/y?A=b!C and me@foo.Bar now.",
    # what is not a sentence is not split off
    "?! No. |-- Yes. | - The dog",
    "Good! :)",
    "Ça va. |Été! |Ωmega ends. |Ünder. |日本 is. |日本.",
]


@pytest.mark.parametrize("marked", SPLIT)
def test_texts_are_split_at_the_marked_positions(marked):
    expected = [" ".join(part.split()) for part in marked.split("|")]
    assert split_sentences(marked.replace("|", "")) == expected


@pytest.mark.parametrize(
    "mark", ["<br />", "<br>", "<br/>", "<BR />", "<Br\n>", "</br>", "\n\n", "\n \t\r\n"]
)
def test_breaks_end_a_sentence(mark):
    assert split_sentences(f"a dog{mark}and a cat.{mark}{mark} {mark}It ran{mark}") == [
        "a dog",
        "and a cat.",
        "It ran",
    ]


@pytest.mark.parametrize("text", ["<b>r</b>", "a <br b", "<broken>", "< br>"])
def test_other_tags_are_text(text):
    assert split_sentences(text) == [text]


@pytest.mark.parametrize("text", ["", " ", "\n\n \n", "<br /><br>", " <br /> \u2028\u00a0"])
def test_an_empty_text_has_no_sentences(text):
    assert split_sentences(text) == []


def test_sentences_without_words_are_kept():
    assert split_sentences("...<br />!? . (*)<br />.") == ["...", "!? . (*)", "."]


def test_white_space_becomes_one_space():
    white = "".join(chr(n) for n in range(0x3001) if chr(n).isspace() and chr(n) != "\n")
    assert len(white) > 20
    assert split_sentences(f"{white}a{white}dog.{white}He{white}\n{white}ran.{white}") == [
        "a dog.",
        "He ran.",
    ]


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "<br />",
                "<BR>",
                "\n\n",
                "\n",
                " ",
                ".",
                "...",
                "?!",
                '"',
                ")",
                "(",
                "\u2026",
                "\u2028",
                "*",
                "<br",
            ]
        ),
        st.sampled_from(
            ["Mr", "etc", "U.S", "No", "www", "foo", "Bar", "I", "A", "5", "1999", "/", "@", "the"]
        ),
        st.text(max_size=5),
    )
).map("".join)


@given(PIECES)
def test_only_white_space_and_breaks_are_removed(text):
    result = split_sentences(text)
    without = re.sub(r"</?br\s*/?>", "", text, flags=re.IGNORECASE)
    assert "".join("".join(result).split()) == "".join(without.split())
    for sentence in result:
        assert sentence == " ".join(sentence.split())
        assert sentence


@given(PIECES)
def test_a_sentence_is_not_split_again(text):
    for sentence in split_sentences(text):
        assert split_sentences(sentence) == [sentence]


@given(PIECES, PIECES)
def test_paragraphs_are_split_independently(one, other):
    assert split_sentences(f"{one}<br />{other}") == split_sentences(one) + split_sentences(other)


@pytest.mark.parametrize(
    "letters",
    [
        *(
            "a.",
            "A. ",
            "a",
            ".",
            "...",
            ". ",
            ". . A",
            "(",
            '."',
            "!(",
            "! (",
            "'",
            "<br",
            "<br ",
            "\n",
            "\n a",
            " ",
        ),
        *("a.A", "Aa.", "Foo.Bar", "e.g. ", "1. ", "?A", "\u2026*", "- ", ". - ", "Mr. "),
    ],
)
def test_long_texts_take_linear_time(letters):
    size = 30_000 // len(letters)
    for text in (letters * size, f"x{letters * size}", f"{letters * size}Xy"):  # quadratic would take minutes
        assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
