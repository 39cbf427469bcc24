"""Packed weights of the CPU kernel follow every change, and calls may come from many threads and forks."""

import copy
import gc
import multiprocessing
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch

import nse
from nse.ops import reference
from nse.ops.cpu import operators, packed
from nse.ops.cpu.library import explain_no_kernel, list_isas
from oracle.problems import assert_close, list_tensors, make_problem

pytestmark = pytest.mark.skipif(explain_no_kernel() is not None, reason="there is no CPU kernel")


def make_encoder(size=7, seed=0, **extra):
    torch.manual_seed(seed)
    return nse.NSE(size, backend="cpu", **extra).eval()


def make_words(size=7, B=3, T=5, seed=1):
    return torch.randn(B, T, size, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def answer(encoder, x):
    return encoder(x).outputs


@torch.no_grad()
def answer_exactly(encoder, x):
    """Compute the answer of the reference with the weights as they are now."""
    exact = nse.NSE(encoder.size, layers=encoder.layers, backend="reference").double().eval()
    exact.load_state_dict({name: tensor.double() for name, tensor in encoder.state_dict().items()})
    return exact(x.double()).outputs


def write_through_numpy(weight):
    weight.detach().numpy()[:] *= 1.5


def write_through_data(weight):
    weight.data.mul_(1.5)


def replace_data(weight):
    weight.data = weight.data * 1.5


def replace_inference_data(weight):
    with torch.inference_mode():
        weight.data.add_(0.25)


def write_in_place(weight):
    with torch.no_grad():
        weight[..., 3] += 1.0


def write_a_number(weight):
    with torch.no_grad():
        weight.view(-1)[-1] = 9.0


WRITES = [
    write_in_place,
    write_a_number,
    write_through_data,
    write_through_numpy,
    replace_data,
    replace_inference_data,
]
WEIGHTS = [
    "read.weight_ih_l0",
    "read.weight_hh_l0",
    "read.bias_ih_l0",
    "compose.weight",
    "compose.bias",
    "write.weight_ih_l0",
    "write.bias_hh_l0",
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_change_to_a_weight_is_noticed(name, write):
    encoder, x = make_encoder(), make_words()
    before = answer(encoder, x)
    write(encoder.get_parameter(name))
    after = answer(encoder, x)
    assert not torch.equal(before, after)
    assert_close(after, answer_exactly(encoder, x), 1e-5)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("fused", [True, False])
def test_a_step_of_an_optimizer_is_noticed(optimizer, fused):
    encoder, x = make_encoder(), make_words()
    step = optimizer(encoder.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        before = answer(encoder, x)
        encoder(x).outputs.square().sum().backward()
        step.step()
        assert not torch.equal(before, answer(encoder, x))
    assert_close(answer(encoder, x), answer_exactly(encoder, x), 1e-5)


@pytest.mark.parametrize("assign", [True, False])
def test_loaded_weights_are_noticed(assign):
    encoder, other, x = make_encoder(), make_encoder(seed=1), make_words()
    expected = answer(other, x)
    assert not torch.equal(answer(encoder, x), expected)
    encoder.load_state_dict(other.state_dict(), assign=assign)
    assert torch.equal(answer(encoder, x), expected)


def test_a_functional_call_uses_the_weights_that_it_is_given():
    encoder, other, x = make_encoder(), make_encoder(seed=1), make_words()
    expected = answer(other, x)
    answer(encoder, x)
    with torch.no_grad():
        got = torch.func.functional_call(encoder, dict(other.named_parameters()), (x,)).outputs
    assert torch.equal(got, expected)


def test_answers_of_two_modules_in_turn_stay_their_own():
    encoders, x = [make_encoder(seed=seed) for seed in range(2)], make_words()
    first = [answer(encoder, x) for encoder in encoders]
    assert not torch.equal(*first)
    again = [answer(encoder, x) for encoder in encoders]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_encoders_that_share_some_weights_do_not_mix_them_up():
    first, second, x = make_encoder(), make_encoder(seed=1), make_words()
    second.compose.weight = first.compose.weight
    for _ in range(2):
        for encoder in (first, second):
            assert_close(answer(encoder, x), answer_exactly(encoder, x), 1e-5)


def test_weights_are_packed_once(monkeypatch):
    calls, original = [], packed.pack_weights
    for module in (packed, operators):
        monkeypatch.setattr(module, "pack_weights", lambda *a: calls.append(1) or original(*a))
    encoder, x = make_encoder(), make_words()
    for T in (5, 1, 3):
        answer(encoder, x[:, :T])
    assert len(calls) == 1
    copy.deepcopy(encoder).train()(x).outputs.sum().backward()
    assert len(calls) == 2


def test_packed_weights_go_with_their_module():
    gc.collect()
    before = len(packed.ANSWER_WEIGHTS)
    encoder = make_encoder()
    answer(encoder, make_words())
    assert len(packed.ANSWER_WEIGHTS) == before + 1
    [entry] = packed.ANSWER_WEIGHTS[encoder.compose.weight].values()
    kept = weakref.ref(entry.weights)
    del encoder, entry
    gc.collect()
    assert kept() is None
    assert len(packed.ANSWER_WEIGHTS) == before


@pytest.mark.skipif(len(list_isas()) < 2, reason="there is one instruction set")
def test_weights_packed_for_one_instruction_set_are_not_used_by_another(monkeypatch):
    encoder, x = make_encoder(20), make_words(20)
    expected = answer_exactly(encoder, x)
    for isa in [*list_isas(), *list_isas()]:
        monkeypatch.setenv("NSE_CPU_ISA", isa)
        assert_close(answer(encoder, x), expected, 1e-5)


def test_weights_made_in_inference_mode_work():
    with torch.inference_mode():
        encoder, x = make_encoder(), make_words()
        outputs = encoder(x).outputs
        assert outputs.is_inference()
        encoder.compose.weight.mul_(2.0)
        changed = encoder(x).outputs
        assert_close(changed, answer_exactly(encoder, x), 1e-5)
    assert not torch.equal(outputs, changed)
    assert torch.equal(answer(encoder, x), changed)


def test_inference_mode_gives_the_bits_of_no_grad():
    encoder, x = make_encoder(layers=2), make_words()
    with torch.inference_mode():
        got = encoder(x).outputs
    assert torch.equal(got, answer(encoder, x))


def test_copies_and_pickles_of_a_used_encoder_give_the_same_bits():
    encoder, x = make_encoder(), make_words()
    expected = answer(encoder, x)
    for other in (copy.deepcopy(encoder), copy.copy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert torch.equal(answer(other, x), expected)
    other = copy.deepcopy(encoder)
    write_in_place(other.compose.weight)
    assert torch.equal(answer(encoder, x), expected)
    assert not torch.equal(answer(other, x), expected)


def test_many_python_threads_get_the_bits_of_one():
    encoders = [make_encoder(20, seed=seed) for seed in range(3)]
    words = [make_words(20, B=2, T=n, seed=n) for n in (3, 9, 20)]
    jobs = [(e, x) for e in encoders for x in words] * 4
    expected = [answer(e, x) for e, x in jobs]
    fresh = [copy.deepcopy(encoder) for encoder in encoders]  # of these, nothing is packed yet
    start = Barrier(8)

    def work(i):
        start.wait()
        torch.set_num_threads(2)
        got = [answer(fresh[encoders.index(e)], x) for e, x in jobs[i:]]
        return all(torch.equal(a, b) for a, b in zip(got, expected[i:], strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    torch.set_num_threads(1)


def test_many_python_threads_train_with_the_bits_of_one():
    problems = [make_problem(3, 8, 20, seed=seed).to(dtype=torch.float32) for seed in range(4)]
    expected = [p.gradients(operators.recurrence) for p in problems]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for got, wanted in zip(
                pool.map(lambda p: p.gradients(operators.recurrence), problems), expected, strict=True
            ):
                assert_close(got, wanted, 0)


def compute(encoder, x, threads):
    """Compute answers and a gradient, with operations of PyTorch so small that they start no threads.

    PyTorch's own threads hang in a process that was forked after they began.
    """
    torch.set_num_threads(threads)
    (gradient,) = torch.autograd.grad(encoder(x).last.sum(), encoder.compose.weight)
    return [answer(encoder, x).numpy(), gradient.numpy()]


def compute_in_a_child(pipe, *arguments):
    del torch.Tensor.new_empty  # not the tests' own one, which fills large tensors on PyTorch's threads
    pipe.send(compute(*arguments))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_process_computes_the_same_bits(threads):
    encoder, x = make_encoder(100), make_words(100, B=6, T=20)
    try:
        expected = compute(encoder, x, threads)
    finally:
        torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=compute_in_a_child, args=(there, encoder, x, threads))
    child.start()
    try:
        assert here.poll(30), "the child hangs"
        got = here.recv()
    finally:
        child.kill()
        child.join()
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_noncontiguous_weight_is_used_as_it_is():
    encoder, x = make_encoder(), make_words()
    expected = answer(encoder, x)
    with torch.no_grad():
        compose = encoder.compose.weight
        encoder.compose.weight = torch.nn.Parameter(compose.t().contiguous().t())
    assert not encoder.compose.weight.is_contiguous()
    for _ in range(2):
        assert torch.equal(answer(encoder, x), expected)
    with torch.no_grad():
        encoder.compose.weight.mul_(1.5)
    assert_close(answer(encoder, x), answer_exactly(encoder, x), 1e-5)


def test_weights_that_change_between_forward_and_backward_are_refused():
    p = make_problem(2, 4, 3).to(dtype=torch.float32)
    loss = p.run(operators.recurrence).outputs.sum()
    with torch.no_grad():
        p.weights.compose.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, p.x)


def test_gradients_need_no_folded_weights():
    p = make_problem(2, 4, 3).to(dtype=torch.float32)
    before = len(packed.ANSWER_WEIGHTS)
    p.gradients(operators.recurrence)
    assert len(packed.ANSWER_WEIGHTS) == before
    with torch.no_grad():
        got = list_tensors(p.run(operators.recurrence))
    assert len(packed.ANSWER_WEIGHTS) == before + 1
    assert_close(got, list_tensors(p.to(dtype=torch.float64).run(reference.recurrence)), 1e-5)
