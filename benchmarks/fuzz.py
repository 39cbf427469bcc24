"""Broken input by the thousand: model folders, recipes and HTTP bodies, as hypothesis breaks them.

    python benchmarks/fuzz.py --inputs 20000          # writes results/fuzz.json

Every input must be answered, or refused with a message; anything else is a crash, and ends the run with the
smallest input that does it.
"""

import argparse
import json
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

from faults.fuzzing import folders, recipes, try_folder, try_recipe  # noqa: E402
from faults.made_models import saved  # noqa: E402
from nse.files import write  # noqa: E402
from nse.train.environment import environment  # noqa: E402
from serve.made_bodies import asked, bodies  # noqa: E402


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


def main() -> None:
    """Try and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="of each kind")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz.json")
    wanted = parser.parse_args()
    report: dict[str, Any] = {"environment": environment(torch.device("cpu"), 1)}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        saved(place / "good")
        files = {file.name: file.read_bytes() for file in (place / "good").iterdir()}
        sides: dict[str, tuple[Any, Callable[[Any], object]]] = {
            "model folders": (
                folders(files),
                lambda given: "loaded" if try_folder(given, place / "broken") else "refused",
            ),
            "recipes": (
                recipes(),
                lambda given: "loaded" if try_recipe(*given, place / "recipe.toml") else "refused",
            ),
            "HTTP bodies": (bodies(), asked(place / "good")),
        }
        for kind, (strategy, attempt) in sides.items():
            report[kind] = tried(wanted.inputs, strategy, attempt)
            print(kind, json.dumps(report[kind]), flush=True)
    write(wanted.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
