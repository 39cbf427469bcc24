"""Fault 16: second derivatives through a backend whose backward pass has none."""

import copy
import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import nse
from nse.nn.decoder import NSEDecoder
from nse.ops import double_backward, torch_loop
from nse.ops.deferred import make_deferred_linear, make_linear
from oracle.problems import assert_close, list_tensors, make_problem

LENGTHS = [4, 0, 2]


def words(dtype=torch.float64, T=4):
    return torch.randn(3, T, 3, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()


def encoders(dtype=torch.float64, backend="auto", **settings):
    """The same encoder on a backend and on the reference."""
    fast = nse.NSE(3, dtype=dtype, backend=backend, init_range=0.7, **settings)
    slow = copy.deepcopy(fast)
    slow.backend = "reference"
    return fast, slow


def assert_same(compute, fast, slow, tolerance=1e-10):
    """What is computed with both encoders, from the same random numbers, and that it is not all zero."""
    actual, expected = [], []
    for encoder, results in ((fast, actual), (slow, expected)):
        torch.manual_seed(2)
        results += list_tensors(compute(encoder))
    assert any(item.any() for item in expected)
    assert_close(actual, expected, tolerance)


SETTINGS = {
    "lengths": ({}, {"lengths": LENGTHS}),
    "no lengths": ({}, {}),
    "2 layers": ({"layers": 2}, {"lengths": LENGTHS}),
    "dropout": ({"dropout": 0.4}, {"lengths": LENGTHS}),
    "dropout, 3 layers, no lengths": ({"dropout": 0.4, "layers": 3}, {}),
    "blanks and starts": ({"blanks": 2, "starts": 1}, {"lengths": LENGTHS}),
    "padding of the paper": ({"padding": "paper"}, {"lengths": LENGTHS}),
    "shared memory": ({"shared": 1}, {"lengths": LENGTHS}),
    "2 shared memories": ({"shared": 2, "layers": 2}, {}),
    "more steps than sizes": ({}, {"lengths": [40, 3, 0]}),  # compose is folded
}
CRITICS = {
    "sum": lambda out: out.last.sum(),
    "linear": lambda out: (out.last @ torch.arange(1, 4).to(out.last)).sum(),
    "outputs": lambda out: out.outputs.sum(),
    "keys and memories": lambda out: sum(
        (item * torch.arange(item.numel()).view_as(item)).sum()
        for item in (out.keys, *out.shared_keys, out.memory.slots, *(m.slots for m in out.shared))
    ),
    "states": lambda out: sum(item.sum() for item in list_tensors(out.state[:2])),
}


def penalty(critic, arguments, dtype, T):
    """What a gradient penalty's own gradients are, of words, shared memories and weights."""

    def compute(encoder):
        x = words(dtype, T)
        others = [words(dtype, L) for L in (2, 3)[: encoder.shared]]
        out = encoder(x, **arguments, shared=others, trace=True)
        gradients = torch.autograd.grad(critic(out), [x, *others], create_graph=True)
        of = [x, *others, *encoder.parameters()]
        loss = sum((gradient.norm() - 1).square() for gradient in gradients)
        actual = torch.autograd.grad(loss, of, allow_unused=True)
        return [torch.zeros_like(t) if g is None else g for g, t in zip(actual, of, strict=True)]

    return compute


@pytest.mark.parametrize("critic", CRITICS.values(), ids=CRITICS.keys())
@pytest.mark.parametrize(("settings", "arguments"), SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_gradient_penalty_trains_with_the_right_gradients(dtype, settings, arguments, critic):
    T = max(arguments.get("lengths", [4]))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    assert_same(penalty(critic, arguments, dtype, T), *encoders(dtype, **settings), tolerance)


def forward_mode(f, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x))).tangent


