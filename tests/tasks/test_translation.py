"""Translation from the published files to a trained model that is loaded again, in a language made here."""

import json
import math
import random
import runpy
from pathlib import Path

import pytest
import torch

from data.made_up import write_files, write_random_vectors
from faults.made_runs import assert_same_end, checkpoint, stop, train
from nse.data.readers.parallel import MULTI30K
from nse.errors import ConfigError, ModelError
from nse.inference import folder as hub
from nse.metrics.bleu import bleu
from nse.tasks import load_recipe, translation
from nse.tasks.task import make_model_config
from nse.tasks.translation import TASK
from nse.text.subwords import Pieces
from nse.text.tensors import LabelledRows, Texts
from nse.text.vocabulary import TargetVocabulary, Vocabulary
from nse.train.distributed import compute_scores

NAMES = ["lstm-lstm", "nse-lstm", "nse-nse"]
PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3

MEANS = {
    "big": "groß",
    "small": "klein",
    "dog": "hund",
    "cat": "katze",
    "horse": "pferd",
    "runs": "rennt",
    "sleeps": "schläft",
    "eats": "frisst",
    "here": "hier",
    "now": "jetzt",
}
SMALL = [
    'data.vectors=""',
    "model.trainable=true",
    "model.size=32",
    "model.init_range=0.5",
    "model.dropout=0",
    "model.output_dropout=0",
    "model.max_target_words=8",
    "train.epochs=2",
    "train.schedule=constant",
    "train.ema_decay=0",
    "train.batch_size=16",
    "train.lr=0.005",
    "train.weight_decay=0",
]


def pairs(count, seed):
    """Word for word, but the verb comes last."""
    draw = random.Random(seed)
    for _ in range(count):
        kind = draw.choice(["big", "small"]), draw.choice(["dog", "cat", "horse"])
        verb, others = (
            draw.choice(["runs", "sleeps", "eats"]),
            draw.choices(["here", "now"], k=draw.randint(0, 2)),
        )
        german = [MEANS[word] for word in (*kind, *others, verb)]
        yield " ".join([*kind, verb, *others]), " ".join(german)


