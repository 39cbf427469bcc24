"""WikiQA from the published files to a trained model that ranks, on questions and answers made here."""

import json
import math
import random

import pytest
import torch

from data.made_up import HEADER, make_wikiqa_line, write_random_vectors, write_wikiqa
from faults.made_runs import assert_same_end, checkpoint, stop, train
from nse.errors import ConfigError
from nse.inference import folder as hub
from nse.metrics import ranking, trec
from nse.tasks import answers, load_recipe
from nse.tasks.answers import TASK
from nse.tasks.recipe import list_recipes
from nse.tasks.task import compute_rarity
from nse.text.tensors import LabelledRows, Texts
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import Vocabulary
from nse.train.distributed import compute_scores
from nse.train.evaluate import evaluate

RECIPES = [name for name in list_recipes() if name.startswith("wikiqa/")]
KNOWN = ["who", "where", "runs", "sleeps", "a", "dog", "cat", "horse", "."]
SMALL = [
    "data.vectors=small.5d",
    "model.embedding_size=5",
    "model.size=4",
    "model.hidden=8",
    "train.epochs=2",
    "train.batch_size=8",
    "train.lr=0.03",
    "train.bucket_by_length=false",
]
UNUSUAL = ["", "zzz", "dog " * 300]


def corpus(questions, seed):
    """Questions with up to five candidates each: what answers one has its animal.

    One question has no right answer, one has no wrong one, and one has unusual candidates.
    """
    draw = random.Random(seed)

    def sentence(animal):
        return (
            f"{animal} {' '.join(draw.choices(['a', 'runs', 'sleeps', 'zebra', '.'], k=draw.randint(0, 5)))}"
        )

    lines = []
    for number in range(questions):
        animal, *others = draw.sample(["dog", "cat", "horse"], 3)
        text = f"who {draw.choice(['runs', 'sleeps'])} , a {animal} ?"
        right = 0 if number == 1 else draw.randint(1, 2)
        rows = [(sentence(animal), 1)] * right
        rows += [] if number == 2 else [(sentence(draw.choice(others)), 0) for _ in range(draw.randint(1, 3))]
        rows += [(unusual, 0) for unusual in UNUSUAL] if number == 3 else []
        draw.shuffle(rows)
        lines += [make_wikiqa_line(f"Q{number}", answer.strip(), label, text) for answer, label in rows]
    return HEADER + b"".join(lines)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder as published: WikiQA, and vectors of five numbers for some of its words."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write_wikiqa(folder, train=corpus(10, 1), dev=corpus(8, 2), test=corpus(8, 3))
    write_random_vectors(folder, KNOWN)
    return folder


def recipe(*assignments, name="wikiqa/mma-attention"):
    return load_recipe(name, [*SMALL, *assignments])


def trained(folder, data, *assignments, name="wikiqa/mma-attention", **settings):
    return train(folder, *assignments, recipe=name, small=SMALL, data=data, **settings)


def published(data, split):
    """The rows of a file: the number of the question, its text, the answer and the label."""
    lines = (data / "WikiQACorpus" / f"WikiQA-{split}.tsv").read_text("utf-8").split("\n")[1:-1]
    for line in lines:
        identity, question, _, _, _, answer, label = line.split("\t")
        yield int(identity[1:]), question, answer, int(label)


def test_examples_are_the_answer_and_then_the_question(data):
    actual = answers.load_rankings(recipe("model.max_words=64"), data)
    tokenize = TOKENIZERS["lower"]
    for name, split in actual.splits.items():
        rows = list(published(data, name))
        assert split.labels.tolist() == [label for *_, label in rows]
        assert split.groups.tolist() == [number for number, *_ in rows]
        for b, (_, question, answer, _) in enumerate(rows):
            for texts, text in zip(split.texts, (answer, question), strict=True):
                ids = actual.vocabulary.encode(tokenize(text))[:64]
                assert texts.ids[b, : texts.lengths[b]].tolist() == ids
        assert split.texts[0].ids.shape[1] == 64
    assert actual.about["counts"] == {name: len(split.labels) for name, split in actual.splits.items()}
    assert actual.about["published"] == {"train": 20_360, "dev": 2_733, "test": 6_165}
    json.dumps(actual.about, allow_nan=False)


