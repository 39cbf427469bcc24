"""Results of the CPU kernel are the same to the bit whatever the batch, the padding and the threads."""

import pytest
import torch

import nse
from nse.ops.cpu.library import explain_no_kernel, list_isas
from nse.ops.cpu.operators import recurrence
from nse.ops.types import Memory
from oracle.problems import Problem, assert_close, list_tensors, make_problem

pytestmark = pytest.mark.skipif(explain_no_kernel() is not None, reason="there is no CPU kernel")

CASES = {
    "nse": {"B": 7, "T": 9, "k": 37},
    "shared, 2 layers": {"B": 6, "T": 12, "k": 5, "shared": (3, 20), "layers": 2},
    "dropout": {"B": 5, "T": 6, "k": 20, "dropout": 0.3, "shared": (4,)},
    "chunks, 60 steps": {"B": 4, "T": 60, "k": 6, "slots": 130, "shared": (70,)},
    "empty start": {"B": 4, "T": 6, "k": 17, "slots": 0, "shared": (5,)},
    "more than a group": {"B": 67, "T": 3, "k": 3},
    "size 300": {"B": 5, "T": 8, "k": 300},
}
MODES = ("answers", "answers in bfloat16", "training")
PAST = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "huge": 3e38}


@pytest.fixture(params=list_isas())
def isa(request, monkeypatch):
    """Each instruction set that this machine can run."""
    monkeypatch.setenv("NSE_CPU_ISA", request.param)
    return request.param


