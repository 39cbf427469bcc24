"""Fits find the coefficients that were planted."""

import pytest

from bench.made_up import made_up
from benchmarks.speed.fits import FITTED, fit_line, fit_sweeps


def test_a_line_is_found():
    result = fit_line([(size, 0.3 + 0.02 * size) for size in (1, 8, 32, 800)])
    assert result["fixed_ms"] == pytest.approx(0.3)
    assert result["each_ms"] == pytest.approx(0.02)
    assert result["worst"] == 0


def test_errors_are_relative():
    """A tenth more at a long time is worth no more than a tenth more at a short one."""
    result = fit_line([(1, 1.0), (2, 2.2), (1000, 1000.0), (2000, 2200.0)])
    assert result["worst"] == pytest.approx(0.05, abs=0.03)
    assert result["each_ms"] == pytest.approx(1.05, abs=0.03)


def test_the_last_exponent():
    assert fit_line([(1, 5.0), (2, 1.0), (4, 4.0)])["exponent"] == 2


def test_each_sweep_of_each_backend_and_mode():
    report = made_up()
    result = {(each["backend"], each["mode"], each["sweep"]): each for each in report["fits"]}
    assert len(result) == len(report["fits"]) == 2 * 2 * 2
    of_lengths, of_batches = result["triton graph", "train", "T"], result["triton graph", "train", "B"]
    assert of_lengths["B"] == 32
    assert of_lengths["each_ms"] == pytest.approx(3 * 0.01)
    assert of_lengths["fixed_ms"] == pytest.approx(3 * (0.05 + 0.0002 * 32))
    assert of_batches["T"] == 25
    assert of_batches["each_ms"] == pytest.approx(3 * 0.0002)
    assert {each["backend"] for each in report["fits"]} == set(FITTED)


def test_rows_of_other_things_and_single_points_do_not_count():
    report = made_up()
    step = {**report["rows"][0], "name": "SNLI step", "backend": "triton graph", "B": 32, "T": 25, "ms": 1e6}
    assert fit_sweeps([*report["rows"], step], 32, 25) == report["fits"]
    assert fit_sweeps(report["rows"][:3], 32, 25) == []
