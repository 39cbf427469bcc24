"""The loop learns, chooses by dev and is the same every time."""

import io
import re

import pytest
import torch
from rich.console import Console

from nse import RunError
from nse.tasks import TASKS, load_recipe
from nse.train import loop
from nse.train.keeper import Keeper
from nse.train.progress import Progress

SMALL = ["data.train=90", "data.dev=60", "data.test=30", "data.unseen=30", "model.size=16", "model.hidden=32"]
TASK = TASKS["logic"]


def fit(*overrides, name="logic/nse", progress=None, keeper=None):
    recipe = load_recipe(name, [*SMALL, *overrides])
    with progress or Progress(Console(file=io.StringIO())) as shown:
        return loop.fit(TASK, recipe, TASK.examples(recipe), shown, keeper)


def test_learns_what_it_is_shown():
    recipe = load_recipe("logic/nse", [*SMALL, "train.epochs=40", "train.batch=30", "train.rate=0.01"])
    examples = TASK.examples(recipe)
    examples.splits["dev"] = examples.splits["train"]
    with Progress(Console(file=io.StringIO())) as progress:
        outcome = loop.fit(TASK, recipe, examples, progress)
    assert outcome.accuracy["dev"] > 0.9
    assert outcome.seconds > 0
    assert outcome.parameters == sum(p.numel() for p in outcome.model.parameters())
    words = outcome.model.embedding.weight.numel()
    assert outcome.parameters_without_embeddings == outcome.parameters - words
    assert outcome.metrics[-1]["train"] > 0.9
    assert outcome.metrics[-1]["loss"] < outcome.metrics[0]["loss"]
    assert outcome.accuracy["train"] == outcome.metrics[outcome.epoch - 1]["train"]


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

    def accuracy(task, model, split, *others):
        try:
            value = next(made_up)
        except StopIteration:
            return honest(task, model, split, *others)
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return value

    monkeypatch.setattr(loop, "accuracy", accuracy)
    kept = Collects()
    outcome = fit("train.epochs=4", keeper=kept)
    assert outcome.epoch == 2  # the first of the best
    assert [row["dev"] for row in outcome.metrics] == [0.2, 0.9, 0.9, 0.4]
    assert outcome.metrics == kept.rows
    assert outcome.accuracy["dev"] == 0.9
    for best in (outcome.model.state_dict(), kept.bests[-1]):
        assert all(torch.equal(seen[1][name], best[name]) for name in seen[1])
    assert len(kept.bests) == 2


class Collects(Keeper):
    """Keeps in lists what a run would keep in files."""

    def __init__(self):
        super().__init__()
        self.rows, self.bests, self.packed = [], [], []

    def epoch(self, row):
        self.rows.append(row)

    def best(self, model, row):
        self.bests.append({k: v.clone() for k, v in model.state_dict().items()})

    def save(self, packed):
        self.packed.append(packed)


def test_patience_ends_a_run_that_gets_no_better(monkeypatch):
    made_up = iter([0.2, 0.5, 0.4, 0.5, 0.9])
    honest = loop.accuracy
    monkeypatch.setattr(loop, "accuracy", lambda *given: next(made_up, None) or honest(*given))
    outcome = fit("train.epochs=9", "train.patience=2")
    assert [row["dev"] for row in outcome.metrics] == [0.2, 0.5, 0.4, 0.5]
    assert outcome.epoch == 2


def test_the_average_is_what_is_evaluated_and_kept(monkeypatch):
    seen, kept = [], Collects()
    honest = loop.accuracy

    def accuracy(task, model, split, *others):
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return honest(task, model, split, *others)

    monkeypatch.setattr(loop, "accuracy", accuracy)
    fit("train.epochs=1", "train.average=0.7", keeper=kept)
    assert all(torch.equal(seen[0][name], kept.bests[0][name]) for name in seen[0])
    raw = kept.packed[0]["model"]
    assert not torch.equal(seen[0]["head.0.weight"], raw["head.0.weight"])
    values = dict(zip(raw, kept.packed[0]["average"], strict=True))
    steps = kept.packed[0]["step"]
    corrected = values["head.0.weight"] / (1 - 0.7**steps)
    assert torch.allclose(seen[0]["head.0.weight"], corrected)


def test_fixed_weights_are_not_in_the_state_and_stay(monkeypatch):
    kept = Collects()
    recipe = load_recipe("logic/nse", [*SMALL, "train.epochs=1", "model.trained=false"])
    examples = TASK.examples(recipe)
    torch.manual_seed(recipe.seed)
    before = TASK.model(recipe, examples).embedding.weight
    with Progress.silent() as progress:
        outcome = loop.fit(TASK, recipe, examples, progress, kept)
    assert torch.equal(outcome.model.embedding.weight, before)
    assert "embedding.weight" not in kept.packed[0]["model"]
    assert outcome.parameters == outcome.parameters_without_embeddings


def test_test_splits_are_read_once(monkeypatch):
    reads = []
    honest = loop.accuracy

    def accuracy(task, model, split, *others):
        reads.append(len(split.labels))
        return honest(task, model, split, *others)

    monkeypatch.setattr(loop, "accuracy", accuracy)
    fit("train.epochs=3", "data.test=33", "data.unseen=36")
    assert reads.count(33) == reads.count(36) == 1
    assert reads.count(60) == 3  # dev: once an epoch


def test_a_loss_that_is_no_number_stops_the_run():
    told = r"is (nan|inf) at step \d+, epoch 1, batch \d+ of 9 .examples .*: try a smaller train.rate"
    with pytest.raises(RunError, match=told):
        fit("train.rate=1e30", "train.clip=1e30", "train.epochs=3", "train.batch=10")


def test_learning_rate_schedules():
    assert loop.rate_at(0.1, "constant", 0.7) == 0.1
    assert loop.rate_at(0.1, "linear", 0.0) == 0.1
    assert loop.rate_at(0.1, "linear", 0.75) == pytest.approx(0.025)
    assert loop.rate_at(0.1, "cosine", 0.0) == 0.1
    assert loop.rate_at(0.1, "cosine", 0.5) == pytest.approx(0.05)
    assert loop.rate_at(0.1, "cosine", 1.0) == pytest.approx(0.0)
    for schedule in ("constant", "linear", "cosine"):
        assert loop.rate_at(0.1, schedule, 0.0, warmup=0.2) == 0.0
        assert loop.rate_at(0.1, schedule, 0.05, warmup=0.2) == pytest.approx(0.025)
        assert loop.rate_at(0.1, schedule, 0.2, warmup=0.2) == pytest.approx(0.1)
    assert loop.rate_at(0.1, "linear", 0.6, warmup=0.2) == pytest.approx(0.05)


def test_progress_is_lines_where_there_is_no_terminal_and_a_bar_where_there_is():
    lines, bar = io.StringIO(), io.StringIO()
    fit("train.epochs=2", progress=Progress(Console(file=lines)))
    told = lines.getvalue().replace("\n", " ")
    for epoch in ("epoch 1, loss ", "epoch 2, loss "):
        assert epoch in told
    assert all(word in told for word in (" train ", " dev ", " examples/s, ", " left"))
    terminal = Progress(Console(file=bar, force_terminal=True, width=160))
    fit("train.epochs=3", "train.batch=4", progress=terminal)
    assert "epoch 3 · loss" in bar.getvalue()
    assert "left" in bar.getvalue()
    assert re.search(r"· dev \d+\.\d% · [\d,]+/s", bar.getvalue())
