"""A step is what one would write by hand, and on a GPU a replayed graph is that step."""

import io
import logging

import pytest
import torch
from rich.console import Console

from nse import RunError
from nse.nn.pair import PairClassifier, PairConfig
from nse.tasks import TASKS, load_recipe
from nse.tasks.task import compute_cross_entropy
from nse.text.sampler import draw_batches
from nse.text.tensors import LabelledRows, Texts
from nse.train import loop
from nse.train.optimizer import OptimizerUpdate, WeightEMA, make_adam, set_lr
from nse.train.progress import Progress
from nse.train.train_step import CapturedStep, TrainStep, forbid_synchronization
from oracle.problems import assert_close

EXAMPLES, WORDS, CLIP = 48, 30, 0.5
ENCODERS = ("nse", "lstm", "bow")
SHAPES = [(12, 8), (4, 4), (8, 4)]  # texts longer than that are cut


def make_texts(max_length):
    ids = torch.randint(2, WORDS, (EXAMPLES, max_length))
    lengths = torch.randint(1, max_length + 1, (EXAMPLES,))
    return Texts(ids.masked_fill(torch.arange(max_length) >= lengths[:, None], 0), lengths)


def make_pairs(device):
    pairs = LabelledRows((make_texts(12), make_texts(8)), torch.randint(3, (EXAMPLES,)))
    return pairs.to(torch.device(device))


def make_classifier(device, encoder="bow", dropout=0.0):
    config = PairConfig(encoder=encoder, size=16, hidden=32, dropout=dropout)
    return PairClassifier(config, WORDS, 3).to(device)


def make_equal_models(device, encoder="bow", dropout=0.0):
    """Two models with the same weights; not by copying, which tears the weights of an LSTM apart."""
    one, other = (make_classifier(device, encoder, dropout) for _ in range(2))
    other.load_state_dict(one.state_dict())
    return one, other


def make_loss(model, pairs):
    def loss(index, shape):
        batch = pairs.select(index, shape)
        return compute_cross_entropy(model(*batch.inputs), batch.labels)

    return loss


def make_step(kind, model, pairs, decay=0.9, **settings):
    """A step, with its own Adam and its own average of the weights."""
    optimizer = make_adam(model.parameters(), 1e-2, 1e-3, pairs.labels.device)
    average = WeightEMA(list(model.parameters()), decay)
    return kind(optimizer, make_loss(model, pairs), CLIP, average, **settings)


def make_batches(steps, shapes=SHAPES, sizes=(16,)):
    """Batches and their shapes, the shapes taking turns."""
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randperm(EXAMPLES, generator=generator)[: sizes[i % len(sizes)]],
            None if shapes is None else shapes[i % len(shapes)],
        )
        for i in range(steps)
    ]


def assert_same_training(step, other, batches_and_shapes):
    """Both steps give the same results and leave the same weights; results are looked at last of all."""
    results = []
    for each in (step, other):
        torch.manual_seed(0)
        results.append([each(*batch) for batch in batches_and_shapes])
    losses, norms = ([[result[i] for result in actual] for actual in results] for i in (0, 2))
    assert_close(*losses, 1e-4)
    assert_close(*norms, 1e-3)
    correct_by_hand = [torch.stack(actual)[:, 1] for actual in results]
    assert (
        correct_by_hand[0] - correct_by_hand[1]
    ).abs().max() <= 1  # where two labels score nearly the same
    if step.ema is not None:
        assert_close(step.ema.values, other.ema.values, 1e-3)
    # A step moves a weight by about 1e-2, in what direction rounding decides where a gradient is nearly zero.
    assert_close(step.parameters, other.parameters, 1e-3)
    assert losses[0][0] != losses[0][-1]


