"""Traces with known arcs."""

import numpy as np

from nse.viz.trace import Access, MemoryTrace, Reading, Text

PAPER = ["<S>", "A", "little", "child", "sits", "quietly", "on"]
PAPER += ["a", "hand", "built", "rock", "wall", "in", "autumn"]
PAPER_ARCS = [1, 0, 5, 5, 13, 4, 13, 9, 11, 11, 11, 4, 10, 9]
"""Sentence of the paper's appendix A, and the slot that each of its words is composed with there."""


def keys(arcs, slots, peak=0.6):
    """Make z with its largest weight at the end of each arc."""
    z = np.full((len(arcs), slots), (1 - peak) / max(slots - 1, 1), dtype=np.float32)
    z[np.arange(len(arcs)), arcs] = peak
    return z / z.sum(axis=1, keepdims=True)


def own(words, arcs=None, name="premise", peak=0.6, z=None):
    """Make a reading with its own memory."""
    if z is None:
        z = keys(
            arcs if arcs is not None else [(n + 1) % len(words) for n in range(len(words))],
            len(words),
            peak,
        )
    return Reading(name, tuple(words), (Access(name, tuple(words), z, tuple(range(len(words)))),))


def shared(words, others, arcs, across, name="hypothesis"):
    """Make a reading with its own memory and a shared one."""
    own_memory = Access(name, tuple(words), keys(arcs, len(words)), tuple(range(len(words))))
    shared_memory = Access("premise", tuple(others), keys(across, len(others)))
    return Reading(name, tuple(words), (own_memory, shared_memory))


def trace(*readings, prediction=None, texts=None, kind="pair"):
    """Make a trace of readings."""
    about = {"name": "made-up", "task": "snli", "kind": kind, "labels": ["yes", "no"]}
    texts = texts or [Text(r.name, " ".join(r.words), r.words) for r in readings]
    prediction = prediction or {"label": "yes", "probabilities": {"yes": 0.75, "no": 0.25}}
    return MemoryTrace(about, tuple(texts), readings, prediction)


def random_trace(words, seed=0, slots=None):
    """Make a trace of a number of words with random keys, and of a shared memory with a number of slots."""
    draw = np.random.default_rng(seed)
    names = [f"w{n}" for n in range(words)]
    own_memory = Access(
        "premise", tuple(names), draw.dirichlet(np.full(words, 0.3), words), tuple(range(words))
    )
    memories = [own_memory]
    if slots:
        other_names = tuple(f"s{n}" for n in range(slots))
        memories.append(Access("others", other_names, draw.dirichlet(np.full(slots, 0.3), words)))
    return trace(Reading("premise", tuple(names), tuple(memories)))


NASTY = [
    "<script>alert(1)</script>",
    '"',
    "&amp;",
    "\\end{document}",
    "[",
    "*",
    "$x_1^2$",
    "%",
    "中文",
    "a\u202eb",
    "e\u0301",
]
"""Words with markup, escapes and rare letters."""
