"""A model in one line, and from wherever it comes."""

import copy
import json
import multiprocessing
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import nse
from faults.made_models import save_model, write_sums
from nse.errors import InputError, ModelError
from small_models import (
    CANDIDATES,
    SENTENCES,
    save_document_model,
    save_ranking_model,
    save_sentence_model,
    save_translator,
)

KINDS = {
    "sentence": save_sentence_model,
    "pair": save_model,
    "mma": save_ranking_model,
    "document": save_document_model,
    "translator": save_translator,
}

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_shipped_model_answers_in_one_line():
    (row,) = nse.load("snli").predict([("Two dogs play in the snow.", "The animals are outdoors.")])
    assert row["label"] == "entailment"
    assert repr(nse.load("snli")) == (
        "<nse.Model snli: gives a pair of sentences a label (entailment, contradiction, neutral)>"
    )


@pytest.mark.parametrize("batch", [1, 3, 128])
def test_predictions_equal_those_of_the_trained_module(batch, tmp_path):
    folder = save_sentence_model(tmp_path / "mine", starts=1, directions=2)
    model = nse.load(folder)
    for row, sentence in zip(model.predict(SENTENCES, batch), SENTENCES, strict=True):
        ids = torch.tensor([model.vocabulary.encode(model.tokenize(sentence))])
        with torch.no_grad():
            wanted = model.module(ids, torch.tensor([ids.shape[1]])).softmax(-1)[0]
        assert list(row["probabilities"].values()) == pytest.approx(wanted.tolist(), abs=1e-5)


def test_a_model_ranks_translates_and_traces(tmp_path):
    ranker = nse.load(save_ranking_model(tmp_path / "ranker"))
    best = ranker.rank("who runs ?", CANDIDATES)
    assert [row["rank"] for row in best] == [1, 2, 3, 4, 5, 6]
    assert (ranker.task, ranker.labels) == ("rank", ["right"])
    translating = nse.load(save_translator(tmp_path / "translator"))
    assert list(translating.translations(iter(["a dog runs"]))) == translating.translate(["a dog runs"])
    trace = nse.load("sentiment").trace("It isn't bad at all.")
    assert trace.prediction["label"] in ("negative", "positive")
    with pytest.raises(InputError, match="use rank"):
        ranker.predict([("a", "b")])


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_do_not_depend_on_the_rest_of_the_batch(kind, tmp_path):
    KINDS[kind](tmp_path / "mine")
    model = nse.load(tmp_path / "mine")
    texts = ["a dog runs .", "the cat", "some dogs bark and all dogs bark", "a dog runs ."]
    result = model.encode(texts)
    assert (result.dtype, len(result)) == (np.float32, 4)
    assert np.isfinite(result).all()
    assert result.std(axis=0).max() > 1e-4  # texts differ
    assert np.array_equal(result[0], result[3])
    for at, text in enumerate(texts):
        np.testing.assert_allclose(model.encode([text])[0], result[at], atol=1e-5)
    np.testing.assert_allclose(model.encode(texts, batch=1), result, atol=1e-5)
    assert len(model.encode([])) == 0
    with pytest.raises(InputError, match=r"(sentence|document) 2 is empty"):
        model.encode(["a dog", " "])


def test_the_vector_of_a_sentence_is_the_input_of_the_head(tmp_path):
    model = nse.load(save_sentence_model(tmp_path / "mine"))
    vectors = torch.from_numpy(model.encode(SENTENCES))
    with torch.no_grad():
        chances = model.module.head(vectors).softmax(-1)
    wanted = [list(row["probabilities"].values()) for row in model.predict(SENTENCES)]
    np.testing.assert_allclose(chances.numpy(), wanted, atol=1e-5)


SHIPPED = {
    "snli": [
        ("Two dogs play in the snow.", "The animals are outdoors."),
        ("A man sleeps.", "Nobody is there."),
    ],
    "sentiment": ["It isn't bad at all.", "A dull, endless film."],
    "translate-en-de": ["A man is playing a guitar.", "Two dogs run."],
}


def answers(model, texts):
    """What a model answers, with vectors."""
    plain = [text if isinstance(text, str) else text[0] for text in texts]
    if model.task == "rank":
        said = model.rank(*texts[0])
    else:
        said = getattr(model, model.task)(texts)
    return said, model.encode(plain).tobytes(), model.trace(*flat(texts[0])).to_json()


