"""A translator answers line by line, as soon as it can, and says why not."""

import json
import os
import subprocess
import sys

import pytest
import torch
from huggingface_hub import ModelCard
from typer.testing import CliRunner

import forking
import nse
from nse.cli import main as cli
from nse.data import records as lines
from nse.data.catalogue import describe_data
from nse.errors import InputError, RunError
from nse.inference import card
from nse.inference import folder as hub
from nse.inference.kinds import join_words
from nse.nn.translator import Translator
from small_models import (
    SOURCE,
    save_document_model,
    save_ranking_model,
    save_sentence_model,
    save_translator,
    translate_word_by_word,
)

WORDS = SOURCE
TEXTS = ["A dog runs.", "", "the cat, the dog", "Zyx qwv!", "a", "good " * 30, " \u200b"]


@pytest.fixture
def model(tmp_path):
    return save_translator(tmp_path / "mine")


def call(*words, **settings):
    return CliRunner().invoke(cli.app, ["translate", *map(str, words)], **settings)


def alone(loaded, text, beam):
    """The words of one sentence, translated by itself."""
    words = loaded.tokenize(text)
    if not words:
        return []
    ids = torch.tensor([loaded.vocabulary.encode(words)])
    result = loaded.module.translate(ids, torch.tensor([len(words)]), beam)
    return join_words(loaded, words, *(each[0].tolist() for each in result[:2]))


@pytest.mark.parametrize("beam", [None, 1, 3])
@pytest.mark.parametrize("decoder", ["nse", "lstm"])
def test_a_batch_translates_each_sentence_as_alone(beam, decoder, tmp_path):
    loaded = hub.load(save_translator(tmp_path / "mine", decoder=decoder, beam=2, replace_unknown=True))
    rows = loaded.translate(TEXTS, beam)
    assert [row["text"] for row in rows] == TEXTS
    assert [row["number"] for row in rows] == list(range(1, 8))
    assert [row["words"] for row in rows] == [alone(loaded, text, beam) for text in TEXTS]
    assert [row["unknown"] for row in rows] == [0, 0, 0, 3, 0, 0, 0]
    assert any(row["words"] for row in rows)
    for batch in (1, 2, 3):
        assert loaded.translate(TEXTS, beam, batch) == rows
    assert nse.load(str(tmp_path / "mine")).translate(TEXTS, beam) == rows
    json.dumps(rows, allow_nan=False)


def test_an_empty_text_has_an_empty_translation(model):
    rows = nse.load(model).translate(["", " \t", "\u200b"])
    assert [(row["translation"], row["words"], row["unknown"], row["cut"]) for row in rows] == [
        ("", [], 0, 0)
    ] * 3
    assert nse.load(model).translate([]) == []


