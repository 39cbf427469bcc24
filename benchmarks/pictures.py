"""The pictures of the documents: the paper's own sentences, read by the shipped models.

    python benchmarks/pictures.py

Writes the traces to docs/results/pictures and their pictures to docs/images. `make tables` compares the first
with the paper's appendix A.
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
"""For each word of the paper's appendix A, from its start word on, the slot it is composed with there."""


def pictures(name: str, trace: MemoryTrace) -> dict[str, str]:
    """The pictures of a trace, by their files' names."""
    return {f"{name}.svg": graph.render_svg(trace), f"{name}-heat.svg": heat.render_svg(trace)}


def compared(trace: MemoryTrace) -> list[tuple[str, str, str, float]]:
    """For each word of the paper's first sentence: the slot there, the slot here, how much of it was read."""
    reading = trace.readings[0]
    memory = reading.memories[0]
    rows = zip(reading.words, APPENDIX, memory.composed, memory.weights, strict=True)
    return [(word, memory.slots[there], memory.slots[here], weight) for word, there, here, weight in rows]


def main() -> None:
    """Read and draw."""
    TRACES.mkdir(parents=True, exist_ok=True)
    for name, (model, *texts) in SENTENCES.items():
        trace = nse.load(model).trace(*texts)
        trace.save(TRACES / f"{name}.json")
        for file, picture in pictures(name, trace).items():
            write_text(IMAGES / file, picture)


if __name__ == "__main__":
    main()