def test_training_on_questions_that_have_an_answer(data):
    whole, some = (
        answers.load_rankings(recipe(f"data.answerable={each}"), data) for each in ("false", "true")
    )
    rows = whole.splits["train"]
    kept = rows.groups != 1  # the question without one
    assert int((~kept).sum()) > 0
    train = some.splits["train"]
    assert train.groups.tolist() == rows.groups[kept].tolist()
    assert train.labels.tolist() == rows.labels[kept].tolist()
    assert train.texts[0].ids.tolist() == rows.texts[0].ids[kept].tolist()
    for name in ("dev", "test"):
        assert some.splits[name].groups.tolist() == whole.splits[name].groups.tolist()
    assert some.about["fingerprint"] != whole.about["fingerprint"]


def batch_of(labels, groups=None):
    """Rows without words."""
    rows, texts = len(labels), Texts(torch.zeros(len(labels), 0), torch.zeros(len(labels)))
    groups = [0] * rows if groups is None else groups
    return LabelledRows((texts, texts), torch.tensor(labels), torch.tensor(groups))


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_the_loss_is_the_cross_entropy_of_each_candidate(weight):
    scores, labels = [2.0, -1.0, 0.5, -3.0], [1, 1, 0, 0]
    loss, right = answers.compute_loss(
        recipe(f"train.pos_weight={weight}"), torch.tensor(scores)[:, None], batch_of(labels)
    )
    parts = [
        -weight * math.log(1 / (1 + math.exp(-2.0))),
        -weight * math.log(1 / (1 + math.exp(1.0))),
        -math.log(1 - 1 / (1 + math.exp(-0.5))),
        -math.log(1 - 1 / (1 + math.exp(3.0))),
    ]
    assert loss.item() == pytest.approx(sum(parts) / 4, rel=1e-6)
    assert right == 2  # the first and the last are on their side of zero


def test_the_pairwise_loss_matches_a_hand_computed_example():
    """Over right and wrong candidates of the same question: how far the right one is not above."""
    labels, groups = [1, 0, 0, 1, 0, 1], [5, 5, 5, 2, 2, 9]
    scores = torch.tensor([[1.0], [4.0], [-1.0], [0.5], [0.5], [7.0]])
    batch = batch_of(labels, groups)
    loss, right = answers.compute_loss(
        recipe("train.loss=pairwise", "train.group_by_question=true", "train.pos_weight=9"), scores, batch
    )
    wrong_above = [4.0 - 1.0, -1.0 - 1.0, 0.5 - 0.5]
    wanted = sum(math.log(1 + math.exp(each)) for each in wrong_above) / 3
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    assert right == 4
    order = torch.tensor([3, 0, 5, 4, 2, 1])
    shuffled = answers.compute_pairwise_loss(scores[order, 0], batch.select(order))
    assert shuffled.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "groups"), [([1, 1], [0, 0]), ([0, 0], [0, 0]), ([1, 0], [0, 1]), ([1], [0])]
)
def test_the_pairwise_loss_without_pairs_is_zero(labels, groups):
    scores = torch.randn(len(labels), 1, requires_grad=True)
    loss, _ = answers.compute_loss(
        recipe("train.loss=pairwise", "train.group_by_question=true"), scores, batch_of(labels, groups)
    )
    loss.backward()
    assert loss == 0
    assert (scores.grad == 0).all()


def test_the_pairwise_loss_of_far_scores_is_finite():
    scores = torch.tensor([[-1e4], [1e4], [1e4]], requires_grad=True)
    loss, _ = answers.compute_loss(
        recipe("train.loss=pairwise", "train.group_by_question=true"), scores, batch_of([1, 0, 1], [0, 0, 1])
    )
    loss.backward()
    assert loss.item() == pytest.approx(2e4)
    assert scores.grad.tolist() == [[-1.0], [1.0], [0.0]]


