"""Models saved when a few modules had other names still load."""

import pytest
import torch
from safetensors import safe_open

import nse
from nse.nn.text_model import OLD_KEYS, rename_old_keys


@pytest.mark.parametrize(
    ("model", "old", "new"),
    [
        ("snli", "bring.weight", "projection.weight"),
        ("translate-en-de", "decoder.attention.of_words.weight", "decoder.attention.key.weight"),
        ("translate-en-de", "decoder.attention.of_question.bias", "decoder.attention.query.bias"),
    ],
)
def test_a_shipped_model_loads_its_old_keys(model, old, new):
    loaded = nse.load(model)
    with safe_open(loaded.folder / "model.safetensors", framework="pt") as stored:
        weight = stored.get_tensor(old).float()
    assert torch.equal(loaded.module.state_dict()[new], weight)


def test_only_whole_parts_of_a_key_are_renamed():
    keys = ["bring.bias", "bringing.bias", "attention.of_words.weight", "head.0.weight"]
    renamed = ["projection.bias", "bringing.bias", "attention.key.weight", "head.0.weight"]
    assert rename_old_keys({key: key for key in keys}) == dict(zip(renamed, keys, strict=True))


def test_weights_under_both_names_keep_their_keys():
    for old, new in OLD_KEYS.items():
        both = {f"{old}.weight": 1, f"{new}.weight": 2}
        assert rename_old_keys(both) == both
