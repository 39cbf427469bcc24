"""Fault 18: a bit flips in a file of a model folder: found at load by its checksum, the file named."""

import json
import logging
import random
import shutil
import subprocess

import pytest
from safetensors import safe_open

from faults.made_models import get_refusal, save_model, shell, write_sums
from nse.errors import ModelError
from nse.inference import folder as hub
from nse.inference.weights import SUMS
from small_models import save_translator

FILES = ["config.json", "model.safetensors", "vocabulary.txt", "target.txt", SUMS]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A pair model in half precision, as shipped ones are, and a translator."""
    room = tmp_path_factory.mktemp("good")
    save_model(room / "pair", weights="float16", vectors="int8")
    save_translator(room / "translator")
    return {"pair": room / "pair", "translator": room / "translator"}


@pytest.fixture
def copied(folders, tmp_path):
    """A copy of one of them, to be damaged."""

    def copy(name):
        shutil.copytree(folders[name], tmp_path / "mine")
        return tmp_path / "mine"

    return copy


def flip(file, bit):
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def message_of(folder):
    with pytest.raises(ModelError) as error:
        hub.load(folder)
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()
    return str(error.value)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_file_is_detected(name, seed, copied):
    folder = copied("translator" if name == "target.txt" or seed % 2 else "pair")
    size = (folder / name).stat().st_size
    flip(folder / name, random.Random(f"{name} {seed}").randrange(8 * size))
    message = message_of(folder)
    assert name in message or SUMS in message


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_exponent_bit_of_a_weight_is_detected(seed, copied):
    """What only a checksum can find: the weight is another number, and finite."""
    folder, draw = copied("pair"), random.Random(seed)
    file = folder / "model.safetensors"
    head = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    with safe_open(file, framework="pt") as handle:
        shape = handle.get_slice("head.0.weight").get_shape()
    start, end = json.loads(file.read_bytes()[8:head])["head.0.weight"]["data_offsets"]
    assert end - start == 2 * shape[0] * shape[1]
    weight = head + start + 2 * draw.randrange((end - start) // 2)
    flip(file, 8 * weight + draw.randrange(10, 14))  # of the five bits of the exponent all but the highest
    assert message_of(folder) == (
        f"{file} does not match its checksum in SHA256SUMS; get the whole model folder again, or "
        "delete SHA256SUMS if you changed it on purpose"
    )
    write_sums(folder)
    hub.load(folder)  # or something else had found it


PLAUSIBLE = {
    "dropout": lambda config: config["model"].update(dropout=0.25),
    "max_words": lambda config: config["model"].update(max_words=7),
    "labels in another order": lambda config: config["labels"].reverse(),
    "another tokenizer": lambda config: config.update(tokenizer="lower"),
    "other data": lambda config: config.update(data="snli"),
    "another start": lambda config: config["model"].update(init="lookup"),
}


@pytest.mark.parametrize("edit", PLAUSIBLE.values(), ids=PLAUSIBLE)
def test_a_plausible_change_of_the_configuration_is_detected(edit, copied):
    folder = copied("pair")
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))
    assert message_of(folder).startswith(f"{folder / 'config.json'} does not match its checksum")


def test_two_swapped_words_of_a_translator_are_detected(copied):
    folder = copied("translator")
    for name in ("vocabulary.txt", "target.txt"):
        *words, one, other, end = (folder / name).read_bytes().split(b"\n")
        (folder / name).write_bytes(b"\n".join([*words, other, one, end]))
    assert message_of(folder).startswith(f"{folder / 'vocabulary.txt'} does not match its checksum")
    write_sums(folder)
    assert "the vocabulary beside it is not the one it was saved with" in message_of(folder)


def test_files_of_another_model_of_the_same_sizes_are_detected(copied, tmp_path):
    folder = copied("pair")
    save_model(tmp_path / "other", seed=1, weights="float16", vectors="int8")
    shutil.copy(tmp_path / "other" / "model.safetensors", folder)
    assert message_of(folder).startswith(f"{folder / 'model.safetensors'} does not match its checksum")


@pytest.mark.parametrize("name", FILES[:3])
def test_a_missing_checksum_is_refused(name, copied):
    folder = copied("pair")
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(line for line in lines if name not in line))
    assert message_of(folder).startswith(f"{folder / SUMS} has no checksum of {name}; get the whole")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\xff\xfe", bytes(200), b"0 config.json\n", b"a" * (1 << 17)]
)
def test_a_broken_checksum_file_is_refused(content, copied):
    folder = copied("pair")
    (folder / SUMS).write_bytes(content)
    assert message_of(folder).startswith(f"{folder / SUMS} ")


@pytest.mark.parametrize("form", ["capitals", "as binary files", "lines end as on Windows", "more files"])
def test_checksum_files_of_other_programs_are_read(form, copied):
    folder = copied("pair")
    text = (folder / SUMS).read_text()
    text = {
        "capitals": "".join(f"{line[:64].upper()}{line[64:]}\n" for line in text.splitlines()),
        "as binary files": text.replace("  ", " *"),
        "lines end as on Windows": text.replace("\n", "\r\n"),
        "more files": f"{'0' * 64}  README.md\n\n{text}",
    }[form]
    (folder / SUMS).write_bytes(text.encode())
    hub.load(folder)


@pytest.mark.parametrize("name", ["pair", "translator"])
def test_sha256sum_can_check_a_folder(name, copied):
    folder = copied(name)
    if not (program := shutil.which("sha256sum")):
        pytest.skip("needs sha256sum")
    run = subprocess.run([program, "-c", SUMS], cwd=folder, capture_output=True, text=True, check=True)
    files = FILES[:4] if name == "translator" else FILES[:3]
    assert run.stdout == "".join(f"{file}: OK\n" for file in files)


def test_a_folder_without_checksums_is_loaded_with_a_warning(copied, caplog):
    folder = copied("pair")
    (folder / SUMS).unlink()
    with caplog.at_level(logging.WARNING):
        hub.load(folder)
    [record] = caplog.records
    assert record.levelname == "WARNING"
    command = "sha256sum *.json *.safetensors *.txt > SHA256SUMS"
    assert record.getMessage() == (
        f"{folder} has no SHA256SUMS to verify its files with; to make it, type there: {command}"
    )
    if shutil.which("sha256sum"):
        subprocess.run(command, shell=True, cwd=folder, check=True)
        caplog.clear()
        hub.load(folder)
        assert not caplog.records


def test_a_folder_without_checksums_can_be_overwritten(copied, caplog):
    folder = copied("pair")
    (folder / SUMS).unlink()
    hub.compact(folder, folder)
    caplog.clear()
    hub.load(folder)
    assert not caplog.records


def test_the_command_refuses_a_changed_file_in_one_line(tmp_path):
    shutil.copytree(hub.list_shipped()["sentiment"], tmp_path / "mine")
    file = tmp_path / "mine" / "model.safetensors"
    flip(file, 8 * (file.stat().st_size - 1001) + 2)
    message = get_refusal(shell("predict", "./mine", "good", cwd=tmp_path))
    assert message.startswith("nse: mine/model.safetensors does not match its checksum in SHA256SUMS;")