TWICE = {
    "hessian": lambda f, x: hessian(f, x),
    "hessian, vectorized": lambda f, x: hessian(f, x, vectorize=True),
    "hessian, forward over reverse": lambda f, x: hessian(
        f, x, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "Hessian-vector product": lambda f, x: hvp(f, x, x)[1],
    "vector-Hessian product": lambda f, x: vhp(f, x, x)[1],
    "jvp by two backward passes": lambda f, x: jvp(f, x, x)[1],
    "forward mode": forward_mode,
    "torch.func.hessian": lambda f, x: torch.func.hessian(f)(x),
    "torch.func.jvp": lambda f, x: torch.func.jvp(f, (x,), (x,))[1],
    "torch.func.grad of grad": lambda f, x: torch.func.grad(lambda y: torch.func.grad(f)(y).pow(3).sum())(x),
}


@pytest.mark.parametrize("twice", TWICE.values(), ids=TWICE.keys())
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # forward mode's
def test_every_way_to_second_derivatives_in_pytorch_is_right(twice):
    def compute(encoder):
        lengths = torch.tensor(LENGTHS)
        return twice(lambda x: (encoder(x, lengths).last ** 3).sum(), words().detach())

    assert_same(compute, *encoders())


@pytest.mark.parametrize("extra", [{}, {"shared": (2,), "layers": 2}, {"dropout": 0.4}, {"T": 5, "k": 1}])
def test_second_derivatives_pass_gradgradcheck(extra):
    p = make_problem(**{"B": 2, "T": 2, "k": 2, **extra})
    arguments = double_backward.Arguments(*(getattr(p, f) for f in p.__dataclass_fields__), True)

    def run(*_):
        return tuple(
            list_tensors(double_backward.add_double_backward(torch_loop.recurrence(*arguments), arguments))
        )

    assert torch.autograd.gradgradcheck(run, p.leaves(), fast_mode=True)


def test_third_derivatives_are_right():
    def compute(encoder):
        x = words()
        (first,) = torch.autograd.grad(encoder(x, LENGTHS).last.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return torch.autograd.grad(second.square().sum(), [x, *encoder.parameters()])

    assert_same(compute, *encoders())


def test_second_derivatives_through_consecutive_calls_are_right():
    """Arguments that are made of one another: words, a memory made of them, states made of both."""

    def compute(encoder):
        x = words()
        out = encoder(x, LENGTHS, memory=torch.tanh(x[:, :2]))
        out = encoder(x * 2, LENGTHS, memory=out.memory, state=out.state)
        out = encoder.step(x[:, 0], out.state)
        (gradient,) = torch.autograd.grad(out.last.sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, *encoder.parameters()])

    assert_same(compute, *encoders())


def test_second_derivatives_with_autocast_and_checkpointing_are_right():
    def compute(encoder):
        x = words(torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            last = checkpoint(lambda x: encoder(x, LENGTHS).last, x, use_reentrant=False)
        (gradient,) = torch.autograd.grad(last.sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, *encoder.parameters()])

    # The reference in bfloat16 is not near enough to itself: it is compared without.
    fast, slow = encoders(torch.float32)
    actual = compute(fast)
    x = words(torch.float32)
    (gradient,) = torch.autograd.grad(slow(x, LENGTHS).last.sum(), x, create_graph=True)
    expected = torch.autograd.grad(gradient.square().sum(), [x, *slow.parameters()])
    assert_close(actual, expected, 1e-5)


def backward(encoder, f, x):
    f(x).sum().backward()
    return [x.grad, *(p.grad for p in encoder.parameters())]


def backward_twice(encoder, f, x):
    last = f(x).sum()
    last.backward(retain_graph=True)
    last.backward()
    return [x.grad, *(p.grad for p in encoder.parameters())]


def in_anomaly_mode(encoder, f, x):
    with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
        return backward(encoder, f, x)


def by_a_functional_call(encoder, _, x):
    parameters = {name: p.detach().clone().requires_grad_() for name, p in encoder.named_parameters()}
    last = functional_call(encoder, parameters, (x, LENGTHS)).last
    return torch.autograd.grad(last.sum(), [x, *parameters.values()])


def changed_in_place(encoder, _, x):
    out = encoder(x, LENGTHS)
    out.outputs.mul_(2)
    out.memory.slots[:, 0] = 1
    (out.outputs.sum() + out.memory.slots.sum()).backward()
    return [x.grad, *(p.grad for p in encoder.parameters())]


ONCE = {
    "backward": backward,
    "backward twice": backward_twice,
    "anomaly mode": in_anomaly_mode,
    "checkpoint, reentrant": lambda encoder, f, x: backward(
        encoder, lambda x: checkpoint(f, x, use_reentrant=True), x
    ),
    "checkpoint": lambda encoder, f, x: backward(encoder, lambda x: checkpoint(f, x, use_reentrant=False), x),
    "functional call": by_a_functional_call,
    "jacobian": lambda encoder, f, x: jacobian(f, x),
    "vjp": lambda encoder, f, x: vjp(lambda x: f(x).sum(), x)[1],
    "results changed in place": changed_in_place,
}


def test_a_vectorized_jacobian_is_right():
    assert_same(lambda e: jacobian(lambda x: e(x, LENGTHS).last, words(), vectorize=True), *encoders())


@pytest.mark.parametrize("compute", ONCE.values(), ids=ONCE.keys())
def test_first_derivatives_do_not_use_the_reference(compute, monkeypatch):
    fast, slow = encoders()
    expected = compute(slow, lambda x: slow(x, LENGTHS).last, words())
    monkeypatch.setattr(double_backward.reference, "recurrence", None)
    assert_close(compute(fast, lambda x: fast(x, LENGTHS).last, words()), expected, 1e-10)


def test_data_parallel_training_works_with_double_backward(tmp_path, monkeypatch):
    fast, slow = encoders()
    expected = backward(slow, lambda x: slow(x, LENGTHS).last, words())
    monkeypatch.setattr(double_backward.reference, "recurrence", None)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(fast)
        assert_close(backward(fast, lambda x: parallel(x, LENGTHS).last, words()), expected, 1e-10)
    finally:
        torch.distributed.destroy_process_group()


def test_a_backend_called_directly_refuses_second_derivatives():
    p = make_problem()
    loss = p.run(torch_loop.recurrence).outputs.sum()
    with pytest.raises(nse.BackendError, match=r'^create_graph=True: .*backend="reference"'):
        torch.autograd.grad(loss, p.x, create_graph=True)
    assert torch.autograd.grad(loss, p.x)[0].any()  # once is fine


@pytest.mark.slow  # the compiler takes its time
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_a_compiled_encoder_refuses_second_derivatives():
    fast, _ = encoders()
    compiled, x = torch.compile(fast, backend="aot_eager"), words()
    loss = compiled(x, torch.tensor(LENGTHS)).last.sum()
    with pytest.raises(nse.BackendError, match=r'^create_graph=True: .*backend="reference".* compile'):
        torch.autograd.grad(loss, x, create_graph=True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
def test_a_deferred_linear_map_has_the_same_gradients(shape, bias):
    sizes = [shape, (3, 3), (3,)] if bias else [shape, (3, 3)]
    given = [torch.randn(*size, dtype=torch.float64).requires_grad_() for size in sizes]

    def loop(x, weight, bias=None):
        linear = make_deferred_linear(weight, bias)
        return torch.tanh(linear(torch.tanh(linear(x))))

    assert torch.autograd.gradgradcheck(loop, given)


def test_a_gradient_without_weights_does_not_change_the_next_one():
    weight, x = words().detach()[0, :3].requires_grad_(), words()
    actual = []
    for use in (make_linear, make_deferred_linear):
        linear = use(weight)
        loss = torch.tanh(linear(torch.tanh(linear(x)))).sum()
        torch.autograd.grad(loss, x, retain_graph=True)
        actual += torch.autograd.grad(loss, weight)
    assert_close(*actual, 1e-12)


def test_second_derivatives_of_the_decoder_are_right(monkeypatch):
    decoder = NSEDecoder(4, 0.0).double()
    slots, given = (torch.randn(2, n, 4, dtype=torch.float64).requires_grad_() for n in (3, 5))
    lengths, actual = torch.tensor([3, 1]), []
    for use in (make_deferred_linear, make_linear):
        monkeypatch.setattr("nse.nn.decoder.make_deferred_linear", use)
        start, memories = (slots[:, 0], slots[:, 1]), (nse.Memory(slots, lengths),)
        begun = decoder.begin(slots, start, (slots[:, 2], slots[:, 2]), lengths, memories)
        outputs = decoder.teacher_force(given, *begun)
        (gradient,) = torch.autograd.grad(outputs.sum(), given, create_graph=True)
        of = [given, slots, *decoder.parameters()]
        actual.append(torch.autograd.grad(gradient.square().sum(), of, allow_unused=True))
    assert actual[0][0].any()
    assert [g is None for g in actual[0]] == [g is None for g in actual[1]]
    assert_close(*([g for g in item if g is not None] for item in actual), 1e-10)
