"""How fast the models of documents and translation train beside their baselines, in one run.

    python benchmarks/tasks.py aclimdb multi30k --data DATA --out benchmarks/results/h200-tasks.json

Every model of a data set takes an epoch in turn, some times over; the first one, in which kernels are
compiled and steps captured, does not count. A row's figure is of its median epoch.
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
"""What is counted in a second; the end of a translation is a word."""


def loop(name: str, data: Path | None) -> TrainingLoop:
    """The training of a recipe, before its first step."""
    recipe = load_recipe(name)
    task = TASKS[recipe.task]
    examples = task.load_examples(recipe, data)
    train = {"train": examples.splits["train"]}
    made = TrainingLoop(
        task, recipe, examples._replace(splits=train), Progress.silent(), RunStorage(), Processes()
    )
    made.progress.start_run(made.total_steps)
    return made


def units(made: TrainingLoop) -> int:
    """How much an epoch goes through."""
    train = made.examples.splits["train"]
    if made.recipe.task == "translation":
        return int((train.texts[1].lengths + 1).sum())
    return len(train.labels)


def seconds(made: TrainingLoop) -> float:
    """Of the steps of one more epoch."""
    made.train_epoch()
    spent = made.state.epoch_seconds
    made.state.start_next_epoch()
    return spent


def measured(data_set: str, data: Path | None, epochs: int) -> list[dict[str, Any]]:
    """A row for each model of a data set."""
    loops = {model: loop(f"{data_set}/{model}", data) for model in MODELS}
    spent: dict[str, list[float]] = {model: [] for model in MODELS}
    with set_precision(True, Processes().device):
        for epoch in range(epochs + 1):
            for model, made in loops.items():
                took = seconds(made)
                print(f"{data_set}/{model}: epoch {epoch} in {took:.2f} s", flush=True)
                if epoch:
                    spent[model].append(took)
    medians = {model: statistics.median(each) for model, each in spent.items()}
    return [
        {
            "recipe": f"{data_set}/{model}",
            "unit": UNITS[made.recipe.task],
            "in_an_epoch": units(made),
            "epochs": epochs,
            "seconds": round(medians[model], 4),
            "in_a_second": round(units(made) / medians[model], 1),
            "times_the_baseline": round(medians[model] / medians[MODELS[0]], 3),
        }
        for model, made in loops.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data_sets", nargs="+", help="such as aclimdb and multi30k")
    parser.add_argument("--data", type=Path, help="the data folder")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each model that count")
    given = parser.parse_args()
    found = [row for name in given.data_sets for row in measured(name, given.data, given.epochs)]
    report = {"environment": describe_environment(Processes().device, 1), "rows": found}
    write_text(given.out, json.dumps(report, indent=1, allow_nan=False) + "\n")
    for row in found:
        speed = f"{row['in_a_second']:,.0f} {row['unit']} a second"
        print(f"{row['recipe']}: {speed}, {row['times_the_baseline']} times the baseline's time")