@pytest.fixture
def set_threads():
    """Set the number of threads for a test."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


def make_float32(k=4, **extra):
    """Make a problem in which x and its memory are two tensors."""
    scale = min(0.5, 1.5 / k**0.5)
    return make_problem(k=k, **{"scale": scale, "seed": 3 * k, **extra}).to(dtype=torch.float32)


def run(p, mode):
    """Run a problem; returns the results as a problem returns them, and each sequence's gradients.

    Without gradients weights are folded. With them, the gradient of a result is its own double, to the bit.
    """
    if mode != "training":
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=mode == "answers in bfloat16"):
            return tidy(p.run(recurrence), p)
    p = p.to()
    result = p.run(recurrence)
    loss = sum(tensor.square().sum() for tensor in list_tensors(result))
    inputs = [p.x, *(memory.slots for memory in p.memories), *p.read, *p.write]
    weights = list_tensors(p.weights)
    gradients = torch.autograd.grad(loss, [*inputs, *weights])
    tidied = tidy(result, p)
    n = len(p.memories)
    d_x, d_slots, d_states = gradients[0], gradients[1 : 1 + n], gradients[1 + n : len(inputs)]
    tidied["d x"] = d_x
    tidied |= {f"d memory {j}": slots for j, slots in enumerate(d_slots)}
    tidied |= {f"d state {i}": state.transpose(0, 1) for i, state in enumerate(d_states)}
    tidied |= {f"d weight {i}": weight for i, weight in enumerate(gradients[len(inputs) :])}
    return tidied


def tidy(result, p):
    """Name the results, with the sequences in front."""
    states = dict(enumerate((*result.read, *result.write)))
    return {
        "outputs": result.outputs.detach(),
        **{f"memory {j}": slots.detach() for j, slots in enumerate(result.memories)},
        **{f"keys {j}": z.detach() for j, z in enumerate(result.keys)},
        **{f"state {i}": state.detach().transpose(0, 1) for i, state in states.items()},
    }


def is_of_a_sequence(name):
    return not name.startswith("d weight")


def assert_same_bits(got, expected, what=""):
    """Compare bits: NaN is NaN, and 0 is not -0."""
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        actual = got[name].contiguous().view(torch.int32)
        assert torch.equal(actual, tensor.contiguous().view(torch.int32)), f"{name} {what}"


def cut(results, rows, like):
    """Take some sequences, and what a smaller result has of them."""
    index = torch.tensor(rows)
    taken = {name: tensor[index] for name, tensor in results.items() if is_of_a_sequence(name)}
    return {name: tensor[tuple(slice(size) for size in like[name].shape)] for name, tensor in taken.items()}


def keep_sequences(results):
    return {name: tensor for name, tensor in results.items() if is_of_a_sequence(name)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_sequence_has_the_same_bits_alone_and_in_any_order(case, mode, isa):
    p = make_float32(**case)
    B = case["B"]
    together = run(p, mode)
    for b in range(min(B, 5)):
        alone = keep_sequences(run(p.select(b), mode))
        assert_same_bits(cut(together, [b], alone), alone, f"of sequence {b}")
    order = [B - 1 - b for b in range(B)] + [1, 1]
    other = keep_sequences(run(p.select(*order), mode))
    assert_same_bits(other, cut(together, order, other), "in another order")


def pad(p, steps, slots, value):
    """Make batch and memories longer, with any numbers in the padding."""

    def pad_rows(tensor, more, lengths):
        filling = tensor.new_full((*tensor.shape[:1], more, *tensor.shape[2:]), value)
        padded = torch.cat([tensor.detach(), filling], dim=1)
        for b, length in enumerate(lengths.tolist()):
            padded[b, length:] = value
        return padded.requires_grad_(tensor.requires_grad)

    B, T, _ = p.x.shape
    lengths = torch.full((B,), T) if p.lengths is None else p.lengths
    memories = []
    for memory in p.memories:
        sizes = torch.full((B,), memory.slots.shape[1]) if memory.lengths is None else memory.lengths
        memories.append(Memory(pad_rows(memory.slots, slots, sizes), sizes))
    mask = None if p.c_mask is None else pad_rows(p.c_mask, steps, lengths)
    return Problem(pad_rows(p.x, steps, lengths), lengths, tuple(memories), p.read, p.write, p.weights, mask)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_padding_changes_no_bit_whatever_is_in_it(case, mode, isa):
    p = make_float32(**case)
    exact = run(p, mode)
    padding = list(PAST.items()) if case["T"] < 60 else [("nan", PAST["nan"])]
    for i, (name, value) in enumerate(padding):
        got = run(pad(p, steps=7 + i, slots=70 * (i % 2) + i, value=value), mode)
        assert_same_bits(keep_sequences(cut(got, range(case["B"]), exact)), keep_sequences(exact), name)
        for which, tensor in got.items():  # zero beyond the end
            if is_of_a_sequence(which) and tensor.dim() == 3 and "state" not in which:
                rest = tensor.clone()
                rest[tuple(slice(size) for size in exact[which].shape)] = 0
                assert not rest.any(), f"{which}, {name}"
            elif not is_of_a_sequence(which):
                assert torch.equal(tensor, exact[which]), f"{which}, {name}"


@pytest.mark.parametrize("mode", MODES)
def test_lengths_that_are_all_full_may_be_left_out(mode):
    p = make_float32(B=4, T=9, k=7, shared=(3,), lengths=None)
    padded = pad(p, 0, 0, 0.0)
    assert padded.memories[1].lengths is not None
    assert_same_bits(run(padded, mode), run(p, mode))


THREADED = {  # enough work for eight threads
    "teams of sequences": {"B": 9, "T": 90, "k": 64, "shared": (20,), "layers": 2, "lengths": None},
    "one team": {"B": 1, "T": 60, "k": 300, "slots": 150, "shared": (70,)},
    "odd size": {"B": 5, "T": 12, "k": 300, "dropout": 0.2},
    "more threads than panels": {"B": 3, "T": 130, "k": 17, "slots": 700, "lengths": None},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", THREADED.values(), ids=THREADED.keys())
def test_the_number_of_threads_changes_no_bit(case, mode, set_threads):
    p = make_float32(**case)
    expected = run(p, mode)
    for threads in (2, 3, 8):
        set_threads(threads)
        assert_same_bits(run(p, mode), expected, f"with {threads} threads")


@pytest.mark.parametrize("mode", MODES)
def test_the_number_of_threads_changes_no_bit_with_any_instruction_set(mode, isa, set_threads):
    p = make_float32(B=5, T=20, k=100, shared=(30,))
    expected = run(p, mode)
    for threads in (2, 5):
        set_threads(threads)
        assert_same_bits(run(p, mode), expected, f"with {threads} threads")


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_call_gives_the_same_bits_twice(threads, set_threads):
    set_threads(threads)
    p = make_float32(B=6, T=20, k=100, shared=(5,), dropout=0.2)
    for mode in MODES:
        assert_same_bits(run(p, mode), run(p, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_a_word_that_is_not_finite_stays_in_its_sequence(value, mode, isa):
    p = make_float32(B=5, T=9, k=7, shared=(4,), lengths=[9, 9, 3, 9, 0])
    expected = run(p, mode)
    with torch.no_grad():
        p.x[1, 4, 2] = p.memories[0].slots[3, 0, 5] = value
    got = run(p, mode)
    others = [0, 2, 4]
    assert_same_bits(cut(got, others, got), cut(expected, others, got))
    assert_same_bits({"before": got["outputs"][1, :4]}, {"before": expected["outputs"][1, :4]})
    if value != value:  # and is seen: gates turn infinity into 0 or 1
        assert got["outputs"][1, 4:].isnan().all()
        assert got["outputs"][3].isnan().all()
        assert got["state 3"][[1, 3]].isnan().all()


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_that_is_not_a_number_is_seen(mode, isa):
    for name in ("compose", "compose_bias"):
        p = make_float32(B=3, T=4, k=7)
        with torch.no_grad():
            getattr(p.weights, name)[-1] = float("nan")
        assert run(p, mode)["outputs"].isnan().any(dim=-1)[p.lengths.max() == p.lengths].all()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("size", [5, 64, 300])
def test_steps_give_the_numbers_of_the_whole_sequence(size, layers, isa):
    encoder = nse.NSE(size, layers=layers, shared=1, backend="cpu").eval()
    x, own, other = torch.randn(2, 11, size), torch.randn(2, 9, size), torch.randn(2, 70, size)
    with torch.no_grad():
        whole = encoder(x, memory=own, shared=[other])
        state, outputs = None, []
        for t in range(11):
            given = {"memory": own, "shared": [other]} if t == 0 else {}
            step = encoder.step(x[:, t], state, **given)
            state = step.state
            outputs.append(step.last)
    end = [*state.read, *state.write, state.memory.slots, state.shared[0].slots]
    expected = [*whole.state.read, *whole.state.write, whole.state.memory.slots, whole.state.shared[0].slots]
    assert_close([torch.stack(outputs, 1), *end], [whole.outputs, *expected], 1e-5)
