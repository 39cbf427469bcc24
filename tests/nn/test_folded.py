"""With folded weights a model gives the same answers, whatever it is made of."""

import pytest
import torch

from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.nn.folded import FoldedPair, FoldedSentence, fold_model
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig

WORDS = 30

PAIRS = [
    {"pool": "last"},
    {"pool": "max", "directions": 2},
    {"pool": "mean-max", "attention": "aligned", "starts": 1},
    {"pool": "mean-max", "attention": "aligned", "directions": 2, "blanks": 2, "embedding_size": 7},
    {"pool": "last", "attention": "aligned", "reader": "nse", "starts": 2, "blanks": 1},
    {"pool": "last", "attention": "paper", "word_overlap": True, "directions": 2},
    {"pool": "mean-max", "size": 16, "max_words": 4},
]


def batch(rows, longest, seed, shortest=0):
    """Ids padded with anything, and lengths, none of them sorted; the last text is the first once more."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (rows, longest), generator=generator)
    lengths = torch.randint(shortest, longest + 1, (rows,), generator=generator)
    ids[-1], lengths[-1] = ids[0], lengths[0]
    return ids, lengths


def made(kind, config, labels=3):
    torch.manual_seed(0)
    model = kind(config, WORDS, labels).eval()
    for parameter in model.parameters():  # large enough that every part has a say
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return model


@pytest.mark.parametrize("settings", PAIRS, ids=str)
@pytest.mark.parametrize(("first", "second"), [(9, 5), (1, 6), (4, 4)])
def test_a_folded_model_scores_pairs_the_same(settings, first, second):
    model = made(PairClassifier, PairConfig(**{"size": 5, "hidden": 6, **settings}))
    quick = fold_model(model)
    assert isinstance(quick, FoldedPair)
    inputs = [*batch(7, first, 1), *batch(7, second, 2)]
    before = [each.clone() for each in inputs]
    with torch.inference_mode():
        torch.testing.assert_close(quick(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)
        expected = model.represent(*inputs[:2])
        torch.testing.assert_close(quick.represent(*inputs[:2]), expected, rtol=1e-5, atol=1e-5)
        assert expected.std() > 0.01  # or it would be no wonder
    assert all(torch.equal(*each) for each in zip(inputs, before, strict=True))


@pytest.mark.parametrize(
    "settings", [{}, {"directions": 2, "pool": "max"}, {"starts": 1, "embedding_size": 9}], ids=str
)
def test_a_folded_model_scores_sentences_the_same(settings):
    model = made(SentenceClassifier, SentenceConfig(**{"size": 6, "hidden": 4, **settings}))
    quick = fold_model(model)
    assert isinstance(quick, FoldedSentence)
    for rows, longest in ((6, 8), (2, 1), (3, 40)):
        inputs = batch(rows, longest, longest)
        with torch.inference_mode():
            torch.testing.assert_close(quick(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)


def test_a_folded_model_scores_empty_sentences_the_same():
    model = made(PairClassifier, PairConfig(size=5, hidden=6, starts=1, pool="max"))
    ids, none = torch.ones(3, 4, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    with torch.inference_mode():
        actual, expected = (each(ids, none, ids, none + 2) for each in (fold_model(model), model))
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_other_models_are_not_folded():
    for settings in (
        {"encoder": "mma"},
        {"encoder": "lstm"},
        {"layers": 2},
        {"padding": "paper", "max_words": 6},
    ):
        model = made(PairClassifier, PairConfig(size=4, hidden=4, **settings))
        assert fold_model(model) is model
    document = made(DocumentClassifier, DocumentConfig(size=4))
    assert fold_model(document) is document
    model = made(PairClassifier, PairConfig(size=4, hidden=4))
    assert fold_model(model.train()) is model
