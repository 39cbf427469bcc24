"""Strict configuration: plain data becomes a dataclass, or an error that lists every mistake.

A configuration is a dataclass with fields of type `bool`, `int`, `float`, `str`, `Literal` of strings,
`list[str]`, or another dataclass (a section). Keys that are missing keep their defaults.
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
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from nse.errors import ConfigError, FieldsError, escape, shorten, suggest

T = TypeVar("T")

OLD_KEYS = {
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
"""New names of old keys. `build` accepts an old key, with a warning, if the section has only the new one."""


MAX_LABELS = 10_000
MAX_LABEL_BYTES = 800_000  # of all labels as JSON; configurations are read up to 1 MiB
MAX_NAME_LENGTH = 200  # characters of a label, a task or a data set


class Entry(NamedTuple):
    """Key of a configuration, as shown in the documentation."""

    key: str  # dotted
    type: str  # for example `integer`
    default: str  # as TOML, or "required", or "" for a section
    doc: str  # docstring of the field, or ""


def build(
    cls: type[T], data: Mapping[str, object], overrides: Sequence[str] = (), *, source: str = "config"
) -> T:
    """Build a dataclass from plain data; every key and value must fit exactly.

    Args:
        cls: The dataclass.
        data: Its keys and values; sections are mappings.
        overrides: Changes to the data, such as `model.size=300`; see `apply_overrides`.
        source: Origin of the data, which error messages start with.

    Returns:
        An instance of the dataclass.

    Raises:
        ConfigError: There are mistakes in the data or the overrides; the message has one per line.
        TypeError: The dataclass has a field of an unsupported type.

    Warns:
        FutureWarning: Keys have old names; one warning lists all of them.
    """
    renamed, mistakes = dict[str, str](), list[str]()

    def rename(table: Mapping[str, object]) -> Any:
        return _rename_keys(cls, table, "", renamed, mistakes)

    changed, overridden = _apply(rename(data), overrides, mistakes, rename)
    if renamed:
        pairs = ", ".join(f"{old} -> {new}" for old, new in renamed.items())
        warnings.warn(f"{source}: these keys have new names: {pairs}", FutureWarning, stacklevel=2)
    config = _Builder([key for key, _, _ in _walk_fields(cls)], overridden, mistakes).build_section(
        cls, changed, ""
    )
    _raise_mistakes(source, mistakes)
    return cast(T, config)


def apply_overrides(data: Mapping[str, object], overrides: Sequence[str]) -> dict[str, object]:
    """Return a copy of the data with overrides such as `model.size=300` applied in order.

    A value that is not valid TOML is a string, so `model.encoder=lstm` needs no quotes. A table
    (`model={size = 300}`) replaces the whole section.

    Raises:
        ConfigError: Overrides are malformed; the message has one per line.
    """
    mistakes = list[str]()
    changed, _ = _apply(data, overrides, mistakes)
    _raise_mistakes("overrides", mistakes)
    return changed


def to_toml(config: object, *, comments: bool = False) -> str:
    """Write a configuration as TOML, from which `build` makes an equal one.

    Args:
        config: An instance of a configuration dataclass.
        comments: Write the docstring of each field above it.

    Raises:
        ConfigError: A number is NaN or infinite.
    """
    return "\n".join(_toml_lines(config, "", comments)).lstrip("\n") + "\n"


def describe(cls: type) -> list[Entry]:
    """List all keys of a configuration, sections included, in the order of declaration."""
    entries = []
    for key, owner, (name, hint, default) in _walk_fields(cls):
        shown = "" if is_dataclass(hint) else "required" if default is MISSING else _to_json(default)
        entries.append(Entry(key, _describe_type(hint), shown, _read_docs(owner).get(name, "")))
    return entries


def check_labels(labels: Sequence[str]) -> str:
    """Return why these cannot be the labels of a model, or ""."""
    if len(labels) > MAX_LABELS:
        return f"there may be at most {MAX_LABELS:,}, got {len(labels):,}"
    if len(json.dumps(list(labels))) > MAX_LABEL_BYTES:
        return f"they take more than {MAX_LABEL_BYTES:,} bytes"
    return next((f'"{shorten(label)}" {why}' for label in labels if (why := check_name(label))), "")


def check_name(name: str) -> str:
    """Return why this cannot be a label or a name, or ""."""
    if not name.isprintable():  # control characters could rewrite a terminal's screen
        return "has characters that cannot be printed"
    return f"is longer than {MAX_NAME_LENGTH} characters" if len(name) > MAX_NAME_LENGTH else ""


NAMES: dict[object, str] = {bool: "true or false", int: "integer", float: "number", str: "string"}
NAMES |= {list: "list", list[str]: "list[string]"}


class _Field(NamedTuple):
    name: str
    hint: Any
    default: Any  # MISSING where the key is required


@cache
def _get_hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _list_fields(cls: Any, base: object = MISSING) -> Iterator[_Field]:
    """Yield the fields of a dataclass, with defaults from the instance `base` if given."""
    hints = _get_hints(cls)
    for field in fields(cls):
        if not field.init:
            continue
        if not _describe_type(hint := hints[field.name]):
            raise TypeError(f"{cls.__qualname__}.{field.name}: a configuration cannot hold the type {hint}")
        default: Any = field.default
        if base is not MISSING:
            default = getattr(base, field.name)
        elif field.default_factory is not MISSING:
            default = field.default_factory()
        yield _Field(field.name, hint, default)


def _walk_fields(cls: Any, prefix: str = "", base: object = MISSING) -> Iterator[tuple[str, type, _Field]]:
    """Yield every dotted key of a dataclass with the class and field that declare it."""
    for field in _list_fields(cls, base):
        key = _join_key(prefix, field.name)
        yield key, cls, field
        if is_dataclass(field.hint):
            yield from _walk_fields(field.hint, key, field.default)


def _describe_type(hint: Any) -> str:
    """Describe a type for users; "" for an unsupported type."""
    if is_dataclass(hint):
        return "section"
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return " or ".join(map(_to_json, get_args(hint)))
    return "" if hint is list else NAMES.get(hint, "")


def _join_key(prefix: str, name: str) -> str:
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return (f"{prefix}." if prefix else "") + (name if bare else _to_json(name))


def _join_path(path: Sequence[str]) -> str:
    return reduce(_join_key, path, "")


@cache  # `inspect.getsource` is slow
def _read_docs(cls: type) -> dict[str, str]:
    """Read the string literals below the fields of a class and its bases, which Python drops."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        try:
            source = inspect.getsource(owner)
        except (OSError, TypeError):  # no source: built in or generated
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
    """Replace old keys, which go to `renamed`; a key with both names is a mistake."""
    if not (is_dataclass(cls) and isinstance(data, Mapping)):
        return data
    types, result = {field.name: field.hint for field in _list_fields(cls)}, dict[str, object]()
    for old, value in data.items():
        new = old if old in types or OLD_KEYS.get(old) not in types else OLD_KEYS[old]
        if new != old:
            renamed[_join_key(section, old)] = _join_key(section, new)
            if new in data:
                mistakes.append(_describe_both_names(_join_key(section, old), _join_key(section, new)))
        result[new] = _rename_keys(types.get(new), value, _join_key(section, new), renamed, mistakes)
    return result


