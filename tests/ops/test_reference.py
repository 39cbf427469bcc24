"""The reference against the equations in NumPy, and what it defines beyond the paper."""

import pytest
import torch

from nse.ops import reference
from nse.ops.types import Memory
from oracle.problems import assert_close, list_tensors, make_problem, solve_by_equations

CASES = {
    "nse": {},
    "one of everything": {"B": 1, "T": 1, "k": 1},
    "no padding": {"lengths": None},
    "one shared memory": {"shared": (3,)},
    "three shared memories": {"shared": (1, 6, 4), "T": 7},
    "two layers": {"layers": 2, "shared": (2,)},
    "memory of its own length": {"slots": 9},
    "memory shorter than the words": {"slots": 2, "T": 8},
    "dropout on c": {"dropout": 0.4, "shared": (3,)},
    "long": {"B": 2, "T": 40, "k": 3},
    "empty memory": {"slots": 0, "lengths": None},
    "no steps": {"T": 0, "slots": 3},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_reference_equals_the_equations(case):
    p = make_problem(**case)
    assert_close(p.run(reference.recurrence), solve_by_equations(p), 1e-12)


@pytest.mark.parametrize(
    "case", [{}, {"shared": (2,), "layers": 2, "dropout": 0.3}, {"slots": 0, "lengths": None}]
)
def test_gradients_of_the_reference_pass_gradcheck(case):
    p = make_problem(B=2, T=3, k=2, **case)
    leaves = p.leaves()
    assert torch.autograd.gradcheck(lambda *_: tuple(list_tensors(p.run(reference.recurrence))), leaves)


def test_padded_slots_have_weight_exactly_zero():
    p = make_problem(B=6, T=9, shared=(7,))
    for z, memory in zip(p.run(reference.recurrence).keys, p.memories, strict=True):
        for b, size in enumerate(memory.lengths.tolist()):
            assert (z[b, :, size:] == 0).all()
            running = z[b, : int(p.lengths[b]), :size]
            if size:
                torch.testing.assert_close(running.sum(-1), torch.ones(len(running), dtype=torch.float64))


def test_a_finished_sequence_stops_changing():
    p = make_problem(B=4, T=8, lengths=[2, 8, 0, 5], slots=3)
    short = make_problem(B=4, T=8, lengths=[2, 8, 0, 5], slots=3).select(0)
    short.x = short.x[:, :2]
    short.lengths = None
    whole, alone = p.run(reference.recurrence), short.run(reference.recurrence)
    assert_close(whole.memories[0][:1], alone.memories[0], 1e-14)
    assert_close([s[:, :1] for s in (*whole.read, *whole.write)], [*alone.read, *alone.write], 1e-14)
    assert (whole.outputs[0, 2:] == 0).all()
    assert (whole.outputs[2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_float_type_is_supported(dtype):
    p = make_problem(dtype=dtype, shared=(2,))
    result = p.run(reference.recurrence)
    assert {t.dtype for t in list_tensors(result)} == {dtype}
    assert_close(result, solve_by_equations(p), {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 0.1))


def test_empty_sequences_and_memories_give_zero_and_finite_gradients():
    p = make_problem(B=3, T=4, lengths=[0, 0, 0])
    p.read = p.write = tuple(torch.zeros_like(s) for s in p.read)
    result = p.run(reference.recurrence)
    assert (result.outputs == 0).all()
    assert all(t.isfinite().all() for t in (*list_tensors(result), *p.gradients(reference.recurrence)))


def test_nan_in_the_padding_changes_nothing():
    p = make_problem(B=3, T=5, lengths=[2, 5, 0], shared=(4,))
    clean = p.run(reference.recurrence)
    with torch.no_grad():
        p.x[0, 2:], p.x[2] = float("nan"), float("inf")
        for memory in p.memories:
            for b, size in enumerate(memory.lengths.tolist()):
                memory.slots[b, size:] = float("nan")
    assert_close(p.run(reference.recurrence), clean, 0)
    assert all(g.isfinite().all() for g in p.gradients(reference.recurrence))


def test_prepend_puts_slots_in_front():
    memory = Memory(torch.ones(2, 3, 4), torch.tensor([1, 3]))
    for blank in (torch.zeros(5, 4), torch.zeros(2, 5, 4)):
        longer = memory.prepend(blank)
        assert longer.slots.shape == (2, 8, 4)
        assert longer.lengths.tolist() == [6, 8]
        assert (longer.slots[:, :5] == 0).all()
        assert (longer.slots[:, 5:] == 1).all()
    assert Memory(torch.ones(2, 3, 4)).prepend(torch.zeros(1, 4)).lengths is None
