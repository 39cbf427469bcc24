"""The fused update equals PyTorch's clipping, Adam and moving average, interpreted and on a GPU."""

import math

import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam
from torch.optim.swa_utils import get_ema_multi_avg_fn

from nse.train.optimizer import WeightEMA, make_adam, set_lr
from nse.train.train_step import TrainStep
from oracle.problems import assert_close

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import adam as triton_adam

pytestmark = [
    pytest.mark.usefixtures("interpreted_or_on_gpu"),
    # The interpreter computes with numpy what a mask throws away afterwards.
    pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning"),
]

SIZES = (1, 5, 2048, 2049, 10000)
LR, ROUNDING = 1e-2, 2e-6


class Twins:
    """Two copies of the same weights, moments and averages: for the kernels, and for PyTorch."""

    def __init__(self, sizes, l2=0.0, clip=1.0, decay=None, device="cpu"):
        self.l2, self.clip, self.decay = l2, clip, decay
        self.lr = torch.tensor(LR, device=device)
        self.weights = [torch.randn(size, device=device) for size in sizes]
        self.means, self.squares = ([torch.zeros_like(w) for w in self.weights] for _ in range(2))
        self.steps = [torch.zeros((), device=device) for _ in sizes]
        self.averages = None if decay is None else [torch.zeros_like(w) for w in self.weights]
        self.theirs = [torch.nn.Parameter(w.clone()) for w in self.weights]
        self.adam = make_adam(self.theirs, LR, l2, torch.device(device))
        self.their_averages = [torch.zeros_like(w) for w in self.weights]

    def step_kernels(self, gradients):
        """Take a step by the kernels; return the norm."""
        return triton_adam.update(
            self.weights,
            gradients,
            self.means,
            self.squares,
            self.steps,
            self.averages,
            self.lr,
            self.l2,
            self.clip,
            self.decay or 0.0,
        )

    def step_pytorch(self, gradients):
        """Take the same step by PyTorch; return the norm."""
        for parameter, gradient in zip(self.theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        norm = clip_grad_norm_(self.theirs, self.clip)
        self.adam.step()
        if self.decay is not None:
            get_ema_multi_avg_fn(self.decay)(self.their_averages, self.theirs, 0)
        return norm

    def assert_equal(self, tolerance=ROUNDING):
        states = [self.adam.state[p] for p in self.theirs]
        assert_close(self.weights, self.theirs, tolerance)
        for mine, name in ((self.means, "exp_avg"), (self.squares, "exp_avg_sq"), (self.steps, "step")):
            assert_close(mine, [state[name] for state in states], tolerance)
        if self.averages is not None:
            assert_close(self.averages, self.their_averages, tolerance)

    def train(self, steps, scale=1.0):
        """Take steps of both with the same random gradients, and compare."""
        for _ in range(steps):
            gradients = [scale * torch.randn_like(w) for w in self.weights]
            norms = self.step_kernels(gradients), self.step_pytorch(gradients)
            assert_close(*norms, 1e-5)
        self.assert_equal()


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("clip", [1.0, 1e9], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("decay", [None, 0.9, 0.0])
def test_the_update_equals_pytorch(l2, clip, decay):
    Twins(SIZES, l2, clip, decay).train(4)


def test_forty_steps_equal_pytorch():
    Twins((7, 3), 0.1, 1.0, 0.9).train(40)


def test_a_gradient_need_not_be_contiguous_and_is_not_changed():
    twins = Twins((30,))
    gradient = torch.randn(30, 2)[:, 1]
    kept = gradient.clone()
    twins.step_kernels([gradient])
    assert_close(gradient, kept, 0)
    twins.step_pytorch([gradient])
    twins.assert_equal()


def test_more_tensors_than_fit_one_launch_equal_pytorch(monkeypatch):
    monkeypatch.setattr(triton_adam, "MAX_TENSORS", 4)
    Twins((3, 2050, 5, 1, 2, 2048, 9, 4, 2049), 0.1, 1.0, 0.9).train(3)


def test_an_empty_tensor_counts_its_steps():
    twins = Twins((4, 0, 3))
    twins.train(2)
    assert twins.steps[1] == 2


def test_pieces_of_several_blocks_equal_pytorch(monkeypatch):
    monkeypatch.setattr(triton_adam, "BLOCK", 16)
    monkeypatch.setattr(triton_adam, "MAX_SUMS", 4)
    Twins((100, 257, 16, 48, 1), 0.1, 1.0, 0.9).train(2)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_nan_and_infinity_spread_as_in_pytorch(value, where):
    twins = Twins((5, 2100), 0.1, 1.0, 0.9)
    twins.train(1)
    gradients = [torch.randn_like(w) for w in twins.weights]
    gradients[where][-1] = value
    norms = twins.step_kernels(gradients), twins.step_pytorch(gradients)
    assert not norms[0].isfinite()
    got = [norms[0], *twins.weights, *twins.averages]
    for mine, theirs in zip(got, [norms[1], *twins.theirs, *twins.their_averages], strict=True):
        torch.testing.assert_close(mine, theirs.detach(), equal_nan=True, rtol=ROUNDING, atol=ROUNDING)


def test_zero_gradients_and_a_changing_learning_rate_equal_pytorch():
    twins = Twins((5, 20), decay=0.5)
    twins.train(1, scale=0.0)
    for lr in (0.0, 0.3):
        twins.lr.fill_(lr)
        set_lr(twins.adam, lr)
        twins.train(2)


def test_the_bias_correction_is_precise_at_every_step():
    """Computed in float32, 1 - 0.999 would be off by 5 in 100,000."""
    twins = Twins((1,), clip=1e9)
    for n in (1, 2, 5, 100, 499, 501, 5000, 10**6):
        twins.weights[0].zero_()
        twins.means[0].fill_(0.5 * (1 - 0.9 ** (n - 1)))
        twins.squares[0].fill_(0.25 * (1 - 0.999 ** (n - 1)))
        twins.steps[0].fill_(n - 1)
        twins.step_kernels([torch.tensor([0.5])])
        assert twins.weights[0].item() == pytest.approx(-LR, rel=ROUNDING), n


def make_step(model, kernels):
    """Make a step that uses the kernels, even on a CPU, or does not."""
    parameters = list(model.parameters())
    lr = torch.tensor(LR)
    optimizer = Adam(parameters, lr=lr, weight_decay=0.1, fused=True, capturable=True)

    def loss(index, shape):
        outputs = model(torch.arange(6.0).view(2, 3)[index])
        return outputs.square().mean(), torch.tensor(1)

    step = TrainStep(optimizer, loss, 0.5, WeightEMA(parameters, 0.9))
    step.update.use_kernels = kernels
    return step


def test_a_training_step_is_the_same_with_and_without_the_kernels():
    one, other = torch.nn.Linear(3, 5), torch.nn.Linear(3, 5)
    other.load_state_dict(one.state_dict())
    mine, theirs = make_step(one, True), make_step(other, False)
    for i in range(6):
        if i == 2:  # both use the optimizer's state, so they can take turns
            mine.update.use_kernels = False
        if i == 3:
            mine.update.use_kernels = True
        if i == 4:  # as a checkpoint does
            mine.optimizer.load_state_dict(mine.optimizer.state_dict())
        if i == 5:  # a weight without a gradient stays; its average is still updated
            one.bias.requires_grad_(False)
            other.bias.requires_grad_(False)
        index = torch.tensor([i % 2])
        assert_close(mine(index), theirs(index), ROUNDING)
        assert_close(list(one.parameters()), list(other.parameters()), ROUNDING)
        assert_close(mine.ema.values, theirs.ema.values, ROUNDING)
        assert all(p.grad is None for p in one.parameters())
    states = [step.optimizer.state_dict()["state"] for step in (mine, theirs)]
    assert states[0].keys() == states[1].keys()
    for number, state in states[0].items():
        assert state.keys() == states[1][number].keys()
        for name, value in state.items():
            assert (value.shape, value.dtype) == (states[1][number][name].shape, torch.float32)
            assert_close(value, states[1][number][name], ROUNDING)


MODEL = (20000 * 30, 1200 * 300, 1200, 300 * 300, 300, 1024 * 300 + 7, 1024, 3 * 1024, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("l2", [0.0, 3e-5])
@pytest.mark.parametrize("clip", [1.0, 1e9], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("decay", [None, 0.999])
@pytest.mark.parametrize("sizes", [SIZES, MODEL], ids=["odd sizes", "a model"])
def test_the_update_equals_pytorch_on_the_gpu(sizes, l2, clip, decay):
    Twins(sizes, l2, clip, decay, "cuda").train(20)


@pytest.mark.gpu
def test_more_tensors_than_fit_one_launch_equal_pytorch_on_the_gpu():
    sizes = [1 + 700 * (i % 7) for i in range(triton_adam.MAX_TENSORS + 5)]
    Twins(sizes, 0.1, 1.0, 0.9, "cuda").train(3)
    Twins(sizes[: triton_adam.MAX_TENSORS], 0.1, 1.0, 0.9, "cuda").train(3)


@pytest.mark.gpu
def test_fifty_million_weights_equal_pytorch_on_the_gpu():
    Twins((50_000_001, 300), 0.0, 1.0, None, "cuda").train(2)


@pytest.mark.gpu
def test_gradients_need_not_be_aligned_on_the_gpu():
    twins = Twins((4097, 5000), 0.1, 1.0, 0.9, "cuda")
    gradients = [torch.randn(len(w) + 1, device="cuda")[1:] for w in twins.weights]
    twins.step_kernels(gradients)
    twins.step_pytorch(gradients)
    twins.assert_equal()


@pytest.mark.gpu
def test_nan_spreads_on_the_gpu():
    twins = Twins((5, 5000), 0.1, 1.0, 0.9, "cuda")
    twins.train(1)
    gradients = [torch.full_like(w, math.nan) for w in twins.weights]
    assert twins.step_kernels(gradients).isnan()
    assert all(w.isnan().all() for w in [*twins.weights, *twins.averages])


@pytest.mark.gpu
def test_updates_are_deterministic_inside_and_outside_a_cuda_graph():
    drawn = [torch.randn(size, 6, device="cuda") for size in MODEL]
    results = []
    for captured in (False, False, True):
        torch.manual_seed(0)
        twins = Twins(MODEL, 3e-5, 1.0, 0.9, "cuda")
        gradients = [torch.zeros_like(w) for w in twins.weights]
        twins.step_kernels(gradients)  # compiles and loads the kernels, which a capture cannot
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                norm = twins.step_kernels(gradients)
        norms = []
        for i in range(6):
            for gradient, numbers in zip(gradients, drawn, strict=True):
                gradient.copy_(numbers[:, i])
            if captured:
                graph.replay()
            else:
                norm = twins.step_kernels(gradients)
            norms.append(norm.clone())
        results.append([*norms, *twins.weights, *twins.means, *twins.squares, *twins.steps, *twins.averages])
    assert results[0][-len(MODEL) - 1] == 7
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.gpu
def test_the_kernels_are_compiled_once_per_model():
    def count_compiled():
        return [
            sum(len(caches[0]) for caches in kernel.device_caches.values())
            for kernel in (triton_adam.sum_squares, triton_adam.update_pieces)
        ]

    sizes = (77, 4099, 300)
    Twins(sizes, 0.1, 1.0, 0.9, "cuda").train(1)
    before = count_compiled()
    keep = []  # so that gradients are at another address each time
    for i in range(5):
        twins = Twins(sizes, 0.1 * i, 1 + i, 0.9 + 0.01 * i, "cuda")
        keep.append(twins)
        twins.train(2)
    assert count_compiled() == before
