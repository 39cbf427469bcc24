"""Fault 22: any number in config.json, devices and FIFOs as files of a model: bounded before it is built."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from faults.made_models import save_model, write_sums
from nse.config import MAX_LABELS, MAX_NAME_LENGTH, describe
from nse.data.readers.table import list_labels, read_table
from nse.errors import ConfigError, DataError, ModelError
from nse.inference import folder as hub
from nse.inference import weights
from nse.inference.kinds import KINDS
from nse.inference.weights import SUMS
from nse.nn.bounds import collect_ranges
from nse.tasks import load_recipe
from nse.text.vocabulary import Vocabulary
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

pytestmark = pytest.mark.timeout(20)  # whatever comes, nothing hangs

MAKERS = {
    "pair": save_model,
    "sentence": save_sentence_model,
    "document": save_document_model,
    "translation": save_translator,
}

NUMBERS = {
    kind: {
        entry.key: collect_ranges(KINDS[kind].config)[entry.key]
        for entry in describe(KINDS[kind].config)
        if entry.type in ("integer", "number")
    }
    for kind in MAKERS
}
"""The keys of every kind's own configuration that take numbers; a key without a range is an error here."""

VALUES = ["-1", "0", "0.5", "1e308", "1e999", "NaN", *map(str, (10**6, 10**9, 10**18, 10**30, 10**400))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind, and what its configuration says."""
    room = tmp_path_factory.mktemp("kinds")
    for kind, make in MAKERS.items():
        make(room / kind)
        (room / kind / SUMS).unlink()  # as in a folder that somebody made to do harm
    return {kind: (room / kind, json.loads((room / kind / "config.json").read_text())) for kind in MAKERS}


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "mine")
    return tmp_path / "mine"


def load(folder):
    """Load it, or return what is wrong, in a line."""
    try:
        return hub.load(folder)
    except ModelError as error:
        message = str(error)
    assert message.isprintable()  # a line feed is not
    assert len(message) < 3_000
    return message


def configure(folder, config, **values):
    """Write a configuration with these values of the model's own, written as they are in JSON."""
    marked = config | {"model": config["model"] | {key: f"<{key}>" for key in values}}
    text = json.dumps(marked)
    for key, value in values.items():
        text = text.replace(f'"<{key}>"', value)
    (folder / "config.json").write_text(text)


CASES = [(kind, key, value) for kind, keys in NUMBERS.items() for key in keys for value in VALUES]


@pytest.mark.parametrize(("kind", "key", "value"), CASES)
def test_extreme_numbers_in_any_configuration_are_refused(kind, key, value, folders):
    folder, config = folders[kind]
    configure(folder, config, **{key: value})
    outcome, whole = load(folder), isinstance(config["model"][key], int)
    if not isinstance(outcome, str):
        assert NUMBERS[kind][key].contains(float(value))
        assert np.isfinite(outcome.encode(["a dog runs"])).all()
    elif value == "NaN":
        assert outcome.startswith(
            f"{folder / 'config.json'} is not a valid configuration: NaN is not a number in JSON"
        )
    elif whole and ("." in value or "e" in value):
        assert outcome.startswith(f"{folder / 'config.json'}: model.{key}: expected integer, got number ")
    elif value == "1e999" or (not whole and len(value) > 400):
        assert outcome.startswith(f"{folder / 'config.json'}: model.{key}: expected finite number, got ")
    elif not NUMBERS[kind][key].contains(float(value)):
        bounds = f"must be {NUMBERS[kind][key]}, got {value[0]}"
        assert outcome.startswith(f"{folder / 'config.json'}: model.{key}: {bounds}")
    else:  # no size of words, for example, means that they are as large as the encoder
        assert outcome.startswith(f"{folder / 'model.safetensors'} does not fit the configuration")


def fifo(file):
    os.mkfifo(file)


def zeros(file):
    try:
        os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except OSError:
        pytest.skip("only root makes devices")


def listening(file):
    here = os.getcwd()
    os.chdir(file.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(file.name)
    finally:
        os.chdir(here)


NO_FILES = {
    "a FIFO": fifo,
    "a device": zeros,
    "a socket": listening,
    "a folder": lambda file: file.mkdir(),
    "a link to a device": lambda file: file.symlink_to("/dev/zero"),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a file without end": lambda file: file.symlink_to("/proc/self/pagemap"),
}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocabulary.txt", "target.txt", SUMS])
@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_path_that_is_not_a_regular_file_is_refused(make, name, tmp_path):
    save_translator(tmp_path / "mine")
    if make is NO_FILES["a file without end"] and not os.path.exists("/proc/self/pagemap"):
        pytest.skip("needs /proc")
    (tmp_path / "mine" / name).unlink()
    make(tmp_path / "mine" / name)
    assert str(tmp_path / "mine" / name) in load(tmp_path / "mine")


@pytest.mark.parametrize("make", [fifo, zeros])
def test_a_card_that_is_not_a_regular_file_is_not_copied(make, folder, tmp_path):
    (folder / "README.md").unlink()
    make(folder / "README.md")
    with pytest.raises(ModelError, match=r"README\.md cannot be read: a device or a FIFO, not a file$"):
        hub.compact(folder, tmp_path / "small")


def grow(file, size):
    """Make a file so long without writing anything."""
    with file.open("r+b") as handle:
        handle.truncate(size)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("config.json", 1 << 40),
        ("vocabulary.txt", 1 << 40),
        (SUMS, 1 << 40),
        ("vocabulary.txt", (1 << 26) + 1),
    ],
)
def test_a_file_that_is_too_long_is_not_read(name, size, folder):
    grow(folder / name, size)
    assert f"{folder / name} cannot be read: longer than" in load(folder)


