"""The demo: an NSE and two baselines learn the built-in corpus; one pair shows what the memory did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nse.files import write
from nse.inference.model import Model
from nse.tasks import TASKS, load_recipe
from nse.tasks.task import Examples
from nse.train.loop import Outcome, fit
from nse.train.progress import Progress
from nse.viz import report, terminal
from nse.viz.trace import MemoryTrace

MODELS = {"nse": "NSE", "lstm": "LSTM", "bow": "bag of words"}
QUICK = ["data.train=300", "data.dev=60", "data.test=60", "data.unseen=60", "train.epochs=2", "model.size=16"]
PAIR = ("not all dogs that bark do not dance", "some dogs dance")


def demo(
    console: Console, progress: Progress, page: Path, quick: bool = False, seed: int | None = None
) -> list[dict[str, Any]]:
    """Train the three models, print the table and what the memory did, and write a page of it.

    Args:
        console: Where the table and the trace go.
        progress: Where the bar goes.
        page: The HTML file to write.
        quick: Tiny sizes, to see that everything works; the figures then mean nothing.
        seed: Of initialisation and order, instead of the recipes'.

    Returns:
        A row per model: model, accuracy, accuracy_unseen, parameters, seconds.
    """
    overrides = [*(QUICK if quick else []), *([] if seed is None else [f"seed={seed}"])]
    recipes = {name: load_recipe(f"logic/{name}", overrides) for name in MODELS}
    task = TASKS["logic"]
    examples = task.examples(recipes["nse"])
    console.print(introduction(recipes["nse"].data))
    outcomes = {}
    for name, recipe in recipes.items():
        progress.name = f"{MODELS[name]:>12}"
        outcomes[name] = fit(task, recipe, examples, progress)
    rows = [row(recipes[name], outcome) for name, outcome in outcomes.items()]
    console.print(table(rows))
    trace = traced(recipes["nse"], outcomes["nse"], examples)
    console.print(terminal.associations(trace, console.width))
    write(page, report.html(trace))
    console.print(f"What its memory did, to look at in a browser: {page}", highlight=False, markup=False)
    return rows


def traced(recipe: Any, outcome: Outcome, examples: Examples) -> MemoryTrace:
    """What the memory of the trained NSE does with a pair of sentences."""
    config = TASKS["logic"].folder(recipe)
    model = Model(outcome.model.eval(), config, examples.vocabulary, Path("demo"))
    return model.trace(*PAIR)


def row(recipe: Any, outcome: Outcome) -> dict[str, Any]:
    """The figures of one model, as the demo tells them."""
    return {
        "model": recipe.model.encoder,
        "accuracy": outcome.accuracy["test"],
        "accuracy_unseen": outcome.accuracy["unseen"],
        "accuracy_dev": outcome.accuracy["dev"],
        "parameters": outcome.parameters,
        "seconds": round(outcome.seconds, 2),
    }


def introduction(data: Any) -> str:
    """What is going to happen, in a few lines."""
    return (
        "Does the first sentence entail, contradict or leave open the second?\n"
        f"  train   {data.train:,} pairs to learn from\n"
        "  test    new pairs\n"
        "  unseen  new pairs, with words side by side that never stood so in training"
    )


def table(rows: list[dict[str, Any]]) -> Table:
    """The figures of all models."""
    shown = Table(title="Accuracy")
    shown.add_column("model")
    for name in ("test", "unseen", "time", "parameters"):
        shown.add_column(name, justify="right")
    for figures in rows:
        shown.add_row(
            MODELS[figures["model"]],
            f"{100 * figures['accuracy']:.1f}%",
            f"{100 * figures['accuracy_unseen']:.1f}%",
            f"{figures['seconds']:.0f} s",
            f"{figures['parameters']:,}",
        )
    return shown
