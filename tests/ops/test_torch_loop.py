"""The torch loop computes the reference's function, with gradients, at odd shapes, and keeps little."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nse.ops import reference, torch_loop
from oracle.problems import EXTRAS, assert_close, list_tensors, make_problem

# The weights of a problem are separate tensors; cuDNN says that it has to gather them, and does.
pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")

SHAPES = [  # B, T, k
    (1, 1, 1),
    (1, 7, 33),
    (7, 1, 5),
    (33, 7, 1),
    (2, 63, 3),
    (5, 10, 63),
    (16, 12, 7),
    (3, 0, 4),
    (0, 3, 4),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_torch_equals_the_reference(shape, extra, device):
    B, T, k = shape
    p = make_problem(B, T, k, **extra).to(device)
    assert_close(p.run(torch_loop.recurrence), p.run(reference.recurrence), 1e-10)
    assert_close(p.gradients(torch_loop.recurrence), p.gradients(reference.recurrence), 1e-9)


@settings(max_examples=80, deadline=None)
@given(
    B=st.integers(1, 5),
    T=st.integers(0, 12),
    k=st.integers(1, 6),
    shared=st.lists(st.integers(0, 7), max_size=3),
    layers=st.integers(1, 2),
    slots=st.none() | st.integers(0, 9),
    lengths=st.sampled_from(["random", None]),
    dropout=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 2**20),
)
def test_torch_equals_the_reference_on_random_sizes(**sizes):
    p = make_problem(**sizes)
    assert_close(p.run(torch_loop.recurrence), p.run(reference.recurrence), 1e-10)
    gradients = p.gradients(torch_loop.recurrence)
    assert all(g.isfinite().all() for g in gradients)
    assert_close(gradients, p.gradients(reference.recurrence), 1e-9)


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_equals_the_reference_in_lower_precision(dtype, extra, device, monkeypatch):
    monkeypatch.setattr(
        torch.backends.cudnn, "allow_tf32", False
    )  # as for nn.LSTM, PyTorch's own default is True
    p = make_problem(4, 9, 6, **extra, dtype=dtype).to(device)
    exact = p.to(dtype=torch.float64)
    result = p.run(torch_loop.recurrence)
    tolerance = 2e-5 if dtype == torch.float32 else 0.05
    assert {t.dtype for t in list_tensors(result)} == {dtype}
    assert_close(result, exact.run(reference.recurrence), tolerance)
    pairs = zip(p.gradients(torch_loop.recurrence), exact.gradients(reference.recurrence), strict=True)
    for got, expected in pairs:
        assert got.dtype == dtype
        scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
        assert_close(got / scale, expected / scale, tolerance)


@pytest.mark.parametrize("extra", [{}, {"shared": (2,), "layers": 2}, {"dropout": 0.4}, {"T": 9, "k": 1}])
def test_gradients_of_the_torch_loop_pass_gradcheck(extra):
    p = make_problem(**{"B": 2, "T": 3, "k": 2, **extra})
    assert torch.autograd.gradcheck(lambda *_: tuple(list_tensors(p.run(torch_loop.recurrence))), p.leaves())


def test_outputs_are_the_same_without_gradients():
    p = make_problem(4, 9, 5, shared=(3,))
    with_gradients = p.run(torch_loop.recurrence)
    with torch.no_grad():
        assert_close(p.run(torch_loop.recurrence), with_gradients, 1e-12)
        assert p.run(torch_loop.recurrence, keys=False).keys == ()


def test_gradients_are_the_same_without_keys():
    p = make_problem(4, 9, 5, shared=(3,))
    for seed, leaf in enumerate(p.leaves()):
        gradients = [
            torch.autograd.grad(p.run(backend, keys=False).outputs.sum(), leaf, allow_unused=True)[0]
            for backend in (torch_loop.recurrence, reference.recurrence)
        ]
        if gradients[1] is None or gradients[0] is None:
            assert all(g is None or not g.any() for g in gradients), seed
        else:
            assert_close(*gradients, 1e-10)


def test_results_are_deterministic_to_the_bit(device):
    p = make_problem(6, 20, 8, shared=(5,), dropout=0.2).to(device)
    assert_close(p.run(torch_loop.recurrence), p.run(torch_loop.recurrence), 0)
    assert_close(p.gradients(torch_loop.recurrence), p.gradients(torch_loop.recurrence), 0)


def test_a_graph_can_be_differentiated_twice():
    p = make_problem(3, 9, 4)
    outputs = p.run(torch_loop.recurrence).outputs.sum()
    first = torch.autograd.grad(outputs, p.leaves(), retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(outputs, p.leaves(), allow_unused=True)
    assert_close([g for g in first if g is not None], [g for g in again if g is not None], 0)


def test_arguments_are_not_changed():
    p = make_problem(3, 9, 4, shared=(2,), dropout=0.5)
    before = [leaf.clone() for leaf in p.leaves()]
    p.gradients(torch_loop.recurrence)
    assert_close(p.leaves(), before, 0)


def test_nan_in_the_padding_changes_nothing():
    p = make_problem(3, 5, 4, lengths=[2, 5, 0], shared=(4,))
    clean, gradients = p.run(torch_loop.recurrence), p.gradients(torch_loop.recurrence)
    with torch.no_grad():
        p.x[0, 2:], p.x[2] = float("nan"), float("inf")
        for memory in p.memories:
            for b, size in enumerate(memory.lengths.tolist()):
                memory.slots[b, size:] = float("nan")
    assert_close(p.run(torch_loop.recurrence), clean, 0)
    assert_close(p.gradients(torch_loop.recurrence), gradients, 0)


@pytest.mark.gpu
def test_a_call_with_lengths_can_be_captured_in_a_cuda_graph():
    p = make_problem(3, 9, 16, shared=(4,), dtype=torch.float32).to("cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # as PyTorch wants it: a first call on another stream
        p.to("cuda").gradients(torch_loop.recurrence)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = p.run(torch_loop.recurrence)
        gradient = torch.autograd.grad(result.outputs.sum(), p.weights.write[0].hh)
    p.lengths.copy_(torch.tensor([9, 0, 5]))
    graph.replay()
    again = p.to("cuda")  # the same numbers, in tensors that no graph holds
    expected = again.run(torch_loop.recurrence)
    assert_close(result, expected, 1e-5)
    assert_close(gradient, torch.autograd.grad(expected.outputs.sum(), again.weights.write[0].hh), 1e-4)


def kept_numbers(p, backend):
    """Count the numbers that autograd keeps between forward and backward."""
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = p.run(backend)
    assert result.outputs.requires_grad
    return sum(kept.values())


def test_the_memory_is_not_kept_for_every_step():
    k = 16
    for T in (64, 256):
        p = make_problem(1, T, k, lengths=None)
        memory = T * k
        # Kept: z, o, m, h, c, gates and the like for each step, and one memory every sqrt(T) steps.
        assert kept_numbers(p, torch_loop.recurrence) < T * (2 * T + 30 * k) + 2 * T**0.5 * memory
        assert kept_numbers(p, reference.recurrence) > T * memory
