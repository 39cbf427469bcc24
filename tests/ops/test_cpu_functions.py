"""exp, sigmoid and tanh of the CPU kernel over all of float32, against float64."""

import ctypes
from itertools import chain

import numpy as np
import pytest

from nse.ops.cpu import library

pytestmark = pytest.mark.skipif(library.explain_no_kernel() is not None, reason="there is no CPU kernel")

ISAS = library.list_isas()
ERRORS = {"exp": 1.05, "sigmoid": 2.9, "tanh": 1.4}
"""Largest error of each function, in units of the last place of the exact result."""

BORDERS = [0.625, 87.0, 87.336545, 88.0, 88.02969, 88.72284, 89.0, 103.2789, 103.97208, 104.0, 150.0, 3.4e38]
BORDERS += [float(n * np.log(2) / 2) for n in range(1, 300)]  # where the exponent of exp changes
FEW = np.array([0.0, 1e-45, 1.1754942e-38, 1.1754944e-38, *BORDERS], np.float32)
FEW = np.concatenate([FEW, np.nextafter(FEW, np.float32(np.inf)), np.nextafter(FEW, np.float32(-np.inf))])
FEW = np.concatenate([FEW, -FEW, np.float32([np.inf, -np.inf])])


def apply(isa, name, x):
    """Apply a function of the kernel."""
    y = np.array(x, np.float32)
    function = getattr(library.open_library(library.PATH).library, f"nse_apply_{isa}")
    address = y.ctypes.data_as(ctypes.c_void_p)
    assert function(ctypes.c_int64(list(ERRORS).index(name)), address, ctypes.c_int64(len(y))) == 0
    return y


def apply_exactly(name, x):
    """Apply a function in float64."""
    x = x.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        if name == "exp":
            return np.exp(x)
        if name == "tanh":
            return np.tanh(x)
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1.0, small) / (1 + small)


def list_floats(step):
    """Yield every `step`-th number of float32, by its bits, some at a time."""
    for start in range(0, 2**32, 2**26):
        bits = np.arange(start + -start % step, start + 2**26, step, dtype=np.uint64).astype(np.uint32)
        x = bits.view(np.float32)
        if (x := x[~np.isnan(x)]).size:
            yield x


def measure_error(isa, name, x):
    """Measure the largest error; infinite where one result overflows and the other does not."""
    exact, got = apply_exactly(name, x), apply(isa, name, x)
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(np.float32)
    is_finite = np.isfinite(rounded)
    if not np.array_equal(got[~is_finite], rounded[~is_finite]):
        return np.inf
    unit = np.spacing(np.abs(rounded[is_finite])).astype(np.float64)
    return (np.abs(got[is_finite].astype(np.float64) - exact[is_finite]) / unit).max(initial=0)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("step", [997, pytest.param(31, marks=pytest.mark.slow)])
def test_the_error_is_as_stated_over_all_of_float32(step, isa, name):
    errors = [measure_error(isa, name, x) for x in chain([FEW], list_floats(step))]
    assert len(errors) > 50
    assert max(errors) <= ERRORS[name]


@pytest.mark.parametrize("isa", ISAS)
def test_small_results_of_exp_are_denormal_numbers_before_they_are_zero(isa):
    x = np.linspace(-104.5, -87.0, 20001, dtype=np.float32)
    y = apply(isa, "exp", x)
    denormal = (y > 0) & (y < np.finfo(np.float32).tiny)
    assert denormal.sum() > 15000
    assert (np.diff(y) >= 0).all()
    assert apply(isa, "exp", np.float32([-103.9, -104.0, -1e30, -np.inf])).tolist() == [
        2.0**-149,
        0.0,
        0.0,
        0.0,
    ]


@pytest.mark.parametrize("isa", ISAS)
def test_exact_values_are_exact(isa):
    infinity = [-np.inf, np.inf]
    assert apply(isa, "exp", np.float32([0.0, -0.0, *infinity])).tolist() == [1.0, 1.0, 0.0, np.inf]
    assert apply(isa, "sigmoid", np.float32([0.0, -0.0, *infinity])).tolist() == [0.5, 0.5, 0.0, 1.0]
    assert apply(isa, "tanh", np.float32([*infinity, 20.0])).tolist() == [-1.0, 1.0, 1.0]
    assert not apply(isa, "tanh", np.float32([0.0, -0.0])).any()


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("isa", ISAS)
def test_nan_stays_nan_and_leaves_its_neighbours_alone(isa, name):
    bits = np.uint32([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF])
    assert np.isnan(apply(isa, name, bits.view(np.float32))).all()
    x = np.linspace(-3, 3, 37, dtype=np.float32)
    expected = apply(isa, name, x)
    for at in range(37):
        holed = x.copy()
        holed[at] = np.nan
        got = apply(isa, name, holed)
        assert np.isnan(got[at])
        assert np.array_equal(np.delete(got, at), np.delete(expected, at))


@pytest.mark.parametrize("isa", ISAS)
def test_results_stay_in_range_and_mirror_each_other(isa):
    x = np.concatenate([FEW, *list_floats(100003)])
    sigmoid, tanh = apply(isa, "sigmoid", x), apply(isa, "tanh", x)
    assert ((sigmoid >= 0) & (sigmoid <= 1)).all()
    assert (np.abs(tanh) <= 1).all()
    assert (np.abs(tanh) <= np.abs(x)).all()
    assert np.array_equal(apply(isa, "tanh", -x), -tanh)
    difference = sigmoid.astype(np.float64) + apply(isa, "sigmoid", -x).astype(np.float64) - 1
    assert np.abs(difference).max() <= 2.0**-23


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.skipif("avx512" not in ISAS or "avx2" not in ISAS, reason="this CPU has not both")
def test_wide_and_narrow_vectors_give_the_same_bits(name):
    for x in [FEW, *list_floats(100003)]:
        assert np.array_equal(apply("avx512", name, x), apply("avx2", name, x))
