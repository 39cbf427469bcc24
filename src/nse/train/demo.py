"""The demo: an NSE and two baselines learn the built-in corpus; one sentence shows what the memory did."""

from __future__ import annotations

from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nse.nn.models import PairClassifier
from nse.nn.sentences import NSESentence
from nse.tasks import TASKS, load_recipe
from nse.text.batching import Texts
from nse.text.vocabulary import Vocabulary
from nse.train.loop import Outcome, fit
from nse.train.progress import Progress
from nse.viz.terminal import Association, associations, shade

MODELS = {"nse": "NSE", "lstm": "LSTM", "bow": "bag of words"}
QUICK = ["data.train=300", "data.dev=60", "data.test=60", "data.unseen=60", "train.epochs=2", "model.size=16"]
SENTENCE = "not all dogs that bark do not dance"


def demo(
    console: Console, progress: Progress, quick: bool = False, seed: int | None = None
) -> list[dict[str, Any]]:
    """Train the three models and print the table and the trace.

    Args:
        console: Where the table and the trace go.
        progress: Where the bar goes.
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
    model = outcomes["nse"].model
    assert isinstance(model, PairClassifier)
    console.print(trace_table(read_by(model, examples.vocabulary, SENTENCE)))
    return rows


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


@torch.no_grad()
def read_by(model: PairClassifier, vocabulary: Vocabulary, sentence: str) -> list[Association]:
    """What each word of a sentence was composed with by a trained model."""
    assert isinstance(model.encoder, NSESentence)
    model.eval()
    ids, lengths = Texts.of([sentence.split()], vocabulary).to(model.embedding.weight.device)
    keys = model.encoder.nse[0](model.embedding(ids), lengths, trace=True).keys
    assert keys is not None
    return associations(sentence.split(), keys[0].cpu().numpy())


def trace_table(found: list[Association]) -> Table:
    """One line per word: the slot it was composed with, and how its attention was spread over all slots."""
    shown = Table(
        title="What the NSE composed each word with", caption="slots from first to last, darker = read more"
    )
    shown.add_column("word")
    shown.add_column("slot read most")
    shown.add_column("weight", justify="right")
    shown.add_column(" ".join(word[:2].ljust(2) for word, *_ in found), no_wrap=True)
    for word, slot, weight, weights in found:
        shades = " ".join(shade(each / max(weights)) for each in weights)
        shown.add_row(word, slot, f"{weight:.2f}", Text(shades))
    return shown
