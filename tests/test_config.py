"""Configuration: what fits is built exactly, what does not is refused with every mistake in one message."""

import copy
import datetime
import math
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nse.config import Entry, apply_overrides, build, describe, to_toml
from nse.errors import ConfigError
from nse.files import read_toml


@dataclass(frozen=True)
class Model:
    size: int
    """Width of every layer."""
    encoder: Literal["nse", "lstm"] = "nse"
    """Which encoder.

    Two lines.
    """
    dropout: float = 0.3
    tied: bool = False
    """Whether the embeddings are shared."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError("size must be at least 1")
        if self.dropout >= 1:
            raise ValueError("dropout must be below 1\n\ntry 0.3")


@dataclass(frozen=True)
class Train:
    rate: float = 1e-3
    """Learning rate."""
    steps: int = 100
    """Number of updates."""
    clip: float = 0.0
    """Largest gradient norm."""


@dataclass(frozen=True)
class Recipe:
    """A configuration with one section required and one not."""

    model: Model
    """The network."""
    name: str = "run"
    """Name of the run."""
    beta: float = 0.999
    """Adam's."""
    tags: list[str] = field(default_factory=list)
    train: Train = field(default_factory=lambda: Train(steps=7))
    """The loop."""
    seed: int = 0
    """Random seed."""


def one(hint: Any) -> Any:
    """A dataclass with the one required field x."""
    return make_dataclass("One", [("x", hint)])


def mistakes(data: dict[str, Any], cls: Any = Recipe) -> list[str]:
    """The lines of the refusal, without the heading."""
    with pytest.raises(ConfigError) as caught:
        build(cls, data)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("config: ")
    if not rest:
        return [first.removeprefix("config: ")]
    assert first == f"config: {len(rest)} mistakes"
    return [line.removeprefix("  ") for line in rest]


def mistake(data: dict[str, Any], cls: Any = Recipe) -> str:
    (line,) = mistakes(data, cls)
    return line


MINIMAL: dict[str, Any] = {"model": {"size": 8}}


# Building --------------------------------------------------------------------------------------------------


def test_build_fills_defaults_and_sections() -> None:
    built = build(Recipe, {"model": {"size": 8, "encoder": "lstm"}, "beta": 1, "tags": ["a"]})
    assert built == Recipe(Model(8, "lstm"), beta=1.0, tags=["a"])
    assert isinstance(built.beta, float)


def test_section_in_part_keeps_the_rest_of_its_default() -> None:
    assert build(Recipe, {**MINIMAL, "train": {"rate": 1}}).train == Train(rate=1.0, steps=7)


def test_section_without_default_is_built_when_nothing_in_it_is_required() -> None:
    assert build(one(Train), {}).x == Train()


def test_built_lists_are_not_shared_with_the_data() -> None:
    data = {**MINIMAL, "tags": ["a"]}
    build(Recipe, data).tags.append("b")
    assert data["tags"] == ["a"]


@pytest.mark.parametrize(
    ("hint", "given_value", "expected"),
    [
        (bool, True, True),
        (int, -3, -3),
        (float, 0.5, 0.5),
        (float, 1, 1.0),
        (str, "5", "5"),
        (Literal["a", "b"], "b", "b"),
        (list[str], ["a", ""], ["a", ""]),
        (list[str], [], []),
        (Train, {"steps": 2}, Train(steps=2)),
    ],
)
def test_a_value_of_the_right_type_is_accepted(hint: Any, given_value: Any, expected: Any) -> None:
    value = build(one(hint), {"x": given_value}).x
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("hint", "given_value", "message"),
    [
        (bool, 1, "x: expected true or false, got integer 1"),
        (bool, "true", 'x: expected true or false, got string "true"'),
        (int, True, "x: expected integer, got true"),
        (int, 1.0, "x: expected integer, got number 1.0"),
        (int, "1", 'x: expected integer, got string "1"'),
        (int, None, "x: expected integer, got none"),
        (int, {"y": 1}, "x: expected integer, got section"),
        (float, False, "x: expected number, got false"),
        (float, "nan", 'x: expected number, got string "nan"'),
        (float, math.nan, "x: expected finite number, got number nan"),
        (float, math.inf, "x: expected finite number, got number inf"),
        (float, -math.inf, "x: expected finite number, got number -inf"),
        (str, 5, 'x: expected string, got integer 5; quote it: "5"'),
        (str, True, 'x: expected string, got true; quote it: "true"'),
        (
            str,
            datetime.date(2024, 1, 2),
            'x: expected string, got date "2024-01-02"; quote it: "2024-01-02"',
        ),
        (str, ["a"], 'x: expected string, got list ["a"]'),
        (str, {}, "x: expected string, got section"),
        (Literal["a", "b"], "x", 'x: expected "a" or "b", got string "x"'),
        (Literal["a"], 1, 'x: expected "a", got integer 1'),
        (Literal["a"], ["a"], 'x: expected "a", got list ["a"]'),
        (
            Literal["nse", "lstm"],
            "lst",
            'x: expected "nse" or "lstm", got string "lst"; did you mean "lstm"?',
        ),
        (int, "a", 'x: expected integer, got string "a"'),
        (list[str], "abc", 'x: expected list[string], got string "abc"'),
        (list[str], ["a", 2], 'x[1]: expected string, got integer 2; quote it: "2"'),
        (int, [1, 2], "x: expected integer, got list [1, 2]"),
        (Train, 3, "x: expected section, got integer 3"),
    ],
)
def test_a_value_of_the_wrong_type_raises_an_error(hint: Any, given_value: Any, message: str) -> None:
    assert mistake({"x": given_value}, one(hint)) == message


