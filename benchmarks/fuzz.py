"""Broken input by the thousand, as hypothesis breaks it.

    python benchmarks/fuzz.py --inputs 20000          # writes results/fuzz.json

Model folders, recipes, checkpoints, HTTP bodies and whole requests. Every input must be answered, or refused
with a message; anything else is a crash, and ends the run with the smallest input that does it. Where input
still looks right (one bit, two lines or one number differ), it must be refused or make no difference.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402

from faults.fuzzing import (  # noqa: E402
    folders,
    plausible,
    recipes,
    try_folder,
    try_plausible,
    try_recipe,
)
from faults.made_checkpoints import checkpoints, stopped_run, try_checkpoint  # noqa: E402
from faults.made_models import saved  # noqa: E402
from nse.files import write_text  # noqa: E402
from nse.train.environment import describe_environment  # noqa: E402
from serve.made_bodies import draw_bodies, make_body_sender  # noqa: E402
from serve.made_heads import draw_heads, try_heads  # noqa: E402

Kind = tuple[Any, Callable[[Any], object]]
"""A strategy, and what tries an input of it and gives the outcome."""


def tried(inputs: int, strategy: Any, attempt: Callable[[Any], object]) -> dict[str, Any]:
    """So many inputs, each tried once: how many, what came of them, in how many seconds."""
    found: Counter[str] = Counter()

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(value: Any) -> None:
        found[str(attempt(value))] += 1

    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return {"inputs": sum(found.values()), "outcomes": dict(sorted(found.items())), "seconds": seconds}


def make_kinds(place: Path) -> dict[str, Kind]:
    """Make each kind of input, and what tries it, in a folder of good things to break."""
    saved(place / "good")
    files = {file.name: file.read_bytes() for file in (place / "good").iterdir()}
    checkpoint = stopped_run(place / "run")
    return {
        "model folders": (
            folders(files),
            lambda given: "loaded" if try_folder(given, place / "broken") else "refused",
        ),
        "model folders that look right": (plausible(files), try_plausible(files, place / "plausible")),
        "recipes": (
            recipes(),
            lambda given: "loaded" if try_recipe(*given, place / "recipe.toml") else "refused",
        ),
        "checkpoints": (checkpoints(checkpoint), try_checkpoint(place / "run", place / "resumed")),
        "HTTP bodies": (draw_bodies(), make_body_sender(place / "good")),
        "HTTP requests": (draw_heads(), try_heads(place / "good")),
    }


def main() -> None:
    """Try and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="of each kind")
    parser.add_argument("--only", help="this kind alone, such as checkpoints")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz.json")
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)  # of folders without checksums
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"environment": describe_environment(torch.device("cpu"), 1)}
    with tempfile.TemporaryDirectory() as name:
        kinds = make_kinds(Path(name))
        if wanted.only not in {None, *kinds}:
            parser.error(f"--only: expected one of {', '.join(kinds)}, got {wanted.only}")
        for kind, (strategy, attempt) in kinds.items():
            if wanted.only in (None, kind):
                figures[kind] = tried(wanted.inputs, strategy, attempt)
                print(kind, json.dumps(figures[kind]), flush=True)
    # Read only now: fuzz_coverage.py, which writes the same file, may have run meanwhile.
    report = json.loads(wanted.out.read_text("utf-8")) if wanted.out.exists() else {}
    write_text(wanted.out, json.dumps(report | figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
