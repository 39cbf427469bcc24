"""The models that come with the package: small, good, and right about plain sentences."""

from typing import NamedTuple

import pytest
from huggingface_hub import ModelCard

from nse.inference import folder as hub


class Expected(NamedTuple):
    """Of a shipped model: bytes it may have, what every figure is above, some of its words, what it says."""

    room: float
    figures: list[float]
    words: set[str]
    says: list[tuple[str | tuple[str, str], str]]


DOGS, SLEEPER = "Two dogs play in the snow.", "A man is sleeping on a couch."
SHIPPED = {
    "sentiment": Expected(
        15e6,
        [0.86] * 3,
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
        [0.8] * 3,
        {"philosophy", "Wednesday", "skateboarder"},
        [
            ((DOGS, "The animals are outdoors."), "entailment"),
            ((DOGS, "Cats sleep inside a house."), "contradiction"),
            ((DOGS, "The dogs belong to the tall man."), "neutral"),
            ((SLEEPER, "A person is resting."), "entailment"),
            ((SLEEPER, "A man is running a marathon."), "contradiction"),
        ],
    ),
    "translate-en-de": Expected(
        20e6,
        [39, 37],
        {"snow", "skateboarder", "ing"},
        [
            ("A dog runs across the snow.", "ein hund rennt durch den schnee."),
            ("A woman in a red dress plays the guitar.", "eine frau in einem roten kleid spielt gitarre."),
        ],
    ),
}


def test_every_shipped_model_is_tested():
    assert hub.list_shipped().keys() == SHIPPED.keys()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_is_small_and_right(name, caplog):
    model, expected = hub.load(name), SHIPPED[name]
    assert not caplog.records  # it has its checksums
    assert sum(file.stat().st_size for file in model.folder.iterdir()) < expected.room
    card = ModelCard.load(model.folder / "README.md").data
    actual = [result.metric_value for result in card.eval_results]
    assert all(value > least for value, least in zip(actual, expected.figures, strict=True))
    assert expected.words <= set(model.vocabulary.words)
    answer = "translation" if model.target else "label"
    for text, said in expected.says:
        (row,) = getattr(model, model.task)([text])
        assert row[answer] == said, text
