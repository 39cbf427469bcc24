"""Tables of the CPU, of reports that are made up."""

import importlib.util
from pathlib import Path

import pytest

from benchmarks.speed.cpu import FULL

FILE = Path(__file__).parents[2] / "benchmarks" / "tables.py"


@pytest.fixture
def tables():
    spec = importlib.util.spec_from_file_location("tables", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_rows(*backends, shapes):
    times = {"reference": 80.0, "torch": 30.0, "cpu": 12.0, "lstm": 10.0, "jax": 50.0}
    return [
        {"backend": name, "B": B, "T": T, "mode": mode, "ms": times[name], "peak_mb": times[name]}
        | {"over_lstm": times[name] / 10 + 0.01}
        for B, T, mode in shapes
        for name in backends
    ]


SHAPES = [shape[:3] for shape in FULL.shapes]
SIDES = ("reference", "torch", "cpu", "lstm")


def test_the_time_over_an_lstm_stands_beside_its_bounds(tables, monkeypatch):
    monkeypatch.setattr(tables, "read_report", lambda name: {"rows": make_rows(*SIDES, shapes=SHAPES)})
    text = tables.write_cpu()
    assert "| 8 | 400 | train | 80.0 | 30.0 | 12.0 | 10.0 | 1.21 | 2.50 | 1.60 |" in text
    assert text.endswith("8 x 400 words: 0.150 of the reference's 80 MiB (must 0.06, aim 0.03).")
    assert text.count("\n| ") == 1 + len(FULL.shapes)


def test_without_the_kernel_the_plain_loop_is_compared(tables, monkeypatch):
    rows = make_rows("reference", "torch", "lstm", shapes=SHAPES)
    monkeypatch.setattr(tables, "read_report", lambda name: {"rows": rows})
    assert "| 1 | 25 | forward | 80.0 | 30.0 |  | 10.0 | 3.01 | 1.15 | 0.80 |" in tables.write_cpu()
    assert tables.write_cpu_peers() == "Not measured yet."
    assert tables.write_cpu_growth() == "Not measured yet."
    assert tables.write_instruction_sets() == "Not measured yet."


def test_peers_stand_beside_the_kernel(tables, monkeypatch):
    rows = make_rows(*SIDES, shapes=SHAPES) + make_rows("jax", shapes=SHAPES[:1])
    rows += [
        {**row, "backend": "torch.compile", "compile_s": 40.2} for row in rows if row["backend"] == "jax"
    ]
    monkeypatch.setattr(tables, "read_report", lambda name: {"rows": rows})
    text = tables.write_cpu_peers()
    assert "| B | T | mode | NSE | torch.compile | jax |" in text
    assert "| 1 | 25 | forward | 12.0 | 50.0 | 50.0 |" in text
    assert "| 8 | 400 | train | 12.0 |  |  |" in text
    assert "`torch.compile` compiles a shape in 40 to 40 s." in text


def test_growth_has_a_line_for_each_length_and_batch(tables, monkeypatch):
    sizes = {(B, T) for B, lengths in FULL.lengths for T in lengths}
    sizes |= {(B, FULL.batches[0]) for B in FULL.batches[1]}
    shapes = [(B, T, mode) for B, T in sizes for mode in ("forward", "train")]
    monkeypatch.setattr(
        tables, "read_report", lambda name: {"growth": make_rows("cpu", "lstm", shapes=shapes)}
    )
    text = tables.write_cpu_growth()
    assert "| 1600 | 1.21 | 1.21 | 1.21 | 1.21 |" in text
    assert "| 512 | 1.21 | 1.21 |" in text
    assert text.endswith("(images/sweeps-cpu.svg)")


def test_instruction_sets_are_compared_with_the_widest(tables, monkeypatch):
    rows = [
        {"isa": isa, "B": B, "T": T, "mode": mode, "ms": ms, "over_first": ms / 10}
        for B, T, mode in SHAPES
        for isa, ms in (("avx512", 10.0), ("avx2", 11.5))
    ]
    monkeypatch.setattr(tables, "read_report", lambda name: {"isa": rows})
    text = tables.write_instruction_sets()
    assert "| B | T | mode | avx512, ms | avx2, ms | avx2 / avx512 |" in text
    assert "| 1 | 400 | forward | 10.0 | 11.5 | 1.15 |" in text


def test_gains_are_shares_or_times_faster(tables, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.write_gains() == "Not measured yet."
    (tmp_path / "compare_versions.json").write_text("{}")
    pair = {"before": 1000.0, "now": 2000.0, "times_faster": 2.0}
    answers = {"unit": "pairs/s"}
    for what in ("file", "model", "http"):
        answers[what] = pair | {
            f"{name}_over_{of}": 0.5 for name in ("before", "now") for of in ("loop", "file")
        }
    first = {"unit": "s"} | dict.fromkeys(("nse predict", "nse.load and predict"), pair)
    report = {"commits": {"before": "abc"}, "answers": answers, "first": first}
    monkeypatch.setattr(tables, "read_report", lambda name: report)
    text = tables.write_gains()
    assert "| HTTP, 32 clients | 1,000 pairs/s | 2,000 pairs/s | 2.00 |  |  |" in text
    assert "| the same over `nse predict --file` | 0.50 | 0.50 |  | 0.75 | 0.85 |" in text
    assert "| first answer of `nse predict` | 1000.00 s | 2000.00 s | 2.00 |  |  |" in text
    assert "Before is abc." in text
    assert "training" not in text