def test_an_integer_beyond_the_largest_float_raises_a_short_error() -> None:
    line = mistake({"x": 10**400}, one(float))
    assert line.startswith("x: expected finite number, got integer 1000")
    assert line.endswith("...")
    assert len(line) < 110
    assert build(one(float), {"x": int(sys.float_info.max)}).x == sys.float_info.max


def test_missing_keys_are_named_inside_their_section() -> None:
    assert mistake({}) == "model.size: missing; expected integer"
    assert mistake({}, one(list[str])) == "x: missing; expected list[string]"


def test_one_error_lists_every_mistake() -> None:
    data = {
        "model": {"sise": 8, "encoder": 3},
        "name": 5,
        "tags": ["a", 2],
        "train": {"rate": math.nan},
        "seed": 1.5,
    }
    assert mistakes(data) == [
        "model.sise: no such key; did you mean model.size?",
        "model.size: missing; expected integer",
        'model.encoder: expected "nse" or "lstm", got integer 3',
        'name: expected string, got integer 5; quote it: "5"',
        'tags[1]: expected string, got integer 2; quote it: "2"',
        "train.rate: expected finite number, got number nan",
        "seed: expected integer, got number 1.5",
    ]


def test_the_message_starts_with_the_source() -> None:
    with pytest.raises(ConfigError, match=r"^the recipe: model\.size: missing"):
        build(Recipe, {}, source="the recipe")


def test_errors_of_post_init_name_their_section() -> None:
    data = {"model": {"size": 8, "dropout": 1.5}, "seed": "x"}
    assert mistakes(data) == [
        "model: dropout must be below 1",
        "model: try 0.3",
        'seed: expected integer, got string "x"',
    ]
    assert mistake({"size": 0}, Model) == "size must be at least 1"


def test_post_init_does_not_see_wrong_values() -> None:
    assert mistake({"model": {"size": "0"}}) == 'model.size: expected integer, got string "0"'


def test_a_post_init_error_without_a_message_is_reported() -> None:
    @dataclass
    class Silent:
        x: int = 0

        def __post_init__(self) -> None:
            raise ValueError

    assert mistake({}, one(Silent)) == "x: refused without a reason"


def test_a_bug_in_post_init_is_not_hidden() -> None:
    @dataclass
    class Broken:
        x: int = 0

        def __post_init__(self) -> None:
            raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        build(Broken, {})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("model.sise", "model.size"),
        ("model.SIZE", "model.size"),
        ("train.encoder", "model.encoder"),
        ("size", "model.size"),
        ("model.seed", "seed"),
        ("model_size", "model.size"),
        ("train.stepz", "train.steps"),
        ("trian", "train"),
        ("tag", "tags"),
    ],
)
def test_an_unknown_key_names_the_most_similar_one(key: str, nearest: str) -> None:
    data = apply_overrides(MINIMAL, [f"{key}=1"])
    assert mistake(data) == f"{key}: no such key; did you mean {nearest}?"


def test_the_same_name_in_another_section_is_suggested_first() -> None:
    @dataclass
    class Place:
        site: int = 0

    layout = make_dataclass("Layout", [("place", Place), ("model", Model)])
    assert mistake({"place": {"size": 1}, **MINIMAL}, layout).endswith("did you mean model.size?")
    assert mistake({"place": {"sitee": 1}, **MINIMAL}, layout).endswith("did you mean place.site?")


def test_an_unknown_key_without_a_similar_one_lists_the_section() -> None:
    assert mistake({**MINIMAL, "train": {"zzz": 1}}) == (
        "train.zzz: no such key (known: train.rate, train.steps, train.clip)"
    )
    assert mistake({"zzz": 1}, make_dataclass("Empty", [])) == "zzz: no such key"


