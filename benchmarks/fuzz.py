"""Try thousands of damaged inputs that hypothesis generates.

    python benchmarks/fuzz.py --inputs 20000          # writes results/fuzz.json

The inputs are model folders, recipes, checkpoints, HTTP bodies and whole requests. Each must be answered, or
refused with a message; anything else is a crash, and ends the run with the smallest input that causes it. An
input that still looks valid (one bit, two lines or one number differ) must be refused or make no difference.
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
from faults.made_models import save_model  # noqa: E402
from nse.files import write_text  # noqa: E402
from nse.train.environment import describe_environment  # noqa: E402
from serve.made_bodies import draw_bodies, make_body_sender  # noqa: E402
from serve.made_heads import draw_heads, try_heads  # noqa: E402

Kind = tuple[Any, Callable[[Any], object]]
"""Strategy that generates inputs, and function that tries one and returns the outcome."""


def try_inputs(inputs: int, strategy: Any, attempt: Callable[[Any], object]) -> dict[str, Any]:
    """Try a number of inputs; return their outcomes and the seconds."""
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(value: Any) -> None:
        outcomes[str(attempt(value))] += 1

    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return {"inputs": sum(outcomes.values()), "outcomes": dict(sorted(outcomes.items())), "seconds": seconds}


def make_kinds(folder: Path) -> dict[str, Kind]:
    """Return strategy and function for each kind of input; valid files to damage are made in a folder."""
    save_model(folder / "good")
    files = {file.name: file.read_bytes() for file in (folder / "good").iterdir()}
    checkpoint = stopped_run(folder / "run")
    return {
        "model folders": (
            folders(files),
            lambda files: "loaded" if try_folder(files, folder / "broken") else "refused",
        ),
        "model folders that look right": (plausible(files), try_plausible(files, folder / "plausible")),
        "recipes": (
            recipes(),
            lambda recipe: "loaded" if try_recipe(*recipe, folder / "recipe.toml") else "refused",
        ),
        "checkpoints": (checkpoints(checkpoint), try_checkpoint(folder / "run", folder / "resumed")),
        "HTTP bodies": (draw_bodies(), make_body_sender(folder / "good")),
        "HTTP requests": (draw_heads(), try_heads(folder / "good")),
    }


def main() -> None:
    """Try all kinds and write the outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="number of inputs of each kind")
    parser.add_argument("--only", help="only this kind, such as checkpoints")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz.json")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # about folders without checksums
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"environment": describe_environment(torch.device("cpu"), 1)}
    with tempfile.TemporaryDirectory() as folder:
        kinds = make_kinds(Path(folder))
        if args.only not in {None, *kinds}:
            parser.error(f"--only: expected one of {', '.join(kinds)}, got {args.only}")
        for kind, (strategy, attempt) in kinds.items():
            if args.only in (None, kind):
                figures[kind] = try_inputs(args.inputs, strategy, attempt)
                print(kind, json.dumps(figures[kind]), flush=True)
    # Read only now: fuzz_coverage.py, which writes the same file, may have run meanwhile.
    report = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {}
    write_text(args.out, json.dumps(report | figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
