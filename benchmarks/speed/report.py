"""Tables of a report for terminals and documents, and its main ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Group
from rich.table import Table

from benchmarks.speed.plan import ENCODERS

Report = dict[str, Any]


class Sheet(NamedTuple):
    """Table of text."""

    title: str
    columns: Sequence[str]
    lines: list[list[str]]


class Figure(NamedTuple):
    """Ratio of a field of two sides, `above` over `below`, at one shape in float32."""

    name: str
    B: int
    T: int
    mode: str
    field: str
    above: str
    below: str


OURS, CUDNN = "triton graph", "cudnn graph"
FIGURES = (
    Figure("train, 128 x 25: time over cuDNN's LSTM", 128, 25, "train", "ms", OURS, CUDNN),
    Figure("forward, 128 x 25: time over cuDNN's LSTM", 128, 25, "forward", "ms", OURS, CUDNN),
    Figure("train, 128 x 25: times faster than the reference", 128, 25, "train", "ms", "reference", OURS),
    Figure("train, 128 x 25: times faster than JAX", 128, 25, "train", "ms", "jax", OURS),
    Figure("train, 32 x 400: time over cuDNN's LSTM", 32, 400, "train", "ms", OURS, CUDNN),
    Figure(
        "train, 32 x 400: kept memory over the reference's", 32, 400, "train", "kept_mb", OURS, "reference"
    ),
)

CPU_COLUMNS = ("B", "T", "mode", "backend", "ms", "over nn.LSTM", "peak MiB")
GPU_COLUMNS = (
    *("B", "T", "dtype", "mode", "backend", "ms", "peak MiB", "kept MiB"),
    *("times faster than reference", "over cuDNN in a graph"),
)
STEP_COLUMNS = (
    "batches",
    "backend",
    "premises padded to",
    "ms",
    "least",
    "most",
    "pairs a second",
    "peak MiB",
)
FIT_COLUMNS = ("backend", "mode", "sweep", "at", "fixed ms", "ms each", "worst error", "last exponent")
TEXT_COLUMNS = ("batches", "dtype", "mode", "backend", "sweep", "at", "figure")  # the others are numbers


def format_tables(report: Report) -> Group:
    """Format all tables for a terminal."""
    return Group(*(make_rich_table(sheet) for sheet in make_sheets(report).values() if sheet.lines))


def format_markdown(report: Report, sheet: str = "main") -> str:
    """Format one sheet as Markdown."""
    title, columns, lines = make_sheets(report)[sheet]
    ruled = [columns, ["---"] * len(columns), *lines]
    return f"{title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in ruled) + "\n"


def make_sheets(report: Report) -> dict[str, Sheet]:
    """Make the sheets of a report by name; `main` is always there."""
    if report["machine"]["device"] == "cpu":
        parts = {"main": "rows", "growth": "growth", "isa": "isa"}
        titles = {"main": make_cpu_title(report), "growth": "By length and batch", "isa": "Instruction sets"}
        return {
            name: Sheet(titles[name], CPU_COLUMNS, make_cpu_lines(report.get(key, [])))
            for name, key in parts.items()
        }
    ratios = [[name, f"{value:.3g}"] for name, value in compute_ratios(report).items()]
    return {
        "main": Sheet(make_gpu_title(report), GPU_COLUMNS, make_gpu_lines(report)),
        "steps": Sheet(
            "A training step of 128 pairs with the lengths of SNLI", STEP_COLUMNS, make_step_lines(report)
        ),
        "fits": Sheet("Time as a line, ms = fixed + each * size", FIT_COLUMNS, make_fit_lines(report)),
        "figures": Sheet("In short, the NSE on triton in a graph", ("figure", "ratio"), ratios),
    }


def make_rich_table(sheet: Sheet) -> Table:
    """Convert a sheet to a rich table."""
    shown = Table(title=sheet.title)
    for column in sheet.columns:
        shown.add_column(column, justify="left" if column in TEXT_COLUMNS else "right")
    for line in sheet.lines:
        shown.add_row(*line)
    return shown


def make_cpu_title(report: Report) -> str:
    """Describe the machine in a line."""
    where = report["machine"]
    return f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}, float32"


def make_cpu_lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Make the lines of one part, each with its time over an LSTM's."""
    return [
        [
            *(str(row[name]) for name in ("B", "T", "mode")),
            str(row.get("isa") or row["backend"]),
            f"{row['ms']:.2f}",
            f"{row['over_lstm']:.2f}" if "over_lstm" in row else "",
            f"{row['peak_mb']:.1f}" if "peak_mb" in row else "",
        ]
        for row in rows
    ]