def test_unknown_section_is_one_mistake_and_odd_keys_are_quoted() -> None:
    assert mistake({**MINIMAL, "trayn": {"rate": 1, "steps": 2}}) == (
        "trayn: no such key; did you mean train?"
    )
    assert mistake({**MINIMAL, "a.b\n": 1}).startswith('"a.b\\n": no such key')


def test_a_field_with_init_false_is_not_a_key() -> None:
    @dataclass
    class Derived:
        x: int
        double: int = field(init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.x

    assert build(Derived, {"x": 2}).double == 4
    assert mistake({"x": 2, "double": 4}, Derived).startswith("double: no such key")
    assert to_toml(Derived(2)) == "x = 2\n"


@pytest.mark.parametrize(
    "hint",
    [dict, Path, int | str, int | None, list, tuple[int, ...], list[int], list[Train], Literal["a", 2]],
)
def test_an_unsupported_type_raises_a_type_error(hint: Any) -> None:
    with pytest.raises(TypeError, match=r"^One\.x: a configuration cannot hold the type"):
        build(one(hint), {"x": 1})


# Assignments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("x=lstm", "lstm"),
        ("x=3e-4", 3e-4),
        ("x=20_000", 20_000),
        ("x=[1, 2]", [1, 2]),
        ('x="5"', "5"),
        ("x=true", True),
        ("x=True", "True"),
        ("x=", ""),
        ("x=a=b", "a=b"),
        ("x=two words", "two words"),
        (" x = 3 ", 3),
        ("x=1\ny=2", "1\ny=2"),
        ("x={a = 1}", {"a": 1}),
    ],
)
def test_override_reads_toml_or_a_plain_string(assignment: str, expected: object) -> None:
    changed = apply_overrides({}, [assignment])
    assert changed == {"x": expected}
    assert type(changed["x"]) is type(expected)


def test_override_goes_into_sections_in_order_and_leaves_its_input_alone() -> None:
    data = {"a": {"b": 1, "c": [1]}, "d": 2}
    before = copy.deepcopy(data)
    changed: Any = apply_overrides(data, ["a.b=2", "a.b=3", "e.f.g=4", "d=5"])
    assert changed == {"a": {"b": 3, "c": [1]}, "d": 5, "e": {"f": {"g": 4}}}
    changed["a"]["c"].append(2)
    assert data == before


def test_one_error_lists_all_malformed_overrides() -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides({"a": {"b": 1}}, ["a.b", "=3", "a..b=1", "a.b.c=1", "a.b=2", ".a=1"])
    assert str(caught.value).splitlines() == [
        "overrides: 5 mistakes",
        "  override 'a.b': expected key=value, such as model.size=300",
        "  override '=3': expected key=value, such as model.size=300",
        "  override 'a..b=1': expected key=value, such as model.size=300",
        "  override 'a.b.c=1': a.b is integer 1, not a section",
        "  override '.a=1': expected key=value, such as model.size=300",
    ]


# Loading ---------------------------------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text('name = "é"\n[model]\nsize = 8\n', encoding="utf-8")
    return path


def load(path: Path | zipfile.Path, overrides: Sequence[str] = ()) -> Recipe:
    return build(Recipe, read_toml(path), overrides, source=str(path))


