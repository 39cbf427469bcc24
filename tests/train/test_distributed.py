"""Many processes train as one: shares add up to the batch, and the curve is the same to rounding."""

import json
import os
from pathlib import Path

import pytest
import torch

import forking
from data.made_up import HEADER, make_wikiqa_line, write_vectors, write_wikiqa
from nse import RunError
from nse.metrics.ranking import MEASURES
from nse.nn.pair import PairClassifier, PairConfig
from nse.tasks import TASKS, load_recipe
from nse.text.tensors import LabelledRows, Texts
from nse.train import distributed
from nse.train.distributed import BatchShard, Processes, is_rank_zero
from nse.train.loop import fit
from nse.train.progress import Progress
from nse.train.signals import StopRequest


def make_process(rank, size):
    """Return a process without the others."""
    process = Processes.__new__(Processes)
    process.rank, process.size = rank, size
    return process


@pytest.mark.parametrize(("size", "examples"), [(2, 8), (2, 7), (3, 7), (4, 2), (2, 1)])
def test_shards_hold_each_example_once_and_their_losses_add_up(size, examples):
    index, values = torch.randperm(50)[:examples], torch.rand(50, dtype=torch.float64)
    shares = [make_process(rank, size).shard_batch(index) for rank in range(size)]
    counted = [number for share in shares for number in share.indices[: share.size].tolist()]
    assert sorted(counted) == sorted(index.tolist())
    assert all(len(share.indices) for share in shares)  # each process takes part, if only for nothing
    mean = sum(share.loss_weight * values[share.indices].mean() for share in shares) / size
    assert mean.item() == pytest.approx(values[index].mean().item())


def test_the_shard_of_a_single_process_is_the_batch():
    numbers, size, weight = make_process(0, 1).shard_batch(torch.arange(5))
    assert (numbers.tolist(), size, weight) == ([0, 1, 2, 3, 4], 5, 1.0)
    assert BatchShard(torch.arange(1), 0, 0.0).loss_weight == 0


def test_a_single_process_communicates_with_nobody():
    process = make_process(0, 1)
    assert process.all_max(3, 0) == [3, 0]
    assert process.all_sum(1.5) == [1.5]
    values = torch.randn(3)
    assert process.all_reduce(values) is values
    assert process.all_gather("x") == ["x"]
    assert process.on_rank_zero(lambda: 7) == 7
    assert process.rank_zero_first(lambda: 8) == 8
    with pytest.raises(RuntimeError, match="a bug"), process.explain_lost_process(str):
        raise RuntimeError("a bug, though gloo is named")


def test_other_errors_do_not_count_as_lost_processes():
    process = make_process(1, 2)
    with pytest.raises(RuntimeError, match="shapes differ"), process.explain_lost_process(str):
        raise RuntimeError("shapes differ")


def test_rank_zero_is_the_process_that_writes(monkeypatch):
    assert is_rank_zero()
    monkeypatch.setenv("RANK", "1")
    assert not is_rank_zero()


def test_an_error_says_why_processes_cannot_be_connected(monkeypatch):
    def refuse(*_args, **_settings):
        raise RuntimeError("no such device\nand more")

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("lightning.fabric.Fabric", refuse)
    with pytest.raises(RunError, match=r"2 processes cannot be connected: no such device$"):
        Processes()


LOGIC = [
    # 82 = 9 * 9 + 1: shares of 5 and 4, and once an epoch a process without an example.
    "data.train=82",
    "data.dev=31",
    "data.test=30",
    "data.unseen=30",
    "model.size=8",
    "train.batch_size=9",
    "train.epochs=3",
    "train.bucket_by_length=true",
    "train.ema_decay=0.5",
    "train.weight_decay=1e-3",
]
RANKING = [
    "data.vectors=set.2d",
    "model.embedding_size=2",
    "model.size=4",
    "model.hidden=8",
    "model.word_overlap=true",
    "model.embedding_dropout=0",  # each process would draw its own
    "train.batch_size=5",
    "train.epochs=2",
    "train.lr=0.01",
    "train.pos_weight=3",
    "train.bucket_by_length=false",
    "train.group_by_question=true",
]


def questions(count):
    """WikiQA: questions with a right answer and two wrong ones, and one without a right answer."""
    words = ["A dog", "a cat runs .", "moves", "The dog runs", "a cat", "zebra a", "dog ."]
    rows = [
        make_wikiqa_line(
            f"Q{q}", words[(3 * q + c) % len(words)], int(c == q % 3 and q != 1), f"a {words[q % 5]}"
        )
        for q in range(count)
        for c in range(3)
    ]
    return HEADER + b"".join(rows)


def test_two_processes_have_the_learning_curve_of_one(tmp_path, monkeypatch):
    """Of a classifier, and of a model that ranks: what is reported is computed of the scores of both."""
    write_wikiqa(tmp_path, train=questions(7), dev=questions(5), test=questions(4))
    write_vectors(tmp_path)
    monkeypatch.setenv("NSE_DATA", str(tmp_path))
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    jobs = [("logic/nse", LOGIC), ("wikiqa/mma-attention", RANKING)]
    alone = []
    for name, settings in jobs:
        recipe = load_recipe(name, settings)
        task = TASKS[recipe.task]
        with Progress.silent() as progress:
            alone.append(fit(task, recipe, task.load_examples(recipe), progress))
    script = Path(__file__).with_name("curve_of_two.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = forking.run_side_by_side([script, json.dumps(jobs)], env=environment)
    assert answer.returncode == 0, answer.stderr
    for (figures, metrics), one in zip(json.loads(answer.stdout), alone, strict=True):
        for name in ("loss", "train", "dev", "rate", "step"):
            assert [row[name] for row in metrics] == pytest.approx(
                [row[name] for row in one.metrics], rel=1e-4, abs=1e-6
            )
        assert figures.keys() == one.figures.keys()
        for measure, values in figures.items():
            assert values == pytest.approx(one.figures[measure])
    assert set(alone[1].figures) == {"accuracy", *MEASURES}


@pytest.mark.parametrize("rows", [9, 8, 1, 0])
@pytest.mark.parametrize("size", [2, 3])
def test_each_row_is_scored_by_one_process(size, rows, monkeypatch):
    """Each row has its score from one process, and zero from the others, which may have no row at all."""
    monkeypatch.setattr(distributed, "EVAL_BATCH_SIZE", 4)
    model = PairClassifier(PairConfig(encoder="lstm", size=4, hidden=8), vocab_size=9, labels=2)
    texts = [Texts(torch.randint(2, 9, (rows, 5)), torch.randint(0, 6, (rows,))) for _ in range(2)]
    split = LabelledRows(tuple(texts), torch.zeros(rows, dtype=torch.long))
    whole, parts = distributed.compute_scores(model, split), []
    for rank in range(size):
        process = make_process(rank, size)
        process.all_reduce, process.all_max = lambda values: values, lambda *values: list(values)
        parts.append(distributed.compute_scores(model, split, process, StopRequest()))
    assert all(len(part) == rows for part in parts)
    if rows:
        scores = torch.stack(parts)
        assert ((scores != 0).any(dim=-1).sum(dim=0) == 1).all()
        assert torch.allclose(scores.sum(dim=0), whole, atol=1e-6)
