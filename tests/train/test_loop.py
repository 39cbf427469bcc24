"""The loop learns, chooses by dev and is the same every time."""

import io
import re
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from nse import RunError
from nse.tasks import TASKS, load_recipe
from nse.tasks.task import ResultColumn, Task
from nse.train import distributed, loop
from nse.train.optimizer import compute_lr
from nse.train.progress import Progress
from nse.train.state import RunStorage, copy_weights

SMALL = ["data.train=90", "data.dev=60", "data.test=30", "data.unseen=30", "model.size=16", "model.hidden=32"]
TASK = TASKS["pair"]


def fit(*overrides, name="logic/nse", progress=None, storage=None, task=TASK):
    recipe = load_recipe(name, [*SMALL, *overrides])
    with progress or Progress(Console(file=io.StringIO())) as display:
        return loop.fit(task, recipe, task.load_examples(recipe), display, storage)


def make_task_with_dev_scores(*values):
    """Return the task with these figures on dev instead of those of the scores."""
    made_up = iter(values)

    class Chosen(Task):
        def compute_main_metric(self, *_):
            return next(made_up)

    return Chosen(**vars(TASK))


@pytest.fixture
def scored_splits(monkeypatch):
    """Record of each scored split: number of rows, weights and scores."""
    seen, original = [], loop.compute_scores

    def scored(model, split, *others):
        scores = original(model, split, *others)
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        seen.append((len(split.labels), weights, scores))
        return scores

    monkeypatch.setattr(loop, "compute_scores", scored)
    return seen


def test_a_fixed_projection_keeps_its_random_weights_and_is_saved(scored_splits):
    outcome = fit("model.embedding_size=24", "model.projection=fixed", "train.epochs=2")
    first, last = scored_splits[0][1], scored_splits[1][1]  # dev, after each epoch
    assert not torch.equal(first["embedding.weight"], last["embedding.weight"])
    for name in ("projection.weight", "projection.bias"):
        assert torch.equal(first[name], last[name])
        assert torch.equal(
            copy_weights(outcome.model)[name], last[name]
        )  # another machine may draw another one


def test_training_fits_the_training_data():
    recipe = load_recipe("logic/nse", [*SMALL, "train.epochs=40", "train.batch_size=30", "train.lr=0.01"])
    examples = TASK.load_examples(recipe)
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