def test_a_step_equals_one_written_by_hand(device):
    (model, by_hand), pairs = make_equal_models(device, "lstm"), make_pairs(device)
    optimizer = make_adam(by_hand.parameters(), 1e-2, 1e-3, pairs.labels.device)
    step = make_step(TrainStep, model, pairs)
    for index, shape in [*make_batches(3), *make_batches(3, shapes=None)]:
        loss, correct, norm = result = step(index, shape)
        assert not result.requires_grad
        assert all(p.grad is None for p in model.parameters())
        expected, correct_by_hand = make_loss(by_hand, pairs)(index.to(device), shape)
        expected.backward()
        norms = torch.nn.utils.clip_grad_norm_(by_hand.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        tolerance = 0 if device == "cpu" else 1e-4
        assert_close([loss, norm, *model.parameters()], [expected, norms, *by_hand.parameters()], tolerance)
        assert correct == correct_by_hand


def test_the_loss_is_cross_entropy_with_label_smoothing():
    scores, labels = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 3.0]]), torch.tensor([1, 0, 0])
    loss, correct = compute_cross_entropy(scores, labels)
    assert correct == 2
    assert loss.item() == pytest.approx(-scores.log_softmax(-1)[range(3), labels].mean().item())
    smoothed, correct = compute_cross_entropy(scores, labels, smoothing=0.2)
    assert correct == 2
    even = -scores.log_softmax(-1).mean()
    assert smoothed.item() == pytest.approx((0.8 * loss + 0.2 * even).item())


