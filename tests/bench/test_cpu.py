"""The benchmark refuses to print a speed for a wrong answer, and measures memory that is really used."""

import io
import json

import pytest
import torch
from rich.console import Console

from benchmarks.speed import cpu, instruction_sets, peers
from nse import BackendError
from nse.ops.dispatch import BACKENDS

SHAPE = cpu.QUICK.shapes[0]
SILENT = Console(file=io.StringIO())


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prepare(*sides, shape=SHAPE):
    return {side: cpu.prepare(side, cpu.draw_problem(shape, 8), shape.mode) for side in sides}


@pytest.mark.parametrize(("factor", "error"), [(1.01, "1.0e-02"), (float("nan"), "nan")])
def test_backends_that_differ_have_no_speed(monkeypatch, factor, error):
    honest = BACKENDS["torch"]
    worse = lambda *a: honest(*a)._replace(outputs=honest(*a).outputs * factor)  # noqa: E731
    monkeypatch.setitem(BACKENDS, "torch", worse)
    with pytest.raises(BackendError, match=f"torch at B=2 T=5 forward and reference differ by {error}"):
        cpu.check_parity(prepare("reference", "torch"), SHAPE)


@pytest.mark.parametrize("shape", cpu.QUICK.shapes)
def test_every_side_has_a_time_and_a_ratio_to_the_lstm(shape):
    calls = prepare("reference", "torch", cpu.LSTM, shape=shape)
    assert set(cpu.check_parity(calls, shape)) == set(calls)
    rows = {row["backend"]: row for row in cpu.measure_in_turns(calls, shape, cpu.QUICK)}
    assert set(rows) == set(calls)
    for row in rows.values():
        assert 0 < row["ms_least"] <= row["ms"] <= row["ms_most"]
        assert (row["B"], row["T"], row["mode"], row["rounds"]) == (shape.B, shape.T, shape.mode, 2)
    assert rows[cpu.LSTM]["over_lstm"] == 1


def test_a_slow_side_has_fewer_rounds_of_one_call(monkeypatch):
    monkeypatch.setattr(cpu, "count_calls", lambda call, seconds: 0 if call is slow else 4)
    called = []
    slow = lambda: called.append("slow")  # noqa: E731
    calls = {"torch": slow, cpu.LSTM: lambda: called.append("fast")}
    rows = cpu.measure_in_turns(calls, SHAPE, cpu.QUICK._replace(rounds=5))
    assert [(row["rounds"], row["calls"]) for row in rows] == [(cpu.SLOW_ROUNDS, 1), (5, 4)]
    assert (called.count("slow"), called.count("fast")) == (3, 5 * (4 + 1))


def test_the_time_of_a_round_is_compared_with_the_lstm_in_that_round(monkeypatch):
    bursts = iter([4.0, 2.0, 9.0, 3.0, 20.0, 4.0])  # the machine slows down
    monkeypatch.setattr(cpu, "count_calls", lambda call, seconds: 1)
    monkeypatch.setattr(cpu, "time_burst", lambda call, count: next(bursts))
    row, _ = cpu.measure_in_turns({"torch": print, cpu.LSTM: print}, SHAPE, cpu.QUICK._replace(rounds=3))
    assert (row["ms"], row["over_lstm"]) == (9.0, 3.0)


def test_peers_that_are_not_installed_are_told(monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert {peer: cpu.find_obstacle(peer) for peer in cpu.PEERS} == {
        "torch.compile": "there is no C++ compiler no-such-compiler",
        "jax": "jax is not installed",
        "onnxruntime": "onnx and onnxscript and onnxruntime not installed",
    }


def test_what_cannot_be_measured_is_in_the_report(monkeypatch):
    monkeypatch.setattr(cpu, "find_obstacle", lambda side: None if side == "reference" else "no reason")
    report = cpu.measure_shapes(cpu.QUICK._replace(shapes=[SHAPE]), 1, SILENT, ["jax"])
    assert [row["backend"] for row in report["rows"]] == ["reference", cpu.LSTM]
    left_out = ["torch", "cpu", "torch.compile", "onnxruntime"]
    assert report["missing"] == [{"backend": side, "reason": "no reason"} for side in left_out]


@pytest.mark.parametrize(
    ("side", "mode", "T", "expected"),
    [
        ("onnxruntime", "forward", 400, True),
        ("onnxruntime", "train", 25, False),
        ("torch.compile", "train", 25, True),
        ("torch.compile", "forward", 400, False),
        ("jax", "train", 400, True),
    ],
)
def test_peers_are_measured_where_they_can_be(side, mode, T, expected):
    assert cpu.supports(side, cpu.Shape(1, T, mode)) is expected


@pytest.mark.slow
def test_onnxruntime_computes_what_the_reference_does():
    assert peers.find_cpu_obstacle("onnxruntime") is None
    cpu.check_parity(prepare("reference", "onnxruntime"), SHAPE)


def test_growth_is_measured_until_the_plain_loop_is_too_slow(monkeypatch):
    monkeypatch.setattr(cpu, "MAX_SECONDS", 0)
    monkeypatch.setattr(cpu, "GROWTH", ("torch", cpu.LSTM))
    rows = cpu.measure_growth(cpu.QUICK, SILENT)
    sizes = [(row["B"], row["T"]) for row in rows if row["backend"] == cpu.LSTM and row["mode"] == "train"]
    assert sizes == [(2, 3), (2, 5), (1, 5)]
    assert {(row["B"], row["T"]) for row in rows if row["backend"] == "torch"} == {(2, 3), (1, 5)}


def test_instruction_sets_take_turns_and_are_compared_with_the_first(monkeypatch):
    questions = []

    class Process:
        def __init__(self, name, *_):
            self.name, self.stdin = name, io.StringIO()

        @property
        def stdout(self):
            questions.append(self.name)
            return io.StringIO(json.dumps({"cpu": 2.0 if self.name == "wide" else 3.0, cpu.LSTM: 4.0}))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(instruction_sets, "start", Process)
    monkeypatch.setattr(instruction_sets, "list_isas", lambda: ["wide", "narrow"])
    monkeypatch.setattr(cpu, "find_obstacle", lambda side: None)
    rows = instruction_sets.compare_instruction_sets(cpu.QUICK._replace(shapes=[SHAPE]), 1, SILENT)
    assert questions[::2] == ["wide", "narrow"] * cpu.QUICK.rounds  # looked at twice
    figures = [(row["isa"], row["ms"], row["over_lstm"], row["over_first"]) for row in rows]
    assert figures == [("wide", 2.0, 0.5, 1.0), ("narrow", 3.0, 0.75, 1.5)]


def test_without_the_kernel_there_are_no_instruction_sets(monkeypatch):
    monkeypatch.setattr(cpu, "find_obstacle", lambda side: "none was compiled")
    assert instruction_sets.compare_instruction_sets(cpu.QUICK, 1, SILENT) == []


def test_a_process_measures_the_shapes_it_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(cpu, "prepare", lambda side, problem, mode: lambda: None)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{json.dumps([*SHAPE, 0.001])}\n" * 2))
    instruction_sets.answer_questions(8, 1)
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(answer) for answer in answers] == [{"cpu", cpu.LSTM}] * 2


def test_peak_memory_sees_that_the_reference_keeps_a_memory_per_step():
    shape = cpu.Shape(4, 400, "train")
    one_memory = 4 * 400 * 64 * 4 / 2**20
    reference, plain = (cpu.run_memory_child(side, shape, 64, threads=1) for side in ("reference", "torch"))
    assert reference > 400 * one_memory
    assert plain < reference / 4
