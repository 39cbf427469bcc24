"""The model of a document against each sentence and each document alone."""

from itertools import product

import pytest
import torch

from nse.errors import ConfigError
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.tasks import load_recipe
from nse.text.tensors import Documents, Texts
from oracle.problems import assert_close

WORDS, LABELS = 20, 5
KINDS = list(product(("nse", "lstm", "bow"), ("nse", "lstm")))
EVERY = pytest.mark.parametrize(("encoder", "reader"), KINDS)

MADE = [
    [[3, 4, 5, 6], [7], [8, 9]],
    [],  # no sentence
    [[10, 11]],
    [[], [12, 13, 14], []],  # two without words
    [[]],
    [[15]] * 9,
]


def classifier(encoder="nse", reader="nse", **settings):
    torch.manual_seed(0)
    config = DocumentConfig(
        **{"encoder": encoder, "reader": reader, "size": 4, "init_range": 1.0, **settings}
    )
    return DocumentClassifier(config, WORDS, LABELS).double().eval()


def documents(made=MADE):
    sentences = [sentence for each in made for sentence in each]
    flat = torch.tensor([word for sentence in sentences for word in sentence], dtype=torch.long)
    lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
    return Documents.from_sentences(Texts.from_ids(flat, lengths), torch.tensor([len(each) for each in made]))


def batch(index=None, shape=None):
    """Some of the documents, or all."""
    rows = torch.arange(len(MADE)) if index is None else torch.tensor(index)
    return documents().select(rows, shape)


def encoded(part, x):
    """The vector of a sequence [T, k], alone and without padding; of none, zero."""
    if not len(x):
        return torch.zeros(4, dtype=torch.float64)
    if hasattr(part, "nse"):
        return part.nse[0](x[None]).last[0]
    if hasattr(part, "lstm"):
        return part.lstm(x[None])[1][0][-1, 0]
    return x.mean(dim=0)


def by_hand(model, document):
    """One sentence after the other, one document alone."""
    table = model.embedding.weight
    if model.projection is not None:
        table = table @ model.projection.weight.T + model.projection.bias
    sentences = [encoded(model.encoder, table[sentence]) for sentence in document]
    vector = encoded(model.reader, torch.stack(sentences) if sentences else torch.zeros(0, 4))
    scores = model.head[-1]
    return scores.weight @ vector + scores.bias


@EVERY
def test_a_document_equals_its_sentences_one_by_one(encoder, reader):
    model = classifier(encoder, reader)
    actual = model(*batch())
    assert actual.shape == (len(MADE), LABELS)
    assert_close(actual, torch.stack([by_hand(model, document) for document in MADE]), 1e-12)
    assert len(actual.unique(dim=0)) == len(MADE)


@EVERY
@pytest.mark.parametrize(
    "settings", [{}, {"embedding_size": 3}, {"layers": 2}], ids=["plain", "mapped", "two layers"]
)
def test_a_document_depends_on_neither_batch_nor_padding(encoder, reader, settings):
    if encoder == "bow" and "layers" in settings:
        settings = {}
    model = classifier(encoder, reader, **settings)
    together = model(*batch())
    S, D, T = documents().compute_shape(torch.arange(len(MADE)))
    for shape in ((S + 3, D + 2, T + 4), documents().compute_shapes([torch.arange(len(MADE))])[0]):
        assert_close(model(*batch(shape=shape)), together, 1e-12)
    alone = torch.cat([model(*batch([i])) for i in range(len(MADE))])
    assert_close(alone, together, 1e-12)
    order = [5, 0, 0, 3]
    assert_close(model(*batch(order)), together[order], 1e-12)


@EVERY
def test_ids_in_the_padding_change_nothing(encoder, reader):
    model = classifier(encoder, reader)
    ids, lengths, rows, counts = batch(shape=(40, 12, 9))
    expected = model(ids, lengths, rows, counts)
    ids, rows = ids.clone(), rows.clone()
    for row, length in enumerate(lengths.tolist()):
        ids[row, length:] = torch.randint(2, WORDS, (9 - length,))
    for b, count in enumerate(counts.tolist()):
        rows[b, count:] = torch.randint(0, 40, (12 - count,))
    assert_close(model(ids, lengths, rows, counts), expected, 1e-12)


@EVERY
def test_a_document_without_sentences_is_zero(encoder, reader):
    model = classifier(encoder, reader)
    bias = model.head[-1].bias
    for made in ([[]], [[], []]):
        inputs = documents(made).select(torch.arange(len(made)))
        assert_close(model(*inputs), bias.expand(len(made), -1), 0)
    assert_close(model(*batch([1])), bias[None], 0)
    # A sentence without words is read, and is not nothing.
    assert not torch.allclose(model(*batch([4]))[0], bias)


