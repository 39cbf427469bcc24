"""The benchmark on a CUDA device: all of it but the device, which pretends; and once on a real one."""

import io
import json
import time
from contextlib import contextmanager

import pytest
import torch
from rich.console import Console

from benchmarks import speed as bench
from benchmarks.speed import gpu, peers
from benchmarks.speed.calls import Graph
from benchmarks.speed.plan import FULL, QUICK, SIDES, SWEEP_SIDES, list_cases
from nse import BackendError
from nse.ops.dispatch import BACKENDS


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)


class Stream:
    def wait_stream(self, other): ...


class CUDAGraph:
    def replay(self): ...


@contextmanager
def entered(_, **settings):
    yield


@pytest.fixture
def pretended(monkeypatch):
    """A CUDA device that is the CPU: a graph is what its capture computed."""
    answers = {"synchronize": None, "reset_peak_memory_stats": None, "empty_cache": None}
    answers |= {"memory_allocated": 2**20, "max_memory_allocated": 3 * 2**20, "get_device_name": "a pretence"}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    for name, stand_in in {"Event": Event, "Stream": Stream, "CUDAGraph": CUDAGraph}.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "graph", entered)


def measured(log=None):
    return gpu.run(QUICK, Console(file=log or io.StringIO(), width=1000), device="cpu")


def test_every_side_has_its_rows(pretended):
    log = io.StringIO()
    report = measured(log)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    absent = {each["backend"] for each in report["missing"]}
    here = {side.name for side in SIDES} - absent
    assert {"reference", "torch", "torch graph", "cudnn", "cudnn graph"} <= here
    assert {row["backend"] for row in report["rows"]} == here
    assert all(each["reason"] and f"{each['backend']}" in log.getvalue() for each in report["missing"])
    for row in report["rows"]:
        assert row["name"] == ("LSTM, two layers" if "cudnn" in row["backend"] else "NSE")
        assert 0 < row["ms_least"] <= row["ms"] <= row["ms_most"]
        assert row["calls"] >= gpu.ROUNDS
        if row["backend"] != "jax":
            assert row["peak_mb"] == 2
            assert row["kept_mb"] == (0 if row["mode"] == "train" else None)
    assert {(row["B"], row["T"]) for row in report["rows"]} == {(2, 5), (2, 3), (1, 5)}
    assert {row["dtype"] for row in report["rows"]} == {"float32", "bfloat16"}
    assert report["machine"]["tf32"]
    assert torch.get_float32_matmul_precision() == "highest"
    assert "cudnn graph" in {fit["backend"] for fit in report["fits"]}
    Console(file=log).print(bench.format_tables(report))


def test_a_wrong_backend_stops_everything(pretended, monkeypatch):
    honest = BACKENDS["torch"]
    monkeypatch.setitem(BACKENDS, "torch", lambda *a: honest(*a)._replace(outputs=honest(*a).outputs * 1.1))
    with pytest.raises(
        BackendError, match=r"torch at B=2 T=5 float32 forward and reference differ by 1\.0e-01"
    ):
        measured()
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_side_that_fails_is_left_out_and_told(pretended, monkeypatch):
    def fails(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried to allocate [everything]")

    monkeypatch.setattr(peers, "lstm", fails)
    monkeypatch.setattr(Graph, "measure_times", fails)
    log = io.StringIO()
    report = measured(log)
    assert {row["backend"] for row in report["rows"]} >= {"reference", "torch"}
    assert not {row["backend"] for row in report["rows"]} & {"cudnn", "cudnn graph", "torch graph"}
    reasons = [each for each in report["missing"] if each["backend"] == "cudnn" and each["mode"] == "train"]
    assert reasons == [
        {"backend": "cudnn", "B": 2, "T": 5, "k": 16, "dtype": "float32", "mode": "train"}
        | {"reason": "OutOfMemoryError: CUDA out of memory."}
    ]
    description = "cudnn B=2 T=5 float32 train is left out: OutOfMemoryError: CUDA out of memory."
    assert description in log.getvalue()
    assert "torch graph B=2 T=5 float32 train is left out" in log.getvalue()


def test_without_an_oracle_there_is_no_speed(pretended, monkeypatch):
    def fails(*_):
        raise RuntimeError("no room [for it]")

    monkeypatch.setattr(gpu.parity, "compute_reference", fails)
    monkeypatch.setattr(gpu, "list_available_sides", lambda *_: list(SIDES))
    with pytest.raises(BackendError, match=r"nothing could be measured; .* RuntimeError: no room \[for it\]"):
        measured()


def test_shapes_are_measured_once():
    shapes = [case[:4] for case in list_cases(FULL)]
    assert len(set(shapes)) == len(shapes)
    by_shape = {case[:4]: case.sides for case in list_cases(FULL)}
    assert "reference" in by_shape[32, 400, 300, "float32"]
    assert by_shape[32, 100, 300, "float32"] == SWEEP_SIDES
    assert "torch graph" not in by_shape[32, 800, 300, "float32"]
    assert "jax" not in by_shape[128, 25, 300, "bfloat16"]


def test_jax_that_is_not_there(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert peers.find_jax_obstacle("cuda") == "jax is not installed"


def test_device_is_chosen(monkeypatch):
    monkeypatch.setattr(gpu, "run", lambda plan, log, save: plan)
    monkeypatch.setattr(bench.cpu, "run", lambda plan, threads, *rest: threads)
    for there, device, chosen in [
        (True, "auto", QUICK),
        (True, "cuda", QUICK),
        (True, "cpu", 3),
        (False, "auto", 3),
    ]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert bench.run(quick=True, threads=3, log=Console(), device=device) == chosen


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # those of JAX and of Triton are theirs
def test_a_real_device():
    log = io.StringIO()
    report = bench.run(quick=True, threads=1, log=Console(file=log, width=1000), device="cuda")
    absent = {each["backend"] for each in report["missing"]}
    print(log.getvalue())
    assert not [each for each in report["missing"] if "B" in each], "a side failed"
    assert {row["backend"] for row in report["rows"]} == {side.name for side in SIDES} - absent
    for row in report["rows"]:
        assert 0 < row["ms_least"] <= row["ms"] <= row["ms_most"]
        if row["backend"] != "jax":
            assert row["peak_mb"] > 0
            assert row["mode"] == "forward" or 0 < row["kept_mb"] <= row["peak_mb"]
    assert report["fits"]
    assert "NVIDIA" in bench.format_markdown(report)