def make_gpu_title(report: Report) -> str:
    """Describe the machine in a line."""
    where = report["machine"]
    names = {"torch": "torch", "cuda": "CUDA", "cudnn": "cuDNN", "triton": "triton", "jax": "jax"}
    versions = [f"{name} {where[key]}" for key, name in names.items() if where[key]]
    sizes = sorted({row["k"] for row in select_encoders(report)})
    products = ["float32 products in TF32"] if where["tf32"] else []
    return ", ".join([where["gpu"], *versions, *products, *(f"k = {k}" for k in sizes)])


def make_gpu_lines(report: Report) -> list[list[str]]:
    """Make the lines of the main shapes: those that are not only measured with graphs."""
    rows = select_encoders(report)
    main = {(row["B"], row["T"]) for row in rows if not row["backend"].endswith("graph")}
    lines = []
    for row in rows:
        if (row["B"], row["T"]) in main:
            reference, cudnn = (find_counterpart(rows, row, backend) for backend in ("reference", CUDNN))
            lines.append(
                [
                    *(str(row[name]) for name in GPU_COLUMNS[:5]),
                    f"{row['ms']:.3f}",
                    *("" if row[field] is None else f"{row[field]:.1f}" for field in ("peak_mb", "kept_mb")),
                    f"{reference['ms'] / row['ms']:.1f}" if reference else "",
                    f"{row['ms'] / cudnn['ms']:.2f}" if cudnn else "",
                ]
            )
    return lines


def make_step_lines(report: Report) -> list[list[str]]:
    """Make the lines of whole training steps."""
    return [
        [
            *(str(row[name]) for name in ("batches", "backend", "T")),
            *(f"{row[name]:.3f}" for name in ("ms", "ms_least", "ms_most")),
            f"{row['pairs_per_second']:,}",
            f"{row['peak_mb']:.1f}",
        ]
        for row in report["rows"]
        if row["name"] == "SNLI step"
    ]


def select_encoders(report: Report) -> list[dict[str, Any]]:
    """Select the rows that measure an encoder alone."""
    return [row for row in report["rows"] if row["name"] in ENCODERS]


def find_counterpart(rows: list[dict[str, Any]], row: dict[str, Any], backend: str) -> dict[str, Any] | None:
    """Find the row of another backend at the same shape, dtype and mode."""
    expected = {**{key: row[key] for key in ("B", "T", "k", "dtype", "mode")}, "backend": backend}
    return find_row(rows, expected)


def find_row(rows: list[dict[str, Any]], expected: dict[str, Any]) -> dict[str, Any] | None:
    """Find the first row with these values."""
    return next((row for row in rows if all(row[key] == expected[key] for key in expected)), None)


def make_fit_lines(report: Report) -> list[list[str]]:
    """Make the lines of the fits."""
    lines = []
    for fit in report["fits"]:
        sweep, at = ("T", f"B = {fit['B']}") if fit["sweep"] == "T" else ("B", f"T = {fit['T']}")
        measured = [f"{fit['fixed_ms']:.4f}", f"{fit['each_ms']:.5f}"]
        measured += [f"{100 * fit['worst']:.0f}%", f"{fit['exponent']:.2f}"]
        lines.append([fit["backend"], fit["mode"], sweep, at, *measured])
    return lines


def compute_ratios(report: Report) -> dict[str, float]:
    """Compute the main ratios by name, if both sides were measured."""
    results = {}
    for name, B, T, mode, field, *sides in FIGURES:
        shape = {"B": B, "T": T, "dtype": "float32", "mode": mode}
        above, below = (find_row(select_encoders(report), {**shape, "backend": side}) for side in sides)
        if above and below and above[field] and below[field]:
            results[name] = above[field] / below[field]
    return results