def test_translations_are_detokenized(model, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    (row,) = nse.load(model).translate(["the cat, a dog runs."])
    assert row["words"] == ["die", "katze", ",", "ein", "hund", "läuft", "."]
    assert row["translation"] == "die katze, ein hund läuft."


@pytest.mark.parametrize(("replace", "written"), [(True, "die zebra läuft"), (False, "die <unk> läuft")])
def test_unknown_words_are_copied_from_the_source_if_configured(replace, written, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    (row,) = nse.load(save_translator(tmp_path / "mine", replace_unknown=replace)).translate(
        ["the Zebra runs"]
    )
    assert (" ".join(row["words"]), row["unknown"]) == (written, 1)


def test_subwords_are_split_and_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    source, target = ["play@@", "ground", "a"], ["spiel@@", "platz", "ein"]
    folder = save_translator(tmp_path / "mine", words=source, target=target, pieces=True)
    (row,) = nse.load(folder).translate(["a playground"])
    assert (row["words"], row["unknown"]) == (["ein", "spielplatz"], 0)


def test_translations_read_at_most_one_batch_ahead(model):
    read = []

    def endless():
        while True:
            read.append(len(read))
            yield "a dog"

    rows = nse.load(model).translations(endless(), batch=3)
    assert read == []
    assert [next(rows)["number"] for _ in range(3)] == [1, 2, 3]
    assert len(read) == 3
    assert next(rows)["number"] == 4
    assert len(read) == 6


def test_a_long_sentence_is_truncated_or_refused_in_order(tmp_path):
    model = nse.load(save_translator(tmp_path / "mine", max_words=3))
    long, whole = model.translate(["a dog runs the cat", "a dog runs"])
    assert (long["cut"], whole["cut"]) == (2, 0)
    assert long["words"] == whole["words"]
    rows = model.translations(["a", "dog", "a dog runs .", "a"], strict=True)
    assert [next(rows)["number"], next(rows)["number"]] == [1, 2]
    with pytest.raises(InputError, match="sentence 3 has 4 words and the model reads 3"):
        next(rows)
    with pytest.raises(InputError, match="sentence 9 has 4 words"):
        model.request("translate", ["a", "a dog runs ."], strict=True, numbers=[4, 9])


def test_wrong_texts_raise_a_clear_error(model, tmp_path):
    model = nse.load(model)
    for texts, message in [
        ("a dog", "texts: expected a list of texts, got the text 'a dog'"),
        ([3], "sentence 1: expected a text, got int"),
        (["caf\udce9"], "sentence 1: not valid Unicode"),
    ]:
        with pytest.raises(InputError, match=message):
            model.translate(texts)
        with pytest.raises(InputError, match=message):
            list(model.translations(texts))
    for settings in ({"batch": 0}, {"beam": 0}):
        with pytest.raises(InputError, match="batch and beam: expected at least 1"):
            model.translations(["a"], **settings)  # at once
    assert len(nse.load(save_translator(tmp_path / "odd", task="snli")).translate(["a"])) == 1


def test_a_model_of_another_kind_refuses_and_names_its_method(model, tmp_path):
    for other in (save_sentence_model(tmp_path / "sentence"), save_document_model(tmp_path / "document")):
        with pytest.raises(InputError, match=r"gives a \w+ a label \(.*\); it cannot translate: use predict"):
            nse.load(other).translate(["a"])
    with pytest.raises(InputError, match=r"ranks candidate .*; it cannot translate: use rank"):
        nse.load(save_ranking_model(tmp_path / "ranks")).translate(["a"])
    with pytest.raises(InputError, match="translates sentences; it cannot predict: use translate"):
        nse.load(model).predict(["a"])
    with pytest.raises(InputError, match=r"translates sentences; it cannot rank: use translate"):
        nse.load(model).rank("who", ["a"])


CONTENT = "\ufeffThe cat, a dog runs.\r\n\n \na zebra\n\na dog".encode()
PLAIN = "die katze, ein hund läuft.\n\n\nein <unk>\n\nein hund\n"


def test_translate_prints_a_line_for_each_line(model, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    file = tmp_path / "english.txt"
    file.write_bytes(CONTENT)
    for words, given in [([], CONTENT), (["--file", "-"], CONTENT), (["--file", file], b"")]:
        for batch in (1, 2, 64):
            answer = call(model, *words, "--batch", batch, input=given)
            assert (answer.exit_code, answer.stdout, answer.stderr) == (0, PLAIN, "")
    tokens = call(model, "--tokens", input=CONTENT).stdout
    assert tokens == PLAIN.replace(",", " ,").replace("läuft.", "läuft .")
    assert call(model, "a dog", " ", "the\ncat", "--device", "cpu").stdout == "ein hund\n\ndie katze\n"
    assert call(model, input=b"").stdout == ""


def test_translate_prints_json_lines(model, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    rows = [json.loads(line) for line in call(model, "--json", input=CONTENT).stdout.splitlines()]
    assert rows == nse.load(model).translate(["The cat, a dog runs.", "", " ", "a zebra", "", "a dog"])
    assert rows[3] == {
        "number": 4,
        "text": "a zebra",
        "translation": "ein <unk>",
        "words": ["ein", "<unk>"],
        "unknown": 1,
        "cut": 0,
    }
    (line,) = call(model, "a dog .", "--json", "--tokens").stdout.splitlines()
    assert json.loads(line)["translation"] == "ein hund ."


def test_the_beam_size_is_used(model):
    loaded = hub.load(model)
    for beam in (1, 4):
        words = [alone(loaded, text, beam) for text in ("a dog runs", "the cat")]
        answer = call(model, "a dog runs", "the cat", "--beam", beam, "--tokens")
        assert answer.stdout.splitlines() == [" ".join(each) for each in words]
    assert call(model, "a", "--beam", 0).exit_code == 2
    assert call(model, "a", "--batch", 0).exit_code == 2


def refused(capsys, monkeypatch, *words, given=b""):
    """What was printed before the command refused, and what it said."""
    monkeypatch.setattr(sys, "argv", ["nse", "translate", *map(str, words)])
    reading, writing = os.pipe()
    os.write(writing, given)
    os.close(writing)
    with os.fdopen(reading) as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    told = capsys.readouterr()
    assert stopped.value.code == 2
    assert "Traceback" not in told.err
    return told.out.splitlines(), told.err


@pytest.mark.parametrize("batch", [1, 64])
def test_an_error_names_the_line_after_the_translations_before_it(batch, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    model, before = save_translator(tmp_path / "mine", max_words=3), ["ein hund", ""]

    def told(*words, given):
        return refused(capsys, monkeypatch, model, "--batch", batch, *words, given=given)

    assert told(given=b"a dog\n\ncaf\xe9\na\n") == (
        before,
        "nse: standard input: line 3: is not UTF-8\n",
    )
    out, error = told("--strict", given=b"a dog\n\na dog runs the\na\n")
    assert out == before
    assert "sentence 3 has 4 words and the model reads 3" in error
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 8)
    out, error = told(given=b"a dog\n\na dog runs\na\n")
    assert (out, error) == (before, "nse: standard input: line 3: is longer than 8 bytes; break it up\n")
    out, error = told("--file", tmp_path / "nowhere", given=b"")
    assert (out, error) == ([], f"nse: {tmp_path / 'nowhere'}: cannot be read: No such file or directory\n")
    assert "cannot be read: Is a directory" in told("--file", tmp_path, given=b"")[1]
    assert "either sentences, or --file, not both" in told("a", "--file", "-", given=b"")[1]
    assert "sentence 2: not valid Unicode" in told("a", "caf\udce9", given=b"")[1]


def test_truncated_sentences_are_reported_on_standard_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "translate", translate_word_by_word)
    model = save_translator(tmp_path / "mine", max_words=3)
    answer = call(model, "a dog runs the cat", "a")
    assert (answer.exit_code, answer.stdout) == (0, "ein hund läuft\nein\n")
    assert answer.stderr == "nse: sentence 1: 2 words truncated\n"


def test_the_wrong_command_is_refused(model, tmp_path, capsys, monkeypatch):
    assert "use predict" in refused(capsys, monkeypatch, save_sentence_model(tmp_path / "other"), "a")[1]
    for words in (["predict", model, "a"], ["rank", model, "--question", "who"]):
        answer = CliRunner().invoke(cli.app, list(map(str, words)))
        assert isinstance(answer.exception, InputError)
        assert "use translate" in str(answer.exception)


def started(model, *words, **settings):
    return forking.Popen(
        ["-m", "nse", "translate", model, "--device", "cpu", *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **settings},
    )


def test_an_answer_is_printed_before_the_next_line_is_read(model):
    """In a locale that knows no umlauts."""
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with started(model, "--batch", "1", "--json", env=ascii_only) as process:
        for number in (1, 2, 3):
            process.stdin.write("a dog läuft\n".encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["number"] == number
        out, error = process.communicate()
    assert (out, error, process.returncode) == (b"", b"", 0)


def test_a_broken_pipe_ends_the_command_silently(model):
    with started(model, "--batch", "1") as process:
        process.stdin.write(b"a dog\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"a dog\n" * 100)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_write_error_is_reported(model):
    with open("/dev/full", "wb") as full, started(model, "a dog", stdout=full) as process:
        _, error = process.communicate()
    assert (error, process.returncode) == (
        b"nse: standard output cannot be written: No space left on device\n",
        2,
    )


def test_the_card_of_a_translator_shows_bleu_and_the_command(tmp_path):
    config = hub.load(save_translator(tmp_path / "mine")).config
    told = {**describe_data("multi30k"), "accuracy": {"train": 0.625}, "bleu": {"dev": 0.3, "test": 0.31415}}
    text = card.write_card(config, told).decode()
    assert "| bleu test | 31.41 |" in text
    assert "- Task: translation\n- Training data: multi30k (" in text
    assert "Labels" not in text
    assert 'nse translate FOLDER "A dog runs."\nnse evaluate FOLDER' in text
    assert 'model.translate(["A dog runs."])' in text
    front = ModelCard(text).data.to_dict()
    assert (front["pipeline_tag"], front["metrics"]) == ("translation", ["bleu"])
    metrics = front["model-index"][0]["results"][0]["metrics"]
    assert [(each["name"], each["value"]) for each in metrics] == [
        ("bleu (dev)", 30.0),
        ("bleu (test)", 31.415),
    ]
    assert "Labels" not in (tmp_path / "mine" / "README.md").read_text("utf-8")


def test_the_python_of_the_card_runs(tmp_path, capsys):
    folder = save_translator(tmp_path / "mine")
    code = (folder / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
    exec(code.replace("FOLDER", str(folder)), {})
    assert capsys.readouterr().out == nse.load(folder).translate(["A dog runs."])[0]["translation"] + "\n"


def test_non_finite_translation_scores_raise_an_error(tmp_path, monkeypatch):
    def broken(self, source, lengths, beam=None, max_length=None):
        result = translate_word_by_word(self, source, lengths)
        return result._replace(log_probs=result.log_probs * float("nan"))

    folder = save_translator(tmp_path / "mine")
    monkeypatch.setattr(Translator, "translate", broken)
    with pytest.raises(RunError, match="mine: the model's scores are NaN or infinite"):
        nse.load(folder).translate(["a dog"])
