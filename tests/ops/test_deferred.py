"""The gradient of a weight that a loop uses again and again."""

import gc
import weakref

import pytest
import torch
from torch.nn import functional as F

from nse.ops.deferred import make_deferred_linear, make_linear


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def parameters(bias=True):
    weight = numbers(3, 3).requires_grad_()
    return weight, numbers(3).requires_grad_() if bias else None


def looped(use, weight, bias, x, steps=5):
    """Run a loop in which each step depends on the one before."""
    linear = use(weight, bias)
    for t in range(steps):
        x = torch.tanh(linear(x) + t)
    return (x * numbers(*x.shape, seed=1)).sum()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3)])
def test_gradients_equal_those_of_autograd(bias, shape):
    actual = []
    for use in (make_linear, make_deferred_linear):
        weight, b = parameters(bias)
        x = numbers(*shape).requires_grad_()
        given = [x, weight] + ([b] if bias else [])
        loss = looped(use, weight, b, x)
        actual.append([loss, *torch.autograd.grad(loss, given)])
    for plain, deferred in zip(*actual, strict=True):
        torch.testing.assert_close(deferred, plain, rtol=1e-12, atol=1e-12)


def test_a_deferred_linear_map_equals_a_linear_map():
    weight, bias = parameters()
    x = numbers(2, 7, 3)
    torch.testing.assert_close(
        make_deferred_linear(weight, bias)(x), F.linear(x, weight, bias), rtol=0, atol=0
    )


def test_a_map_can_be_used_after_a_backward_pass():
    weight, bias = parameters()
    looped(make_deferred_linear, weight, bias, numbers(4, 3)).backward()
    first = weight.grad.clone()
    looped(make_deferred_linear, weight, bias, numbers(4, 3)).backward()
    torch.testing.assert_close(weight.grad, 2 * first, rtol=1e-12, atol=1e-12)


def test_gradients_of_two_maps_of_one_weight_add_up():
    x = numbers(4, 3)
    actual = []
    for use in (make_linear, make_deferred_linear):
        weight, bias = parameters()
        loss = looped(use, weight, bias, x) * looped(use, weight, bias, 2 * x)
        actual.append(torch.autograd.grad(loss, [weight, bias]))
    for plain, deferred in zip(*actual, strict=True):
        torch.testing.assert_close(deferred, plain, rtol=1e-12, atol=1e-12)


def test_a_slice_of_a_weight_gets_its_gradient():
    whole = numbers(3, 6).requires_grad_()
    looped(make_deferred_linear, whole[:, 3:], None, numbers(4, 3)).backward()
    assert not whole.grad[:, :3].any()
    assert whole.grad[:, 3:].all()


def test_an_unused_map_has_no_gradient():
    weight, bias = parameters()
    linear = make_deferred_linear(weight, bias)
    other = numbers(3).requires_grad_()
    (other * 2).sum().backward()
    assert weight.grad is None
    assert linear(numbers(2, 3)).shape == (2, 3)


def test_without_gradients_a_map_is_a_plain_linear_map():
    weight, bias = parameters()
    with torch.no_grad():
        assert not make_deferred_linear(weight, bias)(numbers(2, 3)).requires_grad
    fixed = numbers(3, 3)
    x = numbers(2, 3).requires_grad_()
    looped(make_deferred_linear, fixed, None, x).backward()
    assert x.grad.all()


@pytest.mark.parametrize("backward", [True, False])
def test_tensors_are_freed_after_a_loop(backward):
    weight, bias = parameters()
    x = numbers(4, 3).requires_grad_()
    alive = [weakref.ref(each) for each in (weight, bias, x)]
    loss = looped(make_deferred_linear, weight, bias, x)
    if backward:
        loss.backward()
    gc.disable()  # cycles would keep a step's memory until somebody looks for them
    try:
        del weight, bias, x, loss
        assert [each() for each in alive] == [None] * 3
    finally:
        gc.enable()
