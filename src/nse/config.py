"""Strict configuration: plain data in, dataclasses out, every mistake told at once.

A configuration is a dataclass whose fields are `bool`, `int`, `float`, `str`, `Literal` of texts,
`list[str]`, or another dataclass (a section). A section given in part keeps the rest of its default.
"""

import ast
import copy
import inspect
import json
import math
import re
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, reduce
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from nse.errors import ConfigError, FieldsError, escape, shorten, suggest

T = TypeVar("T")

RENAMED = {
    "share": "dev_fraction",
    "least": "min_count",
    "targets": "target_vocab_size",
    "subwords": "bpe_merges",
    "longest": "max_words",
    "words": "embedding_size",
    "word_dropout": "embedding_dropout",
    "trained": "trainable",
    "map": "projection",
    "counts": "word_overlap",
    "tied": "tie_embeddings",
    "most": "max_target_words",
    "penalty": "length_penalty",
    "replace": "replace_unknown",
    "batch": "batch_size",
    "rate": "lr",
    "l2": "weight_decay",
    "clip": "clip_norm",
    "smoothing": "label_smoothing",
    "average": "ema_decay",
    "weight": "pos_weight",
    "buckets": "bucket_by_length",
    "together": "group_by_question",
    "multiple": "pad_to_multiple",
    "capture": "cuda_graphs",
    "minutes": "checkpoint_minutes",
}
"""Old names of keys, which `build` reads with a warning where a section has the new name and not the old."""

MOST_LABELS = 10_000  # that a model may tell apart
LONGEST_LABELS = 800_000  # bytes of all as JSON, so that a configuration with them is one that can be read
LONGEST_NAME = 200  # characters of a label, and of the name of a task or a data set


class Entry(NamedTuple):
    """One key of a configuration, as help and documentation show it."""

    key: str  # dotted
    type: str  # what it takes, for example `integer`
    default: str  # as TOML, `required`, or nothing for a section
    doc: str  # the docstring under the field, or nothing


def build(
    cls: type[T], data: Mapping[str, object], assignments: Sequence[str] = (), *, source: str = "config"
) -> T:
    """Make a dataclass from plain data and refuse whatever does not fit it exactly.

    Args:
        cls: The dataclass to make.
        data: Its keys and values; sections are mappings.
        assignments: Changes to the data, such as `model.size=300`; see `override`.
        source: Where the data came from; the error message starts with it.

    Raises:
        ConfigError: With every mistake in the data and in the assignments, one a line.
        TypeError: The dataclass has a field of a type that is not supported.

    Warns:
        FutureWarning: Once, with every key that has its old name.
    """
    renamed, mistakes = dict[str, str](), list[str]()

    def rename(table: Mapping[str, object]) -> Any:
        return _rename_keys(cls, table, "", renamed, mistakes)

    changed, assigned = _assign(rename(data), assignments, mistakes, rename)
    if renamed:
        pairs = ", ".join(f"{old} -> {new}" for old, new in renamed.items())
        warnings.warn(f"{source}: these keys have new names: {pairs}", FutureWarning, stacklevel=2)
    config = _Builder([key for key, _, _ in _walk(cls)], assigned, mistakes).build_section(cls, changed, "")
    _refuse(source, mistakes)
    return cast(T, config)


def override(data: Mapping[str, object], assignments: Sequence[str]) -> dict[str, object]:
    """Return a copy of the data with assignments such as `model.size=300` applied in order.

    A value is read as TOML where it parses and is otherwise a plain string, so `model.encoder=lstm` needs no
    quotes. A table (`model={size = 300}`) replaces the whole section.

    Raises:
        ConfigError: With every malformed assignment, one a line.
    """
    mistakes = list[str]()
    changed, _ = _assign(data, assignments, mistakes)
    _refuse("overrides", mistakes)
    return changed


def to_toml(config: object, *, comments: bool = False) -> str:
    """Write a configuration as TOML from which `build` makes an equal one.

    Args:
        config: An instance of a configuration dataclass.
        comments: Whether to write the docstring of each field above it.

    Raises:
        ConfigError: A number is NaN or infinite, which could not be read back.
    """
    return "\n".join(_toml_lines(config, "", comments)).lstrip("\n") + "\n"


