"""Which backend runs."""

import pytest

from nse import BackendError
from nse.ops.recurrence import BACKENDS, choose, recurrence
from oracle.problems import assert_close, problem


def test_auto_is_the_fast_one(monkeypatch):
    monkeypatch.delenv("NSE_BACKEND", raising=False)
    assert choose() == choose("auto") == "lean"


def test_environment_decides_where_the_argument_does_not(monkeypatch):
    monkeypatch.setenv("NSE_BACKEND", "reference")
    assert choose() == "reference"
    assert choose("lean") == "lean"
    monkeypatch.setenv("NSE_BACKEND", "")
    assert choose() == "lean"


def test_a_backend_that_cannot_run_here_is_told(monkeypatch):
    with pytest.raises(BackendError, match="backend='laen' cannot run here: did you mean 'lean'"):
        choose("laen")
    monkeypatch.setenv("NSE_BACKEND", "cuda-magic")
    with pytest.raises(BackendError, match=r"NSE_BACKEND='cuda-magic' cannot run here: .*lean, auto"):
        choose()


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_what_was_chosen(backend, monkeypatch):
    p = problem()
    called = []
    original = BACKENDS[backend]
    monkeypatch.setitem(BACKENDS, backend, lambda *a: called.append(backend) or original(*a))
    arguments = [getattr(p, field) for field in p.__dataclass_fields__]
    assert_close(recurrence(*arguments, backend=backend), p.run(original, keys=False), 0)
    assert called == [backend]
