"""The demo: an NSE and two baselines learn the built-in corpus; one pair shows what the memory did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nse.files import write
from nse.inference.model import Model
from nse.tasks import TASKS, load_recipe
from nse.tasks.task import describe_model
from nse.train.loop import fit
from nse.train.progress import Progress
from nse.viz import report, terminal

MODELS = {"nse": "NSE", "lstm": "LSTM", "bow": "bag of words"}
QUICK = ["data.train=300", "data.dev=60", "data.test=60", "data.unseen=60", "train.epochs=2", "model.size=16"]
INTRODUCTION = """\
Does the first sentence entail, contradict or leave open the second?
  train   {:,} pairs to learn from
  test    new pairs
  unseen  new pairs, with words side by side that never stood so in training"""
PAIR = ("not all dogs that bark do not dance", "some dogs dance")


def demo(
    console: Console, progress: Progress, page: Path, quick: bool = False, seed: int | None = None
) -> list[dict[str, Any]]:
    """Train the three models, print a table and what the memory did, and write a page of that.

    Quick means tiny sizes, to see that everything works: the figures, which are returned, then mean nothing.
    """
    overrides = [*(QUICK if quick else []), *([] if seed is None else [f"seed={seed}"])]
    recipes = {name: load_recipe(f"logic/{name}", overrides) for name in MODELS}
    task = TASKS["pair"]
    examples = task.examples(recipes["nse"])
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
    console.print(table(rows))
    about = describe_model(recipes["nse"], examples)
    trace = Model(outcomes["nse"].model.eval(), about, examples.vocabulary, Path("demo")).trace(*PAIR)
    console.print(terminal.render_associations(trace, console.width))
    write(page, report.render_html(trace))
    console.print(f"What its memory did, to look at in a browser: {page}", highlight=False, markup=False)
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """Draw the figures of all models."""
    drawn = Table(title="Accuracy")
    drawn.add_column("model")
    for heading in ("test", "unseen", "time", "parameters"):
        drawn.add_column(heading, justify="right")
    for row in rows:
        accuracies = (f"{100 * row[name]:.1f}%" for name in ("accuracy", "accuracy_unseen"))
        drawn.add_row(MODELS[row["model"]], *accuracies, f"{row['seconds']:.0f} s", f"{row['parameters']:,}")
    return drawn
