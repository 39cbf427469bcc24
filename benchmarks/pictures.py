"""Draw the pictures of the documents: the paper's sentences, traced with the shipped models.

    python benchmarks/pictures.py

Writes traces to docs/results/pictures and pictures to docs/images. `make tables` compares the first trace
with appendix A of the paper.
"""

from pathlib import Path

import nse
from nse.files import write_text
from nse.viz import graph, heat
from nse.viz.trace import MemoryTrace

ROOT = Path(__file__).parents[1]
TRACES, IMAGES = ROOT / "docs" / "results" / "pictures", ROOT / "docs" / "images"

SENTENCES = {
    "child": (
        "snli",
        "A little child sits quietly on a hand built rock wall in autumn",
        "A child is sitting outdoors.",
    ),
    "puppies": (
        "snli",
        "Three puppies are in the tub being sprayed with water by the vet.",
        "The dogs are being washed.",
    ),
    "dog": ("translate-en-de", "A dog runs across the snow."),
}

APPENDIX = (1, 0, 5, 5, 13, 4, 13, 9, 11, 11, 11, 4, 10, 9)
"""Slot that each word of the paper's appendix A is composed with there, from the start word on."""


def draw_pictures(name: str, trace: MemoryTrace) -> dict[str, str]:
    """Draw the pictures of a trace; return them by file name."""
    return {f"{name}.svg": graph.render_svg(trace), f"{name}-heat.svg": heat.render_svg(trace)}


def compare_with_paper(trace: MemoryTrace) -> list[tuple[str, str, str, float]]:
    """Return each word of the paper's first sentence with the paper's slot, our slot and its weight."""
    reading = trace.readings[0]
    memory = reading.memories[0]
    rows = zip(reading.words, APPENDIX, memory.composed, memory.weights, strict=True)
    return [
        (word, memory.slots[paper_slot], memory.slots[slot], weight)
        for word, paper_slot, slot, weight in rows
    ]


def main() -> None:
    """Trace the sentences and draw the pictures."""
    TRACES.mkdir(parents=True, exist_ok=True)
    for name, (model, *texts) in SENTENCES.items():
        trace = nse.load(model).trace(*texts)
        trace.save(TRACES / f"{name}.json")
        for file, picture in draw_pictures(name, trace).items():
            write_text(IMAGES / file, picture)


if __name__ == "__main__":
    main()