def _describe_both_names(old: str, new: str) -> str:
    return f"{old} is the old name of {new}: give one of them"


def _apply(
    data: Mapping[str, object],
    overrides: Sequence[str],
    mistakes: list[str],
    rename: Callable[[dict[str, object]], Any] = dict,
) -> tuple[dict[str, object], dict[str, str]]:
    """Apply overrides; return the changed copy and the text of the value of each overridden key."""
    changed = copy.deepcopy(dict(data)) if overrides else dict(data)  # JSON may be nested too deep to copy
    texts, spellings = dict[str, str](), dict[str, str]()
    for override in overrides:
        left, equals, text = override.partition("=")
        path = [part.strip() for part in left.split(".")]
        if not equals or not all(path):
            mistakes.append(f"override {override!r}: expected key=value, such as model.size=300")
            continue
        (*sections, name), value = _rename_path(path, _parse(text), rename)
        table: Any = changed
        for depth, section in enumerate(sections, start=1):
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                outer = _join_path(sections[:depth])
                mistakes.append(f"override {override!r}: {outer} is {_describe_value(table)}, not a section")
                break
        else:
            table[name] = value
            key, spelling = _join_path([*sections, name]), _join_path(path)
            texts[key] = text.strip()
            if len(both := {spelling, spellings.setdefault(key, spelling)}) == 2:
                mistakes.append(_describe_both_names(*sorted(both, key=key.__eq__)))
    return changed, texts


def _rename_path(
    path: list[str], value: Any, rename: Callable[[dict[str, object]], Any]
) -> tuple[list[str], Any]:
    """Return the new path of an override, and its value with new keys."""
    for name in reversed(path):
        value = {name: value}
    value, new_path = rename(value), list[str]()
    for _ in path:
        [(name, value)] = value.items()
        new_path.append(name)
    return new_path, value


