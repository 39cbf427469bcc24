"""A trained model answers what a person typed, or says why not."""

import json
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import nse
from faults.made_models import save_model
from nse.errors import InputError, ModelError, RunError
from nse.inference import folder as hub
from small_models import CANDIDATES, SENTENCES, save_document_model, save_ranking_model, save_sentence_model


def alone(loaded, *texts):
    """What a model says to one row by itself."""
    inputs = []
    for text in texts:
        ids = torch.tensor([loaded.vocabulary.encode(loaded.tokenize(text))])
        inputs += [ids, torch.tensor([ids.shape[1]])]
    with torch.no_grad():
        return loaded.module(*inputs)[0].double()


class Fixed(nn.Module):
    """Gives every row the score of its last word's place in the vocabulary."""

    def __init__(self, scores):
        super().__init__()
        self.scores = nn.Parameter(scores)

    def forward(self, answer, answer_lengths, question, question_lengths):
        return self.scores[answer.gather(1, answer_lengths[:, None] - 1)]


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize("encoder", ["nse", "lstm"])
def test_a_batch_gives_each_sentence_the_label_it_gets_alone(batch, encoder, tmp_path):
    loaded = hub.load(save_sentence_model(tmp_path / "mine", encoder=encoder))
    rows = loaded.predict(SENTENCES, batch)
    assert [row["text"] for row in rows] == SENTENCES
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        wanted = alone(loaded, row["text"]).softmax(-1)
        assert row["label"] == ["negative", "positive"][int(wanted.argmax())]
        assert list(row["probabilities"].values()) == pytest.approx(wanted.tolist(), abs=1e-5)
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-12)
    assert [row["words"] for row in rows] == [4, 1, 10, 2, 70]
    assert [row["unknown"] for row in rows] == [0, 0, 2, 2, 0]
    assert {row["cut"] for row in rows} == {0}
    json.dumps(rows, allow_nan=False)
    assert nse.load(str(tmp_path / "mine")).predict(SENTENCES, batch) == rows
    assert nse.load(tmp_path / "mine").predict(SENTENCES, batch) == rows


def test_a_batch_gives_each_pair_the_label_it_gets_alone(tmp_path):
    save_model(tmp_path / "mine")
    loaded = hub.load(tmp_path / "mine")
    pairs = [("all dogs bark", "some dogs bark"), ("some dogs", "not zebras"), ("dogs", "dogs dance")]
    rows = loaded.predict(pairs, 2)
    for pair, row in zip(pairs, rows, strict=True):
        wanted = alone(loaded, *pair).softmax(-1)
        assert row["texts"] == list(pair)
        assert row["label"] == loaded.config.labels[int(wanted.argmax())]
        assert list(row["probabilities"].values()) == pytest.approx(wanted.tolist(), abs=1e-5)
    assert [(row["words"], row["unknown"]) for row in rows] == [(6, 0), (4, 1), (3, 0)]


DOCUMENTS = [
    "A good film. The dog runs! Who sleeps?",
    "bad",
    "a " * 200 + ". The cat sleeps.",
    "Zyx qwv.<br /><br />A dog",
    "the cat sleeps . the dog runs .",
]
IN_SENTENCES = [[4, 4, 3], [1], [96, 96, 9, 4], [3, 2], [4, 4]]


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize("tokenizer", ["treebank", "whitespace"])
def test_a_document_gets_the_label_of_its_sentences(batch, tokenizer, tmp_path):
    loaded = hub.load(save_document_model(tmp_path / "mine", tokenizer=tokenizer))
    texts = DOCUMENTS if tokenizer == "treebank" else [DOCUMENTS[4]]
    rows = loaded.predict(texts, batch)
    result = []
    for text, lengths, row in zip(texts, IN_SENTENCES if len(texts) > 1 else [[4, 4]], rows, strict=True):
        words = loaded.tokenize(text.replace("<br /><br />", " "))
        assert len(words) == sum(lengths)
        ids = torch.tensor(loaded.vocabulary.encode(words)).split(lengths)
        padded = nn.utils.rnn.pad_sequence(ids, batch_first=True)
        count = torch.tensor([len(lengths)])
        with torch.no_grad():
            scores = loaded.module(padded, torch.tensor(lengths), torch.arange(len(lengths))[None], count)[0]
        wanted = scores.double().softmax(-1)
        assert list(row["probabilities"].values()) == pytest.approx(wanted.tolist(), abs=1e-5)
        assert row["label"] == loaded.config.labels[int(wanted.argmax())]
        result.append((row["text"], row["words"], row["cut"], row["sentences"]))
        assert result[-1] == (text, len(words), 0, len(lengths))
    json.dumps(rows, allow_nan=False)


def test_sentence_boundaries_change_the_scores_of_a_document(tmp_path):
    model = nse.load(save_document_model(tmp_path / "mine"))
    texts = ["a dog runs. the cat", "a dog runs . the cat", "a dog. runs the cat ."]
    one, other, again = model.predict(texts)
    assert one["probabilities"] == other["probabilities"] != again["probabilities"]


