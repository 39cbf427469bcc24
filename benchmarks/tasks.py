"""Compare the training speed of document and translation models with their baselines.

    python benchmarks/tasks.py aclimdb multi30k --data DATA --out benchmarks/results/h200-tasks.json

The models of a data set train in alternating epochs; the first epoch, which compiles kernels and captures
steps, does not count. The result of a model is its median epoch.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from nse.files import write_text
from nse.tasks import TASKS, load_recipe
from nse.train.distributed import Processes
from nse.train.environment import describe_environment, set_precision
from nse.train.loop import TrainingLoop
from nse.train.progress import Progress
from nse.train.state import RunStorage

MODELS = ("lstm-lstm", "nse-lstm", "nse-nse")
"""The first is the baseline."""

UNITS = {"document": "documents", "translation": "target words"}
"""Units per second; the end of a translation counts as a word."""


def make_loop(name: str, data: Path | None) -> TrainingLoop:
    """Return the training loop of a recipe before its first step."""
    recipe = load_recipe(name)
    task = TASKS[recipe.task]
    examples = task.load_examples(recipe, data)
    examples = examples._replace(splits={"train": examples.splits["train"]})
    loop = TrainingLoop(task, recipe, examples, Progress.silent(), RunStorage(), Processes())
    loop.progress.start_run(loop.total_steps)
    return loop


def count_units(loop: TrainingLoop) -> int:
    """Count the units of an epoch."""
    train = loop.examples.splits["train"]
    if loop.recipe.task == "translation":
        return int((train.texts[1].lengths + 1).sum())
    return len(train.labels)


def measure_epoch(loop: TrainingLoop) -> float:
    """Train an epoch and return its seconds."""
    loop.train_epoch()
    seconds = loop.state.epoch_seconds
    loop.state.start_next_epoch()
    return float(seconds)


def measure_models(data_set: str, data: Path | None, epochs: int) -> list[dict[str, Any]]:
    """Return a row for each model of a data set."""
    loops = {model: make_loop(f"{data_set}/{model}", data) for model in MODELS}
    seconds: dict[str, list[float]] = {model: [] for model in MODELS}
    with set_precision(True, Processes().device):
        for epoch in range(epochs + 1):
            for model, loop in loops.items():
                epoch_seconds = measure_epoch(loop)
                print(f"{data_set}/{model}: epoch {epoch} in {epoch_seconds:.2f} s", flush=True)
                if epoch:
                    seconds[model].append(epoch_seconds)
    medians = {model: statistics.median(times) for model, times in seconds.items()}
    return [
        {
            "recipe": f"{data_set}/{model}",
            "unit": UNITS[loop.recipe.task],
            "in_an_epoch": count_units(loop),
            "epochs": epochs,
            "seconds": round(medians[model], 4),
            "in_a_second": round(count_units(loop) / medians[model], 1),
            "times_the_baseline": round(medians[model] / medians[MODELS[0]], 3),
        }
        for model, loop in loops.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data_sets", nargs="+", help="such as aclimdb and multi30k")
    parser.add_argument("--data", type=Path, help="the data folder")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each model that count")
    args = parser.parse_args()
    rows = [row for name in args.data_sets for row in measure_models(name, args.data, args.epochs)]
    report = {"environment": describe_environment(Processes().device, 1), "rows": rows}
    write_text(args.out, json.dumps(report, indent=1, allow_nan=False) + "\n")
    for row in rows:
        speed = f"{row['in_a_second']:,.0f} {row['unit']} a second"
        print(f"{row['recipe']}: {speed}, {row['times_the_baseline']} times the baseline's time")
