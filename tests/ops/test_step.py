"""One step after the other against the reference over whole sequences."""

import pytest
import torch
from torch import nn

from nse.ops import reference
from nse.ops.step import lstm_cell, make_lstm_linears, make_score_mask, make_step_linears, step
from nse.ops.types import LSTMLayer, Memory, Result
from oracle.problems import assert_close, list_tensors, make_problem

CASES = {
    "one memory": {"slots": 6},
    "the words as the memory": {},
    "two memories": {"slots": 5, "shared": (3,)},
    "three memories": {"slots": 2, "shared": (1, 7), "T": 7},
    "one of everything": {"B": 1, "T": 1, "k": 1},
    "no padding": {"slots": 4, "lengths": None, "shared": (3,)},
    "c is dropped": {"slots": 6, "dropout": 0.4},
    "c is dropped with two memories": {"slots": 4, "shared": (6,), "dropout": 0.4},
    "many steps over few slots": {"B": 2, "T": 30, "slots": 2},
}


def made(**case):
    """Make a problem without padded steps or empty memories."""
    p = make_problem(**{"B": 4, **case})
    p.memories = tuple(
        Memory(m.slots, None if m.lengths is None else m.lengths.clamp(min=1)) for m in p.memories
    )
    p.lengths = None
    return p


def shut(memory):
    return make_score_mask(memory.lengths, memory.slots)


def stepped(x, lengths, memories, read, write, weights, c_mask=None, keys=False):
    """Run a problem by single steps, with the signature of a backend."""
    assert lengths is None
    slots, closings = tuple(m.slots for m in memories), tuple(map(shut, memories))
    lower, upper = tuple(s[0] for s in read), tuple(s[0] for s in write)
    h, z = [], []
    for t in range(x.shape[1]):
        mask = None if c_mask is None else c_mask[:, t]
        lower, upper, slots, actual = step(
            x[:, t], slots, closings, lower, upper, make_step_linears(weights), mask
        )
        h.append(upper[0])
        z.append(actual)
    slots = tuple(M.masked_fill(shut(m)[:, 0, :, None] != 0, 0) for M, m in zip(slots, memories, strict=True))
    return Result(
        torch.stack(h, dim=1),
        slots,
        tuple(s[None] for s in lower),
        tuple(s[None] for s in upper),
        tuple(torch.stack([actual[j] for actual in z], dim=1) for j in range(len(memories))),
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_steps_equal_the_recurrence(case):
    p = made(**case)
    actual, gradients = p.outputs_and_gradients(stepped)
    expected, wanted_gradients = p.outputs_and_gradients(reference.recurrence)
    assert_close(actual, expected, 1e-12)
    assert_close(gradients, wanted_gradients, 1e-10)
    assert all(gradient.abs().sum() > 0 for gradient in wanted_gradients)


@pytest.mark.parametrize("shared", [(), (3,)])
def test_gradients_of_a_step_pass_gradcheck(shared):
    p = made(B=2, T=3, k=2, slots=3, shared=shared, dropout=0.3)
    leaves = p.leaves()
    assert torch.autograd.gradcheck(lambda *_: tuple(list_tensors(p.run(stepped))), leaves)


@pytest.mark.parametrize("shared", [(), (5,)])
def test_padded_slots_are_neither_read_nor_written(shared):
    p = made(B=4, slots=5, shared=shared)
    p.memories = tuple(Memory(m.slots, torch.tensor([1, 5, 3, 2])) for m in p.memories)
    slots, closings = tuple(m.slots for m in p.memories), tuple(map(shut, p.memories))
    states = tuple(s[0] for s in p.read), tuple(s[0] for s in p.write)
    _, _, after, z = step(p.x[:, 0], slots, closings, *states, make_step_linears(p.weights))
    gradients = torch.autograd.grad(sum(each.square().sum() for each in z), slots)
    for j, memory in enumerate(p.memories):
        for b, size in enumerate(memory.lengths.tolist()):
            assert (z[j][b, size:] == 0).all()
            assert torch.equal(after[j][b, size:], slots[j][b, size:])
            assert (gradients[j][b, size:] == 0).all()
            assert not torch.equal(after[j][b, :size], slots[j][b, :size])
        torch.testing.assert_close(z[j].sum(dim=-1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("value", [0.0, 1e6, -1e6])
def test_values_of_padded_slots_do_not_matter(value):
    p = made(B=3, slots=4, shared=(4,))
    p.memories = tuple(Memory(m.slots, torch.tensor([1, 4, 2])) for m in p.memories)
    expected = p.run(stepped)
    with torch.no_grad():
        for memory in p.memories:
            for b, size in enumerate(memory.lengths.tolist()):
                memory.slots[b, size:] = value
    assert_close(p.run(stepped), expected, 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_empty_memory_gives_finite_results(dtype):
    """The first slot is never masked."""
    p = made(B=3, T=6, slots=4, shared=(2,), dtype=dtype)
    p.memories = tuple(
        Memory(m.slots, torch.tensor([0, 4, 0]).clamp(max=m.slots.shape[1])) for m in p.memories
    )
    actual, gradients = p.outputs_and_gradients(stepped)
    assert all(each.isfinite().all() for each in (*list_tensors(actual), *gradients))
    for z in actual.keys:
        assert (z[[0, 2], :, 0] == 1).all()
        assert (z[[0, 2], :, 1:] == 0).all()
    one = made(B=3, T=6, slots=4, shared=(2,), dtype=dtype)
    one.memories = tuple(Memory(m.slots, m.lengths.clamp(min=1)) for m in p.memories)
    assert_close(actual, one.run(stepped), 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_score_mask_is_lowest_in_the_padding(dtype):
    actual = make_score_mask(torch.tensor([2, 0, 3]), torch.ones(3, 3, 2, dtype=dtype))
    lowest = torch.finfo(dtype).min
    assert (actual.shape, actual.dtype) == ((3, 1, 3), dtype)
    assert actual[:, 0].tolist() == [[0, 0, lowest], [0, lowest, lowest], [0, 0, 0]]
    # Whatever the score of a shut slot, it stays finite and has no weight.
    for score in (-1e3, 1e3):
        weights = (torch.full((3, 1, 3), score, dtype=dtype) * (actual != 0) + actual).softmax(dim=-1)
        assert weights.isfinite().all()
        assert (weights[actual != 0] == 0).all()


def test_a_step_of_an_lstm_equals_pytorch():
    theirs = nn.LSTM(5, 4, batch_first=True, dtype=torch.float64)
    x = torch.randn(3, 5, dtype=torch.float64)
    h, c = torch.randn(2, 3, 4, dtype=torch.float64)
    actual = lstm_cell(x, (h, c), make_lstm_linears(LSTMLayer(*theirs.all_weights[0])))
    outputs, (last, cell) = theirs(x[:, None], (h[None], c[None]))
    assert_close(actual, [outputs[:, 0], cell[0]], 1e-12)
    assert_close(actual[0], last[0], 1e-12)


def test_several_layers_are_refused():
    p = made(slots=3, layers=2)
    with pytest.raises(ValueError, match="too many values"):
        p.run(stepped)