def describe(cls: type) -> list[Entry]:
    """List every key of a configuration, sections included, in the order of declaration."""
    entries = []
    for key, owner, (name, hint, default) in _walk(cls):
        shown = "" if is_dataclass(hint) else "required" if default is MISSING else _text(default)
        entries.append(Entry(key, _type_name(hint), shown, _read_docs(owner).get(name, "")))
    return entries


@dataclass(frozen=True)
class Range:
    """The numbers that a field may hold, from `low` to `high`, or `below` it; its annotation carries it."""

    low: int
    high: int
    below: bool = False

    def __str__(self) -> str:
        return f"at least {self.low:,} and {'below' if self.below else 'at most'} {self.high:,}"

    def holds(self, value: float) -> bool:
        """Tell whether a number is inside; NaN never is."""
        return self.low <= value <= self.high and not (self.below and value == self.high)


Probability = Annotated[float, Range(0, 1, below=True)]


def check_ranges(config: Any) -> None:
    """Refuse a dataclass with numbers outside the ranges of its fields; `FieldsError` names them all."""
    mistakes = {}
    for name, bounds in ranges(config.__class__).items():
        if not bounds.holds(value := getattr(config, name)):
            mistakes[name] = f"must be {bounds}, got {shorten(value)}"
    if mistakes:
        raise FieldsError(mistakes)


@cache
def ranges(cls: Any) -> dict[str, Range]:
    """Collect the ranges of a dataclass's fields, by their names."""
    hints = get_type_hints(cls, include_extras=True).items()
    annotations = {name: get_args(hint)[1] for name, hint in hints if get_origin(hint) is Annotated}
    return {name: bounds for name, bounds in annotations.items() if isinstance(bounds, Range)}


def check_labels(labels: Sequence[str]) -> str:
    """Say why these cannot be the labels of a model; nothing where they can."""
    if len(labels) > MOST_LABELS:
        return f"there may be at most {MOST_LABELS:,}, got {len(labels):,}"
    if len(json.dumps(list(labels))) > LONGEST_LABELS:
        return f"they take more than {LONGEST_LABELS:,} bytes"
    return next((f'"{shorten(label)}" {why}' for label in labels if (why := check_name(label))), "")


def check_name(name: str) -> str:
    """Say why this cannot be a label or a name; nothing where it can."""
    if not name.isprintable():  # it could rewrite a terminal's screen, or turn a line around
        return "holds what cannot be printed"
    return f"is longer than {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else ""


NAMES: dict[object, str] = {bool: "true or false", int: "integer", float: "number", str: "string"}
NAMES |= {list: "list", list[str]: "list[string]"}


class _Field(NamedTuple):
    name: str
    hint: Any
    default: Any  # MISSING where the key is required


def _fields(cls: Any, base: object = MISSING) -> Iterator[_Field]:
    """Yield the fields of a dataclass, with defaults from the instance `base` where there is one."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        if not field.init:
            continue
        if not _type_name(hint := hints[field.name]):
            raise TypeError(f"{cls.__qualname__}.{field.name}: a configuration cannot hold the type {hint}")
        default: Any = field.default
        if base is not MISSING:
            default = getattr(base, field.name)
        elif field.default_factory is not MISSING:
            default = field.default_factory()
        yield _Field(field.name, hint, default)


def _walk(cls: Any, prefix: str = "", base: object = MISSING) -> Iterator[tuple[str, type, _Field]]:
    """Yield every dotted key below a dataclass, with the class that declares it."""
    for field in _fields(cls, base):
        key = _join(prefix, field.name)
        yield key, cls, field
        if is_dataclass(field.hint):
            yield from _walk(field.hint, key, field.default)


def _type_name(hint: Any) -> str:
    """Name a type for people; nothing for one that a configuration cannot hold."""
    if is_dataclass(hint):
        return "section"
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return " or ".join(map(_text, get_args(hint)))
    return "" if hint is list else NAMES.get(hint, "")


def _join(prefix: str, name: str) -> str:
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return (f"{prefix}." if prefix else "") + (name if bare else _text(name))


@cache  # finding a class in its source is slow
def _read_docs(cls: type) -> dict[str, str]:
    """Read the string literals under the fields of a class and its bases; Python itself drops them."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        try:
            source = inspect.getsource(owner)
        except (OSError, TypeError):  # built in, or made without source
            continue
        body = cast(ast.ClassDef, ast.parse(textwrap.dedent(source)).body[0]).body
        for field, below in pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    docs[name] = inspect.cleandoc(doc)
    return docs


