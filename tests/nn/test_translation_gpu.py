"""Translators on a GPU: the numbers of a CPU, and a replayed step that is the step."""

import pytest
import torch

from nse.nn.sentence_encoder import run_lstm_to_end
from nse.nn.translator import TranslationConfig, Translator
from nse.ops.step import make_score_mask
from nse.tasks import load_recipe, translation
from nse.text.tensors import LabelledRows, Texts
from nse.train.environment import set_precision
from nse.train.optimizer import make_adam
from nse.train.train_step import CapturedStep, TrainStep, forbid_synchronization
from oracle.problems import assert_close, assert_near

pytestmark = pytest.mark.gpu

MODELS = {"lstm-lstm": ("lstm", "lstm"), "nse-lstm": ("nse", "lstm"), "nse-nse": ("nse", "nse")}
EVERY = pytest.mark.parametrize("name", MODELS)
DIRECTIONS = pytest.mark.parametrize("directions", [1, 2])
ROWS, WORDS, TARGETS = 48, 40, 30
SHAPES = [(12, 8), (4, 4), (8, 12)]  # texts longer than that are cut


@pytest.fixture(autouse=True)
def _float32():
    """Products with all 23 bits."""
    with set_precision(tf32=False, device=torch.device("cuda")):
        yield


def translator(name, directions=1, **settings):
    encoder, decoder = MODELS[name]
    given = {"encoder": encoder, "decoder": decoder, "directions": directions, "size": 32, "init_range": 0.2}
    return Translator(TranslationConfig(**given, **settings), WORDS, TARGETS)


def twins(name, directions=1, **settings):
    """Two models with the same weights; not by copying, which tears the weights of an LSTM apart."""
    one, other = (translator(name, directions, **settings) for _ in range(2))
    other.load_state_dict(one.state_dict())
    return one, other


def texts(first, words, longest):
    ids, lengths = torch.randint(first, words, (ROWS, longest)), torch.randint(1, longest + 1, (ROWS,))
    lengths[:2] = torch.tensor([0, longest])
    return Texts(ids.masked_fill(torch.arange(longest) >= lengths[:, None], 0), lengths)


def pairs(device="cpu"):
    actual = LabelledRows((texts(2, WORDS, 12), texts(4, TARGETS, 12)), torch.zeros(ROWS, dtype=torch.long))
    return actual.to(torch.device(device))


def judged(model, batch):
    return translation.compute_loss(load_recipe("multi30k/nse-nse"), model(*batch.inputs), batch)[0]


@EVERY
@DIRECTIONS
def test_scores_and_gradients_equal_the_cpu(name, directions):
    (here, there), batch = twins(name, directions), pairs()
    there.cuda()
    scores = [model(*each.inputs) for model, each in ((here, batch), (there, batch.to(torch.device("cuda"))))]
    assert_near(scores[1], scores[0], 1e-4)
    for model, each in ((here, batch), (there, batch.to(torch.device("cuda")))):
        judged(model, each).backward()
    for (which, expected), actual in zip(here.named_parameters(), there.parameters(), strict=True):
        if which == "decoder.attention.score.bias":  # softmax does not see it: zero, but for rounding
            assert actual.grad.abs().max() < 1e-5
            continue
        difference = (actual.grad.cpu() - expected.grad).norm()
        assert difference <= 1e-4 * max(expected.grad.norm(), 1e-3), which


@EVERY
@pytest.mark.parametrize("beam", [1, 3])
def test_translations_equal_the_cpu(name, beam):
    (here, there), batch = twins(name, beam=beam, max_target_words=6), pairs()
    ids = [
        model.eval().translate(*each.texts[0])[0].cpu()
        for model, each in ((here, batch), (there.cuda(), batch.to(torch.device("cuda"))))
    ]
    same = (ids[0] == ids[1]).all(dim=1)
    assert same.double().mean() > 0.9  # where two words are all but equally likely, rounding decides


def test_an_lstm_stops_at_each_end():
    lstm, x, lengths = (
        torch.nn.LSTM(32, 32, batch_first=True),
        torch.randn(5, 9, 32),
        torch.tensor([9, 1, 4, 9, 2]),
    )
    actual = []
    for device in ("cpu", "cuda"):
        lstm.to(device)
        inputs = x.to(device).requires_grad_()
        outputs, (h, c) = run_lstm_to_end(lstm, inputs, lengths.to(device))
        loss = outputs.square().sum() + h.sum() + c.square().sum()
        actual.append((outputs, h, c, *torch.autograd.grad(loss, [inputs, *lstm.parameters()])))
    assert_near(actual[1], actual[0], 1e-4)
    assert (actual[1][0][1, 1:] == 0).all()


def test_score_masks_are_made_on_the_device():
    slots = torch.zeros(2, 3, 4, device="cuda")
    actual = make_score_mask(torch.tensor([1, 3], device="cuda"), slots)
    assert (actual == 0).sum(dim=-1).flatten().tolist() == [1, 3]


def step_of(kind, model, rows, **settings):
    optimizer = make_adam(model.parameters(), 1e-3, 1e-5, torch.device("cuda"))
    recipe = load_recipe("multi30k/nse-nse")

    def loss(index, shape):
        batch = rows.select(index, shape)
        return translation.compute_loss(recipe, model(*batch.inputs), batch)

    return kind(optimizer, loss, 1.0, **settings)


def plan(steps):
    """Batches and their shapes, the shapes taking turns."""
    generator = torch.Generator().manual_seed(3)
    return [(torch.randperm(ROWS, generator=generator)[:16], SHAPES[i % len(SHAPES)]) for i in range(steps)]


@EVERY
@DIRECTIONS
def test_a_replayed_training_step_equals_an_eager_one(name, directions):
    (eager, captured), rows = twins(name, directions), pairs("cuda")
    steps = [step_of(TrainStep, eager.cuda(), rows), step_of(CapturedStep, captured.cuda(), rows)]
    results = [[step(*batch) for batch in plan(12)] for step in steps]
    assert len(steps[1].graphs) == len(SHAPES)
    losses, norms = ([[result[i] for result in actual] for actual in results] for i in (0, 2))
    assert_close(*losses, 1e-4)
    assert_close(*norms, 1e-3)
    assert_close(steps[0].parameters, steps[1].parameters, 1e-3)
    assert losses[0][0] != losses[0][-1]


@EVERY
def test_each_replay_draws_new_dropout_without_waiting(name):
    model, rows = (
        translator(name, dropout=0.3, output_dropout=0.3, embedding_dropout=0.1).cuda(),
        pairs("cuda"),
    )
    step = step_of(CapturedStep, model, rows)
    for batch in plan(6):
        step(*batch)
    assert len(step.graphs) == len(SHAPES)
    assert step.needs_shapes  # nothing had to go on without a graph
    with forbid_synchronization():
        results = [step(*plan(1)[0]) for _ in range(4)]
    losses = [result[0].item() for result in results]
    assert len(set(losses)) == 4
    assert all(p.isfinite().all() for p in model.parameters())
