"""Word vectors are read from files, and their coverage is measured."""

import gzip
import lzma
import pickle
import zipfile
from collections import Counter

import numpy as np
import pytest

from nse.data.readers.word_vectors import find_vector_files, list_vectors, load_vectors
from nse.errors import DataError
from nse.text.vectors import measure_coverage

GLOVE = b"the 1 2\n, 3 4\n. . . 5 6\nat name@domain.com 7 8\nCaf\xc3\xa9 9 10\n\xc2\x85 11 12\n"
WORDS = ["the", ",", ". . .", "at name@domain.com", "Café", "\x85"]


def write_text(folder, content=GLOVE, name="glove.9B.2d"):
    (folder / f"{name}.txt").write_bytes(content)


def write_gz(folder, content=GLOVE):
    (folder / "glove.9B.2d.txt.gz").write_bytes(gzip.compress(content))


def write_xz(folder, content=GLOVE):
    (folder / "glove.9B.2d.txt.xz").write_bytes(lzma.compress(content))


def write_zip(folder, content=GLOVE, name="glove.9B.2d.zip"):
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/glove.9B.2d.txt", b"x")
        archive.writestr("glove.9B.1d.txt", b"the 1\n")
        archive.writestr("glove.9B.2d.txt", content)


def write_zip_of_several(folder, content=GLOVE):
    write_zip(folder, content, "glove.9B.zip")


FORMS = [write_text, write_gz, write_xz, write_zip, write_zip_of_several]


def write_array(folder, rows, words, aliases=None, name="set.2d"):
    np.save(folder / f"{name}.npy", rows)
    (folder / f"{name}.words.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
    if aliases is not None:
        (folder / f"{name}.aliases.tsv").write_bytes(aliases)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("subfolder", ["", "vectors"])
def test_glove_is_read_from_every_format_and_folder(tmp_path, form, subfolder):
    (tmp_path / subfolder).mkdir(exist_ok=True)
    form(tmp_path / subfolder)
    reports = []
    vectors = load_vectors(tmp_path, "glove.9B.2d", progress=lambda *report: reports.append(report))
    assert list(vectors.words) == WORDS  # a word may hold spaces
    assert vectors.dimension == 2
    assert vectors.rows.tolist() == [[2 * n + 1, 2 * n + 2] for n in range(6)]
    done, total = reports[-1]
    assert done == total > 0
    assert not vectors.lowered


@pytest.mark.parametrize("form", FORMS)
def test_only_wanted_words_are_kept(tmp_path, form):
    form(tmp_path)
    vectors = load_vectors(tmp_path, "glove.9B.2d", {"The", "café", "Café", ". . .", "nowhere"})
    assert vectors.words == {". . .": 0, "Café": 1}  # the set has case: "The" is not "the"
    assert vectors.rows.tolist() == [[5, 6], [9, 10]]


@pytest.mark.parametrize("wanted", [None, {"The", "the", "CAFÉ", "nowhere"}])
def test_words_are_looked_up_in_lower_case_in_a_set_without_capitals(tmp_path, wanted):
    write_text(tmp_path, "the 1 2\ncafé 3 4\n".encode())
    vectors = load_vectors(tmp_path, "glove.9B.2d", wanted)
    assert vectors.look_up(["The", "the", "CAFÉ", "nowhere"]).tolist() == [[1, 2], [1, 2], [3, 4], [0, 0]]
    if wanted:
        assert sorted(vectors.words) == ["CAFÉ", "The", "the"]


def test_the_first_line_of_a_repeated_word_counts(tmp_path):
    write_text(tmp_path, b"A 1 2\nA 3 4\nb 5 6\n")
    assert load_vectors(tmp_path, "glove.9B.2d").look_up(["A", "b"]).tolist() == [[1, 2], [5, 6]]


def test_arrays_may_have_aliases(tmp_path):
    (tmp_path / "vectors").mkdir()
    rows = np.array([[1, 2], [3, 4]], np.float16)
    write_array(tmp_path / "vectors", rows, ["The", "x\u2028y"], b"El\t0\nThe\t1\n")
    vectors = load_vectors(tmp_path, "set.2d")
    assert vectors.words == {"The": 0, "x\u2028y": 1, "El": 0}
    assert vectors.rows.dtype == np.float16
    chosen = load_vectors(tmp_path, "set.2d", {"El", "The", "the"})
    assert chosen.words == {"El": 0, "The": 1}
    assert chosen.rows.tolist() == [[1, 2], [1, 2]]
    names = [source.path.name for source in find_vector_files(tmp_path, "set.2d")]
    assert names == ["set.2d.npy", "set.2d.words.txt", "set.2d.aliases.tsv"]


@pytest.mark.parametrize("wanted", [None, {"only", "both", "The", "nowhere"}])
def test_two_sets_are_concatenated(tmp_path, wanted):
    write_array(tmp_path, np.array([[1, 2], [3, 4]], np.float16), ["only", "both"])
    write_text(tmp_path, b"the 5 6\nboth 7 8\nX 9 9\n")
    vectors = load_vectors(tmp_path, "set.2d+glove.9B.2d", wanted)
    assert vectors.dimension == 4
    rows_of_words = vectors.look_up(["only", "both", "the", "nowhere"])
    assert rows_of_words.tolist() == [
        [1, 2, 0, 0],
        [3, 4, 7, 8],
        [0, 0, 0 if wanted else 5, 0 if wanted else 6],
        [0] * 4,
    ]


def test_the_error_for_missing_vectors_lists_the_others(tmp_path):
    write_array(tmp_path, np.zeros((1, 2), np.float16), ["a"])
    with pytest.raises(DataError) as error:
        load_vectors(tmp_path, "glove.840B.300d")
    for part in ("glove.840B.300d.npy", ".txt.gz", "there is set.2d"):
        assert part in str(error.value)
    assert error.value.fix == ("vectors", "glove.840B.300d")
    assert list_vectors(tmp_path) == ["set.2d"]


@pytest.mark.parametrize("name", ["../x", "/x", "", "+a", "a/b", ".hidden"])
def test_a_path_is_not_a_name_of_vectors(tmp_path, name):
    with pytest.raises(DataError, match="expected a name"):
        load_vectors(tmp_path, name)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"word 1", "line 4097: expected a word and 2 numbers, got 1 numbers"),
        (b"", "line 4097: expected a word and 2 numbers, got 0 numbers"),
        (b"word 1 x", "line 4097: expected a word and 2 numbers"),
        (b"word 1  2", "line 4097"),
        (b"word nan 1", "line 4097: holds NaN or Inf"),
        (b"word 1 inf", "line 4097: holds NaN or Inf"),
        (b"word 1 1e39", "line 4097: holds NaN or Inf"),
        (b"\xff 1 2", "line 4097: is not UTF-8"),
    ],
)
@pytest.mark.parametrize("form", [write_text, write_xz, write_zip])
def test_the_error_names_a_broken_line(tmp_path, form, line, message):
    form(tmp_path, b"".join(b"w%d 1 2\n" % n for n in range(4096)) + line + b"\nw 1 2\n")
    with pytest.raises(DataError, match=message) as error:
        load_vectors(tmp_path, "glove.9B.2d")
    assert "glove.9B.2d" in str(error.value)


