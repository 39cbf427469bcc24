"""A user's own files, from the command line to a model that is asked, scored again and resumed."""

import csv
import json
import random
import shutil
import tomllib
from dataclasses import fields

import numpy as np
import pytest
from sacremoses.corpus import NonbreakingPrefixes
from typer.testing import CliRunner

from faults.made_runs import assert_same_end, stop, train
from nse.cli import main as cli
from nse.errors import ConfigError, DataError, InputError, ModelError, RunError
from nse.inference import folder as hub
from nse.tasks import TASKS, load_recipe, translation
from nse.tasks.source import list_assignments
from nse.text.vocabulary import Vocabulary
from nse.train.evaluate import describe_evaluation, evaluate

THINGS = ["room", "bed", "bar", "pool"]
GOOD, BAD = ["lovely", "clean"], ["dirty", "loud"]
GERMAN = {"room": "Zimmer", "bed": "Bett", "bar": "Bar", "pool": "Becken"}
SMALL = ["model.size=16", "model.hidden=16", "train.batch_size=8", "train.lr=0.02", "train.epochs=4"]
TINY = [*SMALL, "model.dropout=0"]
PLAIN = ["model.embedding_dropout=0", "model.dropout=0", "model.output_dropout=0", "model.init_range=0"]
TRANSLATION = [
    *PLAIN,
    "model.size=16",
    "model.directions=1",
    "model.beam=2",
    "train.epochs=6",
    "train.batch_size=4",
    "train.lr=0.02",
    "train.label_smoothing=0",
    "data.bpe_merges=60",
]


def table(file, header, rows):
    """Write a table; by its name a CSV, TSV or JSON lines."""
    if file.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
        file.write_text("\n".join(lines), "utf-8")
        return file
    with file.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, delimiter="\t" if file.suffix == ".tsv" else ",").writerows([header, *rows])
    return file


def reviews(n, seed):
    draw = random.Random(seed)
    rows = [(draw.choice(THINGS), *draw.choice([(GOOD, "praise"), (BAD, "blame")])) for _ in range(n)]
    return [(f"The {thing} was {draw.choice(words)}.", label) for thing, words, label in rows]


def pairs(n, seed):
    draw = random.Random(seed)
    drawn = [(draw.choice(THINGS), draw.choice(THINGS), draw.random() < 0.5) for _ in range(n)]
    return [(f"A {a} .", f"The {a if same else b} .", int(same or a == b)) for a, b, same in drawn]


def candidates(questions, seed):
    draw = random.Random(seed)
    rows = []
    for number in range(questions):
        asked, *others = draw.sample(THINGS, 3)
        rows += [
            (f"Where is the {asked} , {number} ?", f"The {each} is here .", each == asked)
            for each in (asked, *others)
        ]
    return rows


def translations(n, seed):
    draw = random.Random(seed)
    return [(f"Here is the {a}.", f"Hier ist das {GERMAN[a]}.") for a in draw.choices(THINGS, k=n)]


KINDS = {
    "sentence": ("csv", {"text": "review", "label": "kind"}, reviews, (80, 20), TINY),
    "pair": ("jsonl", {"first": "a", "second": "b", "label": "same"}, pairs, (80, 20), TINY),
    "ranking": ("tsv", {"question": "q", "answer": "a", "label": "right"}, candidates, (20, 8), TINY),
    "translation": ("tsv", {"source": "en", "target": "de"}, translations, (40, 10), TRANSLATION),
}


def files(folder, kind):
    """The files of a kind, and the words that name them and their columns on the command line."""
    ending, columns, rows, sizes, _ = KINDS[kind]
    written = {
        split: table(folder / f"{split}.{ending}", list(columns.values()), rows(size, seed))
        for seed, (split, size) in enumerate(zip(("train", "dev", "test"), (*sizes, sizes[1]), strict=True))
    }
    named = ",".join(f"{role}={column}" for role, column in columns.items())
    return written, ["--columns", named]


def call(*words):
    answer = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    return answer.stdout


def sets(assignments):
    return [word for each in assignments for word in ("--set", each)]


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    """A run of each kind, with its three files; gives the kind, the folder of both, and the result."""
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    written, columns = files(folder, kind)
    named = [word for split, file in written.items() for word in (f"--{split}", file)]
    words = ["train", f"own/{kind}", *named, *columns, "--out", folder / "run", *sets(KINDS[kind][-1])]
    return kind, folder, json.loads(call(*words, "--json"))


