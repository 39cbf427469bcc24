"""The benchmark refuses to print a speed for a wrong answer, and measures memory that is really used."""

import pytest

from benchmarks.speed import cpu
from nse import BackendError
from nse.ops.dispatch import BACKENDS


def test_backends_that_differ_have_no_speed(monkeypatch):
    honest = BACKENDS["torch"]
    monkeypatch.setitem(BACKENDS, "torch", lambda *a: honest(*a)._replace(outputs=honest(*a).outputs * 1.01))
    with pytest.raises(BackendError, match="reference and torch differ by"):
        cpu.check_parity(cpu.QUICK[0])


@pytest.mark.parametrize("shape", cpu.QUICK)
def test_backends_that_agree_may_be_measured(shape):
    cpu.check_parity(shape)
    times = cpu.measure(shape)
    assert set(times) == {"reference", "torch", "lstm"}
    assert all(len(each) == shape.repeats and min(each) > 0 for each in times.values())


def test_nan_is_not_agreement(monkeypatch):
    honest = BACKENDS["torch"]
    monkeypatch.setitem(
        BACKENDS, "torch", lambda *a: honest(*a)._replace(outputs=honest(*a).outputs * float("nan"))
    )
    with pytest.raises(BackendError, match="differ by nan"):
        cpu.check_parity(cpu.QUICK[0])


def test_peak_memory_sees_that_the_reference_keeps_a_memory_per_step():
    shape = cpu.Shape(4, 400, 64, "train", 1)
    one_memory = 4 * 400 * 64 * 4 / 2**20
    reference, fast = (cpu.run_first_call(backend, shape, threads=1)["peak_mb"] for backend in cpu.SIDES)
    assert reference > 400 * one_memory
    assert fast < reference / 4


def test_first_call_in_this_process():
    figures = cpu.measure_first_call("torch", cpu.QUICK[1])
    assert figures["first_ms"] > 0
    assert figures["peak_mb"] >= 0