def test_the_dimension_in_a_name_is_checked(tmp_path):
    write_text(tmp_path, b"the 1 2 3\n")
    with pytest.raises(DataError, match="expected vectors of 2 numbers by its name, got 3"):
        load_vectors(tmp_path, "glove.9B.2d")
    write_array(tmp_path, np.zeros((1, 3), np.float16), ["a"])
    with pytest.raises(DataError, match="expected vectors of 2 numbers by its name, got 3"):
        load_vectors(tmp_path, "set.2d")
    write_text(tmp_path, b"", "empty")
    with pytest.raises(DataError, match=r"empty.txt: is empty"):
        load_vectors(tmp_path, "empty")


@pytest.mark.parametrize("form", [write_gz, write_xz, write_zip])
@pytest.mark.parametrize("harm", ["truncated", "garbled", "emptied"])
def test_the_error_names_a_damaged_file(tmp_path, form, harm):
    rng = np.random.default_rng(0)
    form(tmp_path, b"".join(b"w%d %f %f\n" % (n, *rng.random(2)) for n in range(3000)))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    if harm == "garbled":
        content[middle : middle + 100] = bytes(100)
    file.write_bytes({"truncated": content[:middle], "garbled": content, "emptied": b""}[harm])
    with pytest.raises(DataError, match=file.name):
        load_vectors(tmp_path, "glove.9B.2d")


@pytest.mark.parametrize(
    ("rows", "words", "aliases", "message"),
    [
        (np.zeros((2, 2)), ["a", "b"], None, "of float16 or float32"),
        (np.zeros(4, np.float16), ["a"] * 4, None, r"an? .npy array \[words, d\]"),
        (np.zeros((2, 2), np.float16), ["a"], None, "1 different words for 2 rows"),
        (np.zeros((2, 2), np.float16), ["a", "a"], None, "1 different words for 2 rows"),
        (np.array([[0, 0], [0, np.nan]], np.float16), ["a", "b"], None, "row 1 holds NaN or Inf"),
        (np.zeros((2, 2), np.float16), ["a", "b"], b"c\t1\nd\t2\n", "aliases.tsv: line 2: expected a word"),
        (np.zeros((2, 2), np.float16), ["a", "b"], b"1\n", "aliases.tsv: line 1: expected a word"),
        (np.zeros((2, 2), np.float16), ["a", "b"], b"c\t-1\n", "aliases.tsv: line 1: expected a word"),
        (np.zeros((2, 2), np.float16), ["a", "b"], b"\xff\t1\n", "aliases.tsv: line 1: is not UTF-8"),
    ],
)
def test_the_error_names_a_broken_array(tmp_path, rows, words, aliases, message):
    write_array(tmp_path, rows, words, aliases)
    with pytest.raises(DataError, match=message):
        load_vectors(tmp_path, "set.2d")


def test_pickles_and_truncated_arrays_are_refused(tmp_path):
    write_array(tmp_path, np.zeros((9, 2), np.float16), "abcdefghi")
    file = tmp_path / "set.2d.npy"
    whole = file.read_bytes()
    np.save(file, np.array([{}], object), allow_pickle=True)
    for content in (file.read_bytes(), pickle.dumps([1]), b"", b"garbage", whole[:-1], whole[:20]):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"set.2d.npy"):
            load_vectors(tmp_path, "set.2d")


def test_coverage_counts_tokens_and_types():
    counts = Counter({"the": 6, "cat": 2, "zzz": 1, "yyy": 1})
    covered = measure_coverage(counts, {"the": 0, "cat": 1, "dog": 2})
    assert (covered.tokens, covered.known_tokens) == (10, 8)
    assert (covered.types, covered.known_types) == (4, 2)
    assert covered.missing == (("yyy", 1), ("zzz", 1))
    assert str(covered).split("\n") == [
        "tokens covered: 80.00% (8 of 10)",
        "types covered: 50.00% (2 of 4)",
        "most frequent without a vector: yyy (1), zzz (1)",
    ]
    assert measure_coverage(counts, {}, listed=1).missing == (("the", 6),)
    assert "0.00% (0 of 0)" in str(measure_coverage(Counter(), {}))
