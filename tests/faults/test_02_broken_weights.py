"""Fault 2: truncated, empty or garbage weights: one error that names the file and what to do."""

import json
import random
import struct

import pytest

from faults.made_models import get_refusal, save_model, shell
from nse.errors import ModelError
from nse.inference import folder as hub


@pytest.fixture
def file(tmp_path):
    save_model(tmp_path / "mine")
    return tmp_path / "mine" / "model.safetensors"


def header(content, size=None):
    """The beginning of a safetensors file."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text


def garbage():
    claimed = {"head.0.bias": {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 1 << 62]}}
    yield "empty", b""
    yield "zeros", bytes(4096)
    yield "noise", random.Random(0).randbytes(5000)
    yield "text", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
    yield "html", b"<!DOCTYPE html><title>404</title>"
    yield "a header of 2**63 bytes", header(b"{}", size=1 << 63)
    yield "a header of 90 MB that is not there", header(b"{}", size=90_000_000)
    yield "a tensor of 4 EB", header(claimed)
    yield "nested", header(b'{"a":' * 50_000)
    yield "a list", header([])
    yield "no tensors", header({})


def test_truncated_weights_are_refused(file):
    whole = file.read_bytes()
    points = {*range(12), *range(12, len(whole), 97), len(whole) - 1}
    for size in sorted(points):
        file.write_bytes(whole[:size])
        with pytest.raises(
            ModelError,
            match=r"model\.safetensors is not a whole safetensors file .*get the whole model folder again",
        ):
            hub.load(file.parent)
    file.write_bytes(whole)
    hub.load(file.parent)


def test_weights_longer_than_their_header_says_are_refused(file):
    file.write_bytes(file.read_bytes() + b"more")
    with pytest.raises(ModelError, match="is not a whole safetensors file"):
        hub.load(file.parent)


@pytest.mark.parametrize("content", dict(garbage()).values(), ids=dict(garbage()))
def test_weights_of_random_bytes_are_refused(content, file):
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"mine/model\.safetensors") as error:
        hub.load(file.parent)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"garbage " * 100, None], ids=["empty", "garbage", "truncated"])
def test_the_command_refuses_broken_weights_in_one_line(content, file, tmp_path):
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content is None else content)
    message = get_refusal(shell("evaluate", "mine", "--split", "test", cwd=tmp_path))
    assert "mine/model.safetensors is not a whole safetensors file" in message
    assert "get the whole model folder again" in message