def _rename_keys(
    cls: Any, data: object, section: str, renamed: dict[str, str], mistakes: list[str]
) -> object:
    """Replace old names of keys by new ones; add them to `renamed`, keys with both names to the mistakes."""
    if not (is_dataclass(cls) and isinstance(data, Mapping)):
        return data
    types, result = {field.name: field.hint for field in _fields(cls)}, dict[str, object]()
    for old, value in data.items():
        new = old if old in types or RENAMED.get(old) not in types else RENAMED[old]
        if new != old:
            renamed[_join(section, old)] = _join(section, new)
            if new in data:
                mistakes.append(_both_names(_join(section, old), _join(section, new)))
        result[new] = _rename_keys(types.get(new), value, _join(section, new), renamed, mistakes)
    return result


def _both_names(old: str, new: str) -> str:
    return f"{old} is the old name of {new}: give one of them"


def _assign(
    data: Mapping[str, object],
    assignments: Sequence[str],
    mistakes: list[str],
    rename: Callable[[dict[str, object]], Any] = dict,
) -> tuple[dict[str, object], dict[str, str]]:
    """Apply assignments; return the changed copy and the text given for each dotted key."""
    changed = copy.deepcopy(dict(data)) if assignments else dict(data)  # of JSON, it may be too deep to copy
    assigned, spellings = dict[str, str](), dict[str, str]()
    for assignment in assignments:
        left, equals, text = assignment.partition("=")
        *sections, name = [part.strip() for part in left.split(".")]
        if not equals or not all([*sections, name]):
            mistakes.append(f"override {assignment!r}: expected key=value, such as model.size=300")
            continue
        typed = reduce(_join, [*sections, name], "")
        whole: Any = reduce(lambda inner, key: {key: inner}, [name, *sections[::-1]], cast(Any, _parse(text)))
        nested: Any = rename(whole)
        for depth in range(len(sections)):
            [(sections[depth], nested)] = nested.items()
        [(name, value)] = nested.items()
        table: Any = changed
        for depth, section in enumerate(sections, start=1):
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                outer = reduce(_join, sections[:depth], "")
                mistakes.append(f"override {assignment!r}: {outer} is {_show(table)}, not a section")
                break
        else:
            table[name] = value
            key = reduce(_join, [*sections, name], "")
            assigned[key] = text.strip()
            if len(both := {typed, spellings.setdefault(key, typed)}) == 2:
                mistakes.append(_both_names(*sorted(both, key=key.__eq__)))
    return changed, assigned


