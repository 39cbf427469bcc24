"""A small model in a folder, for tests that break it."""

import os

import torch

import forking
from nse.inference import folder as hub
from nse.inference import weights
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.text.vocabulary import Vocabulary

WORDS = ["all", "bark", "dance", "do", "dogs", "not", "some", "that", "caf\u00e9", "line\u2028separator"]
LABELS = ["entailment", "contradiction", "neutral"]


def make_config(**changes):
    """The configuration of a small model; changes go to it or, by the name `model`, to the model's own."""
    kind = SentenceConfig if changes.get("kind") == "sentence" else PairConfig
    model = kind(**{"size": 6, "hidden": 4, **changes.pop("model", {})})
    settings = {"task": "logic", "labels": LABELS, "tokenizer": "whitespace", "data": "logic", **changes}
    return hub.ModelConfig(**settings, model=model)


def make_model(config, seed=0):
    """The model of a configuration and its vocabulary."""
    vocabulary = Vocabulary(WORDS)
    torch.manual_seed(seed)
    kind = SentenceClassifier if config.kind == "sentence" else PairClassifier
    return kind(config.model, len(vocabulary), len(config.labels)), vocabulary


def save_model(folder, seed=0, **changes):
    """A model folder; returns the model that is in it."""
    config = make_config(**changes)
    model, vocabulary = make_model(config, seed)
    hub.save(folder, model, config, vocabulary, {"accuracy": {"dev": 0.5}})
    return model


def write_sums(folder):
    """Write the checksums of a folder again, as after a change that was meant."""
    loaded = [file for file in sorted(folder.iterdir()) if file.name not in ("SHA256SUMS", "README.md")]
    (folder / "SHA256SUMS").write_bytes(weights.write_sums({item.name: item.read_bytes() for item in loaded}))


def have_same_weights(one, other):
    """Whether two models have the same weights, bit by bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def shell(*words, cwd, **environment):
    """Run the real command."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
    return forking.run(["-m", "nse", *words], cwd=cwd, env=environment)


def get_refusal(answer):
    """What the command said, if it refused as it should: exit 2, one line, no traceback, nothing printed."""
    assert answer.returncode == 2, answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    assert answer.stderr.startswith("nse: ")
    assert answer.stderr.count("\n") == 1
    return answer.stderr
