"""A model folder is whole, strict and safe: what goes in comes out, and nothing else does."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.made_models import (
    LABELS,
    WORDS,
    have_same_weights,
    make_config,
    make_model,
    save_model,
    write_sums,
)
from nse.errors import InputError, ModelError, NSEError
from nse.inference import card, weights
from nse.inference import folder as hub
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.text.vectors import WordVectors

IDS = torch.tensor([[2, 3, 1], [4, 0, 0]])
LENGTHS = torch.tensor([3, 1])


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "mine")
    return tmp_path / "mine"


def scores(model):
    with torch.no_grad():
        return model(IDS, LENGTHS, IDS.flip(0), LENGTHS.flip(0))


@pytest.mark.parametrize("encoder", ["nse", "lstm", "bow"])
def test_a_saved_model_is_loaded_unchanged(encoder, tmp_path):
    config = make_config(model={"encoder": encoder, "dropout": 0.5, "trainable": False})
    model, vocabulary = make_model(config)
    hub.save(tmp_path / "new" / "mine", model, config, vocabulary, {})
    loaded = hub.load(tmp_path / "new" / "mine")
    assert have_same_weights(model, loaded.module)
    assert loaded.config == config
    assert loaded.vocabulary.words == vocabulary.words
    assert loaded.tokenize("all  dogs") == ["all", "dogs"]
    assert loaded.folder == tmp_path / "new" / "mine"
    assert not loaded.module.training
    assert torch.equal(scores(loaded.module), scores(model.eval()))
    assert sorted(os.listdir(tmp_path / "new")) == ["mine"]
    assert sorted(os.listdir(tmp_path / "new" / "mine")) == [
        "README.md",
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
        "vocabulary.txt",
    ]


@pytest.mark.parametrize(
    ("encoder", "settings"),
    [("nse", {"layers": 2}), ("lstm", {"layers": 2, "directions": 2}), ("bow", {"embedding_size": 3})],
)
def test_a_sentence_model_is_loaded(encoder, settings, tmp_path):
    labels = ["negative", "positive"]
    config = make_config(
        kind="sentence",
        task="sst",
        labels=labels,
        tokenizer="treebank",
        data="sst-binary",
        model={"encoder": encoder, "embedding_dropout": 0.3, "pool": "mean-max", **settings},
    )
    model, vocabulary = make_model(config)
    hub.save(tmp_path / "mine", model, config, vocabulary, {})
    loaded = hub.load(tmp_path / "mine")
    assert isinstance(loaded.module, SentenceClassifier)
    assert loaded.config == config
    assert isinstance(loaded.config.model, SentenceConfig)
    assert have_same_weights(model, loaded.module)
    assert loaded.tokenize("-LRB- All dogs") == ["(", "all", "dogs"]
    with torch.no_grad():
        assert torch.equal(loaded.module(IDS, LENGTHS), model.eval()(IDS, LENGTHS))
    assert loaded.module(IDS, LENGTHS).shape == (2, 2)


def test_a_folder_with_the_wrong_kind_is_refused(folder, tmp_path):
    """Whether its configuration does not fit the kind, or its weights do not."""
    file = folder / "config.json"
    good = json.loads(file.read_text())
    (folder / "SHA256SUMS").unlink()
    file.write_text(json.dumps(good | {"kind": "sentence"}))
    with pytest.raises(ModelError, match=r"model\.attention: no such key"):
        hub.load(folder)
    own = {field.name: good["model"][field.name] for field in dataclasses.fields(SentenceConfig)}
    file.write_text(json.dumps(good | {"kind": "sentence", "model": own}))
    with pytest.raises(
        ModelError, match=r"model\.safetensors does not fit .*: head\.0\.weight: expected F32"
    ):
        hub.load(folder)
    file.write_text(json.dumps(good | {"kind": "sentence", "model": own | {"encoder": "mma"}}))
    with pytest.raises(ModelError, match=r'model\.encoder: expected "nse" or "lstm" or "bow", got'):
        hub.load(folder)
    file.write_text(json.dumps(good))
    hub.load(folder)
    config = make_config(kind="sentence")
    with pytest.raises(ModelError, match="the model does not fit its configuration"):
        hub.save(tmp_path / "other", *make_model(make_config())[:1], config, make_model(config)[1], {})


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_the_rarity_of_words_is_saved(stored, tmp_path):
    config = make_config(tokenizer="lower", labels=["right"], weights=stored, model={"word_overlap": True})
    model, vocabulary = make_model(config)
    model.rarity.copy_(torch.rand(len(vocabulary)))
    hub.save(tmp_path / "mine", model, config, vocabulary, {})
    loaded = hub.load(tmp_path / "mine")
    assert loaded.module.rarity.dtype == torch.float32
    assert torch.equal(loaded.module.rarity, model.rarity.to(getattr(torch, stored)).float())
    assert loaded.tokenize("All DOGS") == ["all", "dogs"]
    if stored == "float32":
        assert torch.equal(scores(loaded.module), scores(model.eval()))


def test_a_folder_of_an_older_version_is_loaded(folder):
    """What was added to the configuration has a default that is as it was."""
    file = folder / "config.json"
    told = json.loads(file.read_text())
    before = {key: told["model"].pop(key) for key in ("layers", "embedding_dropout", "word_overlap")}
    assert before == {"layers": 1, "embedding_dropout": 0.0, "word_overlap": False}
    file.write_text(json.dumps(told))
    (folder / "SHA256SUMS").unlink()
    assert hub.load(folder).config == make_config()


def test_saving_a_model_twice_writes_the_same_bytes(tmp_path):
    for name in ("one", "other"):
        save_model(tmp_path / name)
    for name in os.listdir(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_loading_does_not_change_the_random_state(folder):
    model, vocabulary = make_model(make_config())
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    hub.load(folder)
    hub.save(folder, model, make_config(), vocabulary, {})
    assert torch.equal(torch.rand(3), expected)


def test_runs_and_shipped_models_are_found_by_name(folder, tmp_path, monkeypatch):
    shutil.move(folder, tmp_path / "run" / "model")
    assert hub.load(tmp_path / "run").folder == tmp_path / "run" / "model"
    room = tmp_path / "pretrained"
    shutil.copytree(tmp_path / "run" / "model", room / "tiny")
    (room / "__pycache__").mkdir()
    monkeypatch.setattr(hub.resources, "files", lambda name: room)
    assert list(hub.list_shipped()) == ["tiny"]
    assert hub.load("tiny").folder == room / "tiny"
    with pytest.raises(ModelError, match="tinny: no such model; did you mean tiny\\?"):
        hub.load("tinny")
    with pytest.raises(ModelError, match=r"\.\./\.\./x: no such model; .* or one of tiny"):
        hub.load("../../x")
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "tiny", seed=1)
    assert hub.load("tiny").folder == room / "tiny"
    assert hub.load("./tiny").folder == Path("tiny")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000, "../" * 2000, "/dev/null", "/dev/null/x", "~", "."])
def test_strange_names_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError):
        hub.load(name)


def test_a_run_or_folder_without_a_model_raises_a_clear_error(tmp_path):
    with pytest.raises(ModelError, match=r"there is no config\.json in it; give a model folder or a run"):
        hub.load(tmp_path)
    (tmp_path / "recipe.toml").touch()
    with pytest.raises(ModelError, match="this run has no model yet"):
        hub.load(tmp_path)


def test_devices_are_found_by_name(folder):
    assert hub.find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert hub.find_device(torch.device("cpu")).type == "cpu"
    with pytest.raises(InputError, match="device: expected auto, cpu or cuda, got 'gpu'"):
        hub.load(folder, "gpu")


def test_cuda_without_a_gpu_is_refused(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="CUDA is not available; use cpu or auto"):
        hub.load(folder, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ["nse", "lstm"])
def test_a_model_of_a_gpu_is_saved_and_loaded_there(encoder, tmp_path):
    config = make_config(model={"encoder": encoder})
    model, vocabulary = make_model(config)
    hub.save(tmp_path / "cpu", model, config, vocabulary, {})
    hub.save(tmp_path / "gpu", model.cuda(), config, vocabulary, {})
    name = "model.safetensors"
    assert (tmp_path / "cpu" / name).read_bytes() == (tmp_path / "gpu" / name).read_bytes()
    assert all(p.is_cuda for p in hub.load(tmp_path / "gpu", "auto").module.parameters())


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("vectors", ["float32", "float16", "int8"])
def test_a_compact_model_stores_the_requested_types(stored, vectors, folder, tmp_path):
    model = hub.load(folder).module
    hub.compact(folder, tmp_path / "small", stored, vectors)
    small = hub.load(tmp_path / "small")
    assert (small.config.weights, small.config.vectors) == (stored, vectors)
    assert (tmp_path / "small" / "README.md").read_text() == (folder / "README.md").read_text()
    for name, tensor in model.state_dict().items():
        actual = small.module.state_dict()[name]
        kind = vectors if name == weights.VECTORS else stored
        assert actual.dtype == torch.float32
        if kind == "float32":
            assert torch.equal(actual, tensor)
        elif kind == "float16":
            assert torch.equal(actual, tensor.half().float())
        else:
            step = tensor.abs().amax(dim=1, keepdim=True) / 127
            assert ((actual - tensor).abs() <= step * 0.5001).all()
            assert not actual[0].any()  # padding stays zero
    hub.compact(tmp_path / "small", tmp_path / "again", stored, vectors)  # loses nothing more
    assert have_same_weights(small.module, hub.load(tmp_path / "again").module)


def test_a_compact_model_is_smaller_and_may_have_a_new_card(tmp_path):
    save_model(tmp_path / "whole", model={"size": 64, "hidden": 64})
    hub.compact(tmp_path / "whole", tmp_path / "small", card={"title": "Another"})
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "small")]
    assert sizes[1] < 0.55 * sizes[0]
    assert "# Another" in (tmp_path / "small" / "README.md").read_text()


def test_compact_may_add_words_of_the_same_vectors(tmp_path):
    config = make_config(model={"trainable": False})
    model, vocabulary = make_model(config)
    hub.save(tmp_path / "whole", model, config, vocabulary, {})
    own = {word: row for row, word in enumerate(vocabulary.words[2:])}
    rows = np.concatenate([model.embedding.weight[2:].detach().numpy(), np.full((2, config.model.size), 0.5)])
    words = WordVectors("mine", own | {"zebra": len(own), "Ape": len(own) + 1}, rows.astype(np.float32))
    hub.compact(tmp_path / "whole", tmp_path / "more", "float32", "float32", words=words)
    more = hub.load(tmp_path / "more")
    assert more.vocabulary.words == (*vocabulary.words, "Ape", "zebra")
    assert torch.equal(scores(more.module), scores(model.eval()))
    assert (more.module.embedding.weight[-2:] == 0.5).all()

    hub.compact(tmp_path / "whole", tmp_path / "small")
    hub.compact(tmp_path / "small", tmp_path / "small more", words=words)
    assert same_but_words(hub.load(tmp_path / "small").module, hub.load(tmp_path / "small more").module)

    others = WordVectors("others", words.words, words.rows[::-1].copy())
    for wrong in (others, WordVectors("short", words.words, words.rows[:, :-1])):
        with pytest.raises(ModelError, match=f"was not trained with the vectors {wrong.name}"):
            hub.compact(tmp_path / "whole", tmp_path / "wrong", words=wrong)
    assert not (tmp_path / "wrong").exists()


def same_but_words(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name][: len(ours[name])]) for name in ours)


def test_words_cannot_be_added_to_a_model_with_trained_vectors(folder, tmp_path):
    words = WordVectors("mine", {"zebra": 0}, np.ones((1, make_config().model.size), np.float32))
    with pytest.raises(ModelError, match="it trained its word vectors"):
        hub.compact(folder, tmp_path / "more", words=words)


def test_a_double_precision_model_is_stored_as_float32(tmp_path):
    config = make_config()
    model, vocabulary = make_model(config)
    hub.save(tmp_path / "mine", model.double(), config, vocabulary, {})
    assert have_same_weights(hub.load(tmp_path / "mine").module, model.float())


def test_non_finite_weights_are_not_saved(folder):
    before = (folder / "model.safetensors").read_bytes()
    model, vocabulary = make_model(make_config())
    with torch.no_grad():
        model.head[0].bias[1] = float("nan")
    with pytest.raises(ModelError, match=r"NaN or infinity in head\.0\.bias"):
        hub.save(folder, model, make_config(), vocabulary, {})
    with torch.no_grad():
        model.head[0].bias[1] = 1e5
    with pytest.raises(ModelError, match=r"the weights as float16: NaN or infinity in head\.0\.bias"):
        hub.save(folder, model, make_config(weights="float16"), vocabulary, {})
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_model_that_does_not_fit_its_configuration_is_not_saved(tmp_path):
    model, vocabulary = make_model(make_config())
    with pytest.raises(ModelError, match=r"head\.3\.weight: expected F32 \[2, 4\], found F32 \[3, 4\]"):
        hub.save(tmp_path / "mine", model, make_config(labels=["yes", "no"]), vocabulary, {})
    assert not os.listdir(tmp_path)


def test_saving_refuses_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ModelError, match=r"holds other files than a model's: thesis\.tex; choose another"):
        save_model(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelError, match="file cannot be written: Not a directory"):
        save_model(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == ["file", "thesis.tex"]


def test_a_link_to_a_model_folder_is_followed(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    new = save_model(tmp_path / "link", seed=1)
    assert (tmp_path / "link").is_symlink()
    assert have_same_weights(hub.load(folder).module, new)
    assert sorted(os.listdir(tmp_path)) == ["link", "mine"]


class PowerCut(BaseException):
    """Nothing handles it, as nothing handles a machine that stops."""


def interrupted(monkeypatch, at, error):
    """Let the call number `at` that changes the disk raise instead."""
    calls = iter(range(10_000))
    for owner, name in [
        (os, "fsync"),
        (os, "open"),
        (Path, "rename"),
        (Path, "replace"),
        (Path, "mkdir"),
        (shutil, "rmtree"),
    ]:
        real = getattr(owner, name)

        def cut(*args, _real=real, **kwargs):
            if next(calls) == at:
                raise error
            return _real(*args, **kwargs)

        monkeypatch.setattr(owner, name, cut)


@pytest.mark.parametrize("error", [PowerCut(), OSError(28, "No space left on device")])
def test_an_interrupted_save_leaves_a_complete_model(error, tmp_path, monkeypatch):
    place, seen, messages = tmp_path / "mine", set(), set()
    old, config = save_model(place), make_config()
    new, vocabulary = make_model(config, seed=1)
    for at in range(100):
        with monkeypatch.context() as patch:
            interrupted(patch, at, error)
            try:
                hub.save(place, new, config, vocabulary, {})
                break
            except (PowerCut, ModelError) as told:
                messages.add(str(told))
        actual = hub.load(place)
        assert have_same_weights(actual.module, old) or have_same_weights(actual.module, new)
        seen.add((actual.folder.name, have_same_weights(actual.module, new)))
        hub.save(place, old, config, vocabulary, {})  # the next save cleans up
        assert os.listdir(tmp_path) == ["mine"]
        assert have_same_weights(hub.load(place).module, old)
    assert at > 10
    if isinstance(error, OSError):
        assert messages == {
            f"{place} cannot be written: No space left on device; the old files are unchanged"
        }
    else:
        assert seen == {("mine", False), (".mine.old", False), ("mine", True)}


def test_the_hub_can_read_the_card(tmp_path):
    told = {
        "title": 'A "quoted": title\n---',
        "license": "cc-by-sa-4.0",
        "notes": "SNLI is CC BY-SA 4.0.",
        "accuracy": {"dev": 0.7812, "test": 0.775},
        "examples": {"train": 99890},
        "vectors": "a|b",
        "seed": 12345,
        "nothing": None,
        "rate": 0.0003,
    }
    config = make_config(data="snli")
    model, vocabulary = make_model(config)
    hub.save(tmp_path / "mine", model, config, vocabulary, told)
    text = (tmp_path / "mine" / "README.md").read_text("utf-8")
    front = ModelCard(text).data.to_dict()
    assert front["license"] == "cc-by-sa-4.0"
    assert front["library_name"] == "nse"
    assert front["pipeline_tag"] == "text-classification"
    assert front["datasets"] == ["snli"]
    result = front["model-index"][0]["results"][0]
    assert [metric["value"] for metric in result["metrics"]] == [0.7812, 0.775]
    for line in (
        "| accuracy test | 77.5% |",
        "| examples train | 99,890 |",
        "| vectors | a\\|b |",
        "| seed | 12345 |",
        "| rate | 0.0003 |",
        "SNLI is CC BY-SA 4.0.",
    ):
        assert line in text
    assert "nothing" not in text


def test_a_card_without_figures_has_no_table(tmp_path):
    config = make_config(kind="sentence", task="chess", data="", labels=["win", "loss"])
    text = card.write_card(config, {}).decode()
    assert "Figures" not in text
    assert ModelCard(text).data.to_dict()["license"] == "mit"


def test_invalid_configurations_are_refused(folder):
    good = (folder / "config.json").read_text()
    for text, message in [
        (good.replace('"size": 6', '"size": 6, "size": 7'), "a key occurs twice among encoder, size, size"),
        (good.replace('"dropout": 0.0', '"dropout": NaN'), "NaN is not a number in JSON"),
        (
            good.replace('"dropout": 0.0', '"dropout": 1e999'),
            r"model\.dropout: expected finite number, got number inf",
        ),
        ("[" * 100_000, "nested too deep"),
        (
            '{"task":' * 600 + "1" + "}" * 600,
            "is not a valid configuration: nested too deep|task: expected string",
        ),
        ("[1]", "expected keys and values, got list"),
        ("{}", "labels: missing"),
        ("", "is not a valid configuration: Expecting value"),
        (" " * (1 << 21), "longer than 1,048,576 bytes"),
        (good.replace('"neutral"', '"\\ud800"'), "surrogates not allowed"),
        (
            good.replace('"format": 1', '"format": 2'),
            "format 2 is newer than 1, which this nse reads: update nse",
        ),
        (good.replace('"format": 1', '"format": 0'), "format must be 1, got 0"),
        (
            good.replace('"pair"', '"pear"'),
            'kind: expected "pair" or "ranking" or "sentence" or "document" or "translation", got string '
            '"pear"; did you mean "pair"',
        ),
        (good.replace('"pair"', "[]"), "kind: expected"),
        (good.replace('"neutral"', '"entailment"'), "labels must be given, each once"),
        (
            good.replace('"size": 6', f'"size": {10**12}'),
            r"config\.json: model\.size: must be at least 1 and at most 65,536, got 1000000000000$",
        ),
        (
            good.replace('"size": 6', f'"size": {10**400}'),
            r"model\.size: must be .* 65,536, got 10{99}\.\.\.$",
        ),
        (good.replace('"size": 6', '"size": true'), r"model\.size: expected integer, got true"),
        (good.replace('"size": 6', f'"size": {"9" * 5000}'), "is not a valid configuration"),
    ]:
        (folder / "config.json").write_text(text)
        write_sums(folder)
        with pytest.raises(ModelError, match=message):
            hub.load(folder)
    (folder / "config.json").write_text(good)
    write_sums(folder)
    hub.load(folder)


def test_a_vocabulary_of_another_model_is_refused(folder):
    file = folder / "vocabulary.txt"
    good = file.read_text("utf-8")
    for text, message in [
        (
            good.replace("dogs\nnot\n", "not\ndogs\n"),
            "the vocabulary beside it is not the one it was saved with",
        ),
        (good + "cats\n", r"embedding\.weight: expected F32 \[13, 6\], found F32 \[12, 6\]"),
        (good[:-1], "is not a valid vocabulary"),
        ("", "is not a valid vocabulary"),
        (good + "dogs\n", "got 'dogs' twice"),
    ]:
        file.write_text(text, "utf-8")
        write_sums(folder)
        with pytest.raises(ModelError, match=message):
            hub.load(folder)
    file.write_bytes(b"\xff")
    write_sums(folder)
    with pytest.raises(ModelError, match="UTF-8"):
        hub.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocabulary.txt"])
def test_an_error_names_the_missing_file(name, folder):
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing; get the whole model folder again"):
        hub.load(folder)
    (folder / name).mkdir()
    with pytest.raises(ModelError, match=f"{name} cannot be read: Is a directory|{name} is missing"):
        hub.load(folder)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_change_of_any_byte_loads_a_valid_model_or_is_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzzed") / "mine"
    vectors = data.draw(st.sampled_from(["float32", "int8"]))
    save_model(folder, vectors=vectors)
    file = folder / data.draw(st.sampled_from(["config.json", "model.safetensors", "vocabulary.txt"]))
    content = bytearray(file.read_bytes())
    # Half of the changes go to the beginning, where the header of the weights is.
    last = len(content) - 1 if data.draw(st.booleans()) else min(len(content) - 1, 1200)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, last))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    file.write_bytes(content)
    if data.draw(st.booleans()):  # what checksums do not tell is told by the rest
        write_sums(folder)
    try:
        loaded = hub.load(folder)
    except NSEError:
        return
    assert all(p.isfinite().all() and p.dtype == torch.float32 for p in loaded.module.parameters())
    assert loaded.vocabulary.words == ("<pad>", "<unk>", *WORDS)
    assert scores(loaded.module).shape == (2, len(LABELS))
