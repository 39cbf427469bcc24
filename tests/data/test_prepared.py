"""Published files are encoded as one file of ids, which is cached."""

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

import forking
from data.made_up import HEADER, harm_file, make_snli_line, write_snli, write_vectors, write_wikiqa
from nse.data import prepare as module
from nse.data.cache import KEY, load_prepared, save_prepared
from nse.data.prepare import load_or_prepare, prepare
from nse.errors import DataError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a data folder with SNLI and vectors, and an empty cache."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    write_snli(tmp_path / "data")
    write_vectors(tmp_path / "data")
    return tmp_path / "data"


def read_texts(prepared, split, name):
    """Decode a column."""
    ids, lengths, _ = prepared.splits[split].texts[name]
    rows = np.split(ids, np.cumsum(lengths))[:-1]
    return [" ".join(prepared.vocabulary.words[number] for number in row) for row in rows]


def test_only_words_with_a_vector_are_known(folder):
    prepared = prepare("snli", "set.2d", folder)
    assert prepared.vocabulary.words[2:] == ("A", ".", "dog", "cat", "runs", "The", "a", "moves")
    assert read_texts(prepared, "train", "premise") == [
        "A dog runs <unk> <unk> .",
        "The cat <unk> .",
        "A dog runs .",
    ]
    assert read_texts(prepared, "train", "hypothesis") == ["A dog moves .", "<unk> <unk> A", ""]
    assert prepared.splits["test"].labels.tolist() == [1, 0]
    assert prepared.labels == ("entailment", "contradiction", "neutral")
    assert prepared.vectors.dtype == np.float16
    assert prepared.vectors[:4].tolist() == [[0, 0], [0, 0], [1, -1], [6, -6]]  # that of <unk> is not used
    assert prepared.information["rows"]["train"] == {"read": 4, "kept": 3, "published": 549367}
    covered = prepared.information["coverage"]
    assert covered["known_types"] == 8
    assert covered["missing"][:3] == [["dogs", 2], ["zebra", 2], [",", 1]]
    assert [source["name"] for source in prepared.information["sources"]] == [
        *(f"snli_1.0_{split}.jsonl" for split in ("train", "dev", "test")),
        *("set.2d.npy", "set.2d.words.txt"),
    ]


def test_without_vectors_every_word_is_known(folder):
    prepared = prepare("snli", None, folder)
    assert prepared.vectors is None
    assert read_texts(prepared, "test", "hypothesis") == ["a dog", "zebra zebra"]
    assert read_texts(prepared, "train", "hypothesis") == ["A dog moves .", "N / A", ""]
    assert "dropped" not in prepared.vocabulary.words


def test_a_saved_data_set_loads_unchanged(folder, tmp_path):
    for vectors in ("set.2d", None):
        prepared = prepare("snli", vectors, folder)
        save_prepared(prepared, tmp_path / "new" / "file.safetensors")
        again = load_prepared(tmp_path / "new" / "file.safetensors")
        assert again.fingerprint == prepared.fingerprint
        assert again.information == prepared.information
        assert again.vocabulary.words == prepared.vocabulary.words
        assert read_texts(again, "train", "premise") == read_texts(prepared, "train", "premise")
        assert (again.vectors is None) == (vectors is None)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["file.safetensors"]


def test_groups_are_saved_and_loaded(folder, tmp_path):
    write_wikiqa(folder, dev=HEADER)
    prepared = prepare("wikiqa", None, folder)
    save_prepared(prepared, tmp_path / "x.safetensors")
    again = load_prepared(tmp_path / "x.safetensors")
    assert again.information["groups"] == ["train", "dev", "test"]
    groups = {split: columns.groups.tolist() for split, columns in again.splits.items()}
    assert groups == {"train": [0, 0, 1, 2], "dev": [], "test": [0, 1]}
    assert again.splits["train"].groups.dtype == np.int32
    assert read_texts(again, "train", "question") == ["who runs ?", "who runs ?", "who sleeps", "where"]
    assert again.fingerprint == prepared.fingerprint
    prepared.splits["test"] = prepared.splits["test"]._replace(groups=np.zeros(2, np.int32))
    assert replace(prepared).fingerprint != again.fingerprint