def _parse(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
    except ValueError:
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()  # a line break must not start a second key


def _refuse(source: str, mistakes: list[str]) -> None:
    if mistakes:
        heading = [] if len(mistakes) == 1 else [f"{len(mistakes)} mistakes"]
        raise ConfigError(f"{source}: " + "\n  ".join([*heading, *mistakes]))


@dataclass(frozen=True)
class _Builder:
    """Turns plain values into typed ones; a value that does not fit adds to the mistakes and becomes None."""

    keys: list[str]
    assigned: dict[str, str]
    mistakes: list[str]

    def build_section(self, cls: Any, data: object, key: str, base: object = MISSING) -> object:
        if not isinstance(data, Mapping):
            return self.refuse(cls, data, key)
        before = len(self.mistakes)
        known = {field.name: field for field in _fields(cls, base)}
        for name in data:
            if name not in known:
                self.refuse_key(_join(key, str(name)[:100]), data[name], [_join(key, each) for each in known])
        values = {name: self.build_field(field, data, _join(key, name)) for name, field in known.items()}
        if len(self.mistakes) == before:
            try:
                return cls(**values)
            except FieldsError as error:
                for name, text in error.mistakes.items():
                    self.note(_join(key, name), text)
            except ValueError as error:  # raised by the dataclass's own __post_init__
                for line in re.findall(r"\S.*", str(error)) or ["refused without a reason"]:
                    self.note(key, line + self.name_assigned(key))
        return None

    def build_field(self, field: _Field, data: Mapping[str, object], key: str) -> object:
        if is_dataclass(field.hint) and (field.name in data or field.default is MISSING):
            return self.build_section(field.hint, data.get(field.name, {}), key, field.default)
        if field.name in data:
            return self.build_value(field.hint, data[field.name], key)
        if field.default is MISSING:
            return self.note(key, f"missing; expected {_type_name(field.hint)}")
        return field.default

    def build_value(self, hint: Any, value: Any, key: str) -> object:
        if hint == list[str] and isinstance(value, list):
            return [self.build_value(str, item, f"{key}[{place}]") for place, item in enumerate(value)]
        allowed = (int, float) if hint is float else (str,) if get_origin(hint) is Literal else (hint,)
        if type(value) not in allowed or (get_origin(hint) is Literal and value not in get_args(hint)):
            return self.refuse(hint, value, key)
        if hint is float and not abs(value) <= sys.float_info.max:  # written so as to catch NaN
            return self.note(key, f"expected finite number, got {_show(value)}")
        return float(value) if hint is float else value

    def refuse(self, hint: Any, value: object, key: str) -> Any:
        """Refuse a value of the wrong type, with advice where what was meant can be guessed."""
        text, advice = self.assigned.get(key), ""
        if hint is str and not isinstance(value, list | Mapping | None):
            quoted = _text(str(value).lower() if text is None else text)  # lower: true, not True
            advice = f"; quote it: {quoted}" if text is None else f"; quote it: '{key}={quoted}'"
        elif get_origin(hint) is Literal and (near := suggest(str(value), get_args(hint))):
            advice = f"; did you mean {_text(near)}?"
        self.note(key, f"expected {_type_name(hint)}, got {_show(value)}{advice}{self.name_assigned(key)}")

    def refuse_key(self, key: str, value: object, siblings: list[str]) -> None:
        """Refuse an unknown key: the assignments inside it one by one, all else in it once."""
        leaves = list(_leaves(key, value))
        from_set = [leaf for leaf in leaves if leaf in self.assigned]
        for unknown in from_set if len(from_set) == len(leaves) else [key, *from_set]:
            near = _nearest_key(unknown, self.keys)
            known = f" (known: {', '.join(siblings)})" if siblings else ""
            self.note(unknown, "no such key" + (f"; did you mean {near}?" if near else known))

    def note(self, key: str, text: str) -> Any:
        """Add a mistake, which is of an assignment where that gave the key, or the section around it."""
        from_set = any(key == whole or key.startswith(f"{whole}.") for whole in self.assigned)
        self.mistakes.append(escape(("override " if from_set else "") + (f"{key}: " if key else "") + text))

    def name_assigned(self, key: str) -> str:
        """Name the assignments inside a section, which may be what its mistake is due to."""
        below = [whole for whole in self.assigned if not key or whole.startswith(f"{key}.")]
        return f" (with override {', '.join(below)})" if below else ""


def _leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(_join(key, name), inner)
    else:
        yield key


def _nearest_key(key: str, keys: list[str]) -> str:
    """Find the key most likely meant: by its name alone, and among equal names by the sections around it."""
    names = [(other.rpartition(".")[2], other) for other in keys]
    near = suggest(key.rpartition(".")[2].lower(), [spelling for pair in names for spelling in pair])
    return suggest(key, [pair[1] for pair in names if near in pair], cutoff=0)


def _text(value: object) -> str:
    """Write a plain value on one line; the escapes of JSON strings are TOML's, but for the DEL character."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def _show(value: object) -> str:
    """Name a value and its type in a message."""
    if value is None or isinstance(value, Mapping):
        return "none" if value is None else "section"
    text = str(value) if isinstance(value, float) else _text(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return text if isinstance(value, bool) else f"{NAMES.get(type(value), type(value).__name__)} {text}"


def _toml_lines(config: Any, section: str, comments: bool) -> list[str]:
    values, sections = list[str](), list[str]()
    docs = _read_docs(config.__class__) if comments else {}
    for field in _fields(type(config)):
        key, value = _join(section, field.name), getattr(config, field.name)
        comment = [f"# {line}".rstrip() for line in docs.get(field.name, "").splitlines()]
        if is_dataclass(value):
            sections += ["", *comment, f"[{key}]", *_toml_lines(value, key, comments)]
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}: expected finite number, got {value}")
        else:
            values += [*comment, f"{_join('', field.name)} = {_text(value)}"]
    return values + sections  # in TOML a key below a section's heading belongs to that section