def test_evaluating_a_run_gives_its_scores_again(trained):
    kind, folder, result = trained
    measure = {"ranking": "map", "translation": "bleu"}.get(kind, "accuracy")
    assert result["task"] == f"own-{kind}"
    for split in ("dev", "test"):
        report = json.loads(call("evaluate", folder / "run", "--split", split, "--json", "--device", "cpu"))
        assert report[measure] == pytest.approx(result[measure][split])
        assert (report["data"], report["split"], report["n"]) == ("own", split, result["examples"][split])
        assert report["published"] == report["n"]
        assert "published" not in describe_evaluation(report)
    assert result[measure]["test"] > 0.5 + 0.3 * (kind != "translation")  # a word tells it, or two are alike


def test_a_trained_model_answers(trained):
    kind, folder, _ = trained
    run = folder / "run"
    loaded = hub.load(run)
    assert (loaded.config.task, loaded.config.data) == (f"own-{kind}", "own")
    assert 'license: "unknown"' in (run / "model" / "README.md").read_text()
    if kind == "sentence":
        assert loaded.config.labels == ["blame", "praise"]
        assert [row["label"] for row in loaded.predict(["The bed was loud.", "The bar was clean."])] == [
            "blame",
            "praise",
        ]
        assert call("predict", run, "The bed was dirty.").startswith("blame ")
        assert "review" not in call("explore", run, "The bed was dirty.")
    elif kind == "pair":
        assert loaded.config.labels == ["0", "1"]
        answers = loaded.predict([("A bed .", "The bed ."), ("A bed .", "The bar .")])
        assert [row["label"] for row in answers] == ["1", "0"]
        assert call("predict", run, "A bed .", "The bar .").startswith("0 ")
    elif kind == "ranking":
        assert loaded.config.labels == ["right"]
        report = loaded.rank("Where is the pool , 1 ?", ["The bed is here .", "The pool is here ."])
        assert [row["number"] for row in report] == [2, 1]
    else:
        assert loaded.config.pieces
        assert call("translate", run, "Here is the bed.").count("\n") == 1
    with pytest.raises((InputError, ModelError)):
        loaded.translate(["a"]) if kind != "translation" else loaded.predict(["a"])


def test_the_recipe_of_a_run_has_every_value_and_runs_again(trained, monkeypatch, tmp_path):
    kind, folder, result = trained
    monkeypatch.chdir(tmp_path)  # paths are whole ones
    recipe = folder / "run" / "recipe.toml"
    report = tomllib.loads(recipe.read_text())["data"]
    ending, columns = KINDS[kind][:2]
    assert report["train"] == str(folder / f"train.{ending}")
    assert report["columns"] | columns == report["columns"]
    again = json.loads(call("train", recipe, "--out", "again", "--json"))
    assert again["data"] == result["data"]
    weights = "model/model.safetensors"
    assert (tmp_path / "again" / weights).read_bytes() == (folder / "run" / weights).read_bytes()


def test_another_file_with_other_columns_can_be_scored(trained, tmp_path):
    kind, folder, result = trained
    measure = {"ranking": "map", "translation": "bleu"}.get(kind, "accuracy")
    _, columns, rows, sizes, _ = KINDS[kind]
    other = table(tmp_path / "other.csv", list("xyz")[: len(columns)], rows(sizes[1], 2))
    named = ",".join(f"{role}={name}" for role, name in zip(columns, "xyz", strict=False))
    report = json.loads(call("evaluate", folder / "run", "--on", other, "--columns", named, "--json"))
    assert report[measure] == pytest.approx(result[measure]["test"])
    assert (report["data"], report["split"]) == ("other.csv", "test")
    shutil.copytree(folder / "run" / "model", tmp_path / "bare")
    if kind == "translation":
        with pytest.raises(ModelError, match=r"there is no recipe.toml of its run with the files$"):
            evaluate(str(tmp_path / "bare"), on=str(other), columns=named)
    else:
        assert evaluate(str(tmp_path / "bare"), on=str(other), columns=named)[measure] == report[measure]
    with pytest.raises(ModelError, match=r"no recipe.toml of its run with the files$") as refusal:
        evaluate(str(tmp_path / "bare"))
    assert refusal.value.fix == ("on",)
    for words, message in [
        ({"split": "dev", "on": str(other)}, "split: a file given by `on` has no splits"),
        ({"columns": named}, "columns: those of the model's own data are known; give them with another file"),
        ({"split": "tset"}, "split: there is no 'tset'; there are train, dev, test"),
    ]:
        with pytest.raises(InputError, match=message):
            evaluate(str(folder / "run"), **words)


def sentences(folder, *assignments, n=40):
    """A recipe of sentences in one file of the columns text and label."""
    file = table(folder / "mine.csv", ["text", "label"], reviews(n, 1))
    return load_recipe("own/sentence", [f"data.train={json.dumps(str(file))}", *TINY, *assignments])


