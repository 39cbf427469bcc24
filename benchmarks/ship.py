"""Make a shipped model of a trained one: small, with more words, its card telling what the small one scores.

    python benchmarks/ship.py runs/snli-best-1 snli --data DATA

The run is the one of its recipe that is best on dev. Its results are read from docs/results.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from nse import hub
from nse.data.catalogue import VECTORS
from nse.text.vectors import load_vectors
from nse.train.evaluate import evaluate

ROOT = Path(__file__).parents[1]

ABOUT: dict[str, dict[str, str]] = {
    "snli": {
        "result": "snli/best-1",
        "title": "Natural language inference with a Neural Semantic Encoder",
        "about": (
            "Does the first sentence entail the second, contradict it, or leave it open? An NSE reads both "
            "sentences, and each word is compared with the words of the other sentence that it aligns with. "
            "Trained on less than a fifth of SNLI; captions of photographs are what it knows."
        ),
    },
}
"""For each model that is shipped: the result of the run that it comes from, and what its card tells."""


def common_words(data: Path, name: str) -> list[str]:
    """The words that the first of these vector sets lists: the most frequent of English."""
    listed = data / "vectors" / f"{name.split('+')[0]}.words.txt"
    return listed.read_text("utf-8").split("\n")


def told(name: str, run: dict[str, Any], accuracy: dict[str, float]) -> dict[str, Any]:
    """What the card tells."""
    sets = [f"{each} ({VECTORS[each].licence})" for each in run["data"]["vectors"].split("+")]
    return {
        "title": ABOUT[name]["title"],
        "about": ABOUT[name]["about"],
        "notes": f"The words' vectors are made from {' and '.join(sets)}.",
        "recipe": run["recipe"],
        "seed": run["seed"],
        "training examples": run["examples"]["train"],
        "epoch": run["epoch"],
        "accuracy": {"train": run["accuracy"]["train"], **accuracy},
        "parameters": run["parameters"],
    }


def ship(model: Path, name: str, data: Path, root: Path = ROOT) -> dict[str, Any]:
    """Compact it, score that, and write it with the scores; returns the card's contents."""
    run = json.loads((root / "docs" / "results" / f"{ABOUT[name]['result']}.json").read_text("utf-8"))
    vectors = run["data"]["vectors"]
    more = load_vectors(data, vectors, common_words(data, vectors))
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / name
        hub.compact(model, small, words=more)
        scored = {split: evaluate(str(small), split, data)["accuracy"] for split in ("dev", "test")}
        card = told(name, run, scored)
        hub.compact(small, root / "src" / "nse" / "pretrained" / name, card=card)
    return card


def main() -> None:
    """Ship what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, help="the run, or its model folder")
    parser.add_argument("name", choices=ABOUT)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data and vectors")
    given = parser.parse_args()
    print(json.dumps(ship(given.model, given.name, given.data)["accuracy"]))


if __name__ == "__main__":
    main()
