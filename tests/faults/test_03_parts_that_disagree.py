"""Fault 3: configuration and weights disagree (missing or extra tensor, unknown key); the error names it."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from faults.made_models import get_refusal, save_model, shell, write_sums
from nse.errors import ModelError
from nse.inference import folder as hub


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "mine")
    return tmp_path / "mine"


def change(folder, edit):
    """Edit the tensors of a folder and leave the rest of the file as it was."""
    file = folder / "model.safetensors"
    with safe_open(file, framework="pt") as handle:
        metadata = handle.metadata()
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, metadata)


def configure(folder, edit):
    data = json.loads((folder / "config.json").read_text())
    edit(data)
    (folder / "config.json").write_text(json.dumps(data))
    write_sums(folder)


def test_a_missing_tensor_is_named(folder):
    change(folder, lambda tensors: (tensors.pop("head.0.bias"), tensors.pop("head.3.weight")))
    with pytest.raises(ModelError, match=r"missing head\.0\.bias, head\.3\.weight$"):
        hub.load(folder)


def test_an_extra_tensor_is_named(folder):
    change(folder, lambda tensors: tensors.update({"head.9.bias": torch.zeros(2)}))
    with pytest.raises(ModelError, match=r"unexpected head\.9\.bias$"):
        hub.load(folder)


def test_a_tensor_of_another_shape_or_dtype_is_named(folder):
    change(folder, lambda tensors: tensors.update({"head.0.bias": torch.zeros(2, 2)}))
    with pytest.raises(ModelError, match=r"head\.0\.bias: expected F32 \[4\], found F32 \[2, 2\]$"):
        hub.load(folder)
    change(folder, lambda tensors: tensors.update({"head.0.bias": torch.zeros(4).double()}))
    with pytest.raises(ModelError, match=r"head\.0\.bias: expected F32 \[4\], found F64 \[4\]$"):
        hub.load(folder)
    change(folder, lambda tensors: tensors.update({"head.0.bias": torch.zeros(4).bfloat16()}))
    with pytest.raises(ModelError, match=r"head\.0\.bias: expected F32 \[4\], found BF16 \[4\]$"):
        hub.load(folder)


def test_all_mistakes_are_named_together(folder):
    def edit(tensors):
        tensors["odd"] = tensors.pop("head.0.bias")
        tensors["head.3.bias"] = torch.zeros(1)

    change(folder, edit)
    with pytest.raises(ModelError) as error:
        hub.load(folder)
    assert "missing head.0.bias; unexpected odd; head.3.bias: expected F32 [3], found F32 [1]" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda data: data["model"].update(size=8),
            r"embedding\.weight: expected F32 \[12, 8\], found F32 \[12, 6\]",
        ),
        (lambda data: data["model"].update(encoder="bow"), r"unexpected encoder\.nse"),
        (
            lambda data: data["model"].update(encoder="lstm"),
            r"missing encoder\.lstm.*; unexpected encoder\.nse",
        ),
        (
            lambda data: data.update(labels=["yes", "no"]),
            r"head\.3\.bias: expected F32 \[2\], found F32 \[3\]",
        ),
        (lambda data: data.update(weights="float16"), r"head\.0\.bias: expected F16 \[4\], found F32 \[4\]"),
        (
            lambda data: data.update(vectors="int8"),
            r"missing embedding\.weight\.scale; embedding\.weight: expected I8",
        ),
        (lambda data: data["model"].update(sise=6), r"model\.sise: no such key; did you mean model\.size\?"),
        (lambda data: data.update(colour="red"), r"colour: no such key"),
        (lambda data: data.pop("labels"), r"labels: missing; expected list\[string\]"),
        (lambda data: data.update(tokenizer="papr"), r'tokenizer: expected .*; did you mean "paper"\?'),
        (lambda data: data.update(labels="neutral"), r"labels: expected list\[string\], got string"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(edit, message, folder):
    configure(folder, edit)
    with pytest.raises(ModelError, match=message):
        hub.load(folder)


def test_weights_without_the_fingerprint_of_a_vocabulary_are_refused(folder):
    file = folder / "model.safetensors"
    save_file(load_file(file), file)
    with pytest.raises(ModelError, match="the vocabulary beside it is not the one it was saved with"):
        hub.load(folder)


def test_weights_of_another_model_are_refused(folder, tmp_path):
    save_model(tmp_path / "other", model={"hidden": 5})
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    message = get_refusal(shell("evaluate", folder, cwd=tmp_path))
    assert "model.safetensors does not fit the configuration and vocabulary beside it" in message
    for name in ("head.0.bias", "head.0.weight", "head.3.weight"):
        assert name in message


def test_the_command_names_an_unknown_key(folder, tmp_path):
    configure(folder, lambda data: data["model"].update(sise=6))
    message = get_refusal(shell("evaluate", folder, cwd=tmp_path))
    assert "config.json: model.sise: no such key; did you mean model.size?" in message