def test_without_a_dev_file_some_rows_are_held_out_and_the_run_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(
        tmp_path / "mine.csv",
        ["text", "label"],
        [(f"{text} {n}", label) for n, (text, label) in enumerate(reviews(40, 1))],
    )
    answer = CliRunner().invoke(
        cli.app, ["train", "own/sentence", "--train", "mine.csv", "--out", "run", *sets(TINY)]
    )
    assert answer.exit_code == 0, answer.output
    note = "dev is 4 of the 40 rows of mine.csv, held out of training"
    assert f"own/sentence: {note}" in answer.stderr
    about = json.loads((tmp_path / "run" / "data.json").read_text())
    assert (about["counts"], about["notes"]) == ({"train": 36, "dev": 4}, [note])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    report = evaluate("run")  # there is no test
    assert (report["split"], report["n"], report["accuracy"]) == ("dev", 4, result["accuracy"]["dev"])
    assert evaluate("run", "train")["n"] == 36
    with pytest.raises(InputError, match="split: there is no 'test'; there are train, dev"):
        evaluate("run", "test")


def test_the_fingerprint_changes_with_the_content_of_the_files(tmp_path):
    def fingerprint(*assignments, change=None):
        recipe = sentences(tmp_path, *assignments)
        if change:
            content = (tmp_path / "mine.csv").read_text()
            (tmp_path / "mine.csv").write_text(content.replace(*change))
        return TASKS["sentence"].load_examples(recipe).about["fingerprint"]

    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(change=("text,label\n", '"text",label\n\n')) == first
    others = [
        fingerprint(change=("clean", "tidy")),
        fingerprint(change=("praise", "thanks")),  # the same numbers under another name
        fingerprint("data.dev_fraction=0.3"),
        fingerprint("data.tokenizer=whitespace"),
        fingerprint("data.min_count=9"),
    ]
    assert len({first, *others}) == 6


def test_a_run_goes_on_to_the_same_end_and_refuses_changed_data(tmp_path):
    given = [f"data.train={json.dumps(str(tmp_path / 'mine.csv'))}", "train.epochs=2"]
    settings = {"recipe": "own/sentence", "small": [*SMALL, *given]}
    sentences(tmp_path)
    train(tmp_path / "whole", **settings)
    stop(tmp_path / "stopped", after=3, **settings)
    content = (tmp_path / "mine.csv").read_text()
    (tmp_path / "mine.csv").write_text(content.replace("clean", "tidy"))
    with pytest.raises(RunError, match="has a run on other data"):
        train(tmp_path / "stopped", resume=True, **settings)
    (tmp_path / "mine.csv").write_text(content)
    train(tmp_path / "stopped", resume=True, **settings)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")


def test_rare_words_and_words_of_dev_only_are_unknown(tmp_path):
    file = table(tmp_path / "train.csv", ["text", "label"], [("a a b", "0"), ("c", "1")])
    dev = table(tmp_path / "dev.csv", ["text", "label"], [("d a", "0")])
    named = [f"data.{split}={json.dumps(str(path))}" for split, path in (("train", file), ("dev", dev))]
    actual = TASKS["sentence"].load_examples(load_recipe("own/sentence", named))
    assert actual.vocabulary.words == (*Vocabulary.SPECIAL, "a", "b", "c")
    assert actual.splits["dev"].texts[0].ids.tolist() == [[Vocabulary.UNKNOWN, 2]]
    recipe = load_recipe("own/sentence", [*named, "data.min_count=2"])
    actual = TASKS["sentence"].load_examples(recipe)
    assert actual.vocabulary.words == (*Vocabulary.SPECIAL, "a")
    weights = TASKS["sentence"].build_model(recipe, actual).embedding.weight
    assert not weights[: len(Vocabulary.SPECIAL)].any()
    assert weights[2].any()


@pytest.mark.parametrize("by", ["name", "path"])
def test_word_vectors_can_be_given_by_name_or_file(tmp_path, by):
    place = tmp_path / "data" / "vectors"
    place.mkdir(parents=True)
    (place / "mine.4d.txt").write_text("room 1 2 3 4\nclean 4 3 2 1\nunseen 1 1 1 1\n")
    vectors = "mine.4d" if by == "name" else str(place / "mine.4d.txt")
    recipe = sentences(tmp_path, f"data.vectors={vectors}", "model.embedding_size=4", "model.trainable=false")
    actual = TASKS["sentence"].load_examples(recipe, tmp_path / "data")
    assert sorted(actual.vocabulary.words[2:]) == ["clean", "room"]
    made = TASKS["sentence"].build_model(recipe, actual)
    given = {"room": [1, 2, 3, 4], "clean": [4, 3, 2, 1]}
    for row, word in enumerate(actual.vocabulary.words[2:], start=2):
        np.testing.assert_array_equal(made.embedding.weight[row].detach().numpy(), given[word])


