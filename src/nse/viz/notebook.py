"""Show a trace in a notebook: pictures and tables without scripts."""

from __future__ import annotations

from html import escape

from nse.viz import graph, heat, tables
from nse.viz.drawing import make_printable
from nse.viz.trace import MemoryTrace

MAX_CELLS = 10_000
"""Largest table, as steps x slots: a larger one would add megabytes to the notebook."""


def render_html(trace: MemoryTrace) -> str:
    """Write the prediction and the association graph, and folded the heat map and the memory step by step."""
    cells = sum(memory.keys.size for _, memory in trace.accesses())
    name, answer = escape(trace.model.get("name", "model")), escape(make_printable(format_prediction(trace)))
    too_large = "<p>Too long for a notebook: write a page with nse.viz.report.render_html(trace).</p>"
    steps = tables.render_html(trace) if cells <= MAX_CELLS else too_large
    scroll = '<div style="overflow-x:auto;background:#fff;color:#1f2430">'
    return (
        f"<div><p><b>{name}</b>: {answer}</p>{scroll}{graph.render_svg(trace)}</div>"
        f"<details><summary>Heat map of z</summary>{scroll}{heat.render_svg(trace)}</div></details>"
        f"<details><summary>Memory step by step</summary>{scroll}{steps}</div></details>"
        "</div>"
    )


def format_prediction(trace: MemoryTrace) -> str:
    """Write the prediction in one line."""
    prediction = trace.prediction
    if "label" in prediction:
        labels = sorted(prediction["probabilities"].items(), key=lambda item: -item[1])
        return ", ".join(f"{label} {100 * probability:.1f}%" for label, probability in labels)
    if "ranking" in prediction:
        return "; ".join(
            f"{row['rank']}. {row['text']} ({row['score']:.2f})" for row in prediction["ranking"]
        )
    return str(prediction.get("translation", ""))
