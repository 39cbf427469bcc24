"""The models that come with the package: small, good, and right about plain sentences."""

from typing import NamedTuple

import pytest
from huggingface_hub import ModelCard

from nse import api, hub


class Expected(NamedTuple):
    """Of a shipped model: bytes it may have, accuracy on every split, some of its words, what it says."""

    room: float
    accuracy: float
    words: set[str]
    says: list[tuple[str | tuple[str, str], str]]


DOGS, SLEEPER = "Two dogs play in the snow.", "A man is sleeping on a couch."
SHIPPED = {
    "sentiment": Expected(
        15e6,
        0.86,
        {"philosophy", "wednesday", "soderbergh"},
        [
            ("A film that makes you think.", "positive"),
            ("Two hours too long, and not funny for a minute.", "negative"),
            ("It isn't bad at all (and Soderbergh knows it).", "positive"),
            ("The worst movie I have seen this year.", "negative"),
        ],
    ),
    "snli": Expected(
        25e6,
        0.8,
        {"philosophy", "Wednesday", "skateboarder"},
        [
            ((DOGS, "The animals are outdoors."), "entailment"),
            ((DOGS, "Cats sleep inside a house."), "contradiction"),
            ((DOGS, "The dogs belong to the tall man."), "neutral"),
            ((SLEEPER, "A person is resting."), "entailment"),
            ((SLEEPER, "A man is running a marathon."), "contradiction"),
        ],
    ),
}


def test_every_shipped_model_is_tested():
    assert hub.shipped().keys() == SHIPPED.keys()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model(name):
    model, expected = hub.load(name), SHIPPED[name]
    assert sum(file.stat().st_size for file in model.folder.iterdir()) < expected.room
    card = ModelCard.load(model.folder / "README.md").data
    assert [result.metric_value > expected.accuracy for result in card.eval_results] == [True] * 3
    assert expected.words <= set(model.vocabulary.words)
    for text, label in expected.says:
        (row,) = api.predict(model, [text])
        assert row["label"] == label, text
