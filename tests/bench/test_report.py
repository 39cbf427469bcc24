"""Reports as tables: the ratios are those of the rows."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.made_up import FACTORS, made_up
from benchmarks import speed as bench
from benchmarks.speed.plan import FULL, QUICK
from benchmarks.speed.report import FIGURES, make_sheets

CPU = Path(__file__).parents[2] / "benchmarks" / "results" / "cpu.json"


def shown(report):
    file = io.StringIO()
    Console(file=file, width=200).print(bench.format_tables(report))
    return file.getvalue()


def test_the_main_table_has_the_main_shapes_and_their_ratios():
    sheet = make_sheets(made_up())["main"]
    assert (
        sheet.title
        == "NVIDIA made up, torch 2, CUDA 13.0, cuDNN 91900, triton 3, float32 products in TF32, k = 300"
    )
    lines = [dict(zip(sheet.columns, line, strict=True)) for line in sheet.lines]
    assert {(int(line["B"]), int(line["T"])) for line in lines} == set(FULL.main)
    assert len(lines) == 4 * 2 * 8 + 2 * 4
    for line in lines:
        if line["dtype"] == "float32":
            factor = FACTORS[line["backend"]]
            assert float(line["times faster than reference"]) == pytest.approx(80 / factor, abs=0.06)
            assert float(line["over cuDNN in a graph"]) == pytest.approx(factor / 0.5, abs=0.006)
        else:
            assert line["times faster than reference"] == ""
            assert line["over cuDNN in a graph"]
        assert (line["kept MiB"] == "") == (line["mode"] == "forward" or line["backend"] == "jax")
        assert (line["peak MiB"] == "") == (line["backend"] == "jax")


def test_figures_sum_a_report_up():
    figures = bench.compute_ratios(made_up())
    assert list(figures) == [figure.name for figure in FIGURES]
    assert list(figures.values()) == pytest.approx([2, 2, 80, 5, 2, 1 / 80])


def test_what_was_not_measured_is_not_figured():
    report = made_up()
    report["rows"] = [row for row in report["rows"] if row["backend"] != "jax"]
    assert len(bench.compute_ratios(report)) == len(FIGURES) - 1
    quick = made_up(QUICK)
    assert bench.compute_ratios(quick) == {}
    assert "In short" not in shown(quick)


def test_in_a_terminal_and_in_a_document():
    report = made_up()
    terminal = shown(report)
    for words in ("NVIDIA made up", "triton graph", "ms = fixed + each * size", "times faster than JAX"):
        assert words in terminal
    assert "| 128 | 25 | float32 | train | triton graph | " in bench.format_markdown(report)
    assert "| triton graph | train | T | B = 32 | " in bench.format_markdown(report, "fits")
    assert "| train, 128 x 25: times faster than JAX | 5 |" in bench.format_markdown(report, "figures")


def test_the_committed_report_of_the_cpu():
    report = json.loads(CPU.read_text("utf-8"))
    assert "| B | T | mode | backend | ms | over nn.LSTM | peak MiB |" in bench.format_markdown(report)
    assert report["machine"]["cpu"] in shown(report)
