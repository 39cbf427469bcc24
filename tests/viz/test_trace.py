"""A trace: what follows from the keys, and its way through JSON."""

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


def test_compositions_are_the_papers():
    """Appendix A, table by table, from the arcs that it shows."""
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


def test_where_a_word_reads_itself_most_the_second_best_counts():
    z = [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.0, 1.0, 0.0]]
    memory = own(["dogs", "bark", "loudly"], z=np.array(z)).memories[0]
    assert memory.read == (0, 2, 1)
    assert memory.composed == (1, 2, 1)
    assert memory.weights == pytest.approx([0.2, 0.6, 1.0])


def test_in_a_shared_memory_no_slot_is_the_words_own():
    memory = shared(["a", "b"], ["a", "c"], [1, 0], [0, 0]).memories[1]
    assert memory.own == (NOWHERE, NOWHERE)
    assert memory.composed == memory.read == (0, 0)


def test_a_lone_word_reads_itself():
    reading = own(["yes"], [0], peak=1.0)
    assert reading.memories[0].composed == (0,)
    assert reading.final(reading.memories[0]) == ["(yes yes)"]


def test_a_memory_that_was_left_goes_on_from_what_it_held():
    first = own(["little", "child"], [1, 0])
    left = first.final(first.memories[0])
    memory = Access("premise", ("little", "child"), [[0.1, 0.9]], held=left)
    second = Reading("hypothesis", ("kid",), (memory,))
    assert second.compositions(memory) == ["(kid (little child))"]


def test_access_is_the_sum_of_weights():
    memory = own(["a", "b", "c"], [1, 1, 1], peak=0.8).memories[0]
    assert memory.accessed == pytest.approx([0.3, 2.4, 0.3])
    assert memory.order() == [1, 0, 2]


def test_own_and_shared_memories_are_told_apart():
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
def test_json_is_what_the_schema_says_and_comes_back(one, tmp_path):
    text = one.to_json()
    jsonschema.validate(json.loads(text), SCHEMA)
    again = MemoryTrace.from_json(text)
    assert again.to_json() == text
    for before, after in zip(one.readings, again.readings, strict=True):
        for x, y in zip(before.memories, after.memories, strict=True):
            assert np.array_equal(x.keys, y.keys)  # to the bit
            assert x.keys.dtype == y.keys.dtype == np.float32
    one.save(tmp_path / "trace.json")
    assert MemoryTrace.load(tmp_path / "trace.json").to_json() == text
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_trace_comes_back(data):
    words = data.draw(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=6)
    )
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    one = trace(own(words, z=draw.dirichlet(np.full(len(words), 0.2), len(words))))
    assert MemoryTrace.from_json(one.to_json()).to_json() == one.to_json()


def test_a_reading_needs_keys_for_each_word():
    memory = Access("premise", ("a", "b"), [[1.0, 0.0]])
    with pytest.raises(InputError, match="expected keys for each of 2 words, memory 'premise' has 1"):
        Reading("premise", ("a", "b"), (memory,))


def test_keys_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        own(["a", "b"]).memories[0].keys[0, 0] = 2


def changed(**changes):
    data = trace(own(["a", "b"])).as_dict()
    for path, value in changes.items():
        place, names = data, path.split("__")
        for name in names[:-1]:
            place = place[int(name)] if name.isdigit() else place[name]
        place[names[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "trace: expected an object, got list"),
        ({}, "expected schema 'nse-trace', got None"),
        ({"schema": "nse-trace"}, "missing or unknown: model, prediction, readings, texts, version"),
        (changed(more=1), "missing or unknown: more"),
        (changed(schema="other"), "expected schema 'nse-trace'"),
        (changed(version=2), "version 2 is not 1, which this nse reads: update nse"),
        (changed(version="1"), "trace: version: not of the type"),
        (changed(model="abc"), "trace: model: not of the type"),
        (changed(model__kind=3), "model: kind: not of the type"),
        (changed(prediction=[1]), "trace: prediction: not of the type"),
        (changed(prediction__probabilities={"yes": "x"}), "probabilities: not of the type"),
        (changed(prediction={"ranking": [{"rank": 1}]}), "ranking: these fields are missing"),
        (changed(prediction={}), "prediction: these fields are missing"),
        (changed(texts__0__cut="x"), "text: cut: not of the type"),
        (changed(texts__0__unknown=[-1]), "text: unknown: not of the type"),
        (changed(readings=[]), "expected at least one reading"),
        (changed(readings__0__memories__0__own=[0.0, 1.0]), "memory: own: not of the type"),
        (changed(readings__0__memories__0__slots="ab"), "memory: slots: not of the type"),
        (changed(readings__0__memories__0__keys=[["1", "0"]]), "memory: keys: not of the type"),
        (changed(readings__0__memories__0__keys=[[True, False]] * 2), "memory: keys: not of the type"),
        (changed(readings__0__memories__0__keys=[[1, 0], [1]]), "the rows differ in length"),
        (changed(readings__0__memories__0__keys=[[1, 0]]), "own of memory 'premise': expected a slot"),
        (changed(readings__0__memories__0__keys=[[1, 0, 0], [1, 0, 0]]), r"expected \[T, 2\]"),
        (changed(readings__0__memories__0__keys=[[0.9, 0], [1, 0]]), "rows from 0 up that add up to 1"),
        (changed(readings__0__memories__0__keys=[[2, -1], [1, 0]]), "rows from 0 up that add up to 1"),
        (changed(readings__0__memories__0__own=[0, 2]), "expected a slot or -1 for each step"),
        (changed(readings__0__memories__0__held=["a"]), "expected one for each of 2 slots"),
        (changed(readings__0__memories__0__composed=[0, 0]), "composed: not what follows from the keys"),
        (changed(readings__0__memories__0__compositions=["x", "y"]), "compositions: not what follows"),
        (changed(readings__0__memories=[]), "expected at least one memory"),
        (changed(readings__0__outputs=["x"]), "expected an output for each of 2 words"),
        (changed(readings=3), "not of the type that the schema says"),
        (changed(readings__0__words=None), "not of the type that the schema says"),
    ],
)
def test_what_is_no_trace_is_refused(data, says):
    with pytest.raises(InputError, match=says):
        MemoryTrace.from_dict(data)
    with pytest.raises(InputError, match=says):
        MemoryTrace.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "NaN", b"\xff\xfe\x00", "[" * 100_000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(InputError, match="trace"):
        MemoryTrace.from_json(text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        MemoryTrace.load(tmp_path / "none.json")