def refused(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return [line.strip() for line in message.removeprefix(f"{path}: ").splitlines()]


def test_load_reads_and_overrides(recipe: Path) -> None:
    assert load(recipe) == Recipe(Model(8), name="é")
    changed = load(recipe, ["model.encoder=lstm", "train.rate=3e-4", "train.clip=5", 'name="5"'])
    assert changed == Recipe(Model(8, "lstm"), name="5", train=Train(rate=3e-4, steps=7, clip=5.0))


def test_load_reads_from_inside_an_archive(recipe: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        archive.write(recipe, "recipe.toml")
    with zipfile.ZipFile(tmp_path / "package.zip") as archive:
        assert load(zipfile.Path(archive, "recipe.toml")).model == Model(8)


def test_one_error_lists_mistakes_of_the_file_and_of_overrides(recipe: Path) -> None:
    recipe.write_text("seed = 'x'\n[model]\nsize = 8\n[modell]\nsize = 3\n", encoding="utf-8")
    assert refused(
        recipe,
        "oops",
        "seed.x=1",
        "model.sise=3",
        "modell.encoder=a",
        "x.steps=3",
        "train.rate=nan",
        "name=5",
    ) == [
        "9 mistakes",
        "override 'oops': expected key=value, such as model.size=300",
        "override 'seed.x=1': seed is string \"x\", not a section",
        "modell: no such key; did you mean model?",
        "override modell.encoder: no such key; did you mean model.encoder?",
        "override x.steps: no such key; did you mean train.steps?",
        "override model.sise: no such key; did you mean model.size?",
        "override name: expected string, got integer 5; quote it: 'name=\"5\"'",
        "override train.rate: expected finite number, got number nan",
        'seed: expected integer, got string "x"',
    ]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("name=2024-01-02", 'got date "2024-01-02"; quote it: \'name="2024-01-02"\''),
        ("name=1.0", "got number 1.0; quote it: 'name=\"1.0\"'"),
        ("train={rate = 'a'}", 'override train.rate: expected number, got string "a"'),
        ("train=fast", 'override train: expected section, got string "fast"'),
        ("tags=a", 'override tags: expected list[string], got string "a"'),
        ("seed.x=1", "seed: expected integer, got section (with override seed.x)"),
        ("model.size=0", "model: size must be at least 1 (with override model.size)"),
    ],
)
def test_a_mistake_in_an_override_is_marked(recipe: Path, assignment: str, message: str) -> None:
    (line,) = refused(recipe, assignment)
    assert line.endswith(message)


def test_a_toml_error_names_the_line(recipe: Path) -> None:
    recipe.write_text("a = 1\nb = = 2\n", encoding="utf-8")
    assert refused(recipe) == ["not valid TOML: Invalid value (at line 2, column 5)"]
    recipe.write_text("a = 1\nb = [1,\n", encoding="utf-8")
    assert refused(recipe) == ["not valid TOML: Invalid value (at end of document, line 2)"]
    recipe.write_bytes(b"a = '\xff'\n")
    assert "can't decode byte 0xff" in refused(recipe)[0]


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent.toml") == ["cannot be read: No such file or directory"]
    assert refused(tmp_path)[0].startswith("cannot be read: ")


# Writing ---------------------------------------------------------------------------------------------------


@dataclass
class Leaf:
    text: str
    number: float


@dataclass
class Everything:
    flag: bool
    count: int
    number: float
    text: str
    choice: Literal["a", 'b"\n']
    names: list[str]
    leaf: Leaf
    é: int = 0


numbers = st.floats(allow_nan=False, allow_infinity=False)
everything = st.builds(
    Everything,
    flag=st.booleans(),
    count=st.integers(),
    number=numbers,
    text=st.text() | st.text(alphabet="\"\\'\n\r\t\b\x00\x1f\x7f\x85\u2028#="),
    choice=st.sampled_from(["a", 'b"\n']),
    names=st.lists(st.text()),
    leaf=st.builds(Leaf, st.text(), numbers),
    é=st.integers(),
)


@given(everything, st.booleans())
def test_written_configuration_is_read_back_equal(config: Everything, comments: bool) -> None:
    text = to_toml(config, comments=comments)
    assert build(Everything, tomllib.loads(text)) == config


def test_written_form_is_stable() -> None:
    config = Recipe(Model(8), tags=["a", 'q"'], train=Train(rate=1e-7, steps=7))
    assert to_toml(config) == (
        'name = "run"\nbeta = 0.999\ntags = ["a", "q\\""]\nseed = 0\n'
        '\n[model]\nsize = 8\nencoder = "nse"\ndropout = 0.3\ntied = false\n'
        "\n[train]\nrate = 1e-07\nsteps = 7\nclip = 0.0\n"
    )
    assert to_toml(make_dataclass("OnlySection", [("train", Train)])(Train())).startswith("[train]\n")


def test_docstrings_are_written_as_comments() -> None:
    assert to_toml(Recipe(Model(8)), comments=True) == (
        '# Name of the run.\nname = "run"\n# Adam\'s.\nbeta = 0.999\ntags = []\n# Random seed.\nseed = 0\n'
        "\n# The network.\n[model]\n# Width of every layer.\nsize = 8\n"
        '# Which encoder.\n#\n# Two lines.\nencoder = "nse"\n'
        "dropout = 0.3\n# Whether the embeddings are shared.\ntied = false\n"
        "\n# The loop.\n[train]\n# Learning rate.\nrate = 0.001\n# Number of updates.\nsteps = 7\n"
        "# Largest gradient norm.\nclip = 0.0\n"
    )


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_not_written(number: float) -> None:
    with pytest.raises(ConfigError, match=r"^train\.rate: expected finite number"):
        to_toml(Recipe(Model(8), train=Train(rate=number)))


# Describing ------------------------------------------------------------------------------------------------


