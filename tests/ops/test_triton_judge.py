"""Loss, gradient and right answers of one kernel equal PyTorch's: interpreted, and on a GPU."""

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import cross_entropy as triton_cross_entropy
    from nse.ops.triton.cross_entropy import covered, judged


def some(B, labels, device):
    g = torch.Generator().manual_seed(B + labels)
    scores = 5 * torch.randn(B, labels, generator=g)
    return scores.to(device).requires_grad_(), torch.randint(0, labels, (B,), generator=g).to(device)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize(("B", "labels"), [(1, 2), (5, 3), (64, 5), (65, 2), (200, 17)])
def test_equals_pytorch(B, labels, smoothing, device):
    scores, wanted = some(B, labels, device)
    loss, right, _ = judged(scores, wanted, smoothing)
    (3 * loss).backward()
    found, scores.grad = scores.grad, None
    expected = F.cross_entropy(scores, wanted, label_smoothing=smoothing)
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, scores.grad)
    assert right.item() == (scores.argmax(dim=-1) == wanted).sum().item()
    assert not right.requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_second_derivatives_equal_pytorchs(smoothing, device):
    scores, wanted = some(5, 3, device)
    found = []
    for loss in (
        judged(scores, wanted, smoothing)[0],
        F.cross_entropy(scores, wanted, label_smoothing=smoothing),
    ):
        (gradient,) = torch.autograd.grad(loss.square(), scores, create_graph=True)
        found.append(torch.autograd.grad(gradient.pow(3).sum(), scores)[0])
    assert found[1].any()
    torch.testing.assert_close(*found)


def test_large_scores_do_not_overflow(device):
    scores = torch.tensor([[1e4, -1e4], [-1e38, 1e38]], device=device)
    loss, right, _ = judged(scores, torch.tensor([0, 1], device=device), 0.0)
    assert (loss.item(), right.item()) == (0, 2)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, in the interpreter
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_shows_in_the_loss(bad, device):
    scores, wanted = some(3, 4, device)
    with torch.no_grad():
        scores[1, 2] = bad
    assert judged(scores, wanted, 0.0)[0].isnan()


def test_scores_need_not_lie_next_to_each_other(device):
    scores, wanted = some(6, 8, device)
    loss, right, _ = judged(scores[:, ::2], wanted // 2, 0.0)
    torch.testing.assert_close(loss, F.cross_entropy(scores[:, ::2], wanted // 2))
    assert right.item() == (scores[:, ::2].argmax(dim=-1) == wanted // 2).sum().item()


def test_what_it_does(device):
    scores, wanted = some(6, 3, device)
    assert covered(scores, wanted)
    assert not covered(scores.half(), wanted)
    assert not covered(scores[:0], wanted[:0])
    assert not covered(torch.zeros(triton_cross_entropy.MOST // 2 + 1, 2, device=device), wanted)


def test_tells_what_it_returns_without_running(device):
    scores, wanted = some(6, 3, device)
    torch.library.opcheck(judged, (scores, wanted, 0.1))