def test_weights_of_a_terabyte_are_refused(folder):
    grow(folder / "model.safetensors", 1 << 40)
    assert "cannot be read: longer than 17,179,869,184 bytes" in load(folder)


def test_a_vocabulary_with_too_many_words_is_refused(folder):
    (folder / "vocabulary.txt").write_bytes(b"<pad>\n<unk>\n" + bytes([10]) * Vocabulary.MAX_WORDS)
    (folder / SUMS).unlink()
    assert "is not a valid vocabulary: words: expected at most 5,000,000, one per line" in load(folder)


@pytest.fixture(scope="module")
def giants():
    """Ask a process beside this one to load a folder; see `faults.giant_models`."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    script = Path(__file__).with_name("giant_models.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, env=environment
    ) as process:

        def ask(**request):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


@pytest.mark.timeout(120)  # the first waits for the process
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", NUMBERS)
def test_every_number_at_its_bound_is_refused_before_anything_is_allocated(kind, largest, folders, giants):
    """What fits each bound may still be a giant: the head of the weights says otherwise."""
    folder, config = folders[kind]
    values = {}
    for key, bounds in NUMBERS[kind].items():
        values[key] = str(bounds.high if largest else bounds.low)
        if largest and bounds.below:
            values[key] = "0.999"
        if (kind, key) in (("document", "directions"), ("translation", "layers")):
            values[key] = "1"  # others are refused
    configure(folder, config, **values)
    answer = giants(folder=str(folder))
    assert "model.safetensors does not fit the configuration and vocabulary beside it" in answer["message"]
    assert answer["memory"] < 100e6


def test_weights_larger_than_the_limit_are_refused(giants, tmp_path):
    answer = giants(folder=str(tmp_path / "mine"), make=50_000)
    assert answer["size"] > weights.MAX_WEIGHTS_BYTES
    file = tmp_path / "mine" / "model.safetensors"
    assert answer["message"] == f"{file} cannot be read: longer than 17,179,869,184 bytes"
    assert answer["memory"] < 100e6


@pytest.mark.parametrize("memory", [0.5, 1.2, 1.7, 2.2, 2.7])
def test_weights_that_do_not_fit_into_memory_are_refused(memory, giants, tmp_path):
    """There is too little of it to read the file, to take it apart, or to convert what is in it."""
    answer = giants(folder=str(tmp_path / "mine"), make=1_500, memory=memory)
    file = tmp_path / "mine" / "model.safetensors"
    if answer["message"] or memory < 2:
        assert answer["message"] == f"{file} cannot be read: there is not enough memory for it"


UNPRINTABLE = {
    "ESC": "\x1b[2J",
    "line feed": "a\nb",
    "carriage return": "a\rb",
    "tab": "a\tb",
    "NUL": "a\0b",
    "DEL": "a\x7fb",
    "CSI": "\x9b2J",
    "from right to left": "a\u202eb",
    "isolate": "\u2066a",
    "no width": "a\u200bb",
    "line separator": "a\u2028b",
    "private": "\ue000",
    "too long": "a" * (MAX_NAME_LENGTH + 1),
}


@pytest.mark.parametrize("text", UNPRINTABLE.values(), ids=UNPRINTABLE)
@pytest.mark.parametrize("key", ["labels", "task", "data"])
def test_unprintable_characters_are_escaped_in_errors(key, text, folder):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config[key] = [text, "b", "c"] if key == "labels" else text
    file.write_text(json.dumps(config))
    write_sums(folder)
    why = "is longer than 200 characters" if len(text) > 100 else "has characters that cannot be printed"
    message = load(folder)
    assert message.startswith(f"{file}: {key}: ")
    assert message.endswith(why)
    assert "\\\\" not in message  # what is escaped is escaped once
    with pytest.raises(ValueError, match=f"{key} .*{why}"):
        hub.ModelConfig(
            **{name: config[name] for name in ("task", "data", "labels", "tokenizer")}, model=None
        )


@pytest.mark.parametrize("text", UNPRINTABLE.values(), ids=UNPRINTABLE)
def test_unprintable_labels_are_refused_before_training(text, tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [{"text": "good", "label": label} for label in (text, "b", "b", text)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        DataError, match=r"rows\.jsonl: (line 1: label: .*cannot be printed|labels: .*longer than)"
    ):
        list_labels(read_table(file, {"text": "text", "label": "label"}))


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([f"{n}" for n in range(MAX_LABELS + 1)], "there may be at most 10,000, got 10,001"),
        ([f"{n:0200}" for n in range(5_000)], "they take more than 800,000 bytes"),
    ],
)
def test_too_many_labels_are_refused(labels, why, folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"labels": labels}))
    (folder / SUMS).unlink()
    assert load(folder) in (f"{folder / 'config.json'}: labels: {why}", "") or "longer than" in load(folder)
    file = tmp_path / "rows.tsv"
    file.write_text("text\tlabel\n" + "".join(f"good\t{label}\n" for label in [*labels, labels[0]]))
    with pytest.raises(DataError, match=f"labels: {why}; is it the right column"):
        list_labels(read_table(file, {"text": "text", "label": "label"}))


@pytest.mark.parametrize("key", ["\x1b[2J", "a\nb", "\u202e", "x" * 5_000])
def test_unprintable_names_of_keys_and_tensors_are_escaped(key, folder):
    file = folder / "config.json"
    good = json.loads(file.read_text())
    (folder / SUMS).unlink()
    for config in (good | {key: 1}, good | {"model": good["model"] | {key: 1}}):
        file.write_text(json.dumps(config))
        assert "no such key" in load(folder)
    file.write_text(json.dumps(good)[:-1] + f', "{json.dumps(key)[1:-1]}": 1, "{json.dumps(key)[1:-1]}": 1}}')
    assert "a key occurs twice among" in load(folder)
    file.write_text(json.dumps(good))
    for dtype, wrong in (("F32", "model.safetensors does not fit"), (key, "is not a whole safetensors file")):
        tensor = {"dtype": dtype, "shape": [0], "data_offsets": [0, 0]}
        head = json.dumps({key: tensor, "__metadata__": {}}).encode()
        (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
        assert wrong in load(folder)


def test_many_mistakes_fit_into_one_line(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"labels": list(range(50_000))}))
    (folder / SUMS).unlink()
    assert load(folder).endswith("; and 49980 more")


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_recipe_that_is_not_a_regular_file_is_refused(make, tmp_path):
    make(tmp_path / "mine.toml")
    with pytest.raises(ConfigError, match=r"mine\.toml: cannot be read: ") as refusal:
        load_recipe(str(tmp_path / "mine.toml"))
    assert "\n" not in str(refusal.value)


def test_a_recipe_that_is_too_long_is_refused(tmp_path):
    (tmp_path / "mine.toml").touch()
    grow(tmp_path / "mine.toml", 1 << 40)
    with pytest.raises(ConfigError, match=r"mine\.toml: cannot be read: longer than 1,048,576 bytes$"):
        load_recipe(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize("key", NUMBERS["pair"])
def test_a_recipe_with_a_too_large_number_is_refused(key):
    with pytest.raises(ConfigError) as refusal:
        load_recipe("snli/nse", [f"model.{key}=1000000000000"])
    assert f"override model.{key}: must be {NUMBERS['pair'][key]}, got 1000000000000" in str(refusal.value)


def test_a_folder_of_links_is_loaded(folder, tmp_path):
    """As the cache of the Hugging Face Hub keeps them."""
    (tmp_path / "links").mkdir()
    for file in folder.iterdir():
        (tmp_path / "links" / file.name).symlink_to(os.path.relpath(file, tmp_path / "links"))
    assert load(tmp_path / "links").config == load(folder).config
    shutil.rmtree(folder)
    assert "there is no config.json" in load(tmp_path / "links")


def test_ranking_models_have_the_same_limits(tmp_path):
    save_ranking_model(tmp_path / "mine")
    (tmp_path / "mine" / SUMS).unlink()
    configure(
        tmp_path / "mine", json.loads((tmp_path / "mine" / "config.json").read_text()), layers="1000000"
    )
    assert load(tmp_path / "mine").endswith("model.layers: must be at least 1 and at most 64, got 1000000")


def test_the_documentation_lists_the_limits():
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*`) \| (at least .*) \|$", text, re.MULTILINE)
    report = {key: bounds for keys, bounds in rows for key in re.findall(r"`(\w+)`", keys)}
    assert report == {key: str(bounds) for kind in reversed(NUMBERS) for key, bounds in NUMBERS[kind].items()}
