"""Traces: what is computed from the keys, and JSON."""

import json
from importlib import resources

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nse import InputError
from nse.viz.trace import NOWHERE, Access, MemoryTrace, Reading
from viz.made_traces import NASTY, PAPER, PAPER_ARCS, own, random_trace, shared, trace

SCHEMA = json.loads(resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8"))


def test_the_arcs_of_the_paper_give_the_tables_of_its_appendix_a():
    reading = own(PAPER, PAPER_ARCS)
    states = list(reading.states(reading.memories[0]))
    assert states[0] == PAPER
    assert states[1][1] == "(<S> A)"
    assert states[4][5] == "(child (little quietly))"
    assert states[6][4] == "(quietly sits)"
    assert states[7][13] == "(on (sits autumn))"
    assert states[14] == [
        "(A <S>)", "(<S> A)", "little", "child", "(wall (quietly sits))", "(child (little quietly))", "on",
        "a", "hand", "(autumn (a built))", "(in rock)", "(rock (built (hand wall)))", "in",
        "(on (sits autumn))",
    ]  # fmt: skip
    assert reading.final(reading.memories[0]) == states[14]


def test_a_word_that_reads_its_own_slot_most_is_composed_with_the_second_best():
    z = [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.0, 1.0, 0.0]]
    memory = own(["dogs", "bark", "loudly"], z=np.array(z)).memories[0]
    assert memory.read == (0, 2, 1)
    assert memory.composed == (1, 2, 1)
    assert memory.weights == pytest.approx([0.2, 0.6, 1.0])


def test_a_shared_memory_has_no_own_slots():
    memory = shared(["a", "b"], ["a", "c"], [1, 0], [0, 0]).memories[1]
    assert memory.own == (NOWHERE, NOWHERE)
    assert memory.composed == memory.read == (0, 0)


def test_a_text_of_one_word_is_composed_with_itself():
    reading = own(["yes"], [0], peak=1.0)
    assert reading.memories[0].composed == (0,)
    assert reading.final(reading.memories[0]) == ["(yes yes)"]


def test_a_memory_that_another_reading_wrote_starts_with_its_contents():
    first = own(["little", "child"], [1, 0])
    contents = first.final(first.memories[0])
    memory = Access("premise", ("little", "child"), [[0.1, 0.9]], held=contents)
    second = Reading("hypothesis", ("kid",), (memory,))
    assert second.compositions(memory) == ["(kid (little child))"]


def test_the_accesses_of_a_slot_are_the_sum_of_its_weights():
    memory = own(["a", "b", "c"], [1, 1, 1], peak=0.8).memories[0]
    assert memory.accessed == pytest.approx([0.3, 2.4, 0.3])
    assert memory.order() == [1, 0, 2]


def test_a_reading_distinguishes_its_own_memory_from_shared_ones():
    reading = shared(["a", "b"], ["x", "y", "z"], [1, 0], [2, 0])
    assert reading.own is reading.memories[0]
    assert reading.shared == (reading.memories[1],)
    alone = Reading("translation", ("a",), (reading.memories[1].__class__("x", ("x",), [[1.0]]),))
    assert alone.own is None


TRACES = [
    trace(own(PAPER, PAPER_ARCS)),
    trace(own(["a", "b"]), shared(["a", "b"], ["a", "b", "c"], [1, 0], [2, 2])),
    trace(own(NASTY)),
    trace(own(["a"], [0], peak=1.0), prediction={"translation": "ein", "words": ["ein"]}, kind="translation"),
    random_trace(40, slots=7),
    trace(
        own(["a", "b"]),
        prediction={"ranking": [{"rank": 1, "number": 2, "text": "b", "score": -0.5, "probability": 0.4}]},
    ),
]


@pytest.mark.parametrize("one", TRACES)
def test_json_fits_the_schema_and_restores_the_trace(one, tmp_path):
    text = one.to_json()
    jsonschema.validate(json.loads(text), SCHEMA)
    restored = MemoryTrace.from_json(text)
    assert restored.to_json() == text
    for before, after in zip(one.readings, restored.readings, strict=True):
        for x, y in zip(before.memories, after.memories, strict=True):
            assert np.array_equal(x.keys, y.keys)
            assert x.keys.dtype == y.keys.dtype == np.float32
    one.save(tmp_path / "trace.json")
    assert MemoryTrace.load(tmp_path / "trace.json").to_json() == text
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_json_restores_a_trace_of_any_words(data):
    words = data.draw(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=6)
    )
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    one = trace(own(words, z=draw.dirichlet(np.full(len(words), 0.2), len(words))))
    assert MemoryTrace.from_json(one.to_json()).to_json() == one.to_json()