def test_rarity_matches_a_hand_computed_example():
    """The logarithm of how few of the answers have a word, which counts once in each."""
    texts = Texts.from_words([["a", "b", "a"], ["a", "c"], []], Vocabulary(["a", "b", "c", "d"]))
    actual = compute_rarity(texts, 6)
    wanted = [math.log(4 / 3), math.log(4 / 2), math.log(4 / 2), math.log(4 / 1)]
    assert actual[2:].tolist() == pytest.approx(wanted, rel=1e-6)
    assert actual.shape == (6,)
    assert actual.isfinite().all()


def test_a_model_with_word_overlap_has_the_rarity_of_each_word(data, tmp_path):
    counting = recipe("model.word_overlap=true")
    examples = answers.load_rankings(counting, data)
    model = TASK.build_model(counting, examples)
    assert torch.equal(model.rarity, compute_rarity(examples.splits["train"].texts[0], len(model.rarity)))
    assert not model.rarity.requires_grad
    trained(tmp_path / "run", data, "model.word_overlap=true")
    again = hub.load(tmp_path / "run")
    assert torch.equal(again.module.rarity, model.rarity)
    assert torch.equal(again.module.embedding.weight, model.embedding.weight)


def test_weights_and_batches_that_make_no_sense_raise_an_error():
    for weight in (0, -1):
        with pytest.raises(ConfigError, match=r"train: pos_weight must be above 0, got"):
            recipe(f"train.pos_weight={weight}")
    with pytest.raises(ConfigError, match="bucket_by_length and group_by_question cannot both be true"):
        recipe("train.bucket_by_length=true", "train.group_by_question=true")


def test_the_best_epoch_has_the_highest_map(data):
    examples = answers.load_rankings(recipe(), data)
    dev = examples.splits["dev"]
    for seed in range(5):
        torch.manual_seed(seed)
        scores = torch.randn(len(dev.labels), 1).round(decimals=1)  # with ties
        figures = answers.compute_metrics(recipe(), scores, examples, "dev")
        chosen = TASK.compute_main_metric(recipe(), scores, examples, "dev")
        assert chosen == pytest.approx(figures["map"], abs=1e-12)
        assert set(figures) == set(ranking.MEASURES)
        assert figures == ranking.compute_measures(scores[:, 0], dev.groups, dev.labels)
    best = dev.labels[:, None].float()
    given = recipe(), best, examples, "dev"
    assert TASK.compute_main_metric(*given) == answers.compute_metrics(*given)["mrr"] == 1


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_and_is_scored_again(name, data, tmp_path):
    folder = tmp_path / "run"
    result = trained(folder, data, name=name)
    assert json.loads((folder / "result.json").read_text()) == result
    assert {file.name for file in (folder / "scores").iterdir()} == {
        f"{split}.{kind}" for split in ("dev", "test") for kind in ("run", "qrels")
    }
    assert set(result["accuracy"]) == {"train"}
    metrics = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(row["loss"]) for row in metrics)
    assert result["map"]["dev"] == pytest.approx(max(row["dev"] for row in metrics), abs=1e-12)
    for split in ("dev", "test"):
        figures = {measure: result[measure][split] for measure in ranking.MEASURES}
        files = [folder / "scores" / f"{split}.{kind}" for kind in ("run", "qrels")]
        of_files = trec.compute_file_measures(*files)
        assert {measure: of_files[measure] for measure in figures} == figures
        assert (of_files["questions"], of_files["mixed"]) == (7, 6)
        again = evaluate(str(folder), split, data, device="cpu")
        assert {measure: again[measure] for measure in figures} == pytest.approx(figures, abs=1e-12)
    card = (folder / "model" / "README.md").read_text()
    assert "map" in card.lower()


