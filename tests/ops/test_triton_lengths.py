"""Which sequence is the longest, and what stands at each end: interpreted, and on a GPU."""

import itertools

import pytest
import torch

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import length_groups as triton_lengths
    from nse.ops.triton.length_groups import outcome, sort_by_length, zero_padding


@pytest.mark.parametrize("type_", [torch.int64, torch.int32])
@pytest.mark.parametrize("B", [1, 2, 7, 64, 128, 129, 300])
def test_sequences_come_from_the_longest_to_the_shortest(B, type_, device):
    given = torch.randint(0, 9, (B,), generator=torch.Generator().manual_seed(B)).to(device, type_)
    lengths, order = sort_by_length(given)
    assert lengths.dtype == order.dtype == torch.int32
    assert lengths.tolist() == given.tolist()
    assert order.tolist() == given.argsort(descending=True, stable=True).tolist()


def test_lengths_may_be_every_other_number_of_a_tensor(device):
    given = torch.tensor([3, 9, 1, 9, 5, 9], device=device)[::2]
    lengths, order = sort_by_length(given)
    assert (lengths.tolist(), order.tolist()) == ([3, 1, 5], [2, 0, 1])


@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16])
def test_padding_becomes_zero_whatever_was_there(type_, device):
    B, T, k = 4, 3, 5
    x = torch.randn(B, T, k, generator=torch.Generator().manual_seed(1)).to(device, type_)
    lengths = torch.tensor([2, 0, 3, 1], dtype=torch.int32, device=device)
    real = torch.arange(T, device=device) < lengths[:, None]
    expected = x.masked_fill(~real[..., None], 0)
    x[~real] = float("nan")
    x.requires_grad_()
    found = zero_padding(x, lengths)
    assert torch.equal(found, expected)
    (found * expected).sum().backward()
    assert torch.equal(x.grad, expected)


def test_nothing_has_no_padding(device):
    lengths = torch.zeros(2, dtype=torch.int32, device=device)
    assert zero_padding(torch.zeros(2, 0, 3, device=device), lengths).shape == (2, 0, 3)


def test_words_need_not_lie_next_to_each_other(device):
    x = torch.randn(3, 4, 5, device=device).transpose(0, 1)
    lengths = torch.tensor([3, 2, 0, 1], dtype=torch.int32, device=device)
    found = zero_padding(x, lengths)
    assert found.is_contiguous()
    for b, length in enumerate(lengths.tolist()):
        assert torch.equal(found[b, :length], x[b, :length])
        assert not found[b, length:].any()


def states(layers, B, T, k, device):
    """H and C, of all layers from the top down, and lengths from nothing to all."""
    draw = torch.Generator().manual_seed(layers)
    H, C = (torch.randn(layers * B, T + 1, k, generator=draw).to(device).requires_grad_() for _ in range(2))
    lengths = torch.arange(B, device=device, dtype=torch.int32) % (T + 1)
    return H, C, lengths


@pytest.mark.parametrize(("layers", "B", "T", "k"), [(1, 5, 3, 6), (2, 4, 3, 8), (3, 2, 1, 5), (1, 1, 7, 1)])
def test_the_outcome_is_every_output_and_the_states_at_each_length(layers, B, T, k, device):
    H, C, lengths = states(layers, B, T, k, device)
    outputs, *ends = outcome(H, C, lengths)
    assert torch.equal(outputs, H[:B, 1:])
    for found, of in zip(ends, (H, C), strict=True):
        assert found.shape == (layers, B, k)
        for layer in range(layers):
            for b in range(B):
                row = (layers - 1 - layer) * B + b  # of layers from the top down
                assert torch.equal(found[layer, b], of[row, lengths[b]])


USED = [used for used in itertools.product((True, False), repeat=3) if any(used)]


@pytest.mark.parametrize("used", USED, ids=lambda used: " ".join(itertools.compress("ohc", used)))
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_come_back_from_whatever_is_used(layers, used, device):
    B, T, k = 4, 3, 6
    H, C, lengths = states(layers, B, T, k, device)
    draw = torch.Generator().manual_seed(7)
    of_outputs, of_h, of_c = weights = [
        torch.randn(*shape, generator=draw).to(device)
        for shape in ((B, T, k), (layers, B, k), (layers, B, k))
    ]
    found = outcome(H, C, lengths)
    sum((w * f).sum() for w, f, yes in zip(weights, found, used, strict=True) if yes).backward()
    d_H, d_C = torch.zeros_like(H), torch.zeros_like(C)
    if used[0]:
        d_H[:B, 1:] += of_outputs
    for layer in range(layers):
        for b in range(B):
            row = (layers - 1 - layer) * B + b
            d_H[row, lengths[b]] += of_h[layer, b] if used[1] else 0
            d_C[row, lengths[b]] += of_c[layer, b] if used[2] else 0
    for of, expected, yes in ((H, d_H, used[0] or used[1]), (C, d_C, used[2])):
        if yes:
            assert torch.equal(of.grad, expected)
        else:
            assert of.grad is None


def test_the_compiler_is_told_the_truth(device):
    H, C, lengths = states(2, 3, 4, 5, device)
    torch.library.opcheck(triton_lengths.sort_by_length, (lengths.long(),))
    some = torch.tensor([1, 2, 0, 5, 4, 4], device=device)
    torch.library.opcheck(triton_lengths.zero_padding, (H, some))
    torch.library.opcheck(triton_lengths.outcome, (H, C, lengths))
    d_outputs, d_end = torch.randn(3, 4, 5, device=device), torch.randn(2, 3, 5, device=device)
    for given in ((d_outputs, d_end), (d_outputs, None), (None, d_end)):
        torch.library.opcheck(triton_lengths.outcome_backward, (*given, lengths, [6, 5, 5]))