def _parse(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
    except ValueError:
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()  # a line break must not start a second key


def _raise_mistakes(source: str, mistakes: list[str]) -> None:
    if mistakes:
        heading = [] if len(mistakes) == 1 else [f"{len(mistakes)} mistakes"]
        raise ConfigError(f"{source}: " + "\n  ".join([*heading, *mistakes]))


@dataclass(frozen=True)
class _Builder:
    """Converts plain values to typed ones; a value that does not fit is added to the mistakes."""

    keys: list[str]
    overridden: dict[str, str]
    mistakes: list[str]

    def build_section(self, cls: Any, data: object, key: str, base: object = MISSING) -> object:
        if not isinstance(data, Mapping):
            return self.add_wrong_type(cls, data, key)
        before = len(self.mistakes)
        known = {field.name: field for field in _list_fields(cls, base)}
        for name in data:
            if name not in known:
                self.add_unknown_key(
                    _join_key(key, str(name)[:100]), data[name], [_join_key(key, field) for field in known]
                )
        values = {name: self.build_field(field, data, _join_key(key, name)) for name, field in known.items()}
        if len(self.mistakes) == before:
            try:
                return cls(**values)
            except FieldsError as error:
                for name, text in error.mistakes.items():
                    self.add_mistake(_join_key(key, name), text)
            except ValueError as error:  # raised by the dataclass's own __post_init__
                for line in re.findall(r"\S.*", str(error)) or ["refused without a reason"]:
                    self.add_mistake(key, line + self.describe_overrides(key))
        return None

    def build_field(self, field: _Field, data: Mapping[str, object], key: str) -> object:
        if is_dataclass(field.hint) and (field.name in data or field.default is MISSING):
            return self.build_section(field.hint, data.get(field.name, {}), key, field.default)
        if field.name in data:
            return self.build_value(field.hint, data[field.name], key)
        if field.default is MISSING:
            return self.add_mistake(key, f"missing; expected {_describe_type(field.hint)}")
        return field.default

    def build_value(self, hint: Any, value: Any, key: str) -> object:
        if hint == list[str] and isinstance(value, list):
            return [self.build_value(str, item, f"{key}[{index}]") for index, item in enumerate(value)]
        allowed = (int, float) if hint is float else (str,) if get_origin(hint) is Literal else (hint,)
        if type(value) not in allowed or (get_origin(hint) is Literal and value not in get_args(hint)):
            return self.add_wrong_type(hint, value, key)
        if hint is float and not abs(value) <= sys.float_info.max:  # written so as to catch NaN
            return self.add_mistake(key, f"expected finite number, got {_describe_value(value)}")
        return float(value) if hint is float else value

    def add_wrong_type(self, hint: Any, value: object, key: str) -> Any:
        """Add a value of the wrong type to the mistakes, with a suggestion if there is a likely one."""
        text, advice = self.overridden.get(key), ""
        if hint is str and not isinstance(value, list | Mapping | None):
            quoted = _to_json(str(value).lower() if text is None else text)  # lower: true, not True
            advice = f"; quote it: {quoted}" if text is None else f"; quote it: '{key}={quoted}'"
        elif get_origin(hint) is Literal and (near := suggest(str(value), get_args(hint))):
            advice = f"; did you mean {_to_json(near)}?"
        message = f"expected {_describe_type(hint)}, got {_describe_value(value)}{advice}"
        self.add_mistake(key, message + self.describe_overrides(key))

    def add_unknown_key(self, key: str, value: object, siblings: list[str]) -> None:
        """Add an unknown key to the mistakes; if it is a section, each override in it separately."""
        leaves = list(_list_leaves(key, value))
        from_set = [leaf for leaf in leaves if leaf in self.overridden]
        for unknown in from_set if len(from_set) == len(leaves) else [key, *from_set]:
            near = _nearest_key(unknown, self.keys)
            known = f" (known: {', '.join(siblings)})" if siblings else ""
            self.add_mistake(unknown, "no such key" + (f"; did you mean {near}?" if near else known))

    def add_mistake(self, key: str, text: str) -> Any:
        """Add a mistake, marked as an override if one set the key or its section."""
        from_set = any(key == whole or key.startswith(f"{whole}.") for whole in self.overridden)
        self.mistakes.append(escape(("override " if from_set else "") + (f"{key}: " if key else "") + text))

    def describe_overrides(self, key: str) -> str:
        """List the overrides in a section with a mistake, which may be the cause."""
        below = [whole for whole in self.overridden if not key or whole.startswith(f"{key}.")]
        return f" (with override {', '.join(below)})" if below else ""


def _list_leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _list_leaves(_join_key(key, name), inner)
    else:
        yield key


def _nearest_key(key: str, keys: list[str]) -> str:
    """Find the most similar key, by name and then by section."""
    names = [(other.rpartition(".")[2], other) for other in keys]
    near = suggest(key.rpartition(".")[2].lower(), [spelling for pair in names for spelling in pair])
    return suggest(key, [pair[1] for pair in names if near in pair], cutoff=0)


def _to_json(value: object) -> str:
    """Write a value as JSON on one line, which is valid TOML: only the DEL character needs another escape."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def _describe_value(value: object) -> str:
    """Describe a value and its type for a message."""
    if value is None or isinstance(value, Mapping):
        return "none" if value is None else "section"
    text = str(value) if isinstance(value, float) else _to_json(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return text if isinstance(value, bool) else f"{NAMES.get(type(value), type(value).__name__)} {text}"


def _toml_lines(config: Any, section: str, comments: bool) -> list[str]:
    values, sections = list[str](), list[str]()
    docs = _read_docs(config.__class__) if comments else {}
    for field in _list_fields(type(config)):
        key, value = _join_key(section, field.name), getattr(config, field.name)
        comment = [f"# {line}".rstrip() for line in docs.get(field.name, "").splitlines()]
        if is_dataclass(value):
            sections += ["", *comment, f"[{key}]", *_toml_lines(value, key, comments)]
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}: expected finite number, got {value}")
        else:
            values += [*comment, f"{_join_key('', field.name)} = {_to_json(value)}"]
    return values + sections  # in TOML a key below a section's heading belongs to that section