def write_multi30k(folder, **splits):
    files = {
        f"multi30k/{MULTI30K[split].format(language)}": "".join(f"{pair[side]}\n" for pair in rows).encode()
        for split, rows in splits.items()
        for side, language in enumerate(("en", "de"))
    }
    write_files(folder, "plain", files, "")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder as published: four pairs of files, and vectors of five numbers for some English words."""
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    rows = {split: list(pairs(40 if split == "train" else 12, seed)) for seed, split in enumerate(MULTI30K)}
    write_multi30k(folder, **rows)
    write_random_vectors(folder, ["big", "small", "dog", "runs", "here"])
    return folder


def recipe(*assignments, name="nse-nse"):
    return load_recipe(f"multi30k/{name}", [*SMALL, *assignments])


def examples(data, *assignments):
    return translation.load_pairs(recipe(*assignments), data)


def trained(folder, data, *assignments, name="nse-nse", **settings):
    return train(folder, *assignments, recipe=f"multi30k/{name}", small=SMALL, data=data, **settings)


def spelled(texts, vocabulary):
    """Texts as the words that their ids stand for."""
    return [
        " ".join(vocabulary.words[i] for i in ids[:length])
        for ids, length in zip(*map(list, texts), strict=True)
    ]


# Examples


def test_examples_are_the_published_pairs(data):
    found = examples(data)
    assert list(found.splits) == ["train", "dev", "test", "test_2017"]
    for seed, split in enumerate(found.splits):
        wanted = list(pairs(40 if split == "train" else 12, seed))
        source, target = found.splits[split].texts
        assert spelled(source, found.vocabulary) == [english for english, _ in wanted]
        assert spelled(target, found.target) == [german for _, german in wanted]
        if split != "train":
            assert found.pairs[split] == wanted
    assert "train" not in found.pairs
    assert found.about["counts"] == {"train": 40, "dev": 12, "test": 12, "test_2017": 12}
    assert found.about["published"] == {"train": 29_000, "dev": 1_014, "test": 1_000, "test_2017": 1_000}
    assert found.about["vectors"] is None
    assert found.vectors is None
    assert found.target.words[:4] == TargetVocabulary.SPECIAL
    json.dumps(found.about, allow_nan=False)


def test_long_pairs_are_left_out_of_training_only(data):
    rows = [("a b c", "x y"), ("a", "x y z x"), ("a b", "x y z"), ("c", "z")]
    write_multi30k(data, train=rows, dev=rows)
    whole, some = examples(data, "data.max_words=0"), examples(data, "data.max_words=3")
    assert (whole.about["counts"]["train"], some.about["counts"]["train"]) == (4, 3)
    assert spelled(some.splits["train"].texts[0], some.vocabulary) == ["a b c", "a b", "c"]
    assert spelled(some.splits["train"].texts[1], some.target) == ["x y", "x y z", "z"]
    assert len(some.splits["dev"].labels) == len(some.pairs["dev"]) == 4
    assert some.about["fingerprint"] != whole.about["fingerprint"]


def test_the_most_frequent_target_words_are_known(data):
    train = [("a", "x x x y"), ("b", "y z"), ("c", "q")]
    write_multi30k(data, train=train, dev=[("a", "x y q new")], test=[("a", "new new new x")])
    two = examples(data, "data.target_vocab_size=2")
    assert two.target.words[4:] == ("x", "y")
    assert spelled(two.splits["train"].texts[1], two.target) == ["x x x y", "y <unk>", "<unk>"]
    every = examples(data, "data.target_vocab_size=0")
    assert every.target.words[4:] == ("x", "y", "q", "z")  # those of train, and not what only others have
    for found in (every, examples(data, "data.target_vocab_size=25000")):
        assert found.target.words == every.target.words
        assert spelled(found.splits["dev"].texts[1], found.target) == ["x y q <unk>"]
    assert every.pairs["dev"] == [("a", "x y q new")]  # the reference is as it is
    assert two.about["fingerprint"] != every.about["fingerprint"]


def test_source_words_without_a_vector_are_unknown_to_the_model_and_kept_in_the_pairs(data):
    found = examples(data, "data.vectors=small.5d", "model.embedding_size=5")
    known = {"big", "small", "dog", "runs", "here"}
    assert set(found.vocabulary.words[2:]) == known
    assert found.vectors.shape == (7, 5)
    wanted = list(pairs(12, 1))
    assert found.pairs["dev"] == wanted
    texts = [" ".join(w if w in known else "<unk>" for w in english.split(" ")) for english, _ in wanted]
    assert spelled(found.splits["dev"].texts[0], found.vocabulary) == texts
    model = translation.build_translator(recipe("data.vectors=small.5d", "model.embedding_size=5"), found)
    assert torch.equal(model.embedding.weight[1:], found.vectors[1:])


def test_vectors_of_another_size_raise_an_error_with_the_key_to_set(data):
    with pytest.raises(
        ConfigError, match=r"small\.5d has vectors of 5 numbers .* set model\.embedding_size=5"
    ):
        examples(data, "data.vectors=small.5d")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("data.target_vocab_size=-1", "target_vocab_size, max_words and bpe_merges must be at least 0"),
        ("data.max_words=-1", "target_vocab_size, max_words and bpe_merges must be at least 0"),
        ("data.bpe_merges=-1", "target_vocab_size, max_words and bpe_merges must be at least 0"),
    ],
)
def test_negative_numbers_raise_an_error(assignment, message):
    with pytest.raises(ConfigError, match=message):
        recipe(assignment)


def test_subwords_with_pretrained_vectors_raise_an_error():
    with pytest.raises(ConfigError, match="subwords have no pretrained vectors: bpe_merges needs vec"):
        recipe("data.vectors=small.5d", "data.bpe_merges=9")


# Pieces of words


def test_subwords_are_learned_from_train_and_joined_again(data):
    write_multi30k(data, dev=[("big cats", "groß hunt"), ("xxx", "qqq")])  # letters that train has, and not
    found = examples(data, "data.bpe_merges=1")
    for split, own in found.splits.items():
        for number, (texts, vocabulary) in enumerate(
            zip(own.texts, (found.vocabulary, found.target), strict=True)
        ):
            words = [" ".join(Pieces.join(text.split(" "))) for text in spelled(texts, vocabulary)]
            if split == "train":
                assert words == [pair[number] for pair in pairs(40, 0)]
            elif split == "dev":
                assert words[0] == found.pairs["dev"][0][number]
                assert set(words[1].split(" ")) == {"<unk>"}  # letters that train never had
    assert any(word.endswith("@@") for word in found.vocabulary.words)
    assert found.pairs["dev"][0] == ("big cats", "groß hunt")
    # Each side knows what occurs there: no piece of German is read.
    assert not {"ß", "ß@@", "ä@@"} & set(found.vocabulary.words)
    assert {"ß", "ä@@"} <= set(found.target.words)
    every = (found, examples(data, "data.bpe_merges=12"), examples(data))
    lengths = [each.splits["train"].texts[1].lengths.sum() for each in every]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[1] > lengths[2]


def test_ids_of_subwords_match_those_of_a_loop(data):
    found = examples(data, "data.bpe_merges=5")
    for vocabulary, texts, side in zip(
        (found.vocabulary, found.target), found.splits["train"].texts, (0, 1), strict=True
    ):
        cut = Pieces(vocabulary.words[len(vocabulary.SPECIAL) :]).split
        for pair, ids, length in zip(pairs(40, 0), *map(list, texts), strict=True):
            wanted = [piece for word in pair[side].split(" ") for piece in cut(word)]
            assert ids[:length].tolist() == vocabulary.encode(wanted)


# Loss, words and figures


def batch_of(*targets):
    texts = Texts.from_ids(
        torch.tensor([i for each in targets for i in each]), torch.tensor([len(each) for each in targets])
    )
    return LabelledRows((texts, texts), torch.zeros(len(targets), dtype=torch.long))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_each_word_and_of_the_end(smoothing):
    targets, V = ([4, 5, 4], [6], [5, 5]), 7
    batch = batch_of(*targets)
    torch.manual_seed(0)
    scores = torch.randn(3, 4, V, dtype=torch.float64)
    parts, right, n = [], 0, 0
    for b, target in enumerate(targets):
        for t, word in enumerate([*target, END]):
            likely = scores[b, t].log_softmax(dim=-1)
            parts.append(-(1 - smoothing) * likely[word].item() - smoothing * likely.mean().item())
            right += int(scores[b, t].argmax() == word)
            n += 1
    loss, found = translation.compute_loss(recipe(f"train.label_smoothing={smoothing}"), scores, batch)
    assert loss.item() == pytest.approx(sum(parts) / n, rel=1e-12)
    assert n == 9
    assert found.item() == pytest.approx(right / n * 3)


def test_the_loss_ignores_padding():
    batch = batch_of([4, 5], [6])
    scores = torch.randn(2, 3, 7)
    wanted = translation.compute_loss(recipe(), scores, batch)
    other = scores.clone()
    other[1, 2] = 1e3 * torch.randn(7)  # behind the end of the second
    assert [each.item() for each in translation.compute_loss(recipe(), other, batch)] == [
        each.item() for each in wanted
    ]
    wider = batch.select(torch.arange(2), (5, 5))
    padded = torch.cat([scores, torch.randn(2, 3, 7)], dim=1)
    assert translation.compute_loss(recipe(), padded, wider)[0].item() == pytest.approx(wanted[0].item())


def test_a_perfect_model_has_no_loss():
    batch = batch_of([4, 5], [6])
    scores = torch.full((2, 3, 7), -50.0)
    for b, target in enumerate(([4, 5, END], [6, END])):
        for t, word in enumerate(target):
            scores[b, t, word] = 50.0
    loss, right = translation.compute_loss(recipe(), scores, batch)
    assert loss.item() < 1e-6
    assert right.item() == 2


TARGET = TargetVocabulary(["hund", "katze", "spiel@@", "platz"])


@pytest.mark.parametrize(
    ("replace", "pieces", "ids", "places", "wanted"),
    [
        (False, False, [4, 5, 0, 4], [0, 1, 0, 0], ["hund", "katze"]),  # padding is the end
        (False, False, [4, 1, 5], [0, 1, 1], ["hund", "<unk>", "katze"]),
        (True, False, [4, 1, 5], [0, 1, 1], ["hund", "zebra", "katze"]),
        (True, False, [1, 1], [1, 0], ["zebra", "dog"]),
        (True, False, [1], [2], ["<unk>"]),  # attended to what is no word
        (False, True, [6, 7, 4], [0, 0, 0], ["spielplatz", "hund"]),
        (False, False, [6, 7], [0, 0], ["spiel@@", "platz"]),
        (False, False, [0, 0], [0, 0], []),
    ],
)
def test_ids_of_a_translation_become_words(replace, pieces, ids, places, wanted):
    words = TARGET.decode(ids, places, ["dog", "zebra"] if replace else [])
    assert (Pieces.join(words) if pieces else words) == wanted


def answered(found, translations, places=0):
    """What a model would answer with these translations, given as words of the target vocabulary."""
    ids = torch.zeros(len(translations), 24, dtype=torch.long)
    for row, text in enumerate(translations):
        encoded = found.target.encode(text.split(" ") if text else [])
        ids[row, : len(encoded)] = torch.tensor(encoded, dtype=torch.long)
    return torch.cat([ids, torch.zeros_like(ids) + places], dim=1).float()


def test_the_metric_is_bleu_against_the_words_of_the_data(data):
    found = examples(data)
    right = [german for _, german in found.pairs["dev"]]
    assert translation.compute_metrics(recipe(), answered(found, right), found, "dev") == {
        "bleu": pytest.approx(1)
    }
    wrong = [right[0], *[text.rsplit(" ", 1)[0] for text in right[1:]]]
    report = TASK.compute_main_metric(recipe(), answered(found, wrong), found, "dev")
    assert report == pytest.approx(bleu(wrong, right))
    assert 0 < report < 1
    assert TASK.compute_main_metric(recipe(), answered(found, [""] * 12), found, "dev") == 0


def test_unknown_words_are_replaced_by_attended_source_words(data):
    write_multi30k(data, dev=[("big zebra runs here", "groß zebra hier rennt")])
    found = examples(data)
    assert found.target.encode(["zebra"]) == [UNKNOWN]
    report = answered(found, ["groß zebra hier rennt"], places=1)
    assert TASK.compute_main_metric(
        recipe("model.replace_unknown=true"), report, found, "dev"
    ) == pytest.approx(1)
    assert TASK.compute_main_metric(recipe(), report, found, "dev") == 0


def test_unknown_subwords_are_replaced_by_attended_source_subwords(data):
    """A place is that of a piece, of which words before may have several."""
    write_multi30k(data, dev=[("big cats zap", "groß katze hier p")])
    found, settings = examples(data, "data.bpe_merges=1"), ["data.bpe_merges=1", "model.replace_unknown=true"]
    ids = found.splits["dev"].texts[0].ids[0].tolist()
    place = [found.vocabulary.words[i] for i in ids].index("s")  # of cats; there are only three words
    assert place > 3
    translated = [p for word in ("groß", "katze", "hier") for p in Pieces(found.target.words[4:]).split(word)]
    report = answered(found, [" ".join([*translated, "<unk>"])], place)
    assert TASK.compute_main_metric(recipe(*settings), report, found, "dev") == bleu(
        ["groß katze hier s"], ["groß katze hier p"]
    )
    write_multi30k(data, dev=[("big cats zap", "groß katze hier s")])
    found = examples(data, "data.bpe_merges=1")
    assert TASK.compute_main_metric(recipe(*settings), report, found, "dev") == 1
    assert TASK.compute_main_metric(recipe("data.bpe_merges=1"), report, found, "dev") == 0


# Runs


@pytest.mark.parametrize("name", NAMES)
def test_training_learns_to_translate(name, data, tmp_path):
    write_multi30k(data, train=list(pairs(200, 0)), dev=list(pairs(40, 1)), test=list(pairs(40, 2)))
    result = trained(tmp_path / "run", data, "train.epochs=12", name=name)
    assert (result["task"], set(result["bleu"])) == ("translation", {"dev", "test", "test_2017"})
    assert min(result["bleu"][split] for split in ("dev", "test")) > 0.5
    assert 0.8 < result["accuracy"]["train"] <= 1
    metrics = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(row["loss"]) for row in metrics)
    assert result["bleu"]["dev"] == max(row["dev"] for row in metrics)
    assert metrics[-1]["loss"] < metrics[0]["loss"] / 3


def test_training_learns_with_subwords_and_beam_search(data, tmp_path):
    write_multi30k(data, train=list(pairs(200, 0)), dev=list(pairs(40, 1)))
    settings = [
        "data.bpe_merges=20",
        "model.beam=3",
        "model.tie_embeddings=true",
        "model.max_target_words=20",
        "train.epochs=10",
    ]
    result = trained(tmp_path / "run", data, *settings, name="lstm-lstm")
    assert result["bleu"]["dev"] > 0.3
    again = hub.load(tmp_path / "run")
    assert again.config.pieces
    pieces = Pieces(again.vocabulary.words[2:])
    assert again.tokenize("Big zebras") == [*pieces.split("big"), *pieces.split("zebras")]
    assert set(again.tokenize("Big zebras")) <= set(again.vocabulary.words)
    assert Pieces.join(again.tokenize("small horse")) == ["small", "horse"]


@pytest.mark.parametrize(
    "settings", [[], ["data.vectors=small.5d", "model.embedding_size=5", "model.trainable=false"]]
)
def test_a_loaded_model_gives_the_scores_of_training(data, tmp_path, settings):
    result = trained(tmp_path / "run", data, *settings)
    again = hub.load(tmp_path / "run")
    assert (again.config.kind, again.config.task, again.config.data) == (
        "translation",
        "translation",
        "multi30k",
    )
    assert (again.config.tokenizer, again.config.labels, again.config.pieces) == ("moses-en", [], False)
    found = examples(data, *settings)
    assert again.vocabulary.words == found.vocabulary.words
    assert isinstance(again.target, TargetVocabulary)
    assert again.target.words == found.target.words
    assert again.tokenize("Big dogs!") == ["big", "dogs", "!"]

    def answers(batch):
        return translation.translate_batch(recipe(*settings), again.module, batch)

    dev = compute_scores(again.module, found.splits["dev"], score_batch=answers)
    assert torch.equal(dev, checkpoint(tmp_path / "run")["best"]["scores"])
    assert dev.shape == (12, 16)
    test = compute_scores(again.module, found.splits["test"], score_batch=answers)
    assert TASK.compute_main_metric(recipe(*settings), test, found, "test") == result["bleu"]["test"]


def test_the_words_of_translations_belong_to_the_model(data, tmp_path):
    trained(tmp_path / "run", data, "train.epochs=1")
    folder = tmp_path / "run" / "model"
    file = folder / "target.txt"
    written = file.read_bytes()
    assert written.decode().split("\n")[:4] == list(TargetVocabulary.SPECIAL)
    first, second = written.decode().split("\n")[4:6]
    harms = {
        "swapped": "\n".join(
            [*TargetVocabulary.SPECIAL, second, first, *written.decode().split("\n")[6:]]
        ).encode(),
        "another": written.replace(b"hund\n", b"hand\n"),
        "one less": written[: written[:-1].rindex(b"\n") + 1],
        "one more": written + b"mehr\n",
        "twice": written + b"hund\n",
        "of a source": Vocabulary(["x"]).to_bytes(),
        "no end": written[:-1],
        "no text": b"\xff" + written,
        "nothing": b"",
    }
    for name, harm in harms.items():
        file.write_bytes(harm)
        with pytest.raises(ModelError, match=r"target\.txt|model\.safetensors|vocabulary") as refused:
            hub.load(folder)
        assert str(folder) in str(refused.value), name
    file.unlink()
    with pytest.raises(ModelError, match=r"target\.txt"):
        hub.load(folder)
    file.write_bytes(written)
    assert len(hub.load(folder).target) == len(written.decode().split("\n")) - 1


def test_only_a_translator_has_a_target_vocabulary(data, tmp_path):
    found = examples(data)
    config = make_model_config(recipe(), found)
    model = translation.build_translator(recipe(), found)
    with pytest.raises(ModelError, match="a translator needs its target words, other models have none"):
        hub.save(tmp_path / "mine", model, config, found.vocabulary, {})
    shorter = TargetVocabulary(found.target.words[4:-1])
    with pytest.raises(ModelError, match="the model does not fit its configuration"):
        hub.save(tmp_path / "mine", model, config, found.vocabulary, {}, shorter)
    assert not (tmp_path / "mine").exists()


def test_a_resumed_run_ends_like_an_uninterrupted_one(data, tmp_path):
    settings = {"recipe": "multi30k/nse-nse", "small": [*SMALL, "model.dropout=0.2"], "data": data}
    whole = train(tmp_path / "whole", **settings)
    stop(tmp_path / "stopped", after=2, **settings)
    resumed = train(tmp_path / "stopped", resume=True, **settings)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")
    assert resumed["bleu"] == whole["bleu"]


def test_every_result_of_the_paper_has_a_recipe():
    for name, report in TASK.paper_results.items():
        assert load_recipe(name).task == "translation"
        assert 0 < report["bleu"] < 1
    assert list(TASK.paper_results) == [f"iwslt14/{name}" for name in NAMES]


def test_tried_settings_are_scored_on_dev_only(data):
    tried = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "tried.py"))
    assert "test_2017" in examples(data).splits
    row = tried["measure_variant"]("multi30k/nse-nse", SMALL, 1, data)
    assert row["examples"].keys() == {"train", "dev"}
