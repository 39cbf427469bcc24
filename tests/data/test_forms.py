"""Documents and translations are encoded as ids, saved and decoded again."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from data.made_up import harm_file, save_vectors, write_files
from nse.data.cache import TARGET, load_prepared, save_prepared
from nse.data.prepare import load_or_prepare, prepare
from nse.data.readers.parallel import MULTI30K
from nse.errors import DataError
from nse.text.vocabulary import TargetVocabulary, Vocabulary

VECTORS = {"good": 1, "dog": 2, "a": 3, ".": 4, "two": 5, "cats": 6, "<unk>": 7, "the": 8, "unused": 9}

REVIEWS = {
    "train": [(5, "so good . <sssss> a dog , café !"), (1, ""), (3, "bad <sssss> a <sssss> <sssss> a a .")],
    "dev": [(2, "one sentence . <sssss>")],
    "test": [(4, "good <sssss> zzz"), (1, " <sssss> ")],
}
DOCUMENTS = {
    "train": [["so good .", "a dog , café !"], [], ["bad", "a", "a a ."]],
    "dev": [["one sentence ."]],
    "test": [["good", "zzz"], []],
}

PAIRS = {
    "train": [
        ("The dog eats.", "Der Hund frisst."),
        ("Two cats eat the dog.", "Zwei Katzen fressen den Hund."),
        ("A dog!", "Der Hund!"),
    ],
    "dev": [("Zebra cats", "Zebra Katzen Katzen Katzen Katzen Katzen")],
    "test": [("the <unk>", "der <pad> <bos> Anfang")],
    "test_2017": [("dog", "hund")],
}


def write_reviews(folder, **changed):
    files = {
        f"yelp-2013-{split}.txt.ss": "".join(
            f"u\t\tp\t\t{stars}\t\t{text}\n" for stars, text in rows
        ).encode()
        for split, rows in (REVIEWS | changed).items()
    }
    write_files(folder, "plain", files, "")


def write_pairs(folder, **changed):
    files = {
        f"multi30k/{name.format(language)}": "".join(
            f"{pair[side]}\n" for pair in (PAIRS | changed)[split]
        ).encode()
        for split, name in MULTI30K.items()
        for side, language in enumerate(("en", "de"))
    }
    write_files(folder, "plain", files, "")


def write_vectors(folder, **changed):
    words = VECTORS | changed
    rows = np.array([[n, -n] for n in words.values()], np.float32)
    save_vectors(folder, "tiny.2d", list(words), rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a data folder with reviews, translations and vectors, and an empty cache."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    write_reviews(tmp_path / "data")
    write_pairs(tmp_path / "data")
    write_vectors(tmp_path / "data")
    return tmp_path / "data"


def save_and_load(prepared, tmp_path):
    """Save a data set and load it."""
    save_prepared(prepared, tmp_path / "again.safetensors")
    return load_prepared(tmp_path / "again.safetensors")


def read_texts(prepared, split, name):
    """Decode the texts of a column, or the sentences of its documents."""
    column = prepared.splits[split].texts[name]
    words = prepared.get_vocabulary(name).words
    rows = np.split(column.ids, np.cumsum(column.lengths))[:-1]
    return [" ".join(words[number] for number in row) for row in rows]


def read_documents(prepared, split):
    sentences, counts = (
        read_texts(prepared, split, "document"),
        prepared.splits[split].texts["document"].counts,
    )
    return [
        sentences[end - n : end] for end, n in zip(counts.cumsum().tolist(), counts.tolist(), strict=True)
    ]


# Documents


def test_saved_documents_load_with_the_same_words(folder, tmp_path):
    prepared = prepare("yelp13", None, folder)
    for data in (prepared, save_and_load(prepared, tmp_path)):
        assert {split: read_documents(data, split) for split in data.splits} == DOCUMENTS
        assert {split: columns.labels.tolist() for split, columns in data.splits.items()} == {
            "train": [4, 0, 2],
            "dev": [1],
            "test": [3, 0],
        }
        column = data.splits["train"].texts["document"]
        assert column.counts.tolist() == [2, 0, 3]
        assert column.lengths.tolist() == [3, 5, 1, 1, 3]
        assert column.rows == 3
        assert (data.labels, data.target) == (("1", "2", "3", "4", "5"), None)
        assert data.vectors is None
    assert save_and_load(prepared, tmp_path).fingerprint == prepared.fingerprint
    assert prepared.information["rows"]["train"] == {"read": 3, "kept": 3, "published": 268_013}
    assert "known" not in prepared.information


def test_words_of_documents_without_a_vector_are_unknown(folder, tmp_path):
    prepared = save_and_load(prepare("yelp13", "tiny.2d", folder), tmp_path)
    known = {"good", "dog", "a", "."}
    for split, wanted in DOCUMENTS.items():
        assert read_documents(prepared, split) == [
            [" ".join(w if w in known else "<unk>" for w in sentence.split(" ")) for sentence in document]
            for document in wanted
        ]
    assert set(prepared.vocabulary.words[2:]) == known
    assert prepared.vectors[2:].tolist() == [[VECTORS[w], -VECTORS[w]] for w in prepared.vocabulary.words[2:]]
    assert not prepared.vectors[:2].any()


def test_a_split_may_hold_only_empty_documents(folder, tmp_path):
    write_reviews(folder, dev=[(1, ""), (2, " <sssss> ")])
    prepared = save_and_load(prepare("yelp13", None, folder), tmp_path)
    column = prepared.splits["dev"].texts["document"]
    assert (column.counts.tolist(), column.lengths.tolist(), column.ids.tolist()) == ([0, 0], [], [])
    assert read_documents(prepared, "dev") == [[], []]


# Translations


def test_saved_translations_load_with_the_same_words(folder, tmp_path):
    for vectors in (None, "tiny.2d"):
        prepared = prepare("multi30k", vectors, folder)
        for data in (prepared, save_and_load(prepared, tmp_path)):
            assert read_texts(data, "train", "source") == [
                "the dog eats .",
                "two cats eat the dog .",
                "a dog !",
            ]
            assert read_texts(data, "train", TARGET) == [
                "der hund frisst .",
                "zwei katzen fressen den hund .",
                "der hund !",
            ]
            assert read_texts(data, "dev", "source") == ["zebra cats"]
            assert read_texts(data, "test_2017", TARGET) == ["hund"]
            assert all(not columns.labels.any() for columns in data.splits.values())
            assert (data.get_vocabulary("source"), data.get_vocabulary(TARGET)) == (
                data.vocabulary,
                data.target,
            )
        assert save_and_load(prepared, tmp_path).fingerprint == prepared.fingerprint
        assert save_and_load(prepared, tmp_path).information == prepared.information


def test_a_special_entry_in_a_text_is_an_unknown_word(folder):
    write_pairs(folder, test=[("the <unk>", "der <pad> <bos> anfang")])
    prepared = prepare("multi30k", None, folder)
    # Moses takes them apart; a reader that does not is met with this:
    assert read_texts(prepared, "test", "source") == ["the < unk >"]
    for special in TargetVocabulary.SPECIAL:
        assert prepared.target.encode([special]) == [Vocabulary.UNKNOWN]
    assert prepared.vocabulary.encode(["<bos>", "<pad>"]) == [Vocabulary.UNKNOWN] * 2


def test_words_with_a_vector_come_first_and_the_others_are_kept(folder, tmp_path):
    prepared = save_and_load(prepare("multi30k", "tiny.2d", folder), tmp_path)
    known = prepared.information["known"]
    words = prepared.vocabulary.words
    assert set(words[2:known]) == {"the", "dog", "two", "cats", "a", "."}
    assert set(words[known:]) >= {"eats", "eat", "!", "zebra"}
    assert prepared.vectors.shape == (known, 2)
    assert prepared.vectors[2:].tolist() == [[VECTORS[w], -VECTORS[w]] for w in words[2:known]]
    counts = Counter(
        word
        for split in prepared.splits
        for t in read_texts(prepared, split, "source")
        for word in t.split(" ")
    )
    for part in (words[2:known], words[known:]):
        assert list(part) == sorted(part, key=lambda word: (-counts[word], word))
    assert prepare("multi30k", None, folder).information["known"] == len(words)


def test_target_words_are_sorted_by_frequency_in_train(folder):
    prepared = prepare("multi30k", "tiny.2d", folder)
    counts = Counter(word for text in read_texts(prepared, "train", TARGET) for word in text.split(" "))
    words = prepared.target.words
    assert words[:4] == ("<pad>", "<unk>", "<bos>", "<eos>")
    seen = words[4 : 4 + len(counts)]
    assert list(seen) == sorted(counts, key=lambda word: (-counts[word], word))
    assert seen[0] == "hund"
    others = words[4 + len(counts) :]
    assert set(others) == {"zebra", "<", ">", "pad", "bos", "anfang"}  # however frequent there
    assert list(others) == sorted(others)
    assert words.index("katzen") < words.index("zebra")


def test_a_data_set_without_train_has_targets_too(folder, monkeypatch):
    from nse.data import catalogue

    entry = catalogue.DATA["multi30k"]
    changed_entry = replace(
        entry, read=lambda path: {k: v for k, v in entry.read(path).items() if k != "train"}
    )
    monkeypatch.setitem(catalogue.DATA, "multi30k", changed_entry)
    prepared = prepare("multi30k", None, folder)
    assert "train" not in prepared.splits
    assert list(prepared.target.words[4:]) == sorted(prepared.target.words[4:])
    assert read_texts(prepared, "dev", TARGET) == ["zebra katzen katzen katzen katzen katzen"]


# Fingerprints


def make_changed_reviews():
    train = REVIEWS["train"]
    return {
        "a label": [(4, train[0][1]), *train[1:]],
        "a word": [(5, "so good . <sssss> a dog , cafe !"), *train[1:]],
        "where a sentence ends": [(5, "so good <sssss> . a dog , café !"), *train[1:]],
        "where a document ends": [(5, "so good ."), (1, "a dog , café !"), train[2]],
        "the order": train[::-1],
    }


@pytest.mark.parametrize("change", make_changed_reviews())
def test_the_fingerprint_of_documents_changes_with(folder, change):
    before = prepare("yelp13", "tiny.2d", folder).fingerprint
    assert prepare("yelp13", "tiny.2d", folder).fingerprint == before
    write_reviews(folder, train=make_changed_reviews()[change])
    if change == "a word":  # neither is known: with vectors both are the same
        assert prepare("yelp13", "tiny.2d", folder).fingerprint == before
        assert "cafe" in prepare("yelp13", None, folder).vocabulary.words
    else:
        assert prepare("yelp13", "tiny.2d", folder).fingerprint != before


CHANGED_PAIRS = {
    "a source word": {"train": [("The dog sleeps.", "Der Hund frisst."), *PAIRS["train"][1:]]},
    "a target word": {"train": [("The dog eats.", "Der Hund schläft."), *PAIRS["train"][1:]]},
    "whose words they are": {"dev": [("Zebra", "cats"), ("a", "b")]},
    "nothing but a source word for another": {"test_2017": [("cats", "hund")]},
    "nothing but a target word for another": {"test_2017": [("dog", "katzen")]},
}


@pytest.mark.parametrize("change", CHANGED_PAIRS)
def test_the_fingerprint_of_translations_changes_with(folder, change):
    before = prepare("multi30k", "tiny.2d", folder).fingerprint
    write_pairs(folder, **CHANGED_PAIRS[change])
    assert prepare("multi30k", "tiny.2d", folder).fingerprint != before


def test_the_fingerprint_changes_with_vectors_counts_and_targets(folder):
    for name in ("yelp13", "multi30k"):
        prepared = prepare(name, "tiny.2d", folder)
        write_vectors(folder, dog=77)
        assert prepare(name, "tiny.2d", folder).fingerprint != prepared.fingerprint
        assert prepare(name, None, folder).fingerprint != prepared.fingerprint
        write_vectors(folder)
    pairs = prepare("multi30k", "tiny.2d", folder)
    other = replace(pairs, target=TargetVocabulary([*pairs.target.words[4:-1], "another"]))
    assert other.fingerprint != pairs.fingerprint
    reviews = prepare("yelp13", "tiny.2d", folder)
    before, columns = reviews.fingerprint, reviews.splits["train"]
    moved = columns.texts["document"]._replace(counts=np.array([3, 0, 2], np.int32))
    reviews.splits["train"] = columns._replace(texts={"document": moved})
    assert replace(reviews).fingerprint != before


@pytest.mark.parametrize("name", ["yelp13", "multi30k"])
def test_a_prepared_data_set_is_found_in_the_cache(folder, name):
    log = []
    first = load_or_prepare(name, "tiny.2d", folder, log.append)
    second = load_or_prepare(name, "tiny.2d", folder, log.append)
    assert first.fingerprint == second.fingerprint
    assert len(log) == 2  # that it is prepared, and where it is kept
    write_vectors(folder, dog=77)
    assert load_or_prepare(name, "tiny.2d", folder).fingerprint != first.fingerprint


# Files that are broken


def put(name, index, value):
    """Make a change of one number of a tensor."""

    def harm(tensors, information):
        tensors[name][index] = value

    return harm


def change_tensor(name, change):
    """Make a change of a tensor."""

    def harm(tensors, information):
        tensors[name] = change(tensors[name])

    return harm


def remove_tensor(name):
    """Make a change that removes a tensor."""
    return lambda tensors, information: tensors.pop(name)


DOCUMENT_HARMS = {
    "counts that add up to more": put("train.document.counts", 0, 3),
    "counts that add up to less": put("train.document.counts", 0, 1),
    "a negative count": put("train.document.counts", slice(None), [-1, 3, 3]),
    "counts of another type": change_tensor("train.document.counts", lambda counts: counts.astype(np.int64)),
    "counts in a table": change_tensor("train.document.counts", lambda counts: counts[:, None].copy()),
    "a count more": change_tensor("train.document.counts", lambda counts: np.append(counts, np.int32(0))),
    "a count less": change_tensor("train.document.counts", lambda counts: counts[:-1].copy()),
    "counts missing": remove_tensor("train.document.counts"),
    "counts of another column": lambda t, i: t.update({"train.other.counts": t["train.document.counts"]}),
    "a sentence more": change_tensor(
        "train.document.lengths", lambda lengths: np.append(lengths, np.int32(0))
    ),
    "lengths that add up to less": put("train.document.lengths", 0, 0),
    "an id out of range": put("train.document.ids", 0, 99),
    "a label less": change_tensor("train.labels", lambda labels: labels[:-1].copy()),
    "vectors of too few words": change_tensor("vectors", lambda rows: rows[:-1].copy()),
    "a target vocabulary": lambda t, i: t.update(
        target=np.frombuffer(TargetVocabulary(["x"]).to_bytes(), np.uint8)
    ),
}

PAIR_HARMS = {
    "a target id out of range": put("train.target.ids", 0, 99),
    "a target id of padding": put("train.target.ids", 0, 0),
    "a source id out of range": put("train.source.ids", 0, 99),
    "a target length too large": put("train.target.lengths", 0, 40),
    "a translation less": change_tensor("train.target.lengths", lambda lengths: lengths[:-1].copy()),
    "target words missing": remove_tensor("target"),
    "target words that are no bytes": change_tensor("target", lambda words: words.astype(np.int32)),
    "target words without begin and end": change_tensor(
        "target", lambda _: np.frombuffer(Vocabulary(["x"] * 1).to_bytes(), np.uint8)
    ),
    "a target word less": change_tensor(
        "target", lambda words: words[: words[:-1].tobytes().rindex(b"\n") + 1].copy()
    ),
    "vectors of too few words": change_tensor("vectors", lambda rows: rows[:-1].copy()),
    "vectors of too many words": change_tensor("vectors", lambda rows: np.concatenate([rows, rows[-1:]])),
    "vectors of all words": lambda t, i: t.update(
        vectors=np.concatenate([t["vectors"], np.ones((len(t["vocabulary"]), 2), np.float16)])
    ),
    "vectors and a count of too many words": lambda t, i: (
        t.update(vectors=np.concatenate([t["vectors"], np.ones((99, 2), np.float16)])),
        i.update(known=len(t["vectors"])),
    ),
    "known not named": lambda tensors, information: information.pop("known"),
    "known of another kind": lambda tensors, information: information.update(known="all"),
    "something for the unknown": put("vectors", (1, 0), 1),
}


@pytest.mark.parametrize(
    ("name", "harm"),
    [*(("yelp13", harm) for harm in DOCUMENT_HARMS), *(("multi30k", harm) for harm in PAIR_HARMS)],
)
def test_an_inconsistent_file_is_refused(folder, tmp_path, name, harm):
    file = tmp_path / "x.safetensors"
    save_prepared(prepare(name, "tiny.2d", folder), file)
    harm_file(file, (DOCUMENT_HARMS | PAIR_HARMS)[harm])
    with pytest.raises(DataError, match=r"x.safetensors: is not a prepared data set of format 1: "):
        load_prepared(file)


@pytest.mark.parametrize("harm", ["a target id out of range", "target words missing", "known not named"])
def test_an_inconsistent_file_without_vectors_is_refused(folder, tmp_path, harm):
    file = tmp_path / "x.safetensors"
    write_pairs(folder, test=[("a b c d e f g h i j k l m n o p q r s t", "hund")])  # ids for all to fit
    save_prepared(prepare("multi30k", None, folder), file)
    harm_file(file, PAIR_HARMS[harm])
    with pytest.raises(DataError, match=r"x.safetensors: is not a prepared data set of format 1: "):
        load_prepared(file)
