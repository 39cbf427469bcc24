"""Measure what products in bfloat16 cost the shipped models, and what they gain on a CPU that has them.

    python benchmarks/precision.py --data DATA     # writes results/precision.json

Each model is evaluated on its test set in float32 and bfloat16, in turns; speeds are medians of the rounds.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any, get_args

import torch

from nse.files import write_text
from nse.inference import batches
from nse.inference.folder import find_precision, list_shipped
from nse.train.environment import describe_environment
from nse.train.evaluate import evaluate

RESULTS = Path(__file__).parent / "results" / "precision.json"
PRECISIONS = get_args(batches.Precision)
BATCH = 128  # as the commands have it
TRANSLATION_BATCH = 64


def measure_model(name: str, data: Path, rounds: int) -> dict[str, Any]:
    """Evaluate a model in both precisions; the metric is in percent."""
    speeds: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    metrics: dict[str, float] = {}
    for _ in range(rounds):
        for precision in PRECISIONS:
            batch = TRANSLATION_BATCH if name.startswith("translate") else BATCH
            found = evaluate(name, "test", data, batch, "cpu", precision=precision)
            metric = "bleu" if "bleu" in found else "accuracy"
            metrics[precision] = 100 * found[metric]
            speeds[precision].append(found["n"] / found["seconds"])
            print(f"{name} {precision}: {metrics[precision]:.2f}, {speeds[precision][-1]:,.0f}/s", flush=True)
    return {
        "model": name,
        "data": f"{found['data']} {found['split']}",
        "n": found["n"],
        "metric": metric,
        **{
            precision: {
                metric: metrics[precision],
                "texts_per_second": median(speeds[precision]),
                "rounds": speeds[precision],
            }
            for precision in PRECISIONS
        },
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(list_shipped()))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if find_precision("bfloat16", torch.device("cpu")) != "bfloat16":
        parser.error("this CPU has no products of bfloat16")
    batches.use_thread_pool()  # as the commands do
    rows = [measure_model(name, args.data, args.rounds) for name in args.models]
    environment = describe_environment(torch.device("cpu"), 1) | {"cores": batches.count_cores()}
    write_text(args.out, json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