def flat(text):
    return [text] if isinstance(text, str) else [text[0], *text[1]] if isinstance(text[1], list) else text


def made(name, folder):
    """A shipped model, or a small one of a kind; and texts that it takes."""
    if name in SHIPPED:
        return nse.load(name), SHIPPED[name]
    KINDS[name](folder)
    texts = {"pair": [("all dogs bark", "some dogs bark")], "mma": [("who runs ?", CANDIDATES)]}
    return nse.load(folder), texts.get(name, ["a dog runs .", "the cat sleeps ."])


@pytest.mark.parametrize("name", [*SHIPPED, *KINDS])
def test_copies_give_identical_answers(name, tmp_path):
    model, texts = made(name, tmp_path / "mine")
    before, content = answers(model, texts), pickle.dumps(model)
    for other in (copy.deepcopy(model), pickle.loads(content), copy.deepcopy(copy.deepcopy(model))):
        assert answers(other, texts) == before
        assert other.module is not model.module
    assert answers(model, texts) == before
    if name in SHIPPED:
        weights = sum(each.nbytes for each in model.module.state_dict().values())
        assert len(content) < 1.6 * weights


def answer_elsewhere(model, texts, threads, line):
    torch.set_num_threads(threads)  # as here: with others products may round otherwise
    line.send(answers(model, texts))


def test_a_model_can_be_sent_to_a_spawned_process(tmp_path):
    """As the workers of a data loader do."""
    model, texts = made("snli", tmp_path)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=answer_elsewhere, args=(model, texts, torch.get_num_threads(), theirs))
    process.start()
    before = answers(model, texts)
    assert ours.recv() == before
    process.join()


def halve(module):
    return {name: weight / 2 for name, weight in module.state_dict().items()}


def halve_in_place(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.5)
    return module


CHANGES = {
    "in place": halve_in_place,
    "another state": lambda module: module.load_state_dict(halve(module)),
    "a state instead": lambda module: module.load_state_dict(halve(module), assign=True),
    "vectors": lambda module: torch.nn.utils.vector_to_parameters(
        torch.nn.utils.parameters_to_vector(module.parameters()).detach() / 2, module.parameters()
    ),
    "another part": lambda module: setattr(module, "encoder", halve_in_place(copy.deepcopy(module.encoder))),
}


