"""Fault 4, at loading: NaN or infinity in weights is refused by the tensor's name."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from faults.made_models import get_refusal, save_model, shell, write_sums
from nse.errors import ModelError
from nse.inference import folder as hub


def spoil(folder, name, value):
    file = folder / "model.safetensors"
    with safe_open(file, framework="pt") as handle:
        metadata = handle.metadata()
    tensors = load_file(file)
    tensors[name].view(-1)[-1] = value
    save_file(tensors, file, metadata)
    write_sums(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ({}, "head.0.bias"),
        ({"weights": "float16"}, "head.3.weight"),
        ({"vectors": "float16"}, "embedding.weight"),
        ({"vectors": "int8"}, "embedding.weight.scale"),
    ],
)
def test_a_weight_that_is_not_finite_is_refused(stored, name, value, tmp_path):
    save_model(tmp_path / "mine", **stored)
    hub.load(tmp_path / "mine")
    spoil(tmp_path / "mine", name, value)
    with pytest.raises(ModelError, match=rf"model\.safetensors: NaN or infinity in {name}$"):
        hub.load(tmp_path / "mine")


def test_weights_whose_product_is_infinite_are_refused(tmp_path):
    save_model(tmp_path / "mine", vectors="int8")
    spoil(tmp_path / "mine", "embedding.weight.scale", torch.finfo(torch.float32).max)
    with pytest.raises(ModelError, match=r"NaN or infinity in embedding\.weight"):
        hub.load(tmp_path / "mine")


def test_the_command_refuses_weights_that_are_not_finite_in_one_line(tmp_path):
    save_model(tmp_path / "mine")
    spoil(tmp_path / "mine", "head.0.bias", float("nan"))
    message = get_refusal(shell("evaluate", "mine", "--json", cwd=tmp_path))
    assert "mine/model.safetensors: NaN or infinity in head.0.bias" in message
