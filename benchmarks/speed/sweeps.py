"""Picture of the time by length and by batch size, drawn from the rows of the benchmark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nse.errors import InputError
from nse.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
GPU = {  # backend: its name in the picture, its colour (told apart by the colour-blind as well)
    "triton graph": ("NSE, triton", "#0072B2"),
    "torch graph": ("NSE, torch", "#009E73"),
    "cudnn graph": ("LSTM of two layers, cuDNN", "#D55E00"),
}
CPU = {
    "cpu": ("NSE", "#0072B2"),
    "torch": ("NSE, loop in PyTorch", "#009E73"),
    "lstm": ("LSTM of two layers", "#D55E00"),
}
Series = dict[str, tuple[str, str]]
STYLES = {"train": "-", "forward": "--"}


def draw_sweeps(rows: Sequence[Row], path: Path, *, series: Series = GPU, B: int = 32, T: int = 25) -> None:
    """Draw milliseconds by T at this B, and by B at this T, as an SVG file.

    The same rows give the same file, which names their `fingerprint`, so that a test can tell a picture of
    other rows. Text stays text.

    Args:
        rows: The rows of a report.
        path: The SVG file to write; its folder is made.
        series: The backends to draw.
        B: The batch of the sweep over lengths.
        T: The length of the sweep over batches.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        expected = "pip install 'neural-semantic-encoders[figures]'"
        raise InputError(f"pictures need matplotlib: {expected}") from None
    from matplotlib.figure import Figure

    look: dict[Any, Any] = {
        "svg.hashsalt": "nse",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
    }
    with matplotlib.rc_context(look):
        picture = Figure(figsize=(9.6, 4.2), layout="constrained")
        left, right = picture.subplots(1, 2, sharey=True)
        draw_panel(left, rows, series, "T", {"B": B}, f"words in a sequence, T ({B} sequences)")
        draw_panel(right, rows, series, "B", {"T": T}, f"sequences in a batch, B ({T} words)")
        left.set_ylabel("milliseconds")
        handles, labels = left.get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside upper center", ncols=len(series), frameon=False)
        about = {"Title": "Time of a pass by length and by batch", "Identifier": compute_fingerprint(rows)}
        content = BytesIO()
        picture.savefig(content, format="svg", metadata={**about, "Creator": None, "Date": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content.getvalue())


def draw_panel(axes: Axes, rows: Sequence[Row], series: Series, over: str, fixed: Row, label: str) -> None:
    """Draw one sweep: a line for each series and mode."""
    sizes = set()
    for backend, (name, colour) in series.items():
        for mode, style in STYLES.items():
            expected = {"backend": backend, "mode": mode, "dtype": "float32", **fixed}
            points = sorted(
                (row[over], row["ms"]) for row in select_encoder_rows(rows) if expected.items() <= row.items()
            )
            if points:
                size, ms = zip(*points, strict=True)
                axes.loglog(size, ms, style, color=colour, marker="o", markersize=3, label=f"{name}, {mode}")
                sizes |= set(size)
    axes.set_xlabel(label)
    axes.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def select_encoder_rows(rows: Sequence[Row]) -> list[Row]:
    """Select the rows that measure an encoder alone."""
    return [row for row in rows if row["name"] in ("NSE", "LSTM, two layers")]


def compute_fingerprint(rows: Sequence[Row]) -> str:
    """Compute a hash of the rows."""
    return "sha256:" + hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
