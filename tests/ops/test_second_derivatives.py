"""What the Triton kernels have no second derivative of is right or refused: interpreted, and on a GPU."""

import copy

import pytest
import torch

import nse
from oracle.problems import assert_near, make_problem

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import recurrence as triton_recurrence

# The interpreter computes with numpy what a mask throws away afterwards.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")


def encoders(device, **settings):
    """Make an encoder for the kernels and its copy for the reference in float64."""
    fast = nse.NSE(3, backend="triton", init_range=0.7, device=device, **settings)
    slow = copy.deepcopy(fast).double()
    slow.backend = "reference"
    return fast, slow


@pytest.mark.parametrize("settings", [{}, {"layers": 2, "shared": 1}], ids=["1 layer", "2 layers, shared"])
@pytest.mark.parametrize("lengths", [[3, 0], None], ids=["lengths", "no lengths"])
def test_gradients_of_a_gradient_penalty_equal_the_reference(settings, lengths, device):
    actual = []
    for encoder in encoders(device, **settings):
        x, other = (
            torch.randn(2, n, 3, generator=torch.Generator().manual_seed(n))
            .to(encoder.compose.weight)
            .requires_grad_()
            for n in (3, 2)
        )
        out = encoder(x, lengths, shared=[other] * encoder.shared)
        (gradient,) = torch.autograd.grad(out.last.sum() + out.outputs.sum(), x, create_graph=True)
        actual.append(torch.autograd.grad((gradient.norm() - 1).square(), [x, *encoder.parameters()]))
    assert actual[1][0].any()
    assert_near(*actual, 1e-4)


def test_kernels_called_directly_refuse_second_derivatives(device):
    p = make_problem(2, 2, 3, dtype=torch.float32).to(device)
    loss = p.run(triton_recurrence.recurrence).outputs.sum()
    with pytest.raises(nse.BackendError, match=r'^create_graph=True: .*backend="reference"'):
        torch.autograd.grad(loss, p.x, create_graph=True)
    assert torch.autograd.grad(loss, p.x)[0].any()


@pytest.mark.parametrize("layers", [1, 2])
def test_batches_without_steps_have_second_derivatives(layers, device):
    fast, _ = encoders(device, layers=layers)
    out = fast(torch.randn(2, 3, 3, device=device), [0, 0])
    (out.last.sum() + out.outputs.sum()).backward()
    assert all(p.grad is not None and not p.grad.any() for p in fast.parameters())