def test_weighted_shards_of_a_batch_add_up_to_its_gradient():
    model, pairs = make_classifier("cpu", "lstm"), make_pairs("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    step, index = TrainStep(optimizer, make_loss(model, pairs), 1e9), torch.randperm(EXAMPLES)[:7]
    start = [p.detach().clone() for p in model.parameters()]

    def moved(numbers, weight):
        step(numbers, None, weight)
        actual = [p.detach() - s for p, s in zip(model.parameters(), start, strict=True)]
        model.load_state_dict(dict(zip(model.state_dict(), start, strict=True)))
        return actual

    parts = [moved(index[:5], 2 * 5 / 7), moved(index[5:], 2 * 2 / 7)]  # two processes average them
    averaged = [(a + b) / 2 for a, b in zip(*parts, strict=True)]
    assert_close(averaged, moved(index, 1.0), 1e-5)


def test_the_moving_average_equals_one_written_by_hand(device):
    model, pairs = make_classifier(device), make_pairs(device)
    step, decay = make_step(TrainStep, model, pairs, decay=0.8), 0.8
    weights_by_step = []
    for index, shape in make_batches(5):
        step(index, shape)
        weights_by_step.append([p.detach().clone() for p in model.parameters()])
    parts = [decay ** (4 - i) for i in range(5)]
    expected = [
        sum(w * p for w, p in zip(parts, ps, strict=True)) / sum(parts)
        for ps in zip(*weights_by_step, strict=True)
    ]
    where = [p.data_ptr() for p in model.parameters()]
    with step.ema.swap_weights(5):
        assert_close(list(model.parameters()), expected, 1e-5)
    assert_close(list(model.parameters()), weights_by_step[-1], 0)
    assert [p.data_ptr() for p in model.parameters()] == where  # where captured graphs know them


def test_the_gradient_is_clipped():
    model, pairs = make_classifier("cpu"), make_pairs("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = [p.detach().clone() for p in model.parameters()]
    TrainStep(optimizer, make_loss(model, pairs), 1e-3)(torch.arange(8))
    moved = torch.cat([(p - b).flatten() for p, b in zip(model.parameters(), before, strict=True)])
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_the_learning_rate_can_be_changed(device):
    model, pairs = make_classifier(device), make_pairs(device)
    step = make_step(TrainStep, model, pairs)
    set_lr(step.optimizer, 0.0)
    before = [p.detach().clone() for p in model.parameters()]
    step(torch.arange(8))
    assert_close(list(model.parameters()), before, 0)
    set_lr(step.optimizer, 1e-2)
    step(torch.arange(8))
    assert not torch.equal(model.head[0].weight, before[1])
    assert float(step.optimizer.param_groups[0]["lr"]) == pytest.approx(1e-2)


def test_kernels_are_used_only_for_supported_optimizers(monkeypatch):
    calls = []
    monkeypatch.setattr("nse.train.optimizer.choose_backend", lambda *a: calls.append(a) or "triton")
    weights = [torch.nn.Parameter(torch.zeros(3, 2)), torch.nn.Parameter(torch.zeros(2))]

    def can_use_kernels_for(parameters=weights, kind=torch.optim.Adam, averaged=None, **settings):
        settings = {"lr": torch.tensor(0.1), "fused": True, "capturable": True, **settings}
        average = None if averaged is None else WeightEMA(averaged, 0.9)
        return OptimizerUpdate(kind(parameters, **settings), CLIP, average).can_use_kernels()

    assert can_use_kernels_for()
    assert can_use_kernels_for(averaged=weights)
    assert not can_use_kernels_for(averaged=weights[::-1])
    assert not can_use_kernels_for(kind=torch.optim.AdamW)
    assert not can_use_kernels_for(amsgrad=True)
    assert not can_use_kernels_for(maximize=True)
    assert not can_use_kernels_for(lr=0.1)
    assert not can_use_kernels_for([{"params": [weights[0]]}, {"params": [weights[1]], "weight_decay": 0.1}])
    assert not can_use_kernels_for([torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))])
    assert not can_use_kernels_for([torch.nn.Parameter(torch.zeros(3, 2).t())])
    assert not OptimizerUpdate(torch.optim.SGD(weights), CLIP, None).can_use_kernels()
    monkeypatch.setattr("nse.train.optimizer.choose_backend", lambda *a: "torch")
    assert not can_use_kernels_for()
    assert calls == [("auto", torch.device("cpu"))] * 2
    assert not make_step(TrainStep, make_classifier("cpu"), make_pairs("cpu")).update.use_kernels


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("kind", [TrainStep, CapturedStep])
def test_the_kernels_update_the_weights_as_pytorch_does(kind, encoder):
    (one, other), pairs = make_equal_models("cuda", encoder), make_pairs("cuda")
    step, by_pytorch = make_step(kind, one, pairs), make_step(TrainStep, other, pairs)
    assert step.update.use_kernels
    by_pytorch.update.use_kernels = False
    assert_same_training(step, by_pytorch, make_batches(12))
    states = [each.optimizer.state_dict()["state"] for each in (step, by_pytorch)]
    for name in ("step", "exp_avg", "exp_avg_sq"):
        assert_close(*([state[name] for state in actual.values()] for actual in states), 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_replayed_step_equals_an_eager_step(encoder):
    (eager, captured), pairs = make_equal_models("cuda", encoder), make_pairs("cuda")
    step = make_step(CapturedStep, captured, pairs)
    assert_same_training(step, make_step(TrainStep, eager, pairs), make_batches(20, sizes=(16, 7)))
    assert len(step.graphs) == 6  # three shapes of two sizes, taking turns
    assert all(p.grad is None for p in captured.parameters())


@pytest.mark.gpu
def test_eager_and_replayed_steps_can_alternate():
    (eager, captured), pairs = make_equal_models("cuda", "lstm"), make_pairs("cuda")
    step = make_step(CapturedStep, captured, pairs)
    mixed = [
        *make_batches(9),
        *make_batches(2, shapes=None),
        *make_batches(4),
        *make_batches(5, shapes=[(12, 4), (12, 8)]),
    ]
    assert_same_training(step, make_step(TrainStep, eager, pairs), mixed)
    assert len(step.graphs) == 4


@pytest.mark.gpu
def test_shapes_beyond_the_limit_are_not_captured():
    (eager, captured), pairs = make_equal_models("cuda"), make_pairs("cuda")
    step = make_step(CapturedStep, captured, pairs, max_graphs=2)
    assert_same_training(step, make_step(TrainStep, eager, pairs), make_batches(15))
    assert len(step.graphs) == 2


@pytest.mark.gpu
def test_the_index_may_be_on_the_device():
    (eager, captured), pairs = make_equal_models("cuda"), make_pairs("cuda")
    on_device = [(index.cuda(), shape) for index, shape in make_batches(9)]
    assert_same_training(
        make_step(CapturedStep, captured, pairs), make_step(TrainStep, eager, pairs), on_device
    )


@pytest.mark.gpu
def test_the_learning_rate_can_be_changed_between_replays():
    model, pairs = make_classifier("cuda"), make_pairs("cuda")
    step = make_step(CapturedStep, model, pairs)
    batch = make_batches(1)[0]
    for _ in range(3):
        step(*batch)
    assert len(step.graphs) == 1
    before = [p.detach().clone() for p in model.parameters()]
    set_lr(step.optimizer, 0.0)
    step(*batch)
    assert_close(list(model.parameters()), before, 0)
    set_lr(step.optimizer, 1e-2)
    step(*batch)
    assert not torch.equal(model.head[0].weight, before[1])


@pytest.mark.gpu
def test_every_replay_draws_its_own_dropout():
    model, pairs = make_classifier("cuda", dropout=0.5), make_pairs("cuda")
    step = make_step(CapturedStep, model, pairs)
    set_lr(step.optimizer, 0.0)  # the weights stay, so only the masks make a difference
    losses = [step(*make_batches(1)[0])[0].item() for _ in range(6)]
    assert len(step.graphs) == 1
    assert len(set(losses)) == 6


@pytest.mark.gpu
def test_a_replay_does_not_wait_for_the_device():
    model, pairs = make_classifier("cuda", "lstm", dropout=0.2), make_pairs("cuda")
    step = make_step(CapturedStep, model, pairs)
    for batch in make_batches(6):
        step(*batch)
    with forbid_synchronization():
        for batch in make_batches(6):
            set_lr(step.optimizer, 1e-3)
            result = step(*batch)
        with pytest.raises(RuntimeError, match="synchronizing"):
            result.tolist()
    assert result.isfinite().all()


@pytest.mark.gpu
def test_a_step_that_waits_for_the_device_runs_without_a_graph(caplog):
    (eager, captured), pairs = make_equal_models("cuda", dropout=0.3), make_pairs("cuda")

    def make_waiting_loss(model):
        compute_loss = make_loss(model, pairs)

        def compute_loss_and_wait(index, shape):
            loss, correct = compute_loss(index, shape)
            return loss * (1 + index.min().item() / EXAMPLES), correct

        return compute_loss_and_wait

    steps = [
        kind(make_adam(model.parameters(), 1e-2, 1e-3, pairs.labels.device), make_waiting_loss(model), CLIP)
        for kind, model in ((CapturedStep, captured), (TrainStep, eager))
    ]
    # The failed capture neither draws random numbers nor breaks their generator.
    with caplog.at_level(logging.WARNING):
        assert_same_training(*steps, make_batches(12))
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the training step runs without a CUDA graph"
    ]
    assert not steps[0].needs_shapes
    assert not steps[0].graphs
    # Nor does it break later captures.
    later = make_step(CapturedStep, captured, pairs)
    for batch in make_batches(6):
        later(*batch)
    assert len(later.graphs) == 3


