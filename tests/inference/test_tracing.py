"""Traces of models of every kind; their keys equal those of the oracle, which computes word by word."""

import json
from importlib import resources

import jsonschema
import numpy as np
import pytest
import torch

from nse.errors import InputError
from nse.inference import folder as hub
from nse.inference.tracing import record_calls
from nse.nn import decoder as decoders
from nse.nn.encoder import NSE
from nse.nn.search import END
from nse.text.vocabulary import Vocabulary
from nse.viz.trace import NOWHERE, MemoryTrace
from oracle.equations import encode
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

SCHEMA = json.loads(resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8"))


def to_array(tensor):
    return tensor.detach().double().numpy()


def read_by_oracle(nse, words, memory, shared=()):
    """Compute the keys [T, L] of each memory and the final memories of an NSE by the equations."""
    layers = [[[to_array(w) for w in layer] for layer in lstm.all_weights] for lstm in (nse.read, nse.write)]
    zero = [[(np.zeros(nse.size), np.zeros(nse.size)) for _ in lstm] for lstm in layers]
    compose, bias = to_array(nse.compose.weight), to_array(nse.compose.bias)
    _, after, _, _, keys = encode(words, [memory, *shared], *zero, layers[0], compose, bias, layers[1])
    return [np.array([step[n] for step in keys]) for n in range(1 + len(shared))], after


def embed_words(loaded, words):
    """Return the embeddings of some words."""
    ids = torch.tensor([loaded.vocabulary.encode(list(words))])
    return list(to_array(loaded.module.embed(ids)[0]))


def add_learned(nse, words):
    """Return the steps and the initial memory of some words, with start words and blank slots."""
    starts = [] if nse.start is None else list(to_array(nse.start))
    blanks = [] if nse.blank is None else list(to_array(nse.blank))
    return [*starts, *words], [*blanks, *starts, *words]


def check_json(trace):
    """Check a trace against the schema, and that JSON restores it."""
    jsonschema.validate(json.loads(trace.to_json()), SCHEMA)
    assert MemoryTrace.from_json(trace.to_json()).to_json() == trace.to_json()
    return trace


@pytest.mark.parametrize("extra", [{}, {"starts": 1}, {"blanks": 2, "starts": 2}, {"layers": 2}])
def test_a_sentence_model_is_traced(extra, tmp_path):
    loaded = hub.load(save_sentence_model(tmp_path / "mine", **extra))
    trace = check_json(loaded.trace("the good dog runs zyx"))
    [reading] = trace.readings
    nse = loaded.module.encoder.nse[0]
    words = ["the", "good", "dog", "runs", "zyx"]
    steps, memory = add_learned(nse, embed_words(loaded, words))
    [keys], _ = read_by_oracle(nse, steps, memory)
    assert reading.memories[0].keys == pytest.approx(keys, abs=1e-5)
    starts = {0: [], 1: ["<S>"], 2: ["<S1>", "<S2>"]}[extra.get("starts", 0)]
    blanks = ["<blank1>", "<blank2>"] if extra.get("blanks") else []
    assert list(reading.words) == [*starts, *words]
    assert list(reading.memories[0].slots) == [*blanks, *starts, *words]
    for step, slot in enumerate(reading.memories[0].own):
        assert reading.memories[0].slots[slot] == reading.words[step]
    [text] = trace.texts
    assert (text.name, text.words, text.unknown) == ("sentence", tuple(words), (4,))
    [row] = loaded.predict(["the good dog runs zyx"])
    assert trace.prediction == {"label": row["label"], "probabilities": row["probabilities"]}


def test_a_bidirectional_model_has_a_reading_for_each_direction(tmp_path):
    loaded = hub.load(save_sentence_model(tmp_path / "mine", directions=2, starts=1))
    forward, backward = check_json(loaded.trace("a good film")).readings
    assert (forward.name, backward.name) == ("sentence, left to right", "sentence, right to left")
    assert forward.words == ("<S>", "a", "good", "film")
    assert backward.words == ("<S>", "film", "good", "a")
    assert backward.memories[0].slots == ("<S>", "a", "good", "film")  # in the order of the text
    nse = loaded.module.encoder.nse[1]
    steps, memory = add_learned(nse, embed_words(loaded, ["film", "good", "a"]))
    [keys], _ = read_by_oracle(nse, steps, memory)
    assert backward.memories[0].keys == pytest.approx(keys[:, [0, 3, 2, 1]], abs=1e-5)
    assert backward.memories[0].own == (0, 3, 2, 1)


@pytest.mark.parametrize("starts", [0, 1])
def test_padding_of_the_paper_is_part_of_the_trace(starts, tmp_path):
    loaded = hub.load(save_sentence_model(tmp_path / "mine", padding="paper", max_words=5, starts=starts))
    [reading] = check_json(loaded.trace("good film")).readings
    assert reading.words == (*["<S>"] * starts, "<pad>", "<pad>", "<pad>", "good", "film")
    ids = torch.tensor([[0, 0, 0, *loaded.vocabulary.encode(["good", "film"])]])
    nse = loaded.module.encoder.nse[0]
    [keys], _ = read_by_oracle(nse, *add_learned(nse, list(to_array(loaded.module.embed(ids)[0]))))
    assert reading.memories[0].keys == pytest.approx(keys, abs=1e-5)


def make_pair_model(folder, **model):
    from faults.made_models import save_model

    save_model(folder, model={"init_range": 0.5, **model})
    return hub.load(folder)


def test_a_pair_model_has_a_reading_for_each_text(tmp_path):
    loaded = make_pair_model(tmp_path / "mine", starts=1)
    trace = check_json(loaded.trace("all dogs bark", "some dogs that dance bark"))
    assert [reading.name for reading in trace.readings] == ["premise", "hypothesis"]
    nse = loaded.module.encoder.nse[0]
    for reading, text in zip(trace.readings, trace.texts, strict=True):
        [keys], _ = read_by_oracle(nse, *add_learned(nse, embed_words(loaded, text.words)))
        assert reading.memories[0].keys == pytest.approx(keys, abs=1e-5)


@pytest.mark.parametrize("directions", [1, 2])
def test_a_pair_model_with_shared_memory_traces_both_memories(directions, tmp_path):
    loaded = make_pair_model(tmp_path / "mine", encoder="mma", directions=directions, starts=1, blanks=1)
    trace = check_json(loaded.trace("all dogs bark", "some dogs dance"))
    first, second = trace.readings[0], trace.readings[directions]
    assert second.shared[0].name == first.name
    for way in range(directions):
        one, two = trace.readings[way], trace.readings[directions + way]
        turn = -1 if way else 1
        a, b = (embed_words(loaded, text.words)[::turn] for text in trace.texts)
        encoder, reader = loaded.module.encoder.nse[way], loaded.module.second.nse[way]
        [keys], [memory] = read_by_oracle(encoder, *add_learned(encoder, a))
        order = [0, 1, *(2 + at for at in range(3))] if turn == 1 else [0, 1, 4, 3, 2]
        assert one.memories[0].keys == pytest.approx(keys[:, order], abs=1e-5)
        steps, initial = add_learned(reader, b)
        (own, across), _ = read_by_oracle(reader, steps, initial, [memory])
        assert two.memories[0].keys == pytest.approx(own[:, order], abs=1e-5)
        assert two.memories[1].keys == pytest.approx(across[:, order], abs=1e-5)
        assert two.memories[1].own == (NOWHERE,) * 4
        assert list(two.memories[1].held) == one.final(one.memories[0])


def test_a_pair_model_with_alignment_has_readings_of_the_comparison(tmp_path):
    loaded = make_pair_model(tmp_path / "mine", attention="aligned", reader="nse")
    trace = check_json(loaded.trace("all dogs bark", "some dogs"))
    names = ["premise", "hypothesis", "premise, compared", "hypothesis, compared"]
    assert [reading.name for reading in trace.readings] == names
    assert trace.readings[3].memories[0].keys.shape == (2, 2)


def test_a_ranking_model_is_traced_for_each_candidate(tmp_path):
    loaded = hub.load(save_ranking_model(tmp_path / "mine"))
    candidates = ["the cat sleeps .", "a dog runs ."]
    trace = check_json(loaded.trace("who runs ?", *candidates))
    rows = loaded.rank("who runs ?", candidates)
    assert [row["number"] for row in trace.prediction["ranking"]] == [row["number"] for row in rows]
    assert [row["score"] for row in trace.prediction["ranking"]] == [row["score"] for row in rows]
    names = ["candidate 1", "question, for candidate 1", "candidate 2", "question, for candidate 2"]
    assert [reading.name for reading in trace.readings] == names
    assert [text.name for text in trace.texts] == ["question", "candidate 1", "candidate 2"]
    encoder, reader = loaded.module.encoder.nse[0], loaded.module.second.nse[0]
    answer, question = embed_words(loaded, candidates[1].split()), embed_words(loaded, ["who", "runs", "?"])
    _, [memory] = read_by_oracle(encoder, answer, answer)
    (own, across), _ = read_by_oracle(reader, question, question, [memory])
    assert trace.readings[3].memories[0].keys == pytest.approx(own, abs=1e-5)
    assert trace.readings[3].memories[1].keys == pytest.approx(across, abs=1e-5)


def test_a_document_model_has_readings_of_sentences_and_document(tmp_path):
    loaded = hub.load(save_document_model(tmp_path / "mine"))
    trace = check_json(loaded.trace("A good film. The cat sleeps, the dog runs. bad"))
    *sentences, whole = trace.readings
    assert [reading.name for reading in trace.readings] == [
        "sentence 1",
        "sentence 2",
        "sentence 3",
        "document",
    ]
    assert [word for reading in sentences for word in reading.words] == list(trace.texts[0].words)
    assert whole.words == ("1: a good", "2: the cat", "3: bad")
    nse = loaded.module.encoder.nse[0]
    for reading in sentences:
        x = embed_words(loaded, reading.words)
        [keys], _ = read_by_oracle(nse, x, x)
        assert reading.memories[0].keys == pytest.approx(keys, abs=1e-5)
    assert whole.memories[0].keys.shape == (3, 3)
    with_lstm = hub.load(save_document_model(tmp_path / "lstm", reader="lstm"))
    assert len(check_json(with_lstm.trace("A good film. Bad.")).readings) == 2


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_translator_has_a_reading_of_the_translation(directions, beam, tmp_path, monkeypatch):
    for seed in range(100):
        loaded = hub.load(
            save_translator(tmp_path / str(seed), directions=directions, seed=seed, init_range=2.0)
        )
        loaded.module.output.bias.data[END] += 2  # an untrained one rarely comes to an end
        [row] = loaded.translate(["the dog runs ."], beam)
        if 2 <= len(row["words"]) < loaded.config.model.max_target_words:
            break
    trace = check_json(loaded.trace("the dog runs .", beam=beam))
    assert trace.prediction == {"translation": row["translation"], "words": row["words"]}
    *sources, written = trace.readings
    assert len(sources) == len(written.memories) == directions
    assert written.words == ("<S>", *written.outputs[:-1])
    assert list(written.outputs) == [*row["words"], "</S>"]
    # Keys of the decoder when it is forced to write the same translation.
    steps, real = [], decoders.ops.step

    def spy(*args):
        result = real(*args)
        steps.append(result[3])
        return result

    monkeypatch.setattr(decoders.ops, "step", spy)
    ids = torch.tensor([loaded.vocabulary.encode(["the", "dog", "runs", "."])])
    target = torch.tensor([loaded.target.encode(row["words"])])
    loaded.module(ids, torch.tensor([4]), target, torch.tensor([target.shape[1]]))
    for number, memory in enumerate(written.memories):
        keys = torch.cat([step[number] for step in steps]).detach().numpy()
        turned = keys[:, ::-1] if number else keys
        assert memory.keys == pytest.approx(turned, abs=1e-5)
        assert list(memory.held) == sources[number].final(sources[number].memories[0])
        assert written.own is None


def test_a_truncated_translation_has_no_end_symbol(tmp_path):
    loaded = hub.load(save_translator(tmp_path / "mine", seed=3, max_target_words=2))
    written = loaded.trace("the dog runs .", beam=1).readings[-1]
    [row] = loaded.translate(["the dog runs ."], 1)
    assert len(row["words"]) == 2
    assert list(written.outputs) == row["words"]
    assert written.words == ("<S>", row["words"][0])


def test_a_translator_with_an_lstm_decoder_has_only_the_readings_of_the_encoder(tmp_path):
    loaded = hub.load(save_translator(tmp_path / "mine", decoder="lstm"))
    assert [reading.name for reading in check_json(loaded.trace("the dog")).readings] == ["sentence"]


def test_a_trace_leaves_the_model_unchanged(tmp_path):
    loaded = hub.load(save_sentence_model(tmp_path / "mine", starts=1))
    before = loaded.predict(["a good film"])
    loaded.trace("a good film")
    assert loaded.predict(["a good film"]) == before
    nse = loaded.module.encoder.nse[0]
    assert not nse._forward_hooks
    assert not nse._forward_pre_hooks
    with pytest.raises(RuntimeError), record_calls(loaded.module):
        raise RuntimeError
    assert not nse._forward_hooks


def test_trace_all_returns_the_keys_of_the_start_words():
    nse, x = NSE(4, starts=2, blanks=1), torch.randn(2, 3, 4)
    lengths = torch.tensor([3, 1])
    last, every = nse(x, lengths, trace=True), nse(x, lengths, trace="all")
    assert last.keys.shape == (2, 3, 6)
    assert every.keys.shape == (2, 5, 6)
    assert torch.equal(every.keys[:, 2:], last.keys)
    assert torch.equal(every.outputs, last.outputs)


def test_texts_that_cannot_be_traced_are_refused_with_the_reason(tmp_path):
    folder = save_sentence_model(tmp_path / "mine")
    for texts, message in {
        (): "texts: expected 1, sentence, got 0",
        ("a", "b"): "texts: expected 1, sentence, got 2",
        (" ",): "sentence is empty: give it at least one word",
        ("a\ud800",): "sentence: not valid Unicode",
    }.items():
        with pytest.raises(InputError, match=message):
            hub.load(folder).trace(*texts)
    with pytest.raises(InputError, match="has no memory to trace: its encoder is 'lstm'"):
        hub.load(save_sentence_model(tmp_path / "lstm", encoder="lstm")).trace("a")
    with pytest.raises(InputError, match="expected a question and at least one candidate, got 1"):
        hub.load(save_ranking_model(tmp_path / "ranks")).trace("who?")
    with pytest.raises(InputError, match="expected one, a sentence to translate, got 2"):
        hub.load(save_translator(tmp_path / "translates")).trace("a", "dog")
    with pytest.raises(InputError, match="sentence is empty"):
        hub.load(tmp_path / "translates").trace(" ")
    with pytest.raises(InputError, match="sentence has 3 words and the model reads 2"):
        hub.load(save_sentence_model(tmp_path / "short", max_words=2)).trace("a good film", strict=True)


def test_a_trace_counts_truncated_words(tmp_path):
    [text] = hub.load(save_sentence_model(tmp_path / "short", max_words=2)).trace("a good film").texts
    assert (text.words, text.cut) == (("a", "good"), 1)


def test_a_shipped_model_is_traced_by_name():
    trace = hub.load("snli").trace("Two dogs play in the snow.", "The animals are outdoors.")
    assert trace.model["name"] == "snli"
    assert trace.prediction["label"] == "entailment"
    assert trace.readings[0].words[0] == "<S>"
    assert trace.texts[0].unknown == ()
    assert Vocabulary.UNKNOWN not in hub.load("snli").vocabulary.encode(list(trace.texts[1].words))
