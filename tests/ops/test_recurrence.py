"""Which backend runs, and what runs where the one that was chosen cannot."""

import logging

import pytest
import torch

import nse.ops.dispatch as module
from nse import BackendError
from nse.ops import reference, torch_loop
from nse.ops.dispatch import BACKENDS, choose_backend, log_fallback, recurrence
from oracle.problems import assert_close, make_problem


@pytest.fixture
def machine(monkeypatch):
    """Simulate a machine with this device, or none, these packages, and a compiled kernel or a reason."""

    def pretend(capability=(9, 0), hip=None, interpreter="", packages=("triton",), kernel="no compiler"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setenv("TRITON_INTERPRET", interpreter)
        monkeypatch.setattr(module, "find_spec", lambda name: name if name in packages else None)
        monkeypatch.setattr(module.library, "explain_no_kernel", lambda: kernel)
        monkeypatch.delenv("NSE_BACKEND", raising=False)

    return pretend


def test_auto_chooses_the_fastest_backend(machine):
    machine()
    assert choose_backend("auto", "cuda") == choose_backend("auto", torch.device("cuda:0")) == "triton"
    assert choose_backend() == choose_backend("auto") == choose_backend("auto", "cpu") == "torch"
    for less in ({"capability": None}, {"capability": (7, 5)}, {"hip": "6"}, {"packages": ()}):
        machine(**less)
        assert choose_backend("auto", "cuda") == choose_backend("auto", "cpu") == "torch"
    machine(capability=None, interpreter="1")
    assert choose_backend("auto", "cpu") == "torch"
    machine(kernel=None)
    assert choose_backend() == choose_backend("auto", "cpu") == choose_backend("cpu", "cpu") == "cpu"
    assert choose_backend("auto", "cuda") == "triton"
    machine(kernel=None, capability=None)
    assert choose_backend("auto", "cuda") == choose_backend("auto", "mps") == "torch"


def test_the_error_says_why_the_compiled_kernel_cannot_run(machine):
    machine(kernel="its library was not compiled")
    what_else = "; use 'auto', or 'torch', which runs anywhere$"
    for device in (None, "cpu"):
        with pytest.raises(
            BackendError, match=f"^backend='cpu' cannot run here: its library was not compiled{what_else}"
        ):
            choose_backend("cpu", device)
    with pytest.raises(BackendError, match=f"it needs a CPU, and this is cuda:0{what_else}"):
        choose_backend("cpu", "cuda:0")


def test_triton_is_chosen_if_it_can_run(machine):
    machine()
    assert choose_backend("triton") == choose_backend("triton", "cuda") == "triton"
    machine(capability=None, interpreter="1")
    assert choose_backend("triton") == choose_backend("triton", "cpu") == "triton"


@pytest.mark.parametrize(
    ("less", "device", "why"),
    [
        ({"capability": None}, None, "PyTorch sees no CUDA device"),
        ({"capability": None}, "cpu", "PyTorch sees no CUDA device"),
        ({}, "cpu", "it needs a CUDA device, and this is cpu"),
        ({"capability": (7, 5)}, "cuda", "it needs compute capability 8.0 or more"),
        ({"hip": "6"}, "cuda", "it is written for NVIDIA devices"),
        ({"packages": ()}, "cuda", r"the package triton is not installed \(pip install triton\)"),
    ],
)
def test_the_error_says_why_triton_cannot_run(less, device, why, machine, monkeypatch):
    machine(**less)
    what_else = "; use 'auto', or 'torch', which runs anywhere$"
    with pytest.raises(BackendError, match=f"^backend='triton' cannot run here: {why}{what_else}"):
        choose_backend("triton", device)
    monkeypatch.setenv("NSE_BACKEND", "triton")
    with pytest.raises(BackendError, match=f"^NSE_BACKEND='triton' cannot run here: {why}{what_else}"):
        choose_backend("auto", device)


def test_auto_follows_the_environment_variable(machine, monkeypatch):
    machine()
    monkeypatch.setenv("NSE_BACKEND", "reference")
    assert choose_backend() == "reference"
    assert choose_backend("torch") == "torch"
    monkeypatch.setenv("NSE_BACKEND", "")
    assert choose_backend() == "torch"


def test_an_unknown_backend_is_named_with_a_suggestion(monkeypatch):
    with pytest.raises(BackendError, match="backend='troch' cannot run here: did you mean 'torch'"):
        choose_backend("troch")
    monkeypatch.setenv("NSE_BACKEND", "cuda-magic")
    with pytest.raises(
        BackendError, match=r"NSE_BACKEND='cuda-magic' cannot run here: .*reference, torch, cpu, triton, auto"
    ):
        choose_backend()


def arguments(p):
    return [getattr(p, field) for field in p.__dataclass_fields__]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_chosen_backend_runs(backend, machine, monkeypatch):
    machine(capability=None, interpreter="1", kernel=None)
    p = make_problem(dtype=torch.float32)
    called = []
    stand_in = torch_loop.recurrence if backend in ("cpu", "triton") else BACKENDS[backend]
    monkeypatch.setitem(BACKENDS, backend, lambda *a: called.append(backend) or stand_in(*a))
    assert_close(recurrence(*arguments(p), backend=backend), p.run(stand_in, keys=False), 0)
    assert called == [backend]


UNCOVERED = {
    "more than 4 layers": {"layers": 5},
    "more than two shared memories": {"shared": (2, 0, 3)},
    "float64": {"dtype": torch.float64},
    "sizes above 5": {"k": 6},
    "empty batches": {"B": 0},
}


@pytest.mark.parametrize(("what", "extra"), UNCOVERED.items(), ids=UNCOVERED.keys())
def test_torch_runs_what_triton_does_not_support_and_logs_it_once(what, extra, machine, monkeypatch, caplog):
    machine(capability=None, interpreter="1")
    monkeypatch.setitem(BACKENDS, "triton", None)
    monkeypatch.setattr(module, "MAX_SIZE", 5)  # more would be gigabytes of weights
    log_fallback.cache_clear()
    p = make_problem(**{"dtype": torch.float32, **extra})
    with caplog.at_level(logging.INFO, module.__name__):
        for _ in range(2):
            got = recurrence(*arguments(p), keys=True, backend="triton")
    assert_close(got, p.to(dtype=torch.float64).run(reference.recurrence), 2e-5)
    [message] = [record.getMessage() for record in caplog.records if record.name == module.__name__]
    assert message == f"the triton backend does not support {what}: torch runs instead, with the same results"


def test_torch_runs_what_the_compiled_kernel_does_not_support_without_a_word(machine, monkeypatch, caplog):
    machine(kernel=None)
    monkeypatch.setitem(BACKENDS, "cpu", None)
    log_fallback.cache_clear()
    p = make_problem()
    with caplog.at_level(logging.DEBUG, module.__name__):
        for _ in range(2):
            assert_close(recurrence(*arguments(p), keys=True), p.run(reference.recurrence), 1e-10)
    [record] = [record for record in caplog.records if record.name == module.__name__]
    assert "the cpu backend does not support float64" in record.getMessage()
    assert record.levelno == logging.DEBUG


def test_torch_runs_batches_without_steps(machine, monkeypatch):
    machine(capability=None, interpreter="1")
    monkeypatch.setitem(BACKENDS, "triton", None)
    p = make_problem(2, 0, 3, slots=2, dtype=torch.float32)
    assert_close(recurrence(*arguments(p), backend="triton"), p.run(reference.recurrence, keys=False), 2e-5)