def test_describe_lists_every_key() -> None:
    assert describe(Recipe) == [
        Entry("model", "section", "", "The network."),
        Entry("model.size", "integer", "required", "Width of every layer."),
        Entry("model.encoder", '"nse" or "lstm"', '"nse"', "Which encoder.\n\nTwo lines."),
        Entry("model.dropout", "number", "0.3", ""),
        Entry("model.tied", "true or false", "false", "Whether the embeddings are shared."),
        Entry("name", "string", '"run"', "Name of the run."),
        Entry("beta", "number", "0.999", "Adam's."),
        Entry("tags", "list[string]", "[]", ""),
        Entry("train", "section", "", "The loop."),
        Entry("train.rate", "number", "0.001", "Learning rate."),
        Entry("train.steps", "integer", "7", "Number of updates."),
        Entry("train.clip", "number", "0.0", "Largest gradient norm."),
        Entry("seed", "integer", "0", "Random seed."),
    ]


def test_describe_covers_sections_and_bases_and_works_without_source() -> None:
    @dataclass(frozen=True)
    class Longer(Train):
        warmup: int = 0
        """Updates before the full rate."""

    described = {entry.key: entry.doc for entry in describe(one(Longer))}
    assert described == {
        "x": "",
        "x.rate": "Learning rate.",
        "x.steps": "Number of updates.",
        "x.clip": "Largest gradient norm.",
        "x.warmup": "Updates before the full rate.",
    }


# Old names of keys -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewTrain:
    lr: float = 1e-3
    max_words: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class NewRecipe:
    train: NewTrain = field(default_factory=NewTrain)
    max_words: int = 0


def test_old_keys_give_one_warning() -> None:
    data = {"longest": 3, "train": {"rate": 2, "max_words": 7}}
    with pytest.warns(FutureWarning) as caught:
        recipe = build(NewRecipe, data, ["train.longest=5"], source="old.toml")
    assert recipe == NewRecipe(NewTrain(lr=2.0, max_words=5), max_words=3)
    assert [str(warning.message) for warning in caught] == [
        "old.toml: these keys have new names: longest -> max_words, train.rate -> train.lr, "
        "train.longest -> train.max_words"
    ]
    assert data == {"longest": 3, "train": {"rate": 2, "max_words": 7}}


def test_new_keys_give_no_warning() -> None:
    data = {"max_words": 3, "train": {"lr": 2, "weight": 3}}  # an old name elsewhere, the name of a key here
    assert build(NewRecipe, data, ["train.lr=1"]) == NewRecipe(NewTrain(lr=1.0, weight=3.0), max_words=3)


@pytest.mark.parametrize(
    "assignments", [["train.rate=4"], ["train={rate = 4}"], ["train.rate=9", "train.rate=4"]]
)
def test_an_override_with_an_old_key_replaces_the_value_of_the_file(assignments: list[str]) -> None:
    with pytest.warns(FutureWarning, match=r"^config: .*: train\.rate -> train\.lr$"):
        assert build(NewRecipe, {"train": {"lr": 1}}, assignments).train.lr == 4
    with pytest.warns(FutureWarning, match="train.rate -> train.lr"):
        assert build(NewRecipe, {"train": {"rate": 1}}, ["train.lr=4"]).train.lr == 4


@pytest.mark.parametrize(
    ("data", "assignments"),
    [
        ({"train": {"rate": 1, "lr": 1}}, []),
        ({"train": {"lr": 1, "rate": 1}}, []),
        ({}, ["train.rate=1", "train.lr=2"]),
        ({}, ["train.lr=2", "train.rate=1"]),
        ({}, ["train={lr = 1, rate = 2}"]),
    ],
)
def test_a_key_with_both_names_raises_an_error(data: dict[str, Any], assignments: list[str]) -> None:
    with pytest.warns(FutureWarning), pytest.raises(ConfigError) as caught:
        build(NewRecipe, data, assignments)
    assert str(caught.value) == "config: train.rate is the old name of train.lr: give one of them"


def test_errors_about_old_keys_use_the_new_ones() -> None:
    with pytest.warns(FutureWarning), pytest.raises(ConfigError, match=r"override train\.lr: expected"):
        build(NewRecipe, {}, ["train.rate=fast"])
    with pytest.raises(
        ConfigError, match=r"^config: train\.max_word: no such key; did you mean train\.max_words\?$"
    ):
        build(NewRecipe, {"train": {"max_word": 1}})
    with pytest.raises(ConfigError, match=r"^config: rate: no such key \(known: train, max_words\)$"):
        build(NewRecipe, {"rate": 1})