def test_the_seed_determines_the_weights():
    weights = [fit("train.epochs=2", f"seed={seed}").model.state_dict() for seed in (5, 5, 6)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_bucketed_batches_are_reproducible():
    settings = ["train.bucket_by_length=true", "train.bucket_by_length=true", "train.bucket_by_length=false"]
    weights = [fit("train.epochs=2", "train.batch_size=8", each).model.state_dict() for each in settings]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_the_model_of_the_best_epoch_on_dev_is_returned_and_saved(scored_splits):
    saved, task = CollectingStorage(), make_task_with_dev_scores(0.2, 0.9, 0.9, 0.4)
    outcome = fit("train.epochs=4", "train.lr=0.01", storage=saved, task=task)
    assert outcome.epoch == 2  # the first of the best
    assert [row["dev"] for row in outcome.metrics] == [0.2, 0.9, 0.9, 0.4]
    assert outcome.metrics == saved.rows
    (_, weights, scores), *_ = scored_splits[1:]
    for best in (outcome.model.state_dict(), saved.best_weights[-1]):
        assert all(torch.equal(weights[name], best[name]) for name in weights)
    assert len(saved.best_weights) == 2
    for checkpoint in saved.checkpoints[1:]:
        assert torch.equal(checkpoint["best"]["scores"], scores)
    assert torch.equal(saved.scores["dev"], scores)
    assert not torch.equal(scores, scored_splits[2][2])  # those of the best epoch, not of the last
    dev = TASK.load_examples(load_recipe("logic/nse", SMALL)).splits["dev"]
    assert outcome.accuracy["dev"] == (scores.argmax(dim=-1) == dev.labels).double().mean().item()
    assert set(saved.scores) == {"dev", "test", "unseen"}


class CollectingStorage(RunStorage):
    """Storage that keeps everything in lists."""

    def __init__(self):
        super().__init__()
        self.rows, self.best_weights, self.checkpoints, self.scores = [], [], [], {}

    def save_epoch(self, row, best):
        self.rows.append(row)
        if best:
            self.best_weights.append({k: v.clone() for k, v in best.state_dict().items()})

    def save_checkpoint(self, checkpoint):
        self.checkpoints.append(checkpoint)

    def save_scores(self, scores, splits):
        assert all(len(values) == len(splits[name].labels) for name, values in scores.items())
        self.scores = scores


def test_patience_stops_a_run_that_does_not_improve():
    outcome = fit(
        "train.epochs=9", "train.patience=2", task=make_task_with_dev_scores(0.2, 0.5, 0.4, 0.5, 0.9)
    )
    assert [row["dev"] for row in outcome.metrics] == [0.2, 0.5, 0.4, 0.5]
    assert outcome.epoch == 2


def test_the_average_of_the_weights_is_evaluated_and_saved(scored_splits):
    saved = CollectingStorage()
    fit("train.epochs=1", "train.ema_decay=0.7", storage=saved)
    seen = scored_splits[0][1]
    assert all(torch.equal(seen[name], saved.best_weights[0][name]) for name in seen)
    raw = saved.checkpoints[0]["model"]
    assert not torch.equal(seen["head.0.weight"], raw["head.0.weight"])
    values = dict(zip(raw, saved.checkpoints[0]["average"], strict=True))
    steps = saved.checkpoints[0]["step"]
    corrected = values["head.0.weight"] / (1 - 0.7**steps)
    assert torch.allclose(seen["head.0.weight"], corrected)


def test_fixed_embeddings_do_not_change_and_are_not_in_the_checkpoint(monkeypatch):
    saved = CollectingStorage()
    recipe = load_recipe("logic/nse", [*SMALL, "train.epochs=1", "model.trainable=false"])
    examples = TASK.load_examples(recipe)
    torch.manual_seed(recipe.seed)
    before = TASK.build_model(recipe, examples).embedding.weight
    with Progress.silent() as progress:
        outcome = loop.fit(TASK, recipe, examples, progress, saved)
    assert torch.equal(outcome.model.embedding.weight, before)
    assert "embedding.weight" not in saved.checkpoints[0]["model"]
    assert outcome.parameters == outcome.parameters_without_embeddings


def test_test_splits_are_scored_once(scored_splits):
    fit("train.epochs=3", "data.test=33", "data.unseen=36")
    reads = [rows for rows, *_ in scored_splits]
    assert reads.count(33) == reads.count(36) == 1
    assert reads.count(60) == 3  # dev: once an epoch


def test_scores_are_in_the_order_of_the_rows(monkeypatch):
    """Whatever the batches, which are sorted by length; and of no rows there are none."""
    monkeypatch.setattr(distributed, "EVAL_BATCH_SIZE", 7)
    recipe = load_recipe("logic/nse", SMALL)
    examples = TASK.load_examples(recipe)
    model, split = TASK.build_model(recipe, examples).train(), examples.splits["dev"]
    scores = loop.compute_scores(model, split)
    assert not model.training
    assert scores.shape == (60, 3)
    with torch.no_grad():
        for row in range(60):
            alone = model(*split.select(torch.tensor([row])).inputs)
            assert torch.allclose(alone[0], scores[row], atol=1e-6)
    args = recipe, scores, examples, "dev"
    assert TASK.compute_metrics(*args) == {"accuracy": TASK.compute_main_metric(*args)}
    assert len(loop.compute_scores(model, split.select(torch.arange(0)))) == 0


@pytest.mark.parametrize("encoder", ["nse", "lstm", "bow"])
def test_a_split_without_examples_has_accuracy_zero(encoder):
    outcome = fit("train.epochs=1", "data.test=0", name=f"logic/{encoder}")
    assert outcome.accuracy["test"] == 0


def test_figures_of_the_task_are_in_the_result():
    """Also where a measure is not known of every split."""

    def figures(recipe, scores, examples, split):
        more = {"highest": scores.max().item()} if len(examples.splits[split].labels) == 30 else {}
        return {"rows": float(len(scores))} | more

    saved, display = CollectingStorage(), (ResultColumn("rows", "dev", "rows"),)
    outcome = fit(
        "train.epochs=1", storage=saved, task=replace(TASK, compute_metrics=figures, columns=display)
    )
    assert outcome.figures == {
        "accuracy": {"train": outcome.metrics[0]["train"]},
        "rows": {"dev": 60.0, "test": 30.0, "unseen": 30.0},
        "highest": {name: saved.scores[name].max().item() for name in ("test", "unseen")},
    }


def test_a_loss_that_is_not_finite_stops_the_run():
    message = r"is (nan|inf) at step \d+, epoch 1, batch \d+ of 9 .examples .*: try a smaller train.lr"
    with pytest.raises(RunError, match=message):
        fit("train.lr=1e30", "train.clip_norm=1e30", "train.epochs=3", "train.batch_size=10")


def test_learning_rate_follows_warmup_and_schedule():
    assert compute_lr(0.1, "constant", 0.7) == 0.1
    assert compute_lr(0.1, "linear", 0.0) == 0.1
    assert compute_lr(0.1, "linear", 0.75) == pytest.approx(0.025)
    assert compute_lr(0.1, "cosine", 0.0) == 0.1
    assert compute_lr(0.1, "cosine", 0.5) == pytest.approx(0.05)
    assert compute_lr(0.1, "cosine", 1.0) == pytest.approx(0.0)
    for schedule in ("constant", "linear", "cosine"):
        assert compute_lr(0.1, schedule, 0.0, warmup=0.2) == 0.0
        assert compute_lr(0.1, schedule, 0.05, warmup=0.2) == pytest.approx(0.025)
        assert compute_lr(0.1, schedule, 0.2, warmup=0.2) == pytest.approx(0.1)
    assert compute_lr(0.1, "linear", 0.6, warmup=0.2) == pytest.approx(0.05)


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere():
    lines, bar = io.StringIO(), io.StringIO()
    fit("train.epochs=2", progress=Progress(Console(file=lines)))
    message = lines.getvalue().replace("\n", " ")
    for epoch in ("epoch 1, loss ", "epoch 2, loss "):
        assert epoch in message
    assert all(word in message for word in (" train ", " dev ", " examples/s, ", " left"))
    terminal = Progress(Console(file=bar, force_terminal=True, width=160))
    fit("train.epochs=3", "train.batch_size=4", progress=terminal)
    assert "epoch 3 · loss" in bar.getvalue()
    assert "left" in bar.getvalue()
    assert re.search(r"· dev \d+\.\d% · [\d,]+/s", bar.getvalue())
