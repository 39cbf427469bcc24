"""The gate in front of every speed: right answers pass, wrong ones do not, and the oracle is exact."""

import pytest
import torch

from benchmarks.speed import parity
from benchmarks.speed.calls import Eager, Problem
from benchmarks.speed.parity import ParityError
from nse import BackendError
from nse.ops.dispatch import BACKENDS


def problem(dtype=torch.float32, B=3, T=6):
    return Problem.draw(B, T, 8, dtype, "cpu")


def found(problem, backend, mode="train"):
    return Eager(problem.make_encoder(backend), problem, mode)()


@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_honest_backend_passes(dtype, mode):
    given = problem(getattr(torch, dtype))
    results = found(given, "torch", mode)
    assert len(results) == (2 if mode == "forward" else 2 + 1 + 10)
    parity.check("torch", results, parity.compute_reference(given), parity.TOLERANCES[dtype])


def test_problems_are_not_trivial():
    given = problem()
    assert all(tensor.std() > 0.05 for tensor in (given.x, given.weighting, *given.weights.values()))
    assert all(tensor.norm() > 0 for tensor in parity.compute_reference(given).values())


def test_a_wrong_backend_is_refused_by_name(monkeypatch):
    honest = BACKENDS["torch"]
    monkeypatch.setitem(BACKENDS, "torch", lambda *a: honest(*a)._replace(outputs=honest(*a).outputs * 1.01))
    with pytest.raises(BackendError, match=r"torch and reference differ by 1\.0e-02 .* in the outputs"):
        parity.check("torch", found(problem(), "torch"), parity.compute_reference(problem()), 2e-3)


@pytest.mark.parametrize("tensor", ["memory", "gradient of x", "gradient of compose.bias"])
def test_each_tensor_counts(tensor):
    wanted = parity.compute_reference(problem())
    got = {**wanted, tensor: wanted[tensor] * 1.01}
    with pytest.raises(ParityError, match=f"differ by 1.0e-02 of the norm in the {tensor}"):
        parity.check("planted", got, wanted, 2e-3)


def test_nan_and_infinity_are_refused():
    wanted = parity.compute_reference(problem())
    for bad in (float("nan"), float("inf")):
        outputs = wanted["outputs"].clone()
        outputs[0, 0, 0] = bad
        with pytest.raises(ParityError, match="planted and reference differ by"):
            parity.check("planted", {"outputs": outputs}, wanted, 2e-3)


def test_the_oracle_in_pieces_is_the_oracle_at_once(monkeypatch):
    given = problem(B=5)
    at_once = parity.compute_reference(given)
    monkeypatch.setattr(parity, "ROOM_ON_CPU", 2 * 4 * 6 * 6 * 8 * 8)
    assert parity.choose_chunk_size(given.to(torch.float64).x) == 2
    in_pieces = parity.compute_reference(given)
    assert list(in_pieces) == list(at_once)
    for name, tensor in at_once.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(in_pieces[name], tensor)


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_the_encoder_in_jax_is_an_nse(mode):
    pytest.importorskip("jax")
    from benchmarks.speed import peers

    assert peers.find_jax_obstacle("cpu") is None
    given = problem()
    call = peers.Jax(given, mode)
    results = call.compute_results()
    assert len(results) == (2 if mode == "forward" else 13)
    parity.check("jax", results, parity.compute_reference(given), 1e-5)
    assert len(call.measure_times(25)) == 3
    assert min(call.measure_times(3)) > 0