@pytest.mark.gpu
def test_an_optimizer_that_cannot_be_captured_is_refused():
    model, pairs = make_classifier("cuda"), make_pairs("cuda")
    optimizer = torch.optim.Adam(model.parameters())
    step = CapturedStep(optimizer, make_loss(model, pairs), CLIP)
    index, shape = make_batches(1)[0]
    step(index, shape)
    with pytest.raises(RunError, match=r"cannot be captured as a CUDA graph .*: set train.cuda_graphs=false"):
        step(index, shape)


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("buckets", ["true", "false"])
def test_the_loop_trains_the_same_with_and_without_graphs(encoder, buckets):
    sizes = ["data.train=200", "data.dev=60", "data.test=60", "data.unseen=60", "model.size=16"]
    settings = ["train.epochs=4", "train.batch_size=32", "train.lr=1e-3", f"train.bucket_by_length={buckets}"]
    losses = []
    for capture in ("true", "false"):
        recipe = load_recipe(f"logic/{encoder}", [*sizes, *settings, f"train.cuda_graphs={capture}"])
        task = TASKS["pair"]
        with Progress(Console(file=io.StringIO())) as progress:
            outcome = loop.fit(task, recipe, task.load_examples(recipe), progress)
        losses.append([epoch["loss"] for epoch in outcome.metrics])
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.gpu
def test_an_epoch_of_bucketed_batches_has_few_shapes():
    pairs = make_pairs("cpu")
    step = make_step(CapturedStep, model := make_classifier("cuda"), pairs.to(torch.device("cuda")))
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for index in draw_batches(EXAMPLES, 16, generator, pairs.lengths):
            assert step(index, pairs.compute_shapes([index])[0]).isfinite().all()
    assert 1 <= len(step.graphs) <= len(step.warmed_up) <= 6
    assert all(p.isfinite().all() for p in model.parameters())