def test_a_ranking_needs_questions_with_correct_and_incorrect_answers(tmp_path):
    header, answers = ["question", "answer", "label"], [("q", "a", 1), ("q", "b", 0)]
    file = table(tmp_path / "train.tsv", header, [*answers, ("r", "c", 1), ("r", "d", 0)])
    dev = table(tmp_path / "dev.tsv", header, [("q", "a", 1)])
    given = [f"data.train={json.dumps(str(file))}"]
    with pytest.raises(
        DataError, match=r"dev.tsv: no question of dev has both a correct and an incorrect answer"
    ):
        TASKS["ranking"].load_examples(
            load_recipe("own/ranking", [*given, f"data.dev={json.dumps(str(dev))}"])
        )
    table(file, header, [("q", "a", 1), ("r", "d", 0), ("s", "d", 0)])
    with pytest.raises(DataError, match=r"the dev set held out: no question of dev has both ") as refusal:
        TASKS["ranking"].load_examples(load_recipe("own/ranking", given))
    assert refusal.value.fix == ("dev",)
    table(file, header, [("q", "a", 0), ("r", "d", 0)])
    with pytest.raises(DataError, match=r"train.tsv: every row has the label 0; a classifier needs two"):
        TASKS["ranking"].load_examples(load_recipe("own/ranking", given))


def test_translations_that_are_all_too_long_leave_nothing_to_train_on(tmp_path):
    file = table(tmp_path / "mine.tsv", ["source", "target"], translations(9, 1))
    given = [f"data.train={json.dumps(str(file))}", "data.bpe_merges=0"]
    with pytest.raises(DataError, match="own: no row is left to train on"):
        TASKS["translation"].load_examples(load_recipe("own/translation", [*given, "data.max_words=1"]))
    actual = TASKS["translation"].load_examples(load_recipe("own/translation", [*given, 'data.language=""']))
    assert "Hier" in actual.target.words  # spaced words as they are
    assert "hier" not in actual.target.words


def test_the_languages_are_those_of_moses():
    assert set(translation.LANGUAGES.split()) == set(NonbreakingPrefixes().available_langs.values())


REFUSED = {
    "train=": "own: there is no file to train on",
    "dev_fraction=0": "dev_fraction must be above 0 and below 1, got 0.0",
    "min_count=0": "min_count must be at least 1, got 0",
    "name=snli": "name: expected a name that no published data set has, got 'snli'",
    'columns.label="text"': "expected a different column for each role, got 'text', 'text'",
    'columns.label=""': "expected a different column for each role, got 'text', ''",
    'train="a\\u0000b"': "expected a path in UTF-8 without NUL",
    "tokenizer=moss": 'did you mean "moses"',
    "columns.lable=x": "no such key; did you mean data.columns.label",
}


@pytest.mark.parametrize("assignment", REFUSED)
def test_wrong_values_raise_an_error(tmp_path, assignment):
    with pytest.raises((ConfigError, InputError), match=REFUSED[assignment]):
        TASKS["sentence"].load_examples(sentences(tmp_path, f"data.{assignment}"))


def test_frozen_vectors_must_be_pretrained():
    for kind in KINDS:
        with pytest.raises(ConfigError, match=r"needs model.trainable = true: there are no pretrained vec"):
            load_recipe(f"own/{kind}", ["model.trainable=false"])
    with pytest.raises(ConfigError, match=r"language: expected .* got 'xx'"):
        load_recipe("own/translation", ["data.language=xx"])


def test_options_for_files_override_the_recipe():
    typed = list_assignments({"train": "a b.tsv", "dev": None}, 'text="x", label=1')
    assert typed == ['data.train="a b.tsv"', 'data.columns.text="\\"x\\""', 'data.columns.label="1"']
    recipe = load_recipe("own/sentence", typed)
    assert (recipe.data.columns.text, recipe.data.columns.label) == ('"x"', "1")
    assert recipe.data.train.endswith("/a b.tsv")
    for wrong in ("text", "text=", "=a", "text=a,", ""):
        with pytest.raises(InputError, match="columns: expected ROLE=COLUMN, as in"):
            list_assignments({}, wrong)
    with pytest.raises(ConfigError, match=r"override data.train: expected integer, got string"):
        load_recipe("logic/nse", list_assignments({"train": "mine.csv"}, None))
    for kind in KINDS:
        recipe = load_recipe(f"own/{kind}")
        assert [each.name for each in fields(recipe.data.columns)][: len(KINDS[kind][1])] == list(
            KINDS[kind][1]
        )


def test_columns_are_for_models_of_own_data():
    with pytest.raises(
        InputError, match="columns: snli was trained on published data, whose columns are know"
    ):
        evaluate("snli", columns="text=a")
