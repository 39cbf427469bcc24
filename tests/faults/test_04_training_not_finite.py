"""Fault 4, in training: a loss or gradient that is no number stops the run; the last checkpoint is good."""

import io
import json
import math
import re
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from faults.made_runs import SMALL, checkpoint, run_to_end, stop, train
from nse import RunError
from nse.tasks import TASKS, load_recipe
from nse.train import checkpoints, run, state
from nse.train.loop import fit
from nse.train.optimizer import WeightEMA, make_adam
from nse.train.progress import Progress
from nse.train.train_step import EpochSums, NotFiniteError, StepAccumulator, TrainStep


def test_the_run_stops_and_its_last_checkpoint_is_valid(tmp_path):
    process = run_to_end(
        tmp_path / "run", "train.lr=1e30", "train.clip_norm=1e30", "train.checkpoint_minutes=0"
    )
    assert process.returncode == 2
    lines = process.stderr.strip().split("\n")
    match = re.fullmatch(
        r"nse: the (loss|gradient norm) is (nan|inf) at step (\d+), epoch 1, batch \3 of 9 "
        r"\(examples \d+(, \d+){7}, \.\.\.\): try a smaller train\.lr or train\.clip_norm; "
        r"the last checkpoint is from step (\d+)",
        lines[-1],
    )
    assert match, lines
    packed = checkpoint(tmp_path / "run")
    assert int(match[5]) == packed["step"] == int(match[3]) - 1
    assert all(t.isfinite().all() for t in packed["model"].values())
    assert not (tmp_path / "run" / "result.json").exists()


def test_on_a_cpu_a_step_that_is_not_finite_changes_nothing():
    weight = nn.Parameter(torch.ones(3))
    average = WeightEMA([weight], 0.5)
    factor = torch.ones(())
    step = TrainStep(
        make_adam([weight], 0.1, 0.1, torch.device("cpu")),
        lambda index, shape: ((weight * factor).sum(), torch.tensor(1)),
        1.0,
        average,
    )
    step(torch.arange(2))
    before, averaged = weight.detach().clone(), average.values[0].clone()
    for bad in (math.nan, math.inf):
        factor.fill_(bad)
        result = step(torch.arange(2))
        assert not result.isfinite().all()
        assert torch.equal(weight, before)
        assert torch.equal(average.values[0], averaged)
        assert weight.grad is None
    factor.fill_(1)
    step(torch.arange(2))
    assert weight.isfinite().all()
    assert not torch.equal(weight, before)


@pytest.mark.parametrize(("bad", "what"), [(0, "loss"), (2, "gradient norm")])
def test_the_error_names_the_first_step_that_is_not_finite(bad, what):
    sums = EpochSums()
    seen = StepAccumulator(sums, interval=50)
    for number in range(1, 40):
        result = torch.tensor([1.0, 2.0, 3.0])
        if number >= 17:
            result[bad] = math.inf
        seen.add(f"step {number}", torch.arange(number, number + 20), 4, result)
    assert sums.examples == 0  # nothing was waited for
    expected = rf"the {what} is inf at step 17 \(examples 17, 18, 19, 20, 21, 22, 23, 24, \.\.\.\): try"
    with pytest.raises(NotFiniteError, match=expected):
        seen.synchronize()
    assert (sums.loss, sums.correct, sums.examples) == (64.0, 32.0, 64)


def test_results_are_checked_every_few_steps():
    sums = EpochSums()
    seen = StepAccumulator(sums, interval=50)
    for _ in range(49):
        seen.add("", torch.arange(3), 3, torch.ones(3))
    assert sums.examples == 0
    with pytest.raises(NotFiniteError, match="the loss is nan at here"):
        seen.add("here", torch.arange(3), 3, torch.full((3,), math.nan))


@pytest.mark.gpu
def test_on_a_gpu_each_check_is_of_the_steps_before_the_last_check():
    sums = EpochSums()
    seen = StepAccumulator(sums, interval=4)
    for number in range(1, 8):
        result = torch.tensor([1.0, 2.0, math.nan if number == 6 else 3.0], device="cuda")
        seen.add(f"step {number}", torch.arange(3), 3, result)
        assert sums.examples == 0
    seen.add("step 8", torch.arange(3), 3, torch.ones(3, device="cuda"))
    assert (sums.loss, sums.correct, sums.examples) == (12.0, 8.0, 12)
    with pytest.raises(NotFiniteError, match="norm is nan at step 6"):
        seen.synchronize()
    assert sums.examples == 15


