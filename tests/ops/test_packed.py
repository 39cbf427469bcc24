"""Packed weights give the products that plain ones give."""

import pytest
import torch

from nse.ops import packed_weights as packed
from nse.ops.packed_weights import PackedLinear


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 3, 64, 130])
def test_packed_weights_give_the_same_products(rows, dtype):
    W, b = torch.randn(48, 32, dtype=dtype, requires_grad=True), torch.randn(48, dtype=dtype)
    wide = torch.randn(rows, 96, dtype=dtype)
    x, plus = wide[:, 32:64], torch.randn(rows, 48, dtype=dtype)  # rows that lie apart, as those of a state
    before = plus.clone()
    with torch.inference_mode():
        actual = [PackedLinear(W, b)(x), PackedLinear(W)(x), PackedLinear(W)(x, plus=plus)]
        expected = [x @ W.t() + b, x @ W.t(), x @ W.t() + plus]
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
    assert torch.equal(plus, before)


def test_products_are_the_same_if_pytorch_cannot_pack(monkeypatch):
    W, b, x, plus = torch.randn(8, 4), torch.randn(8), torch.randn(5, 4), torch.randn(5, 8)
    monkeypatch.setattr(packed, "can_pack", lambda weight: False)
    plain = PackedLinear(W, b)
    assert not plain.is_packed
    torch.testing.assert_close(plain(x), x @ W.t() + b)
    torch.testing.assert_close(PackedLinear(W)(x, plus=plus), x @ W.t() + plus)


def test_only_float32_weights_on_a_cpu_are_packed():
    assert not packed.can_pack(torch.zeros(2, 2, dtype=torch.float64))
    assert not packed.can_pack(torch.zeros(2, 2, device="meta"))
    assert packed.can_pack(torch.zeros(2, 2)) == torch.backends.mkldnn.is_available()