def test_a_memory_with_keys_for_other_steps_is_refused():
    memory = Access("premise", ("a", "b"), [[1.0, 0.0]])
    with pytest.raises(InputError, match="2 words, but memory 'premise' has keys for 1"):
        Reading("premise", ("a", "b"), (memory,))


def test_keys_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        own(["a", "b"]).memories[0].keys[0, 0] = 2


def changed(**changes):
    """Plain values of a trace, with some of them replaced."""
    data = trace(own(["a", "b"])).as_dict()
    for path, value in changes.items():
        parent, names = data, path.split("__")
        for name in names[:-1]:
            parent = parent[int(name)] if name.isdigit() else parent[name]
        parent[names[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "trace: expected an object, got list"),
        ({}, "expected schema 'nse-trace', got None"),
        (
            {"schema": "nse-trace"},
            "unknown fields: model, prediction, readings, texts, version",
        ),
        (changed(more=1), "trace: missing or unknown fields: more"),
        (changed(schema="other"), "expected schema 'nse-trace'"),
        (changed(version=2), "expected version 1, got 2: update nse"),
        (changed(version="1"), "trace: version: wrong type"),
        (changed(model="abc"), "trace: model: wrong type"),
        (changed(model__kind=3), "model: kind: wrong type"),
        (changed(prediction=[1]), "trace: prediction: wrong type"),
        (changed(prediction__probabilities={"yes": "x"}), "probabilities: wrong type"),
        (
            changed(prediction={"ranking": [{"rank": 1}]}),
            "fields: number, probability, score, text",
        ),
        (changed(prediction={}), "prediction: missing or unknown fields: translation, words"),
        (changed(texts__0__cut="x"), "text: cut: wrong type"),
        (changed(texts__0__unknown=[-1]), "text: unknown: wrong type"),
        (changed(readings=[]), "expected at least one reading"),
        (changed(readings__0__memories__0__own=[0.0, 1.0]), "memory: own: wrong type"),
        (changed(readings__0__memories__0__slots="ab"), "memory: slots: wrong type"),
        (changed(readings__0__memories__0__keys=[["1", "0"]]), "memory: keys: wrong type"),
        (changed(readings__0__memories__0__keys=[[True, False]] * 2), "memory: keys: wrong type"),
        (changed(readings__0__memories__0__keys=[[1, 0], [1]]), "the rows differ in length"),
        (changed(readings__0__memories__0__keys=[[1, 0]]), "own of memory 'premise': expected a slot"),
        (
            changed(readings__0__memories__0__keys=[[1, 0, 0], [1, 0, 0]]),
            r"shape \[T, 2\], got \[2, 3\]",
        ),
        (
            changed(readings__0__memories__0__keys=[[0.9, 0], [1, 0]]),
            "non-negative numbers that sum to 1",
        ),
        (
            changed(readings__0__memories__0__keys=[[2, -1], [1, 0]]),
            "non-negative numbers that sum to 1",
        ),
        (changed(readings__0__memories__0__own=[0, 2]), "expected a slot or -1 for each step"),
        (
            changed(readings__0__memories__0__held=["a"]),
            "expected the contents of 2 slots, got 1",
        ),
        (changed(readings__0__memories__0__composed=[0, 0]), "composed: contradicts the keys"),
        (changed(readings__0__memories__0__compositions=["x", "y"]), "compositions: contradicts the keys"),
        (changed(readings__0__memories=[]), "expected at least one memory"),
        (changed(readings__0__outputs=["x"]), "2 words, but 1 outputs"),
        (changed(readings=3), "trace: readings: wrong type"),
        (changed(readings__0__words=None), "reading: words: wrong type"),
    ],
)
def test_data_that_is_not_a_trace_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        MemoryTrace.from_dict(data)
    with pytest.raises(InputError, match=message):
        MemoryTrace.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "NaN", b"\xff\xfe\x00", "[" * 100_000])
def test_text_that_is_not_json_is_refused(text):
    with pytest.raises(InputError, match="trace"):
        MemoryTrace.from_json(text)


def test_a_missing_file_is_reported_by_name(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        MemoryTrace.load(tmp_path / "none.json")
