"""Fault 7, resume: whatever is wrong with a file of a run, one line says so, and exit 2 follows."""

import json
import math
import shutil
from functools import partial

import pytest
import torch

from faults.made_runs import stop, train
from nse import RunError
from nse.cli import train as cli
from nse.errors import NSEError
from nse.nn import text_model
from nse.train import checkpoints

BOW = {"recipe": "logic/bow"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was stopped."""
    folder = tmp_path_factory.mktemp("made") / "run"
    stop(folder, "train.ema_decay=0.9", after=12, **BOW)
    (folder / "checkpoint.previous.pt").unlink()
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def without(key):
    return lambda packed: packed.pop(key)


def with_value(key, value):
    def change(packed):
        *outer, last = key if isinstance(key, tuple) else (key,)
        for part in outer:
            packed = packed[part]
        packed[last] = value

    return change


def halved(*keys):
    """Make a tensor half as long."""

    def change(packed):
        for part in keys[:-1]:
            packed = packed[part]
        packed[keys[-1]] = packed[keys[-1]].flatten()[::2].clone()

    return change


def test_a_checkpoint_with_old_keys_is_read(run, monkeypatch):
    file = run / "checkpoint.pt"
    packed = checkpoints.read_valid_file(file)
    monkeypatch.setitem(text_model.OLD_KEYS, "mlp", "head")
    old = {key.replace("head.", "mlp."): value for key, value in packed["model"].items()}
    checkpoints.write_file(file, packed | {"model": old})
    assert "mlp.0.weight" in old
    assert checkpoints.read_valid_file(file)["model"].keys() == packed["model"].keys()


WEIGHT = "head.0.weight"

BROKEN = {
    "no epoch": (without("epoch"), "epoch: missing or invalid"),
    "no model": (without("model"), "model: missing"),
    "no optimizer": (without("optimizer"), "optimizer: missing"),
    "no recipe": (without("recipe"), "recipe: missing"),
    "no name": (without("name"), "name: missing"),
    "no best": (without("best"), "best: missing"),
    "no processes": (with_value("processes", []), "processes: missing"),
    "epoch a string": (with_value("epoch", "2"), "epoch: missing or invalid"),
    "epoch true": (with_value("epoch", True), "epoch: missing or invalid"),
    "epoch zero": (with_value("epoch", 0), "epoch: missing or invalid"),
    "epoch too late": (with_value("epoch", 99), "does not fit this run: epoch, step"),
    "cursor endless": (with_value("cursor", 10**9), "does not fit this run: cursor, step"),
    "cursor negative": (with_value("cursor", -1), "cursor: missing or invalid"),
    "cursor another": (with_value("cursor", 2), "does not fit this run: step"),
    "step a number with a point": (with_value("step", 12.0), "step: missing or invalid"),
    "step beyond 64 bits": (with_value("step", 2**70), "step: missing or invalid"),
    "seconds NaN": (with_value("seconds", math.nan), "seconds: missing or invalid"),
    "seconds negative": (with_value("epoch_seconds", -1.0), "epoch_seconds: missing or invalid"),
    "order of other bytes": (with_value("order", torch.zeros(3, dtype=torch.uint8)), "does not fit this run"),
    "order no bytes": (with_value("order", torch.zeros(3)), "order: missing or invalid"),
    "random state cut": (
        with_value(("processes", 0, "random", "cpu"), torch.zeros(9, dtype=torch.uint8)),
        "does not fit this run",
    ),
    "a million threads": (with_value(("processes", 0, "threads"), 10**6), "processes: missing"),
    "sums of text": (with_value(("processes", 0, "sums"), ["1", "2", "3"]), "processes: missing"),
    "examples negative": (with_value(("processes", 0, "sums", 2), -1), "processes: missing"),
    "examples none": (with_value(("processes", 0, "sums", 2), 0), "does not fit this run: sums"),
    "examples too many": (with_value(("processes", 0, "sums", 2), 10**6), "does not fit this run: sums"),
    "loss without end": (with_value(("processes", 0, "sums", 0), 1e300), "processes: missing"),
    "loss beyond floats": (with_value(("processes", 0, "sums", 0), 1 << 1500), "processes: missing"),
    "steps without time": (with_value("epoch_seconds", 0.0), "does not fit this run: epoch_seconds"),
    "steps in no time": (with_value("epoch_seconds", 1e-300), "does not fit this run: epoch_seconds"),
    "metrics a text": (with_value("metrics", "none"), "metrics: missing"),
    "metrics of no epoch": (with_value("metrics", []), "does not fit this run: epoch"),
    "metrics of half a step": (with_value(("metrics", 0, "step"), 0.5), "metrics: missing"),
    "metrics without dev": (lambda packed: packed["metrics"][0].pop("dev"), "metrics: missing"),
    "a weight gone": (lambda packed: packed["model"].pop(WEIGHT), f"another model: {WEIGHT}"),
    "a weight of another shape": (halved("model", WEIGHT), f"another model: {WEIGHT}"),
    "a weight of another type": (
        lambda packed: packed["model"].update({WEIGHT: packed["model"][WEIGHT].double()}),
        f"another model: {WEIGHT}",
    ),
    "a weight too many": (with_value(("model", "more"), torch.zeros(2)), "another model: more"),
    "average of another shape": (halved("average", 0), "its average of the weights has other shapes"),
    "average cut": (lambda packed: packed["average"].pop(), "its average of the weights has other shapes"),
    "optimizer of another shape": (halved("optimizer", 0, "exp_avg"), "its optimizer has other shapes"),
    "optimizer of one weight more": (
        lambda packed: packed["optimizer"].update({99: packed["optimizer"][0]}),
        "its optimizer has other shapes",
    ),
    "optimizer without a moment": (
        lambda packed: packed["optimizer"][0].pop("exp_avg_sq"),
        "its optimizer has other shapes",
    ),
    "optimizer of text": (with_value("optimizer", {"0": {}}), "optimizer: missing"),
    "best without weights": (lambda packed: packed["best"].pop("weights"), "best: missing"),
    "best weights empty": (with_value(("best", "weights"), {}), "its best weights have other shapes"),
    "best weight of another shape": (halved("best", "weights", WEIGHT), "its best weights have other shapes"),
    "best epoch to come": (with_value(("best", "epoch"), 9), "does not fit this run: best.epoch"),
    "best scores of other rows": (
        with_value(("best", "scores"), torch.zeros(2, 3)),
        "does not fit this run: best.scores",
    ),
}


@pytest.mark.parametrize("harm", BROKEN)
def test_a_broken_field_of_a_checkpoint_is_named(run, harm):
    change, expected = BROKEN[harm]
    file = run / "checkpoint.pt"
    packed = checkpoints.read_file(file)
    change(packed)
    checkpoints.write_file(file, packed)
    with pytest.raises(RunError) as error:
        train(run, "train.ema_decay=0.9", resume=True, **BOW)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)
    assert not (run / "result.json").exists()


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run that is finished."""
    folder = tmp_path_factory.mktemp("ended") / "run"
    train(folder, **BOW)
    return folder


RESULTS = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "NaN": lambda text: text.replace('"seconds": ', '"seconds": NaN, "old": '),
    "no figures": lambda text: '{"task": "logic"}',
    "figures a text": lambda text: json.dumps(json.loads(text) | {"accuracy": "good"}),
    "a figure a text": lambda text: json.dumps(json.loads(text) | {"accuracy": {"dev": "good"}}),
    "another task": lambda text: text.replace('"task": "logic"', '"task": "snli"'),
}


@pytest.mark.parametrize("harm", RESULTS)
def test_a_broken_result_is_named_and_can_be_recomputed(ended, tmp_path, harm):
    folder = shutil.copytree(ended, tmp_path / "run")
    result = folder / "result.json"
    before = json.loads(result.read_text())
    result.write_text(RESULTS[harm](result.read_text()))
    with pytest.raises(RunError, match=r"result\.json.*; remove it to compute it again$"):
        train(folder, resume=True, **BOW)
    if harm == "cut":
        result.unlink()
        assert train(folder, resume=True, **BOW)["accuracy"] == before["accuracy"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"task = ", b'task = "logic"\nseed = "one"', None])
@pytest.mark.parametrize("named", [True, False])
def test_a_broken_recipe_is_named(run, content, named):
    file = run / "recipe.toml"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    go_on = partial(train, run, "train.ema_decay=0.9", **BOW) if named else partial(cli.train, out=run)
    with pytest.raises(NSEError) as error:
        go_on(resume=True)
    message = str(error.value)
    assert any(name in message for name in (str(file), f"{run} has a recipe", f"{run} is not a run"))
    assert (run / "checkpoint.pt").exists()
