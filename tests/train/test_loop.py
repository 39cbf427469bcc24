"""The loop learns, chooses by dev and is the same every time."""

import io

import pytest
import torch
from rich.console import Console

from nse import RunError
from nse.tasks import TASKS, load_recipe
from nse.train import loop
from nse.train.progress import Progress

SMALL = ["data.train=90", "data.dev=60", "data.test=30", "data.unseen=30", "model.size=16", "model.hidden=32"]
TASK = TASKS["logic"]


def fit(*overrides, on_epoch=lambda metrics: None, name="logic/nse", progress=None):
    recipe = load_recipe(name, [*SMALL, *overrides])
    with progress or Progress(Console(file=io.StringIO())) as shown:
        return loop.fit(TASK, recipe, TASK.examples(recipe), shown, on_epoch)


def test_learns_what_it_is_shown():
    recipe = load_recipe("logic/nse", [*SMALL, "train.epochs=40", "train.batch=30", "train.rate=0.01"])
    examples = TASK.examples(recipe)
    examples.splits["dev"] = examples.splits["train"]
    with Progress(Console(file=io.StringIO())) as progress:
        outcome = loop.fit(TASK, recipe, examples, progress)
    assert outcome.accuracy["dev"] > 0.9
    assert outcome.seconds > 0
    assert outcome.parameters == sum(p.numel() for p in outcome.model.parameters())


def test_same_seed_same_weights_other_seed_other_weights():
    weights = [fit("train.epochs=2", f"seed={seed}").model.state_dict() for seed in (5, 5, 6)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_batches_of_similar_length_are_the_same_every_time():
    settings = ["train.buckets=true", "train.buckets=true", "train.buckets=false"]
    weights = [fit("train.epochs=2", "train.batch=8", each).model.state_dict() for each in settings]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_the_best_epoch_on_dev_is_kept(monkeypatch):
    made_up = iter([0.2, 0.9, 0.9, 0.4])
    seen = []
    honest = loop.accuracy

    def accuracy(task, model, split):
        try:
            value = next(made_up)
        except StopIteration:
            return honest(task, model, split)
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return value

    monkeypatch.setattr(loop, "accuracy", accuracy)
    epochs = []
    outcome = fit("train.epochs=4", on_epoch=epochs.append)
    assert outcome.epoch == 2  # the first of the best
    assert [epoch["dev"] for epoch in epochs] == [0.2, 0.9, 0.9, 0.4]
    best, kept = seen[1], outcome.model.state_dict()
    assert all(torch.equal(best[f"module.{k}"] if f"module.{k}" in best else best[k], kept[k]) for k in kept)


def test_test_splits_are_read_once(monkeypatch):
    reads = []
    honest = loop.accuracy
    monkeypatch.setattr(
        loop, "accuracy", lambda t, m, split: reads.append(len(split.labels)) or honest(t, m, split)
    )
    fit("train.epochs=3", "data.test=33", "data.unseen=36")
    assert reads.count(33) == reads.count(36) == 1
    assert reads.count(60) == 3  # dev: once an epoch


def test_a_loss_that_is_no_number_stops_the_run():
    with pytest.raises(RunError, match=r"the loss is nan at step \d+, epoch 1: try a smaller train.rate"):
        fit("train.rate=1e30", "train.clip=1e30", "train.epochs=3", "train.batch=10")


def test_learning_rate_schedules():
    assert loop.rate_at(0.1, "constant", 0.7) == 0.1
    assert loop.rate_at(0.1, "linear", 0.0) == 0.1
    assert loop.rate_at(0.1, "linear", 0.75) == pytest.approx(0.025)


def test_progress_is_lines_where_there_is_no_terminal_and_a_bar_where_there_is():
    lines, bar = io.StringIO(), io.StringIO()
    fit("train.epochs=2", progress=Progress(Console(file=lines)))
    assert [line.split(",")[0] for line in lines.getvalue().splitlines()] == [": epoch 1", ": epoch 2"]
    terminal = Progress(Console(file=bar, force_terminal=True, width=120))
    fit("train.epochs=3", "train.batch=4", progress=terminal)
    assert "epoch 3 · loss" in bar.getvalue()
    assert "left" in bar.getvalue()
