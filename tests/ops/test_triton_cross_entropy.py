"""The fused cross-entropy equals PyTorch's, interpreted and on a GPU."""

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import cross_entropy as triton_cross_entropy
    from nse.ops.triton.cross_entropy import cross_entropy, is_supported


def make_batch(B, labels, device):
    g = torch.Generator().manual_seed(B + labels)
    scores = 5 * torch.randn(B, labels, generator=g)
    return scores.to(device).requires_grad_(), torch.randint(0, labels, (B,), generator=g).to(device)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize(("B", "labels"), [(1, 2), (5, 3), (64, 5), (65, 2), (200, 17)])
def test_loss_gradient_and_correct_predictions_equal_pytorch(B, labels, smoothing, device):
    scores, labels = make_batch(B, labels, device)
    loss, correct, _ = cross_entropy(scores, labels, smoothing)
    (3 * loss).backward()
    gradient, scores.grad = scores.grad, None
    expected = F.cross_entropy(scores, labels, label_smoothing=smoothing)
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, scores.grad)
    assert correct.item() == (scores.argmax(dim=-1) == labels).sum().item()
    assert not correct.requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_second_derivatives_equal_pytorch(smoothing, device):
    scores, labels = make_batch(5, 3, device)
    gradients = []
    for loss in (
        cross_entropy(scores, labels, smoothing)[0],
        F.cross_entropy(scores, labels, label_smoothing=smoothing),
    ):
        (gradient,) = torch.autograd.grad(loss.square(), scores, create_graph=True)
        gradients.append(torch.autograd.grad(gradient.pow(3).sum(), scores)[0])
    assert gradients[1].any()
    torch.testing.assert_close(*gradients)


def test_large_scores_do_not_overflow(device):
    scores = torch.tensor([[1e4, -1e4], [-1e38, 1e38]], device=device)
    loss, correct, _ = cross_entropy(scores, torch.tensor([0, 1], device=device), 0.0)
    assert (loss.item(), correct.item()) == (0, 2)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, in the interpreter
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_loss_is_nan_where_a_score_is_not_finite(bad, device):
    scores, labels = make_batch(3, 4, device)
    with torch.no_grad():
        scores[1, 2] = bad
    assert cross_entropy(scores, labels, 0.0)[0].isnan()


def test_scores_need_not_be_contiguous(device):
    scores, labels = make_batch(6, 8, device)
    loss, correct, _ = cross_entropy(scores[:, ::2], labels // 2, 0.0)
    torch.testing.assert_close(loss, F.cross_entropy(scores[:, ::2], labels // 2))
    assert correct.item() == (scores[:, ::2].argmax(dim=-1) == labels // 2).sum().item()


def test_half_precision_empty_and_large_scores_are_not_supported(device):
    scores, labels = make_batch(6, 3, device)
    assert is_supported(scores, labels)
    assert not is_supported(scores.half(), labels)
    assert not is_supported(scores[:0], labels[:0])
    assert not is_supported(torch.zeros(triton_cross_entropy.MAX_SCORES // 2 + 1, 2, device=device), labels)


def test_the_operator_passes_opcheck(device):
    scores, labels = make_batch(6, 3, device)
    torch.library.opcheck(cross_entropy, (scores, labels, 0.1))
