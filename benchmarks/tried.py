"""Train variants of recipes and compare their figures on dev: accuracy, MAP or BLEU.

    python benchmarks/tried.py snli --data DATA

Test splits are not scored. Each row is written when it is measured; existing rows are kept.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from nse.files import write_text
from nse.tasks import TASKS, load_recipe
from nse.train.environment import get_device_name
from nse.train.loop import fit
from nse.train.progress import Progress

RESULTS = Path(__file__).parents[1] / "docs" / "results"

UNIFORM, ROOM = "model.init=uniform", ("model.blanks=8", "model.starts=4")
PAPERS_RATE = ("train.lr=3e-4", "train.schedule=constant", "train.epochs=50")

TRIED: dict[str, list[tuple[str, ...]]] = {}
TRIED["snli"] = [
    ("snli/nse", UNIFORM),
    ("snli/mma", UNIFORM),
    ("snli/mma-attention", UNIFORM),
    ("snli/nse-masked", UNIFORM),
    ("snli/nse-masked", UNIFORM, *ROOM),
    ("snli/nse-masked", *ROOM),
    ("snli/nse", "model.dropout=0.5"),
    ("snli/nse", "train.ema_decay=0"),
    ("snli/best", "model.starts=0"),
    ("snli/best", "model.encoder=mma"),
    ("snli/best", "model.init=lookup"),
    ("snli/best", "data.vectors=spacy.md.300d", "model.embedding_size=0"),
]
TRIED["wikiqa"] = [
    ("wikiqa/best", "train.loss=sigmoid"),
    ("wikiqa/best", "model.word_overlap=false"),
    ("wikiqa/best", "model.encoder=bow"),
    ("wikiqa/best", "model.init=lookup"),
    ("wikiqa/best", "data.vectors=spacy.md.300d", "model.embedding_size=300"),
]
TRIED["sst"] = [
    ("sst/binary", "data.phrases=all"),
    ("sst/binary", "data.phrases=all", "train.ema_decay=0.999"),
    ("sst/binary", "train.ema_decay=0.999"),
    ("sst/binary", "train.ema_decay=0.9998"),
    ("sst/binary", "train.schedule=linear"),
    ("sst/fine", "train.schedule=linear"),
    ("sst/best-fine", "model.projection=learned", "train.epochs=5"),
]
TRIED["translation"] = [
    ("europarl/lstm-lstm", "train.epochs=16"),
    ("europarl/nse-lstm", "train.epochs=16"),
    ("europarl/nse-nse", "train.epochs=16"),
    ("europarl/nse-nse", "train.epochs=16", "model.init=lookup"),
    ("europarl/nse-nse", "train.epochs=16", "train.lr=5e-4"),
]
TRIED["documents"] = [
    ("aclimdb/nse-lstm", "model.dropout=0.3"),
    ("aclimdb/lstm-lstm", "model.dropout=0.2"),
    ("aclimdb/lstm-lstm", *PAPERS_RATE, "model.dropout=0.15"),
]
"""Recipes and their changed values, by task."""


def measure_variant(recipe: str, changes: list[str], seed: int, data: Path | None) -> dict[str, Any]:
    """Train one variant and score it on dev."""
    loaded = load_recipe(recipe, [f"seed={seed}", *changes])
    task = TASKS[loaded.task]
    examples = task.load_examples(loaded, data)
    examples = examples._replace(splits={name: examples.splits[name] for name in ("train", "dev")})
    with Progress() as progress:
        outcome = fit(task, loaded, examples, progress)
    return {
        "recipe": recipe,
        "changes": changes,
        "seed": seed,
        "dev": outcome.metrics[outcome.epoch - 1]["dev"],
        "epoch": outcome.epoch,
        "dev_by_epoch": [row["dev"] for row in outcome.metrics],
        "examples": {name: len(split.labels) for name, split in examples.splits.items()},
        "device": get_device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
    }


def main() -> None:
    """Measure all rows that do not exist yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", choices=TRIED)
    parser.add_argument("--data", type=Path, help="folder of the published data (default: NSE_DATA, ./data)")
    parser.add_argument("--out", type=Path, help="file of the rows (default: docs/results/TASK-tried.json)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    out = args.out or RESULTS / f"{args.task}-tried.json"
    rows = json.loads(out.read_text("utf-8")) if out.exists() else []
    existing = [(row["recipe"], row["changes"], row["seed"]) for row in rows]
    for recipe, *changes in TRIED[args.task]:
        if (recipe, changes, args.seed) in existing:
            continue
        rows.append(measure_variant(recipe, changes, args.seed, args.data))
        write_text(out, json.dumps(rows, indent=1) + "\n")
        print(f"{100 * rows[-1]['dev']:.2f} {recipe} {' '.join(changes)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
