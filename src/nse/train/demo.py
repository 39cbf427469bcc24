"""Demo: train an NSE and two baselines on the built-in corpus, and show the NSE's memory for one pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nse.files import write_text
from nse.inference.model import Model
from nse.tasks import TASKS, load_recipe
from nse.tasks.task import make_model_config
from nse.train.loop import fit
from nse.train.progress import Progress
from nse.viz import report, terminal

MODELS = {"nse": "NSE", "lstm": "LSTM", "bow": "bag of words"}
QUICK = ["data.train=300", "data.dev=60", "data.test=60", "data.unseen=60", "train.epochs=2", "model.size=16"]
INTRODUCTION = """\
Does the first sentence entail the second, contradict it, or neither?
  train   {:,} pairs
  test    new pairs
  unseen  new pairs with word combinations that are not in train"""
PAIR = ("not all dogs that bark do not dance", "some dogs dance")


def demo(
    console: Console, progress: Progress, page: Path, quick: bool = False, seed: int | None = None
) -> list[dict[str, Any]]:
    """Train the three models, print a table and the NSE's associations, and write a page about its memory.

    `quick` uses tiny sizes, to see that everything works; the figures, which are returned, then mean nothing.
    """
    overrides = [*(QUICK if quick else []), *([] if seed is None else [f"seed={seed}"])]
    recipes = {name: load_recipe(f"logic/{name}", overrides) for name in MODELS}
    task = TASKS["pair"]
    examples = task.load_examples(recipes["nse"])
    console.print(INTRODUCTION.format(recipes["nse"].data.train))
    outcomes = {}
    for name, recipe in recipes.items():
        progress.name = f"{MODELS[name]:>12}"
        outcomes[name] = fit(task, recipe, examples, progress)
    rows = [
        {
            "model": name,
            "accuracy": outcome.accuracy["test"],
            "accuracy_unseen": outcome.accuracy["unseen"],
            "accuracy_dev": outcome.accuracy["dev"],
            "parameters": outcome.parameters,
            "seconds": round(outcome.seconds, 2),
        }
        for name, outcome in outcomes.items()
    ]
    console.print(draw_table(rows))
    model_config = make_model_config(recipes["nse"], examples)
    trace = Model(outcomes["nse"].model.eval(), model_config, examples.vocabulary, Path("demo")).trace(*PAIR)
    console.print(terminal.render_associations(trace, console.width))
    write_text(page, report.render_html(trace))
    console.print(f"Page about its memory, for a browser: {page}", highlight=False, markup=False)
    return rows


def draw_table(rows: list[dict[str, Any]]) -> Table:
    """Draw the table of accuracies."""
    table = Table(title="Accuracy")
    table.add_column("model")
    for heading in ("test", "unseen", "time", "parameters"):
        table.add_column(heading, justify="right")
    for row in rows:
        accuracies = (f"{100 * row[name]:.1f}%" for name in ("accuracy", "accuracy_unseen"))
        table.add_row(MODELS[row["model"]], *accuracies, f"{row['seconds']:.0f} s", f"{row['parameters']:,}")
    return table