def test_dev_scores_that_are_not_finite_stop_the_run():
    recipe = load_recipe("logic/bow", SMALL)
    original = TASKS["pair"]

    def model(recipe, examples):
        made = original.build_model(recipe, examples)
        made.register_forward_hook(lambda m, _, scores: scores if m.training else scores * math.nan)
        return made

    task = replace(original, build_model=model)
    with (
        Progress.silent() as progress,
        pytest.raises(RunError, match="scores of dev are not finite after st"),
    ):
        fit(task, recipe, task.load_examples(recipe), progress)


def test_nan_is_never_written_as_json(tmp_path):
    row = dict.fromkeys(("epoch", "step"), 1) | dict.fromkeys(run.SCALARS, 0.5)
    figures = run.MetricsLog(tmp_path, [row])
    with pytest.raises(ValueError, match="not JSON compliant"):
        figures.add(row | {"loss": math.nan})
    assert json.loads((tmp_path / run.METRICS).read_text()) == row


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was stopped twice, so that it has two checkpoints."""
    folder = tmp_path_factory.mktemp("made") / "run"
    stop(folder, "train.ema_decay=0.9", after=4, recipe="logic/bow")
    stop(folder, "train.ema_decay=0.9", after=12, recipe="logic/bow", resume=True)
    return folder


def last(tensor):
    """The last number of a tensor, to be changed."""
    return tensor.view(-1)[-1:]


PLACES = {
    "embedding.weight": lambda packed: packed["model"]["embedding.weight"],
    "the average of weight 0": lambda packed: packed["average"][0],
    "the optimizer's exp_avg of weight 0": lambda packed: packed["optimizer"][0]["exp_avg"],
    "the optimizer's exp_avg_sq of weight 1": lambda packed: packed["optimizer"][1]["exp_avg_sq"],
    "the best epoch's embedding.weight": lambda packed: packed["best"]["weights"]["embedding.weight"],
    "the best epoch's scores": lambda packed: packed["best"]["scores"],
}


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("name", PLACES)
def test_a_checkpoint_that_is_not_finite_is_neither_saved_nor_loaded(made, tmp_path, name, value):
    folder = shutil.copytree(made, tmp_path / "run")
    packed = checkpoints.load(folder).content
    last(PLACES[name](packed)).fill_(value)
    before = {file: file.read_bytes() for file in folder.glob("checkpoint*")}
    with pytest.raises(RunError, match=f"NaN or infinity in {name} after step 12, which is not saved"):
        checkpoints.save(folder, packed)
    assert {file: file.read_bytes() for file in folder.glob("checkpoint*")} == before
    checkpoints.write_file(folder / "checkpoint.pt", packed)  # as a version saved it that did not look
    log = io.StringIO()
    stop(folder, "train.ema_decay=0.9", after=10, recipe="logic/bow", resume=True, log=log)
    assert (
        f"checkpoint.pt cannot be read as a checkpoint (NaN or infinity in {name}); it is" in log.getvalue()
    )
    assert "resumed after step 9 (epoch 2) from checkpoint.previous.pt" in log.getvalue()


def test_nan_in_an_unused_embedding_is_found_when_it_is_saved(made, tmp_path, monkeypatch):
    """In a row that no example uses: neither loss nor gradient tells."""
    folder, original = shutil.copytree(made, tmp_path / "run"), state.TrainingState.to_checkpoint

    def pack(*args):
        packed = original(*args)
        last(packed["model"]["embedding.weight"]).fill_(math.nan)
        return packed

    monkeypatch.setattr(state.TrainingState, "to_checkpoint", pack)
    message = (
        "NaN or infinity in embedding.weight after step 14, which is not saved; "
        "the last checkpoint is from step 12$"
    )
    with pytest.raises(RunError, match=message):
        train(folder, "train.ema_decay=0.9", recipe="logic/bow", resume=True, after=14)
    assert checkpoint(folder)["step"] == 12
