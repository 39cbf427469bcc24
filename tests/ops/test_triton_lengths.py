"""Sorting by length, zeroing the padding and selecting the final states, interpreted and on a GPU."""

import itertools

import pytest
import torch

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import length_groups
    from nse.ops.triton.length_groups import select_states, sort_by_length, zero_padding


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("B", [1, 2, 7, 64, 128, 129, 300])
def test_sequences_are_sorted_from_longest_to_shortest(B, dtype, device):
    original = torch.randint(0, 9, (B,), generator=torch.Generator().manual_seed(B)).to(device, dtype)
    lengths, order = sort_by_length(original)
    assert lengths.dtype == order.dtype == torch.int32
    assert lengths.tolist() == original.tolist()
    assert order.tolist() == original.argsort(descending=True, stable=True).tolist()


def test_lengths_need_not_be_contiguous(device):
    original = torch.tensor([3, 9, 1, 9, 5, 9], device=device)[::2]
    lengths, order = sort_by_length(original)
    assert (lengths.tolist(), order.tolist()) == ([3, 1, 5], [2, 0, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_becomes_zero_even_if_it_is_nan(dtype, device):
    B, T, k = 4, 3, 5
    x = torch.randn(B, T, k, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    lengths = torch.tensor([2, 0, 3, 1], dtype=torch.int32, device=device)
    mask = torch.arange(T, device=device) < lengths[:, None]
    expected = x.masked_fill(~mask[..., None], 0)
    x[~mask] = float("nan")
    x.requires_grad_()
    zeroed = zero_padding(x, lengths)
    assert torch.equal(zeroed, expected)
    (zeroed * expected).sum().backward()
    assert torch.equal(x.grad, expected)


def test_sequences_without_words_have_no_padding(device):
    lengths = torch.zeros(2, dtype=torch.int32, device=device)
    assert zero_padding(torch.zeros(2, 0, 3, device=device), lengths).shape == (2, 0, 3)


def test_words_need_not_be_contiguous(device):
    x = torch.randn(3, 4, 5, device=device).transpose(0, 1)
    lengths = torch.tensor([3, 2, 0, 1], dtype=torch.int32, device=device)
    zeroed = zero_padding(x, lengths)
    assert zeroed.is_contiguous()
    for b, length in enumerate(lengths.tolist()):
        assert torch.equal(zeroed[b, :length], x[b, :length])
        assert not zeroed[b, length:].any()


def make_states(layers, B, T, k, device):
    """Make H and C of all layers from the top down, and lengths from 0 to T."""
    draw = torch.Generator().manual_seed(layers)
    H, C = (torch.randn(layers * B, T + 1, k, generator=draw).to(device).requires_grad_() for _ in range(2))
    lengths = torch.arange(B, device=device, dtype=torch.int32) % (T + 1)
    return H, C, lengths


@pytest.mark.parametrize(("layers", "B", "T", "k"), [(1, 5, 3, 6), (2, 4, 3, 8), (3, 2, 1, 5), (1, 1, 7, 1)])
def test_outputs_and_final_states_are_selected(layers, B, T, k, device):
    H, C, lengths = make_states(layers, B, T, k, device)
    outputs, *ends = select_states(H, C, lengths)
    assert torch.equal(outputs, H[:B, 1:])
    for end, states in zip(ends, (H, C), strict=True):
        assert end.shape == (layers, B, k)
        for layer in range(layers):
            for b in range(B):
                row = (layers - 1 - layer) * B + b  # of layers from the top down
                assert torch.equal(end[layer, b], states[row, lengths[b]])


USED = [used for used in itertools.product((True, False), repeat=3) if any(used)]


@pytest.mark.parametrize("used", USED, ids=lambda used: " ".join(itertools.compress("ohc", used)))
@pytest.mark.parametrize("layers", [1, 2])
def test_only_the_results_that_are_used_have_gradients(layers, used, device):
    B, T, k = 4, 3, 6
    H, C, lengths = make_states(layers, B, T, k, device)
    draw = torch.Generator().manual_seed(7)
    w_outputs, w_h, w_c = weights = [
        torch.randn(*shape, generator=draw).to(device)
        for shape in ((B, T, k), (layers, B, k), (layers, B, k))
    ]
    results = select_states(H, C, lengths)
    sum((w * r).sum() for w, r, is_used in zip(weights, results, used, strict=True) if is_used).backward()
    d_H, d_C = torch.zeros_like(H), torch.zeros_like(C)
    if used[0]:
        d_H[:B, 1:] += w_outputs
    for layer in range(layers):
        for b in range(B):
            row = (layers - 1 - layer) * B + b
            d_H[row, lengths[b]] += w_h[layer, b] if used[1] else 0
            d_C[row, lengths[b]] += w_c[layer, b] if used[2] else 0
    for states, expected, is_used in ((H, d_H, used[0] or used[1]), (C, d_C, used[2])):
        if is_used:
            assert torch.equal(states.grad, expected)
        else:
            assert states.grad is None


def test_the_operators_pass_opcheck(device):
    H, C, lengths = make_states(2, 3, 4, 5, device)
    torch.library.opcheck(length_groups.sort_by_length, (lengths.long(),))
    row_lengths = torch.tensor([1, 2, 0, 5, 4, 4], device=device)
    torch.library.opcheck(length_groups.zero_padding, (H, row_lengths))
    torch.library.opcheck(length_groups.select_states, (H, C, lengths))
    d_outputs, d_end = torch.randn(3, 4, 5, device=device), torch.randn(2, 3, 5, device=device)
    for gradients in ((d_outputs, d_end), (d_outputs, None), (None, d_end)):
        torch.library.opcheck(length_groups.select_states_backward, (*gradients, lengths, [6, 5, 5]))