def test_a_very_long_document_is_truncated_and_counted(tmp_path):
    model = nse.load(save_document_model(tmp_path / "mine"))
    (row,) = model.predict(["A dog runs . " * 5_000])
    assert (row["words"], row["cut"], row["sentences"]) == (10_000, 10_000, 2_500)
    with pytest.raises(InputError, match="document 1 has 20,000 words and the model reads 10,000"):
        model.predict(["A dog runs . " * 5_000], strict=True)
    (row,) = model.predict(["dog " * 12_000])
    assert (row["words"], row["sentences"]) == (10_000, 105)  # the last has 16 words
    with pytest.raises(InputError, match="document 2 is empty"):
        model.predict(["good", "<br />"])
    with pytest.raises(
        InputError, match=r"gives a document a label \(1, 2, 3\); it cannot rank: use predict"
    ):
        model.rank("who", ["dog"])


def test_the_card_of_a_document_model_shows_working_code(tmp_path, capsys):
    folder = save_document_model(tmp_path / "mine")
    text = (folder / "README.md").read_text("utf-8")
    assert "- Labels: 1, 2, 3\n- Training data: aclimdb (" in text
    assert 'nse predict FOLDER "I liked it. See it twice."\n' in text
    exec(text.split("```python\n")[1].split("```")[0].replace("FOLDER", str(folder)), {})
    assert capsys.readouterr().out.strip() in ("1", "2", "3")


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_candidates_are_ranked_by_the_scores_they_get_alone(batch, tmp_path):
    loaded = hub.load(save_ranking_model(tmp_path / "mine"))
    question = "Who runs?"
    rows = loaded.rank(question, CANDIDATES, batch)
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert sorted(row["number"] for row in rows) == [1, 2, 3, 4, 5, 6]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    for row in rows:
        assert row["text"] == CANDIDATES[row["number"] - 1]
        wanted = alone(loaded, row["text"], question)  # the answer is read first
        assert row["score"] == pytest.approx(float(wanted), abs=1e-5)
        assert row["probability"] == pytest.approx(float(wanted.sigmoid()), abs=1e-5)
    numbers = [row["number"] for row in rows]
    assert numbers.index(2) + 1 == numbers.index(6)  # the same words: the earlier one goes first
    assert rows[numbers.index(2)]["score"] == rows[numbers.index(6)]["score"]
    json.dumps(rows, allow_nan=False)


def test_candidates_with_equal_scores_keep_their_order(tmp_path):
    loaded = hub.load(save_ranking_model(tmp_path / "mine"))
    scores = torch.zeros(len(loaded.vocabulary))
    scores[loaded.vocabulary.encode(["cat"])] = 1.0
    loaded.module = Fixed(scores).eval()
    rows = loaded.rank("who", ["dog", "a", "cat", "runs", "the cat"])
    assert [row["number"] for row in rows] == [3, 5, 1, 2, 4]


def test_answers_and_errors_use_the_given_numbers(tmp_path):
    model = nse.load(save_ranking_model(tmp_path / "mine"))
    rows = model.answer(model.request("rank", ["dog", "cat"], question="who", numbers=[4, 9]))
    assert sorted(row["number"] for row in rows) == [4, 9]
    with pytest.raises(InputError, match="candidate 9 is empty"):
        model.request("rank", ["dog", " "], question="who", numbers=[4, 9])


def test_an_empty_list_gives_no_answers(tmp_path):
    assert nse.load(save_sentence_model(tmp_path / "mine")).predict([]) == []
    assert nse.load(save_ranking_model(tmp_path / "ranks")).rank("who", []) == []


@pytest.mark.parametrize("blank", ["", " ", "\t\n ", "\u00a0"])
def test_an_error_names_the_empty_text(blank, tmp_path):
    with pytest.raises(InputError, match="sentence 2 is empty: give it at least one word"):
        nse.load(save_sentence_model(tmp_path / "mine")).predict(["good", blank])
    save_model(tmp_path / "pair")
    with pytest.raises(InputError, match="hypothesis 1 is empty"):
        nse.load(tmp_path / "pair").predict([("dogs", blank)])
    with pytest.raises(InputError, match="premise 2 is empty"):
        nse.load(tmp_path / "pair").predict([("dogs", "dogs"), (blank, "dogs")])
    ranks = save_ranking_model(tmp_path / "ranks")
    with pytest.raises(InputError, match="question is empty"):
        nse.load(ranks).rank(blank, ["a dog"])
    with pytest.raises(InputError, match="candidate 3 is empty"):
        nse.load(ranks).rank("who", ["a dog", "a cat", blank])


def test_one_word_and_only_unknown_words_are_answered(tmp_path):
    for row in nse.load(save_sentence_model(tmp_path / "mine")).predict(["good", "zzz", "zzz qqq"]):
        assert sum(row["probabilities"].values()) == pytest.approx(1)
    rows = nse.load(save_ranking_model(tmp_path / "ranks")).rank("zzz", ["qqq", "xxx yyy", "dog"])
    assert {row["number"]: row["unknown"] for row in rows} == {1: 2, 2: 3, 3: 1}


