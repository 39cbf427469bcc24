"""Write the tables of the documents from the figures that the program measured: `make tables`.

A table stands between `<!-- NAME -->` and `<!-- end -->`; everything between is replaced.
"""

import json
import re
import sys
from pathlib import Path

from nse import bench
from nse.train.demo import MODELS

ROOT = Path(__file__).parents[1]


def demo() -> str:
    """The table of `nse demo --json > docs/results/demo.json`."""
    lines = [
        "| model | test | unseen combinations of words | training, two cores |",
        "| --- | --- | --- | --- |",
    ]
    for row in json.loads((ROOT / "docs" / "results" / "demo.json").read_text("utf-8")):
        figures = (
            f"{100 * row['accuracy']:.1f}% | {100 * row['accuracy_unseen']:.1f}% | {row['seconds']:.0f} s"
        )
        lines.append(f"| {MODELS[row['model']]} | {figures} |")
    return "\n".join(lines)


def cpu() -> str:
    """The table of `nse bench --out benchmarks/results/cpu.json`."""
    return bench.markdown(
        json.loads((ROOT / "benchmarks" / "results" / "cpu.json").read_text("utf-8"))
    ).strip()


TABLES = {"README.md": {"demo": demo}, "docs/benchmarks.md": {"cpu": cpu}}


def written(document: str) -> str:
    """The document's text with its tables made anew."""
    text = (ROOT / document).read_text("utf-8")
    for name, make in TABLES[document].items():
        text, found = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            lambda _, name=name, make=make: f"<!-- {name} -->\n{make()}\n<!-- end -->",
            text,
            flags=re.DOTALL,
        )
        if found != 1:
            sys.exit(f"{document} should have one place for the table {name}, it has {found}")
    return text


if __name__ == "__main__":
    for document in TABLES:
        (ROOT / document).write_text(written(document), "utf-8")
