"""Make a shipped model from a run: compact, with more words, and with its own scores in its card.

    python benchmarks/ship.py runs/snli-best-1 snli --data DATA

Use the run of the recipe that is best on dev.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from nse.data.catalogue import VECTORS, describe_data
from nse.data.readers.word_vectors import load_vectors
from nse.inference import folder as hub
from nse.text.tokenize import TOKENIZERS
from nse.train.evaluate import evaluate

FOLDER = Path(__file__).parents[1] / "src" / "nse" / "pretrained"


class ShippedModel(NamedTuple):
    """Shipped model.

    Attributes:
        title: Title of its card.
        about: Description in its card.
        words: Number of the most common words to add to those of its data.
    """

    title: str
    about: str
    words: int


MODELS = {
    "snli": ShippedModel(
        "Natural language inference with a Neural Semantic Encoder",
        "Classifies a pair of English sentences: the first entails the second, contradicts it, or neither. "
        "An NSE encodes both sentences, and attention compares each word with the words of the other one. "
        "Trained on less than a fifth of SNLI, which has captions of photographs: expect lower accuracy on "
        "other texts.",
        20_000,
    ),
    "sentiment": ShippedModel(
        "Sentiment of a sentence with a Neural Semantic Encoder",
        "Classifies an English sentence as positive or negative; there is no neutral label. Trained on the "
        "phrases of the Stanford Sentiment Treebank, which are from film reviews: expect lower accuracy on "
        "other texts.",
        20_000,
    ),
    "translate-en-de": ShippedModel(
        "English to German with Neural Semantic Encoders",
        "Translates English sentences into German. NSEs encode the sentence in both directions, and an NSE "
        "decoder, which reads and writes their memories, generates the translation. Trained on Multi30k, "
        "captions of photographs of people, animals and places: expect poor translations of other texts. "
        "Words are split into subwords, and all text is lower case.",
        0,
    ),
}


def list_common_words(data: Path, vectors: str, tokenizer: str, count: int) -> list[str]:
    """Return the most common words of a set of vectors that the tokenizer can produce."""
    file = data / "vectors" / f"{vectors.split('+')[0]}.words.txt"
    words = file.read_text("utf-8").split("\n")
    return [word for word in words if TOKENIZERS[tokenizer](word) == [word]][:count]


def make_card(
    name: str, data: str, result: dict[str, Any], figures: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Return the contents of the card."""
    vectors = (result["data"]["vectors"] or "").split("+")
    sets = [f"{vector_set} ({VECTORS[vector_set].licence})" for vector_set in vectors if vector_set]
    return {
        "title": MODELS[name].title,
        "about": MODELS[name].about,
        **describe_data(data),
        **({"notes": f"The word vectors are made from {' and '.join(sets)}."} if sets else {}),
        "recipe": result["recipe"],
        "seed": result["seed"],
        "training examples": result["examples"]["train"],
        "epoch": result["epoch"],
        **figures,
        "parameters": result["parameters"],
    }


def ship(run: Path, name: str, data: Path, folder: Path = FOLDER) -> dict[str, Any]:
    """Compact the model of a run, evaluate it, and write it with its scores; return the card's contents."""
    result = json.loads((run / "result.json").read_text("utf-8"))
    vectors = result["data"]["vectors"]
    model = hub.load(run)
    more_words = None
    if not model.config.model.trainable:
        words = list_common_words(data, vectors, model.config.tokenizer, MODELS[name].words)
        more_words = load_vectors(data, vectors, words)
    measure = "bleu" if model.kind.translates else "accuracy"
    with tempfile.TemporaryDirectory() as temporary:
        small = Path(temporary) / name
        hub.compact(run, small, words=more_words)
        scores = {split: evaluate(str(small), split, data)[measure] for split in ("dev", "test")}
        figures = {"accuracy": {"train": result["accuracy"]["train"]}}
        figures.setdefault(measure, {}).update(scores)
        card = make_card(name, model.config.data, result, figures)
        hub.compact(small, folder / name, card=card)
    return card


def main() -> None:
    """Make the shipped model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data and vectors")
    args = parser.parse_args()
    card = ship(args.run, args.name, args.data)
    print(json.dumps({measure: card[measure] for measure in ("accuracy", "bleu") if measure in card}))


if __name__ == "__main__":
    main()
