"""A run is a folder a person can read; an existing one is never overwritten.

recipe.toml           what was run, every value spelled out
metrics.jsonl         one line per epoch
vocabulary.txt        a word a line, in the order of the ids
weights.safetensors   the model at its best epoch on dev
result.json           the figures, written last: a folder without it is a run that did not finish
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from nse import config
from nse.errors import RunError
from nse.files import partial, write
from nse.tasks import TASKS
from nse.train.loop import Outcome, fit
from nse.train.progress import Progress


def train(name: str, recipe: Any, folder: Path, progress: Progress) -> dict[str, Any]:
    """Train by a recipe into a new or empty folder; returns what result.json holds."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}") from None
    if any(folder.iterdir()):
        raise RunError(f"{folder} is not empty: choose another --out, or remove it")
    write(folder / "recipe.toml", config.to_toml(recipe, comments=True))
    task = TASKS[recipe.task]
    examples = task.examples(recipe)
    write(folder / "vocabulary.txt", "\n".join(examples.vocabulary.words) + "\n")
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as metrics:

        def note(epoch: dict[str, float]) -> None:
            metrics.write(json.dumps(epoch, allow_nan=False) + "\n")
            metrics.flush()

        progress.name = name
        outcome = fit(task, recipe, examples, progress, on_epoch=note)
    weights = folder / "weights.safetensors"
    # On a GPU an LSTM's weights are views of one block, which safetensors refuses: each gets its own.
    own = {key: tensor.detach().cpu().clone() for key, tensor in outcome.model.state_dict().items()}
    save_file(own, partial(weights))
    partial(weights).replace(weights)
    result = {"recipe": name, "seed": recipe.seed, "epoch": outcome.epoch, **row(recipe, outcome)}
    write(folder / "result.json", json.dumps(result, indent=2, allow_nan=False) + "\n")
    return result


def row(recipe: Any, outcome: Outcome) -> dict[str, Any]:
    """The figures of one model, as the demo and result.json tell them."""
    return {
        "model": recipe.model.encoder,
        "accuracy": outcome.accuracy["test"],
        "accuracy_unseen": outcome.accuracy["unseen"],
        "accuracy_dev": outcome.accuracy["dev"],
        "parameters": outcome.parameters,
        "seconds": round(outcome.seconds, 2),
    }