def test_a_file_without_groups_has_no_tensor_of_groups(folder):
    prepared = prepare("snli", "set.2d", folder)
    assert "groups" not in prepared.information
    assert not [name for name in prepared.to_tensors() if name.endswith("groups")]
    assert prepared.splits["train"].groups is None


def test_every_process_writes_the_same_bytes(folder, tmp_path):
    script = (
        "import sys; from pathlib import Path; from nse.data.prepare import prepare; "
        "from nse.data.cache import save_prepared; "
        "save_prepared(prepare('snli', 'set.2d', Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    files = [tmp_path / str(seed) for seed in range(2)]
    for seed, file in enumerate(files):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", script, str(folder), str(file)], env=environment, check=True)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_fingerprint_depends_on_the_data_and_not_on_its_files(folder, tmp_path):
    before = prepare("snli", "set.2d", folder).fingerprint
    shutil.rmtree(folder / "snli_1.0")
    write_snli(folder, "zip")
    assert prepare("snli", "set.2d", folder).fingerprint == before
    write_vectors(folder, scale=2)
    another = prepare("snli", "set.2d", folder).fingerprint
    write_snli(folder, "zip", dev=make_snli_line("entailment", "Two dogs", "dogs"))
    assert len({before, another, prepare("snli", "set.2d", folder).fingerprint}) == 3


def test_unusual_sentences_are_encoded(folder):
    huge = " ".join(["dog"] * 10_000)
    rows = [("", ""), ("zzz qqq", "xxx"), (huge, "a" * 1_000_000), (" \n\t", "\u00a0")]
    write_snli(folder, train=b"".join(make_snli_line("neutral", *row) for row in rows))
    column = prepare("snli", "set.2d", folder).splits["train"].texts
    assert column["premise"].lengths.tolist() == [0, 2, 10_000, 0]
    assert column["hypothesis"].lengths.tolist() == [0, 1, 1, 0]
    assert column["premise"].ids[:2].tolist() == [1, 1]


def test_a_split_may_have_no_rows_or_no_words(folder, tmp_path):
    write_snli(folder, dev=b"", test=make_snli_line("neutral", "", ""))
    save_prepared(prepare("snli", "set.2d", folder), tmp_path / "x.safetensors")
    splits = load_prepared(tmp_path / "x.safetensors").splits
    assert len(splits["dev"].labels) == len(splits["dev"].texts["premise"].ids) == 0
    assert splits["test"].texts["hypothesis"].lengths.tolist() == [0]


def test_several_processes_may_prepare_at_once(folder):
    script = (
        "import sys; from pathlib import Path; from nse.data.prepare import load_or_prepare; "
        "print(load_or_prepare('snli', 'set.2d', Path(sys.argv[1])).fingerprint)"
    )
    run = ["-c", script, folder]
    running = [forking.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate()[0] for process in running}
    assert answers == {prepare("snli", "set.2d", folder).fingerprint + "\n"}
    assert [file.name for file in (folder.parent / "cache").iterdir()] == ["snli.set.2d.safetensors"]


def test_vectors_too_large_for_half_precision_are_refused(folder):
    write_vectors(folder, scale=1e6)
    with pytest.raises(DataError, match="too large for float16"):
        prepare("snli", "set.2d", folder)


def test_missing_files_are_reported_before_anything_is_read(folder):
    with pytest.raises(DataError, match=r"vectors glove.840B.300d are not in"):
        prepare("snli", "glove.840B.300d", folder)
    with pytest.raises(DataError, match=r"no data set named 'snil' \(did you mean snli"):
        prepare("snil", None, folder)


# Finding it again


def test_a_data_set_is_prepared_again_when_a_source_changes(folder):
    log = []
    first = load_or_prepare("snli", "set.2d", folder, log.append)
    cached = folder.parent / "cache" / "snli.set.2d.safetensors"
    assert log == ["preparing snli with set.2d", f"saved in {cached}"]
    written = cached.stat().st_mtime_ns
    assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint == first.fingerprint
    assert len(log) == 2
    assert cached.stat().st_mtime_ns == written
    write_vectors(folder, scale=2)
    assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint != first.fingerprint
    assert log[2:] == log[:2]


def test_sources_are_hashed_only_if_their_size_or_time_differs(folder, monkeypatch):
    first = load_or_prepare("snli", "set.2d", folder)
    cached = folder.parent / "cache" / "snli.set.2d.safetensors"
    hashed, compute = [], module.compute_checksums
    monkeypatch.setattr(
        module, "compute_checksums", lambda files, *_: hashed.append(len(files)) or compute(files)
    )
    log = []
    assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint == first.fingerprint
    assert hashed == []
    os.utime(folder / "snli_1.0" / "snli_1.0_dev.jsonl", (1, 1))  # as copied: the same bytes
    for _ in range(2):  # the second time it is known
        assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint == first.fingerprint
        assert hashed == [5]
    assert load_prepared(cached).information["sources"] == first.information["sources"]
    harm_file(cached, remove_stamps)  # as before there were any
    assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint == first.fingerprint
    assert (hashed, log) == ([5, 5], [])
    write_vectors(folder, scale=2)
    assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint != first.fingerprint
    assert log[0] == "preparing snli with set.2d"


def remove_stamps(tensors, information):
    """Remove what files of the first version did not have."""
    del information["stamps"], information["checksum"]


def test_a_file_of_another_tokenizer_is_not_used(folder):
    first = load_or_prepare("snli", "set.2d", folder)
    cached = folder.parent / "cache" / "snli.set.2d.safetensors"
    other = replace(first, information=first.information | {"tokenizer": "lower"})
    save_prepared(other, cached)
    log = []
    assert load_or_prepare("snli", "set.2d", folder, log.append).information["tokenizer"] == "paper"
    assert log[0] == "preparing snli with set.2d"
    save_prepared(other, folder / cached.name)
    with pytest.raises(DataError, match="tokenizer lower, and snli is read with paper") as error:
        load_or_prepare("snli", "set.2d", folder)
    assert error.value.fix == ("prepare_vectors", "snli", "set.2d", str(folder))
    shutil.rmtree(folder / "snli_1.0")
    with pytest.raises(DataError, match="tokenizer lower, and snli is read with paper"):
        load_or_prepare("snli", None, folder)


def test_a_broken_cache_is_prepared_again(folder):
    first = load_or_prepare("snli", "set.2d", folder)
    cached = folder.parent / "cache" / "snli.set.2d.safetensors"
    cached.write_bytes(cached.read_bytes()[:-3])
    log = []
    assert load_or_prepare("snli", "set.2d", folder, log.append).fingerprint == first.fingerprint
    assert "is not a complete prepared data set" in log[0]
    assert load_prepared(cached).fingerprint == first.fingerprint


def test_a_cache_that_cannot_be_written_is_only_logged(folder, monkeypatch):
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("NSE_CACHE", str(folder.parent / "file"))
    log = []
    assert load_or_prepare("snli", "set.2d", folder, log.append).name == "snli"
    assert "cannot be written" in log[-1]


@pytest.mark.parametrize("subfolder", ["", "prepared"])
def test_a_prepared_file_in_the_data_folder_comes_first(folder, subfolder, monkeypatch):
    prepared = prepare("snli", "set.2d", folder)
    shutil.rmtree(folder / "snli_1.0")
    shutil.rmtree(folder / "vectors")
    save_prepared(prepared, folder / subfolder / "snli.set.2d.safetensors")
    assert load_or_prepare("snli", "set.2d", folder).fingerprint == prepared.fingerprint
    monkeypatch.setenv("NSE_DATA", str(folder))
    assert load_or_prepare("snli", "set.2d", None).fingerprint == prepared.fingerprint
    log = []
    assert load_or_prepare("snli", None, folder, log.append).vectors is not None  # better than nothing
    assert "snli.set.2d.safetensors" in log[0]
    with pytest.raises(DataError, match=r"no snli_1.0_train.jsonl"):
        load_or_prepare("snli", "other.3d", folder)


def test_without_vectors_the_published_files_are_preferred(folder):
    save_prepared(prepare("snli", "set.2d", folder), folder / "snli.set.2d.safetensors")
    assert load_or_prepare("snli", None, folder).vectors is None


def test_a_prepared_file_under_a_wrong_name_is_refused(folder):
    save_prepared(prepare("snli", None, folder), folder / "snli.set.2d.safetensors")
    with pytest.raises(DataError, match=r"holds snli\.safetensors; rename it"):
        load_or_prepare("snli", "set.2d", folder)
    with pytest.raises(DataError, match="not a path"):
        load_or_prepare("snli", "../set.2d", folder)


def test_a_missing_data_folder_is_an_error(tmp_path, monkeypatch):
    monkeypatch.delenv("NSE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="there is no data folder data: name yours in NSE_DATA") as refusal:
        load_or_prepare("snli", None, None)
    assert refusal.value.fix == ("data",)
    with pytest.raises(DataError, match="nowhere"):
        load_or_prepare("snli", None, tmp_path / "nowhere")


# What is not a prepared file


@pytest.mark.parametrize("content", [b"", b"garbage" * 100, pickle.dumps({"a": 1}), b"\xff" * 8])
def test_garbage_is_refused(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(
        DataError, match=r"x.safetensors: is not a complete prepared .*prepare the data again"
    ):
        load_prepared(tmp_path / "x.safetensors")


def test_every_truncation_is_refused(folder, tmp_path):
    file = tmp_path / "x.safetensors"
    save_prepared(prepare("snli", "set.2d", folder), file)
    whole = file.read_bytes()
    for size in range(0, len(whole), 97):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"x.safetensors"):
            load_prepared(file)
    with pytest.raises(DataError, match="absent"):
        load_prepared(tmp_path / "absent.safetensors")
    with pytest.raises(DataError, match="not a complete"):
        load_prepared(tmp_path)


def change_tensor(name, change):
    def harm(tensors, information):
        tensors[name] = change(tensors[name].copy())

    return harm


def change_information(key, value):
    def harm(tensors, information):
        information[key] = value

    return harm


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


HARMS = {
    "another format": change_information("format", 2),
    "no split": change_information("columns", {}),
    "labels not listed": change_information("labels", ["one"]),
    "rows not counted": change_information("rows", {}),
    "columns of another kind": change_information("columns", {"train": None}),
    "a tensor missing": lambda tensors, information: tensors.pop("train.premise.ids"),
    "a tensor too many": lambda tensors, information: tensors.update(extra=np.zeros(1)),
    "vectors not named": change_information("vectors", None),
    "an id too large": change_tensor("train.premise.ids", put(0, 99)),
    "padding inside a text": change_tensor("train.premise.ids", put(0, 0)),
    "a negative length": change_tensor("train.premise.lengths", put(0, -1)),
    "lengths that add up to more": change_tensor("train.premise.lengths", put(0, 7)),
    "a label too large": change_tensor("dev.labels", put(0, 3)),
    "a label more": change_tensor("dev.labels", lambda labels: np.append(labels, labels)),
    "ids of another type": change_tensor("dev.premise.ids", lambda ids: ids.astype(np.int64)),
    "a word less": change_tensor("vocabulary", lambda words: words[:-6]),
    "bytes that are no text": change_tensor("vocabulary", put(-2, 255)),
    "NaN": change_tensor("vectors", put((3, 0), np.nan)),
    "something for the unknown": change_tensor("vectors", put((1, 0), 1)),
    "a vector less": change_tensor("vectors", lambda vectors: vectors[:-1].copy()),
    "vectors of another type": change_tensor("vectors", lambda vectors: vectors.astype(np.float32)),
}


@pytest.mark.parametrize("harm", HARMS)
def test_an_inconsistent_file_is_refused(folder, tmp_path, harm):
    file = tmp_path / "x.safetensors"
    save_prepared(prepare("snli", "set.2d", folder), file)
    harm_file(file, HARMS[harm])
    with pytest.raises(DataError, match=r"x.safetensors: is not a prepared data set of format 1: "):
        load_prepared(file)


GROUP_HARMS = {
    "a number left out": change_tensor("train.groups", put(slice(None), [0, 0, 2, 2])),
    "no question 0": change_tensor("train.groups", put(slice(None), [1, 1, 2, 2])),
    "a negative number": change_tensor("train.groups", put(0, -1)),
    "a number too large": change_tensor("train.groups", put(3, 4)),
    "groups of another type": change_tensor("train.groups", lambda groups: groups.astype(np.int64)),
    "groups in a table": change_tensor("train.groups", lambda groups: groups[:, None].copy()),
    "a group less": change_tensor("train.groups", lambda groups: groups[:-1].copy()),
    "groups missing": lambda tensors, information: tensors.pop("train.groups"),
    "groups not named": lambda tensors, information: information.pop("groups"),
    "groups of another split": change_information("groups", ["train", "dev", "test", "extra"]),
    "groups of another kind": change_information("groups", "train"),
    "groups of no name": change_information("groups", [["train"]]),
}


@pytest.mark.parametrize("harm", GROUP_HARMS)
def test_inconsistent_groups_are_refused(folder, tmp_path, harm):
    write_wikiqa(folder)
    file = tmp_path / "x.safetensors"
    save_prepared(prepare("wikiqa", None, folder), file)
    harm_file(file, GROUP_HARMS[harm])
    with pytest.raises(
        DataError, match=r"x.safetensors: is not a prepared data set of format 1: .*groups|list"
    ):
        load_prepared(file)


def test_a_file_without_a_checksum_loads(folder, tmp_path):
    prepared = prepare("snli", "set.2d", folder)
    save_prepared(prepared, tmp_path / "x.safetensors")
    harm_file(tmp_path / "x.safetensors", lambda tensors, information: information.pop("checksum"))
    again = load_prepared(tmp_path / "x.safetensors")
    assert (again.fingerprint, again.information) == (prepared.fingerprint, prepared.information)


@pytest.mark.parametrize(
    "harm",
    [
        "an id too large",
        "a negative length",
        "lengths that add up to more",
        "a label too large",
        "a label more",
    ],
)
def test_an_inconsistent_file_without_a_checksum_is_refused(folder, tmp_path, harm):
    file = tmp_path / "x.safetensors"
    save_prepared(prepare("snli", "set.2d", folder), file)
    harm_file(file, HARMS[harm])
    harm_file(file, lambda tensors, information: information.pop("checksum"))
    with pytest.raises(
        DataError, match=r"x.safetensors: is not a prepared data set of format 1: (train|dev)\."
    ):
        load_prepared(file)


def test_rows_of_a_group_need_not_stand_together(folder, tmp_path):
    write_wikiqa(folder)
    prepared = prepare("wikiqa", None, folder)
    groups = np.array([2, 0, 2, 1], np.int32)
    prepared.splits["train"] = prepared.splits["train"]._replace(groups=groups)
    save_prepared(prepared, tmp_path / "x.safetensors")
    assert load_prepared(tmp_path / "x.safetensors").splits["train"].groups.tolist() == [2, 0, 2, 1]


def test_another_safetensors_file_is_refused(tmp_path):
    for metadata in (None, {"other": "1"}, {KEY: "{"}, {KEY: "[]"}, {KEY: '{"format": 1}'}):
        save_file({"vocabulary": np.zeros(1, np.uint8)}, tmp_path / "x.safetensors", metadata)
        with pytest.raises(DataError, match="is not a prepared data set"):
            load_prepared(tmp_path / "x.safetensors")