@pytest.mark.parametrize(("model", "read"), [({}, 1_000), ({"max_words": 8, "padding": "paper"}, 8)])
def test_a_long_text_is_truncated_and_counted(model, read, tmp_path):
    folder = save_sentence_model(tmp_path / "mine", **model)
    started = time.perf_counter()
    long, whole = nse.load(folder).predict(["good " * 5_000, "good " * read])
    assert time.perf_counter() - started < 60
    assert (long["words"], long["cut"]) == (read, 5_000 - read)
    assert (whole["words"], whole["cut"]) == (read, 0)
    assert long["probabilities"] == whole["probabilities"]
    assert len(nse.load(folder).predict(["good " * read], strict=True)) == 1
    with pytest.raises(InputError, match=rf"sentence 2 has 5,000 words and the model reads {read:,}"):
        nse.load(folder).predict(["good", "good " * 5_000], strict=True)


def test_a_long_candidate_or_question_is_truncated_and_counted(tmp_path):
    folder = save_ranking_model(tmp_path / "mine", max_words=3)
    rows = nse.load(folder).rank("who who who who", ["dog", "a dog runs . ."])
    assert {row["number"]: row["cut"] for row in rows} == {1: 1, 2: 2}  # `. .` is one word to this tokenizer
    with pytest.raises(InputError, match="question has 4 words and the model reads 3"):
        nse.load(folder).rank("who who who who", ["dog"], strict=True)
    with pytest.raises(InputError, match="candidate 2 has 4 words and the model reads 3"):
        nse.load(folder).rank("who", ["dog", "a dog runs . ."], strict=True)


def test_a_very_long_word_takes_no_longer_than_a_short_one(tmp_path):
    started = time.perf_counter()
    (row,) = nse.load(save_sentence_model(tmp_path / "mine")).predict(["x" * 10_000_000])
    assert time.perf_counter() - started < 30
    assert (row["words"], row["unknown"]) == (1, 1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_scores_raise_an_error(bad, tmp_path):
    loaded = hub.load(save_ranking_model(tmp_path / "mine"))
    scores = torch.zeros(len(loaded.vocabulary))
    scores[loaded.vocabulary.encode(["cat"])] = bad
    loaded.module = Fixed(scores).eval()
    with pytest.raises(RunError, match=r"NaN or infinite, for candidate 2, 4$"):
        loaded.rank("who", ["dog", "cat", "a", "the cat"])


def test_a_model_of_another_kind_refuses_and_names_its_method(tmp_path):
    ranks = save_ranking_model(tmp_path / "ranks")
    with pytest.raises(InputError, match=r"ranks candidate answers .*; it cannot predict: use rank"):
        nse.load(ranks).predict(["good"])
    with pytest.raises(InputError, match=r"gives a sentence a label .*; it cannot rank: use predict"):
        nse.load(save_sentence_model(tmp_path / "mine")).rank("who", ["dog"])
    save_model(tmp_path / "pair")
    with pytest.raises(InputError, match="gives a pair of sentences a label"):
        nse.load(tmp_path / "pair").rank("who", ["dog"])


def test_the_inputs_of_a_model_do_not_depend_on_its_task(tmp_path):
    for task in ("chess", "sst", "documents"):
        save_model(tmp_path / task, task=task)
        with pytest.raises(InputError, match="texts: expected 2, premise 1 and hypothesis 1, got 1"):
            nse.load(tmp_path / task).predict(["a"])
        assert len(nse.load(tmp_path / task).predict([("a", "b")])) == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("good", "texts: expected a list of texts, got the text 'good'"),
        ([3], "texts: expected 1, sentence 1, got int"),
        ([("good", "bad")], "texts: expected 1, sentence 1, got 2"),
        ([("good",), (3,)], "sentence 2: expected a text, got int"),
        (["caf\udce9"], "sentence 1: not valid Unicode"),
    ],
)
def test_a_value_that_is_not_a_text_is_refused(texts, message, tmp_path):
    with pytest.raises(InputError, match=message):
        nse.load(save_sentence_model(tmp_path / "mine")).predict(texts)


def test_wrong_arguments_raise_a_clear_error(tmp_path):
    save_model(tmp_path / "pair")
    with pytest.raises(InputError, match="texts: expected 2, premise 1 and hypothesis 1, got 1"):
        nse.load(tmp_path / "pair").predict(["dogs"])
    with pytest.raises(InputError, match="candidates: expected a list of texts"):
        nse.load(save_ranking_model(tmp_path / "ranks")).rank("who", "dog")
    with pytest.raises(InputError, match="batch: expected at least 1, got 0"):
        nse.load(save_sentence_model(tmp_path / "mine")).predict(["good"], batch=0)
    with pytest.raises(ModelError, match="nobody: no such model"):
        nse.load("nobody").predict(["good"])


def test_nse_load_imports_no_command_line_libraries():
    check = (
        "import sys, nse; nse.load; print([m for m in ('lightning', 'typer', 'rich') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