@EVERY
def test_gradients_are_finite_and_reach_every_parameter(encoder, reader):
    learned = {"blanks": 2, "starts": 1} if encoder == "nse" else {}
    model = classifier(encoder, reader, embedding_size=3, **learned).train()
    model(*batch(shape=(30, 10, 8))).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    for made in ([[]], [[[]]]):
        model.zero_grad()
        model(*documents(made).select(torch.tensor([0]))).square().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@EVERY
def test_the_order_of_sentences_matters(encoder, reader):
    model = classifier(encoder, reader)
    one, other = (documents([made]).select(torch.tensor([0])) for made in (MADE[0], MADE[0][::-1]))
    assert not torch.allclose(model(*one), model(*other))


def test_a_document_does_not_read_sentences_of_others():
    model = classifier()
    expected = model(*batch([0, 2, 5]))
    changed = documents([MADE[0], [[9, 9, 9]], MADE[5]]).select(torch.arange(3))
    actual = model(*changed)
    assert_close(actual[[0, 2]], expected[[0, 2]], 1e-12)
    assert not torch.allclose(actual[1], expected[1])


def test_long_sentences_are_truncated():
    model, whole = classifier(max_words=2), classifier()
    whole.load_state_dict(model.state_dict())
    cut = documents([[sentence[:2] for sentence in each] for each in MADE])
    assert_close(model(*batch()), whole(*cut.select(torch.arange(len(MADE)))), 1e-12)
    assert not torch.allclose(model(*batch([0])), whole(*batch([0])))


def test_dropout_is_only_in_training():
    for settings in ({"dropout": 0.5}, {"output_dropout": 0.5}, {"embedding_dropout": 0.5}):
        model = classifier(**settings)
        assert torch.equal(model(*batch()), model(*batch()))
        model.train()
        assert not torch.equal(model(*batch()), model(*batch()))


def test_the_head_is_one_linear_layer():
    model = classifier(output_dropout=0.2)
    dropped, scores = model.head
    assert dropped.p == 0.2
    assert scores.weight.shape == (LABELS, 4)


def test_models_have_as_many_parameters_as_in_the_paper():
    """At k = 100 with five labels; the vectors of words are not learned."""
    k, labels = 100, 5

    def lstm(size):  # four gates, with weights of the input and of the state, and two biases each
        return 4 * k * (size + k + 2)

    nse = lstm(k) + 2 * k * (2 * k + 1) + lstm(2 * k)
    head = k * labels + labels
    for name, expected in (("nse-nse", 2 * nse), ("nse-lstm", nse + lstm(k)), ("lstm-lstm", 2 * lstm(k))):
        config = load_recipe(f"yelp13/{name}").model
        with torch.device("meta"):
            model = DocumentClassifier(config, vocab_size=7, labels=labels)
        assert sum(p.numel() for p in model.parameters() if p.requires_grad) == expected + head
        assert not model.embedding.weight.requires_grad


REFUSED = [
    ({"output_dropout": 1.0}, "output_dropout must be at least 0 and below 1, got 1.0"),
    ({"output_dropout": -0.1}, "output_dropout must be at least 0 and below 1, got -0.1"),
    ({"padding": "paper", "max_words": 9}, 'a document model needs directions = 1 and padding = "masked"'),
    ({"directions": 2}, 'a document model needs directions = 1 and padding = "masked"'),
    ({"directions": 3}, "directions must be at least 1 and at most 2, got 3"),
    ({"size": 0}, "size must be at least 1 and at most 65,536, got 0"),
    ({"layers": 0}, "layers must be at least 1 and at most 64, got 0"),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ({"max_words": -1}, "max_words must be at least 1 and at most 10,000, got -1"),
    ({"padding": "paper"}, 'directions = 1 and padding = "masked"'),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=lambda value: str(value)[:50])
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=r"\w") as refused:
        DocumentConfig(**settings)
    assert message in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        load_recipe("yelp13/nse-nse", [f"model.{key}={value}" for key, value in settings.items()])
    named = message.replace(" ", ": ", 1)  # of a number that is out of range, its key
    assert message in str(refused.value) or f"model.{named}" in str(refused.value)


def test_the_reader_is_an_nse_or_an_lstm():
    with pytest.raises(ConfigError, match=r'model\.reader: expected "nse" or "lstm", got string "bow"'):
        load_recipe("yelp13/nse-nse", ["model.reader=bow"])
    with pytest.raises(ConfigError, match=r"model\.pool: no such key"):
        load_recipe("yelp13/nse-nse", ["model.pool=max"])
