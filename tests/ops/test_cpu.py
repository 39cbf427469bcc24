"""The CPU kernel computes the reference's function, with gradients, at odd shapes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nse.ops import dispatch, reference
from nse.ops.cpu.library import explain_no_kernel, list_isas
from nse.ops.types import Memory
from oracle.problems import EXTRAS, assert_close, assert_near, list_tensors, make_problem

pytestmark = pytest.mark.skipif(explain_no_kernel() is not None, reason="there is no CPU kernel")

SHAPES = [  # B, T, k
    (1, 1, 1),
    (1, 7, 33),
    (7, 1, 5),
    (33, 7, 1),  # more sequences than fit one group
    (2, 63, 3),
    (5, 10, 63),
    (16, 12, 64),
    (3, 5, 300),
]
CASES = {**EXTRAS, "3 layers": {"layers": 3}, "empty start and shared": {"slots": 0, "shared": (3, 0)}}
LONG = {  # memories of several chunks of 64 slots, and many pieces of 8 steps
    "64 steps": {"T": 64, "k": 5, "lengths": [64, 63, 0]},
    "65 steps": {"T": 65, "k": 5, "lengths": [65, 64, 1], "shared": (2,)},
    "130 steps": {"T": 130, "k": 3, "lengths": [130, 67, 129]},
    "130 steps, 2 layers, dropout": {"T": 130, "k": 3, "layers": 2, "dropout": 0.2, "slots": 9},
    "slots of 2 chunks": {"T": 6, "k": 17, "slots": 65},
    "slots of 3 chunks, shared of 2": {"T": 6, "k": 17, "slots": 129, "shared": (64, 90)},
    "slots of 4 chunks, 70 steps": {"T": 70, "k": 5, "slots": 200, "lengths": None},
}
ISAS = list_isas()
KEYS = {True: "with keys", False: "without keys"}


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    """Each instruction set that this machine can run."""
    monkeypatch.setenv("NSE_CPU_ISA", request.param)
    return request.param


def cpu(*arguments, **options):
    """Run the kernel, as a backend."""
    return dispatch.BACKENDS["cpu"](*arguments, **options)


def make_pair(B=3, T=5, k=4, **extra):
    """Make a problem with numbers scaled for k, and the same in float64."""
    p = make_problem(B, T, k, **{"scale": min(0.5, 1.5 / k**0.5), "seed": B + T + k, **extra})
    p = p.to(dtype=torch.float32)  # from now on x and its memory are two tensors
    return p, p.to(dtype=torch.float64)


def check(p, exact):
    """Compare outputs and gradients with the reference; also the outputs for answers."""
    expected, gradients = exact.outputs_and_gradients(reference.recurrence)
    result, got = p.outputs_and_gradients(cpu)
    with torch.no_grad():
        answers = p.run(cpu)
    for actual in (result, answers):
        assert {tensor.dtype for tensor in list_tensors(actual)} == {torch.float32}
        assert_close(actual, expected, 1e-5)
    assert all(gradient.isfinite().all() for gradient in got)
    assert_near(got, gradients, 1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("extra", CASES.values(), ids=CASES.keys())
def test_the_kernel_equals_the_reference(shape, extra):
    check(*make_pair(*shape, **extra))


@pytest.mark.parametrize("extra", CASES.values(), ids=CASES.keys())
def test_each_instruction_set_equals_the_reference(extra, isa):
    check(*make_pair(5, 7, 37, **extra))


@pytest.mark.parametrize("extra", LONG.values(), ids=LONG.keys())
def test_long_sequences_and_memories_equal_the_reference(extra, isa):
    check(*make_pair(**extra))


SIZES = {
    "B": st.integers(1, 9),
    "T": st.integers(1, 12),
    "k": st.integers(1, 40),
    "shared": st.lists(st.integers(0, 20), max_size=3),
    "layers": st.integers(1, 4),
    "slots": st.none() | st.integers(0, 20),
    "lengths": st.sampled_from(["random", None]),
    "dropout": st.sampled_from([0.0, 0.4]),
    "seed": st.integers(0, 2**20),
    "isa": st.sampled_from(ISAS or [""]),
}
MORE = {
    "T": st.integers(1, 12) | st.integers(60, 70) | st.integers(100, 200),
    "k": st.integers(1, 40) | st.integers(60, 70) | st.sampled_from([128, 300]),
    "slots": st.none() | st.integers(0, 20) | st.integers(60, 70) | st.integers(120, 260),
    "shared": st.lists(st.integers(0, 20) | st.integers(60, 70) | st.integers(120, 140), max_size=4),
    "threads": st.sampled_from([1, 2, 3, 8]),
}


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_the_kernel_equals_the_reference_on_random_sizes(isa, **sizes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSE_CPU_ISA", isa)
        check(*make_pair(**sizes))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**{**SIZES, **MORE})
def test_the_kernel_equals_the_reference_on_many_random_sizes(isa, threads, **sizes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSE_CPU_ISA", isa)
        torch.set_num_threads(threads)
        try:
            check(*make_pair(**sizes))
        finally:
            torch.set_num_threads(1)


@pytest.mark.parametrize("keys", KEYS, ids=KEYS.values())
@pytest.mark.parametrize("results", ["outputs", "memories", "read", "write", "outputs and write"])
def test_gradients_flow_back_from_any_result(results, keys):
    p, exact = make_pair(3, 9, 7, shared=(4,), slots=5, layers=2)
    both = []
    for problem, backend in ((p, cpu), (exact, reference.recurrence)):
        result = problem.run(backend, keys=keys)
        assert bool(result.keys) == keys
        used = list_tensors([getattr(result, name) for name in results.split(" and ")])
        used += result.keys
        loss = sum((t.double() * torch.linspace(-1, 1, t.numel()).double().view(t.shape)).sum() for t in used)
        leaves = problem.leaves()
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        both.append([torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)])
    assert_near(*both, 1e-5)


def test_the_gradient_of_words_that_are_their_own_memory_is_the_sum_of_both():
    exact = make_problem(3, 9, 7)
    p = exact.to(dtype=torch.float32)
    p.memories = (Memory(p.x, p.lengths),)
    exact.x = p.x.detach().double().requires_grad_()
    exact.memories = (Memory(exact.x, exact.lengths),)
    gradients = p.gradients(cpu)[0], exact.gradients(reference.recurrence)[0]
    assert_near(*gradients, 1e-4)  # weights were rounded to float32
    assert gradients[0].any()


def test_no_states_are_zero_states():
    p, _ = make_pair(3, 9, 7, shared=(4,))
    zeros = tuple(torch.zeros(1, 3, 7) for _ in range(2))
    results = []
    for state in (None, zeros):
        p.read = p.write = state
        results.append([*list_tensors(p.run(cpu)), *p.gradients(cpu)])
    assert_close(*results, 0)


@pytest.mark.parametrize("needed", ["x", "memories", "read", "write", "weights"])
def test_only_some_arguments_need_gradients(needed):
    p, _ = make_pair(3, 9, 7, shared=(4,), layers=2)
    named = {name: list_tensors(getattr(p, name)) for name in ("x", "memories", "read", "write", "weights")}
    everything = dict(zip(map(id, p.leaves()), p.gradients(cpu), strict=True))
    for name, tensors in named.items():
        for tensor in tensors:
            tensor.requires_grad_(name == needed and tensor.is_floating_point())
    tensors = p.leaves()
    assert tensors
    assert_close(p.gradients(cpu), [everything[id(tensor)] for tensor in tensors], 0)


def test_a_single_weight_may_need_a_gradient():
    p, _ = make_pair(3, 9, 7)
    everything = dict(zip(map(id, p.leaves()), p.gradients(cpu), strict=True))
    leaves = p.leaves()
    for tensor in leaves:
        for other in leaves:
            other.requires_grad_(other is tensor)
        assert_close(p.gradients(cpu), [everything[id(tensor)]], 0)


def test_arguments_in_any_layout_of_memory_give_the_same_bits():
    p, _ = make_pair(4, 9, 7, shared=(5,), layers=2, dropout=0.3)
    expected = [*list_tensors(p.run(cpu)), *p.gradients(cpu)]

    def lay_out(tensor):
        reversed_axes = tensor.detach().permute(*reversed(range(tensor.dim()))).contiguous()
        return reversed_axes.permute(*reversed(range(tensor.dim()))).requires_grad_(tensor.requires_grad)

    other = p.to()
    for name in ("x", "memories", "read", "write", "weights", "c_mask"):
        setattr(other, name, map_tensors(getattr(other, name), lay_out))
    assert not other.x.is_contiguous()
    assert_close([*list_tensors(other.run(cpu)), *other.gradients(cpu)], expected, 0)


def map_tensors(tree, change):
    """Change all floating-point tensors of a tree."""
    if isinstance(tree, torch.Tensor):
        return change(tree) if tree.is_floating_point() else tree
    if isinstance(tree, tuple):
        parts = [map_tensors(part, change) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree


def test_lengths_may_be_of_any_integer_type():
    p, _ = make_pair(4, 9, 7, shared=(5,))
    expected = p.run(cpu)
    for dtype in (torch.int32, torch.int16, torch.uint8):
        p.lengths = p.lengths.to(dtype)
        p.memories = tuple(Memory(m.slots, m.lengths.to(dtype)) for m in p.memories)
        assert_close(p.run(cpu), expected, 0)


def test_a_graph_can_be_differentiated_twice():
    p, _ = make_pair(3, 9, 7)
    loss = p.run(cpu).outputs.sum()
    first = torch.autograd.grad(loss, p.leaves(), retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(loss, p.leaves(), allow_unused=True)
    assert any(gradient is not None for gradient in first)
    assert_close([g for g in first if g is not None], [g for g in again if g is not None], 0)


def run_through_dispatch(*arguments):
    """Run the kernel as an encoder does."""
    return dispatch.recurrence(*arguments, backend="cpu")


def test_second_derivatives_are_the_reference_s():
    p, exact = make_pair(2, 5, 3, shared=(2,))
    both = []
    for problem, backend in ((p, run_through_dispatch), (exact, reference.recurrence)):
        loss = problem.run(backend).outputs.square().sum()
        (slope,) = torch.autograd.grad(loss, problem.x, create_graph=True)
        both.append(torch.autograd.grad(slope.square().sum(), [problem.x, problem.weights.compose]))
    assert both[0][1].any()
    assert_near(*both, 1e-4)


def test_arguments_are_not_changed():
    p, _ = make_pair(3, 9, 7, shared=(2,), layers=2, dropout=0.5)
    tensors = [*p.leaves(), p.lengths, p.c_mask]
    before, versions = [tensor.clone() for tensor in tensors], [tensor._version for tensor in tensors]
    p.gradients(cpu)
    with torch.no_grad():
        p.run(cpu)
    assert_close(tensors, before, 0)
    assert [tensor._version for tensor in tensors] == versions


def test_the_memory_is_not_kept_for_every_step():
    k, kept = 16, {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    for T in (64, 512):
        p, _ = make_pair(1, T, k, lengths=None)
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            p.run(cpu)
        assert sum(kept.values()) < T * (T + 30 * k) + 2 * T**0.5 * T * k
