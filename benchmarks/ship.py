"""Make a shipped model of a trained one: small, with more words, its card telling what the small one scores.

    python benchmarks/ship.py runs/snli-best-1 snli --data DATA

Take the run of its recipe that is best on dev.
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

ROOM = Path(__file__).parents[1] / "src" / "nse" / "pretrained"


class Shipped(NamedTuple):
    """A model that is shipped.

    Attributes:
        title: Of its card.
        about: What the card tells.
        words: How many of the most common words it should know beside those of its data.
    """

    title: str
    about: str
    words: int


MODELS = {
    "snli": Shipped(
        "Natural language inference with a Neural Semantic Encoder",
        "Classifies a pair of English sentences: the first entails the second, contradicts it, or neither. "
        "An NSE encodes both sentences, and attention compares each word with the words of the other one. "
        "Trained on less than a fifth of SNLI, which has captions of photographs: expect lower accuracy on "
        "other texts.",
        20_000,
    ),
    "sentiment": Shipped(
        "Sentiment of a sentence with a Neural Semantic Encoder",
        "Classifies an English sentence as positive or negative; there is no neutral label. Trained on the "
        "phrases of the Stanford Sentiment Treebank, which are from film reviews: expect lower accuracy on "
        "other texts.",
        20_000,
    ),
    "translate-en-de": Shipped(
        "English to German with Neural Semantic Encoders",
        "Translates English sentences into German. NSEs encode the sentence in both directions, and an NSE "
        "decoder, which reads and writes their memories, generates the translation. Trained on Multi30k, "
        "captions of photographs of people, animals and places: expect poor translations of other texts. "
        "Words are split into subwords, and all text is lower case.",
        0,
    ),
}


def common_words(data: Path, vectors: str, tokenizer: str, most: int) -> list[str]:
    """The most common words of a set of vectors, which it lists first, as far as the tokenizer gives them."""
    listed = data / "vectors" / f"{vectors.split('+')[0]}.words.txt"
    words = listed.read_text("utf-8").split("\n")
    return [word for word in words if TOKENIZERS[tokenizer](word) == [word]][:most]


def told(
    name: str, data: str, result: dict[str, Any], figures: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """What the card tells."""
    given = (result["data"]["vectors"] or "").split("+")
    sets = [f"{each} ({VECTORS[each].licence})" for each in given if each]
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


def ship(run: Path, name: str, data: Path, room: Path = ROOM) -> dict[str, Any]:
    """Compact its model, score that, and write it with the scores; returns the card's contents."""
    result = json.loads((run / "result.json").read_text("utf-8"))
    vectors = result["data"]["vectors"]
    known = hub.load(run)
    more = None
    if not known.config.model.trainable:
        words = common_words(data, vectors, known.config.tokenizer, MODELS[name].words)
        more = load_vectors(data, vectors, words)
    measure = "bleu" if known.kind.translates else "accuracy"
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / name
        hub.compact(run, small, words=more)
        scored = {split: evaluate(str(small), split, data)[measure] for split in ("dev", "test")}
        figures = {"accuracy": {"train": result["accuracy"]["train"]}}
        figures.setdefault(measure, {}).update(scored)
        card = told(name, known.config.data, result, figures)
        hub.compact(small, room / name, card=card)
    return card


def main() -> None:
    """Ship what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published data and vectors")
    given = parser.parse_args()
    card = ship(given.run, given.name, given.data)
    print(json.dumps({measure: card[measure] for measure in ("accuracy", "bleu") if measure in card}))


if __name__ == "__main__":
    main()
