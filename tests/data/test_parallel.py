"""English texts and their German translations are read as published."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.made_up import write_files
from nse.data.readers import parallel
from nse.data.sources import Rows
from nse.errors import DataError
from nse.text import moses

DOGS = ("The dog's ball.\nTwo\u00a0cats!\n", "Der Ball des Hundes.\nZwei Katzen\u2028!\n")
ROWS = {
    "source": ["the dog 's ball .", "two cats !"],
    "target": ["der ball des hundes .", "zwei katzen !"],
}


def list_rows(texts, read):
    return Rows(texts, [0] * len(texts["source"]), read, tokenized=True)


def count_rows(name, folder):
    """Count the rows of each split roughly, and check that reading them gives the same counts."""
    rough, rows = parallel.read(name, folder, raw=True), parallel.read(name, folder)
    assert {split: split_rows.total for split, split_rows in rough.items()} == {
        split: split_rows.total for split, split_rows in rows.items()
    }
    assert all(len(split_rows.labels) == len(rows[split].labels) for split, split_rows in rough.items())
    return {split: len(split_rows.labels) for split, split_rows in rough.items()}


def make_files(folder, names, **changed):
    """Make files of two lines with these names; `changed` replaces the texts of a split."""
    return {
        f"{folder}/{name.format(language)}": text if isinstance(text, bytes) else text.encode()
        for split, name in names.items()
        for language, text in zip(("en", "de"), changed.get(split, DOGS), strict=True)
    }


def write_multi30k(folder, form="plain", subfolder="multi30k", **changed):
    write_files(folder, form, make_files(subfolder, parallel.MULTI30K, **changed), "")


def write_europarl(folder, form="plain", **changed):
    write_files(folder, form, make_files("europarl", parallel.EUROPARL, **changed), "")


def write_prepared(folder, form="plain", splits=("train", "dev", "test"), **changed):
    names = {split: parallel.PREPARED[split] for split in splits}
    write_files(folder, form, make_files("iwslt14", names, **changed), "")


HEAD = """<url>http://a.example/talk</url>
<keywords>dogs, cats</keywords>
<speaker>A. Person</speaker>
<talkid>7</talkid>
<title>{title}</title>
<description>{description}</description>
"""
TAIL = "<reviewer>B. Person</reviewer>\n<translator>C. Person</translator>\n</doc>\n"


def make_talk(title, description, count, word):
    """Make a talk of this many lines; the n-th holds n."""
    text = "".join(f"{word} {number} .\n" for number in range(3, 3 + count))
    return '<doc docid="1">\n' + HEAD.format(title=title, description=description) + text + TAIL


TALK = (make_talk("Dogs run", "A talk.", 70, "Line"), make_talk("Hunde laufen", "Ein Vortrag.", 70, "Zeile"))


def make_segments(*texts):
    rows = "".join(f'<seg id="{number}"> {text} </seg>\n' for number, text in enumerate(texts, start=1))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<refset setid="x">\n<doc docid="1">\n'
        f"<title>Not a row</title>\n<description>Nor this</description>\n{rows}</doc>\n</refset>\n"
    )


def make_published(direction="en-de", optional=True, train=None, **tests):
    """Make the files of IWSLT 2014 by name."""
    pairs = {f"train.tags.{direction}.{{}}": train or TALK}
    for name in parallel.TESTS:
        if optional or name != parallel.OPTIONAL:
            year = name.split(".")[-1]
            texts = (make_segments(f"Of {name} a set."), make_segments(f"Von {name} ein Satz."))
            pairs[f"IWSLT14.{name}.{direction}.{{}}.xml"] = tests.get(year, texts)
    return {
        name.format(language): text.encode()
        for name, texts in pairs.items()
        for language, text in zip(("en", "de"), texts, strict=True)
    }


def write_published(folder, form="plain", subfolder="iwslt14", **changed):
    write_files(folder / subfolder, form, make_published(**changed), "")


@pytest.mark.parametrize("form", ["plain", "gz", "xz"])
def test_multi30k_is_read_from_every_format(tmp_path, form):
    write_multi30k(tmp_path, form)
    rows = parallel.read("multi30k", tmp_path)
    assert list(rows) == ["train", "dev", "test", "test_2017"]
    for split_rows in rows.values():
        assert split_rows == list_rows(ROWS, 2)
    sources = parallel.find_sources("multi30k", tmp_path)
    assert count_rows("multi30k", tmp_path) == dict.fromkeys(rows, 2)
    assert list(sources)[:4] == ["train.en", "train.de", "dev.en", "dev.de"]
    assert sources["test_2017.de"].path.name.startswith("test_2017_flickr.de")


def test_multi30k_is_found_in_a_clone_of_its_repository(tmp_path):
    write_multi30k(tmp_path, "gz", "multi30k/data/task1/raw")
    assert parallel.read("multi30k", tmp_path)["test"].texts == ROWS


def test_europarl_is_read(tmp_path):
    write_europarl(tmp_path, "xz", dev=("A B " * 30 + "\n", "c " * 60))  # long pairs stay
    rows = parallel.read("europarl", tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    assert rows["train"] == rows["test"] == list_rows(ROWS, 2)
    assert rows["dev"].texts == {"source": [" ".join("ab" * 30)], "target": [" ".join("c" * 60)]}
    assert list(parallel.find_sources("europarl", tmp_path))[-1] == "test.de"


def test_pairs_with_an_empty_side_are_dropped_and_counted(tmp_path):
    write_europarl(tmp_path, train=("One\n\u200b\nthree\n\nfive\r\n", "Eins\nzwei\n \u00a0\n\nFünf\r\n"))
    rows = parallel.read("europarl", tmp_path)["train"]
    assert rows == list_rows({"source": ["one", "five"], "target": ["eins", "fünf"]}, 5)
    assert count_rows("europarl", tmp_path) == {"train": 2, "dev": 2, "test": 2}


@pytest.mark.parametrize("subfolder", ["iwslt14", "iwslt14/en-de", "en-de"])
@pytest.mark.parametrize("form", ["plain", "gz", "xz"])
def test_iwslt14_is_read_as_published(tmp_path, form, subfolder):
    write_published(tmp_path, form, subfolder)
    rows = parallel.read("iwslt14", tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    numbers = (23, 46, 69)
    texts = {"source": [f"line {n} ." for n in numbers], "target": [f"zeile {n} ." for n in numbers]}
    assert rows["dev"] == list_rows(texts, 3)
    train = rows["train"]
    assert (len(train.labels), train.total) == (69, 69)
    assert train.texts["source"][:3] == ["dogs run", "a talk .", "line 3 ."]
    assert train.texts["target"][:2] == ["hunde laufen", "ein vortrag ."]
    assert train.texts["source"][20:23] == ["line 21 .", "line 22 .", "line 24 ."]
    assert not any("person" in text or "<" in text for text in train.texts["source"])
    order = ["ted.dev2010", "tedx.dev2012", "ted.tst2010", "ted.tst2011", "ted.tst2012"]
    assert rows["test"].texts["source"] == [f"of {name} a set ." for name in order]
    sources = parallel.find_sources("iwslt14", tmp_path)
    assert list(sources)[:3] == ["train.en", "train.de", "TED.dev2010.en"]
    assert len(sources) == 12


def test_iwslt14_is_read_in_the_other_direction(tmp_path):
    write_published(tmp_path, subfolder="de-en", direction="de-en", optional=False)
    rows = parallel.read("iwslt14", tmp_path)
    assert rows["train"].texts["source"][0] == "dogs run"
    assert rows["test"].total == 4


def test_segments_need_not_be_valid_xml(tmp_path):
    english = make_segments("A &amp; B &lt; C", "It\u2019s < &quot;so&quot; & so", "x&nbsp;y")
    german = make_segments("A &amp; B", "so & so", "z").replace('<seg id="3">', "  <seg  id=\"3\" x='1'>")
    write_published(tmp_path, tst2012=(english.replace("y </seg>", "y"), german))
    rows = parallel.read("iwslt14", tmp_path)["test"]
    assert rows.texts["source"][-3:] == ["a & b < c", 'it \'s < " so " & so', "x y"]
    assert rows.texts["target"][-3:] == ["a & b", "so & so", "z"]


def test_long_pairs_of_iwslt14_are_dropped_and_counted(tmp_path):
    just, long = "a " * 25, "a " * 26
    tests = (make_segments(just, long, "b", "", "c"), make_segments("d", "e", long, "f", just))
    write_published(tmp_path, dev2010=tests)
    rows = parallel.read("iwslt14", tmp_path)["test"]
    assert (rows.total, len(rows.labels)) == (9, 6)
    assert rows.texts["target"][:2] == ["d", just.strip()]
    assert count_rows("iwslt14", tmp_path) == {"train": 69, "dev": 3, "test": 6}


def test_counting_pairs_tokenizes_few_of_them(tmp_path, monkeypatch):
    sentence = "A dog's ball, isn't it? " * 4
    tests = (make_segments("a dog.", sentence, "a " * 30, ". " * 26), make_segments("b", "c", "d", "e"))
    write_published(tmp_path, dev2010=tests)
    split = []
    monkeypatch.setattr(moses, "tokenize_moses", lambda text, _: split.append(text) or ["word"] * 26)
    assert (
        len(parallel.read("iwslt14", tmp_path, raw=True)["test"].labels) == 5
    )  # four other sets, and "a dog."
    assert split == [sentence.strip()]


@given(
    st.text(st.characters(exclude_categories=["Cs"])) | st.text(" .,'aI\u00e4\u00df\u0301-_@&;!?\"1/\u200b")
)
def test_rough_splitting_bounds_the_number_of_words(text):
    for words in (moses.tokenize_english(text), moses.tokenize_german(text)):
        assert len(moses.normalize_spaces(text).split()) <= len(words) <= len(parallel._PARTS.findall(text))


ESCAPED = (
    "it &apos;s &quot; A &amp; b &quot; well-known @-@ x\n" + "a " * 26 + "\n",
    "&#91; x &#93; &#124; &lt; &gt;\nb\n",
)


@pytest.mark.parametrize("form", ["plain", "gz", "xz"])
def test_iwslt14_is_read_as_usual_scripts_prepare_it(tmp_path, form):
    write_prepared(tmp_path, form, train=ESCAPED, dev=("&amp;apos; c\u00a0d\u200c\n", "&amp;lt; x.y, z\n"))
    rows = parallel.read("iwslt14", tmp_path)
    assert list(rows) == ["train", "dev", "test"]
    texts = {"source": ['it \'s " a & b " well-known @-@ x'], "target": ["[ x ] | < >"]}
    assert rows["train"] == list_rows(texts, 2)
    assert rows["dev"].texts == {"source": ["&apos; c d"], "target": ["&lt; x.y, z"]}
    assert rows["test"].texts["source"] == ["the dog's ball.", "two cats!"]  # not split again


def test_prepared_files_may_lack_the_training_split(tmp_path):
    write_prepared(tmp_path, splits=["dev", "test"])
    assert list(parallel.read("iwslt14", tmp_path)) == ["dev", "test"]
    assert list(parallel.find_sources("iwslt14", tmp_path)) == ["dev.en", "dev.de", "test.en", "test.de"]


def test_published_files_are_preferred_to_prepared_ones(tmp_path):
    write_prepared(tmp_path)
    write_published(tmp_path)
    assert parallel.read("iwslt14", tmp_path)["test"].total == 5


WRITERS = {
    "multi30k": write_multi30k,
    "europarl": write_europarl,
    "iwslt14": write_prepared,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_error_names_a_missing_file(tmp_path, name):
    for call in (parallel.read, parallel.find_sources):
        with pytest.raises(DataError, match=rf"{name}: no train.*{name}.*put the published files there"):
            call(name, tmp_path)
    WRITERS[name](tmp_path)
    (tmp_path / name / "train.de").unlink()
    for call in (parallel.read, parallel.find_sources):
        with pytest.raises(DataError, match=rf"{name}: no train\.de in .*{name}"):
            call(name, tmp_path)


@pytest.mark.parametrize("missing", ["train.tags.en-de.de", "IWSLT14.TED.tst2011.en-de.en.xml"])
def test_the_error_names_a_missing_published_file(tmp_path, missing):
    write_published(tmp_path)
    (tmp_path / "iwslt14" / missing).unlink()
    with pytest.raises(DataError, match=rf"iwslt14: no {re.escape(missing)} in "):
        parallel.find_sources("iwslt14", tmp_path)


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_optional_set_needs_both_languages(tmp_path, language):
    write_published(tmp_path)
    (tmp_path / "iwslt14" / f"IWSLT14.TEDX.dev2012.en-de.{language}.xml").unlink()
    with pytest.raises(DataError, match=rf"no IWSLT14\.TEDX\.dev2012\.en-de\.{language}\.xml"):
        parallel.find_sources("iwslt14", tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_different_numbers_of_lines_are_an_error(tmp_path, name):
    WRITERS[name](tmp_path, dev=("a\nb\nc\n", "a\nb\n"))
    wanted = r"\.en and .*\.de: expected as many lines of text in both, got 3 and 2; remove both"
    with pytest.raises(DataError, match=wanted):
        parallel.read(name, tmp_path)


def test_different_numbers_of_lines_in_published_files_are_an_error(tmp_path):
    write_published(tmp_path, tst2010=(make_segments("a", "b"), make_segments("a")))
    with pytest.raises(DataError, match=r"tst2010\.en-de\.en\.xml and .* got 2 and 1"):
        parallel.read("iwslt14", tmp_path)
    write_published(tmp_path, train=(make_talk("a", "b", 40, "x"), make_talk("a", "b", 39, "x")))
    with pytest.raises(DataError, match=r"train\.tags\.en-de\.en and .* got 42 and 41"):
        parallel.read("iwslt14", tmp_path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("form", ["plain", "xz"])
def test_the_error_names_a_broken_line(tmp_path, name, form):
    WRITERS[name](tmp_path, form, test=("a\nb\nc\n", b"a\nb\n\xff\n"))
    with pytest.raises(DataError, match=r"\.de(\.xz)?: line 3: is not UTF-8"):
        parallel.read(name, tmp_path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("texts", [("", ""), ("\n \n", "a\nb\n")])
def test_an_empty_split_is_refused(tmp_path, name, texts):
    WRITERS[name](tmp_path, test=texts)
    with pytest.raises(
        DataError, match=r"\.en and .*\.de: expected pairs with words on both sides.*, got none"
    ):
        parallel.read(name, tmp_path)


def test_too_few_lines_for_a_dev_split_are_an_error(tmp_path):
    write_published(tmp_path, train=("a\n" * 22, "b\n" * 22))
    with pytest.raises(DataError, match=r"both sides, 25 at most, got none in 0 lines for a split"):
        parallel.read("iwslt14", tmp_path)


def test_the_error_names_a_truncated_file(tmp_path):
    write_europarl(tmp_path, "gz", train=(DOGS[0] * 1000, DOGS[1] * 1000))
    file = tmp_path / "europarl" / "train.de.gz"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"train\.de\.gz: cannot be read"):
        parallel.read("europarl", tmp_path)