@pytest.mark.parametrize(
    "settings",
    [
        ["train.loss=pairwise", "train.group_by_question=true", "data.answerable=true"],
        ["train.pos_weight=5", "model.word_overlap=true", "train.ema_decay=0.9"],
        ["model.encoder=nse", "model.attention=none", "model.directions=2", "model.pool=max"],
        ["model.encoder=bow", "model.layers=1", "model.init=uniform", "train.bucket_by_length=true"],
    ],
    ids=lambda settings: settings[0],
)
def test_a_loaded_model_gives_the_scores_of_training(data, tmp_path, settings):
    """The same scores to the last bit, so nothing may be rounded when it is saved."""
    settings = ["model.init_range=1", *settings]
    result = trained(tmp_path / "run", data, *settings)
    again = hub.load(tmp_path / "run")
    assert (again.config.kind, again.config.task, again.config.labels) == ("ranking", "wikiqa", ["right"])
    assert again.config.tokenizer == "lower"
    examples = answers.load_rankings(recipe(*settings), data)
    dev = examples.splits["dev"]
    scores = compute_scores(again.module, dev)
    assert torch.equal(scores, checkpoint(tmp_path / "run")["best"]["scores"])
    assert scores.shape == (len(dev.labels), 1)
    assert len(scores.unique()) > 5
    assert answers.compute_metrics(recipe(), scores, examples, "dev")["map"] == result["map"]["dev"]


def test_training_learns_to_rank_answers(data, tmp_path):
    """An answer has the animal of its question: counting shared words is enough."""
    write_wikiqa(data, train=corpus(40, 1), dev=corpus(20, 2), test=corpus(20, 3))
    settings = ["model.word_overlap=true", "model.embedding_dropout=0", "train.epochs=6"]
    result = trained(tmp_path / "run", data, *settings)
    examples = answers.load_rankings(recipe(*settings), data)
    nothing = torch.zeros(len(examples.splits["dev"].labels), 1)
    by_chance = TASK.compute_main_metric(recipe(), nothing, examples, "dev")
    assert result["map"]["dev"] > by_chance + 0.1
    assert result["map"]["test"] > by_chance + 0.1


@pytest.mark.parametrize("together", ["false", "true"])
def test_a_resumed_run_ends_like_an_uninterrupted_one(data, tmp_path, together):
    """Also in the middle of an epoch, with words dropped and questions kept together."""
    loss = "pairwise" if together == "true" else "sigmoid"
    settings = [f"train.group_by_question={together}", f"train.loss={loss}", "train.checkpoint_minutes=0"]
    whole = trained(tmp_path / "whole", data, *settings)
    steps = checkpoint(tmp_path / "whole")["step"]
    stop(tmp_path / "run", *settings, recipe="wikiqa/mma-attention", small=SMALL, data=data, after=2)
    assert checkpoint(tmp_path / "run")["cursor"] == 2
    again = {"recipe": "wikiqa/mma-attention", "small": SMALL, "data": data, "resume": True}
    stop(tmp_path / "run", *settings, after=steps // 2, **again)  # the last batch of the first epoch
    stop(tmp_path / "run", *settings, after=steps - 1, **again)
    resumed = trained(tmp_path / "run", data, *settings, resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    for measure in ranking.MEASURES:
        assert resumed[measure] == whole[measure]
    best = [checkpoint(tmp_path / each)["best"]["scores"] for each in ("whole", "run")]
    assert torch.equal(*best)
    for file in (tmp_path / "whole" / "scores").iterdir():
        assert file.read_bytes() == (tmp_path / "run" / "scores" / file.name).read_bytes()


def test_grouping_by_question_changes_only_the_order(data, tmp_path):
    curves = []
    for together in ("true", "true", "false"):
        folder = tmp_path / str(len(curves))
        trained(folder, data, f"train.group_by_question={together}", "train.epochs=1")
        curves.append(json.loads((folder / "metrics.jsonl").read_text())["loss"])
    assert curves[0] == curves[1] != curves[2]


def test_the_recipe_has_the_settings_of_the_paper():
    actual = load_recipe("wikiqa/mma-attention")
    model, training = actual.model, actual.train
    assert (model.encoder, model.attention, model.size, model.layers) == ("mma", "paper", 512, 2)
    assert (model.embedding_size, model.hidden, model.embedding_dropout) == (300, 1024, 0.4)
    assert (training.batch_size, training.lr, training.epochs, training.weight_decay) == (4, 1e-5, 10, 0)
    assert TASK.paper_results["wikiqa/mma-attention"] == {"map": 0.6811, "mrr": 0.6993}
