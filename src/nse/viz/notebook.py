"""How a notebook shows a trace: pictures and tables in place, without scripts."""

from __future__ import annotations

from html import escape

from nse.viz import graph, heat, tables
from nse.viz.drawing import printable
from nse.viz.trace import MemoryTrace

MOST_CELLS = 10_000
"""Slots over all steps: more would be megabytes in a notebook, and nobody would read them."""


def html(trace: MemoryTrace) -> str:
    """Write the answer, the association graph, and folded away the heat map and the memory step by step."""
    cells = sum(memory.keys.size for _, memory in trace.accesses())
    name, answer = (escape(text) for text in (trace.model.get("name", "model"), printable(said(trace))))
    steps = tables.html(trace) if cells <= MOST_CELLS else "<p>Too long to show here.</p>"
    scroll = '<div style="overflow-x:auto;background:#fff;color:#1f2430">'
    return (
        f"<div><p><b>{name}</b>: {answer}</p>{scroll}{graph.svg(trace)}</div>"
        f"<details><summary>What each step read</summary>{scroll}{heat.svg(trace)}</div></details>"
        f"<details><summary>The memory step by step</summary>{scroll}{steps}</div></details>"
        "</div>"
    )


def said(trace: MemoryTrace) -> str:
    """Tell what the model says, in a line."""
    found = trace.prediction
    if "label" in found:
        shares = sorted(found["probabilities"].items(), key=lambda each: -each[1])
        return ", ".join(f"{label} {100 * share:.1f}%" for label, share in shares)
    if "ranking" in found:
        return "; ".join(f"{row['rank']}. {row['text']} ({row['score']:.2f})" for row in found["ranking"])
    return str(found.get("translation", ""))