@pytest.mark.parametrize("kind", ["sentence", "document"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_gives_the_answers_of_its_new_weights(change, kind, tmp_path):
    model, texts = made(kind, tmp_path / "mine")
    before = answers(model, texts)
    CHANGES[change](model.module)
    after = answers(model, texts)
    assert after == answers(copy.deepcopy(model), texts)  # whose weights no kernel has seen
    assert after[0] != before[0]


@pytest.mark.parametrize("kind", ["sentence", "translator"])
def test_a_module_in_training_mode_is_refused(kind, tmp_path):
    model, texts = made(kind, tmp_path / "mine")
    before = answers(model, texts)
    for module in (model.module, next(model.module.children())):
        module.train()
        with pytest.raises(InputError, match=r"in training mode.* call model\.module\.eval\(\)"):
            answers(model, texts)
        module.eval()
    assert answers(model, texts) == before


def test_the_configuration_of_older_folders_is_upgraded(tmp_path):
    """A pair of one label was a ranking; what a user's own texts are called followed from the task."""
    save_model(tmp_path / "ranker", labels=["right"])
    ranker = nse.load(tmp_path / "ranker")
    assert (ranker.config.kind, ranker.inputs, ranker.task) == ("ranking", ("answer", "question"), "rank")
    assert len(ranker.rank("some dogs", ["all dogs"])) == 1
    for task, inputs in {"own-pair": ("first", "second"), "mine": ("premise", "hypothesis")}.items():
        save_model(tmp_path / task, task=task)
        config = json.loads((tmp_path / task / "config.json").read_text())
        del config["inputs"]
        (tmp_path / task / "config.json").write_text(json.dumps(config))
        write_sums(tmp_path / task)
        assert nse.load(tmp_path / task).inputs == inputs


def test_errors_use_the_input_names_of_the_configuration(tmp_path):
    save_model(tmp_path / "mine", inputs=["one", "other"])
    model = nse.load(tmp_path / "mine")
    with pytest.raises(InputError, match="other 1 is empty"):
        model.predict([("dogs", " ")])
    assert [text.name for text in model.trace("all dogs", "some dogs").texts] == ["one", "other"]
    for inputs in (["one"], ["one", "one"]):
        with pytest.raises(ValueError, match="inputs must name 2"):
            save_model(tmp_path / "wrong", inputs=inputs)


def in_cache(tmp_path, monkeypatch, made=save_model, repository="someone/dogs"):
    """A model as huggingface_hub keeps it once it was fetched; nothing can be fetched here."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    place = cache / f"models--{repository.replace('/', '--')}"
    made(tmp_path / "made")
    (place / "snapshots").mkdir(parents=True)
    shutil.move(tmp_path / "made", place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return place / "snapshots" / COMMIT


@pytest.mark.parametrize("name", ["hf:someone/dogs", f"hf:someone/dogs@{COMMIT}", "hf:someone/dogs@main"])
def test_a_model_of_the_hub_is_loaded_from_the_cache(name, tmp_path, monkeypatch):
    folder = in_cache(tmp_path, monkeypatch)
    model = nse.load(name)
    assert model.folder == folder
    assert model.name == name
    pair = ("all dogs bark", "some dogs bark")
    assert model.predict([pair]) == nse.load(folder).predict([pair])
    assert model.trace(*pair).model["name"] == name


def test_a_revision_pins_a_model_of_the_hub(tmp_path, monkeypatch):
    in_cache(tmp_path, monkeypatch)
    assert nse.load("hf:someone/dogs", revision=COMMIT).folder.name == COMMIT
    with pytest.raises(ModelError, match=r"hf:someone/dogs: is not in the cache"):
        nse.load("hf:someone/dogs", revision="f" * 40)
    with pytest.raises(ModelError, match="two revisions were given"):
        nse.load(f"hf:someone/dogs@{COMMIT}", revision="main")
    with pytest.raises(ModelError, match="only a model on the Hub"):
        nse.load("snli", revision=COMMIT)


def test_a_pickle_of_the_hub_is_never_opened(tmp_path, monkeypatch):
    folder = in_cache(tmp_path, monkeypatch)
    torch.save({"a": torch.ones(1)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="is a pickle"):
        nse.load("hf:someone/dogs")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"model\.safetensors is missing"):
        nse.load("hf:someone/dogs")


def test_only_the_files_of_a_model_folder_are_fetched(monkeypatch, tmp_path):
    request = {}

    def fetch(repository, **given):
        request.update(given, repository=repository)
        save_model(tmp_path / "mine")
        return str(tmp_path / "mine")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    nse.load(f"hf:someone/dogs@{COMMIT}")
    assert request == {
        "repository": "someone/dogs",
        "revision": COMMIT,
        "allow_patterns": [
            "config.json",
            "model.safetensors",
            "vocabulary.txt",
            "target.txt",
            "SHA256SUMS",
            "README.md",
        ],
    }


@pytest.mark.parametrize(
    "name", ["hf:", "hf:dogs", "hf:a/b/c", "hf:../../x", "hf:a/..", "hf:a/b@", "hf:a/b c"]
)
def test_an_invalid_hub_name_is_refused(name):
    with pytest.raises(ModelError, match="expected hf:owner/name"):
        nse.load(name)


def test_a_missing_hub_model_raises_a_clear_error(tmp_path, monkeypatch):
    in_cache(tmp_path, monkeypatch)
    with pytest.raises(ModelError, match="is not in the cache, and the Hub cannot be reached"):
        nse.load("hf:someone/cats")


def test_importing_nse_imports_neither_models_nor_the_hub():
    code = (
        "import sys, json, nse; nse.NSE; print(json.dumps([name for name in sys.modules if name in "
        "('nse.inference.model', 'nse.tasks', 'huggingface_hub', 'lightning', 'rich', 'typer')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    assert json.loads(done.stdout) == []
    with pytest.raises(AttributeError, match="has no attribute 'loud'"):
        nse.loud  # noqa: B018
