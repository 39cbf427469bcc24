"""Strict configuration: TOML in, dataclasses out, every mistake told at once.

A configuration is a dataclass whose fields are `bool`, `int`, `float`, `str`, `Literal[...]`, `list[X]`,
`tuple[X, ...]`, another dataclass (a section), or one of these `| None`. TOML has no null, so None
is said by leaving the key out. A section given in part keeps the rest of its default.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import SequenceMatcher
from functools import cache, reduce
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from nse.errors import ConfigError, FieldsError, escape, suggest
from nse.files import read_bounded

__all__ = ["Entry", "build", "describe", "load", "override", "read_toml", "to_toml"]

T = TypeVar("T")

LONGEST = 1 << 20
"""Bytes of a recipe: no sensible one comes near."""


class Entry(NamedTuple):
    """One key of a configuration, as help and documentation show it."""

    key: str
    """Dotted key; `layers[].size` is a key of each item of a list of sections."""
    type: str
    """What the key takes, for example `integer` or `list[number]`."""
    default: str
    """The default as TOML text, `none`, `required`, or nothing for a section."""
    doc: str
    """The docstring under the field, or nothing."""


def build(cls: type[T], data: Mapping[str, object], *, source: str = "config") -> T:
    """Makes a dataclass from plain data and refuses whatever does not fit it exactly.

    Args:
        cls: The dataclass to make.
        data: Its keys and values; sections are mappings.
        source: Where the data came from; the error message starts with it.

    Raises:
        ConfigError: With every mistake in the data, one a line.
        TypeError: If the dataclass has a field of a type that is not supported.
    """
    return _build(cls, data, source, assigned={}, mistakes=[])


def load(cls: type[T], path: Path | Traversable, overrides: Sequence[str] = ()) -> T:
    """Reads a TOML file, applies `--set` assignments to it and builds the dataclass.

    Args:
        cls: The dataclass to make.
        path: The TOML file, on disk or inside a package.
        overrides: Assignments such as `model.size=300`; see `override`.

    Raises:
        ConfigError: With every mistake in the file and in the assignments, one a line.
    """
    try:
        data = read_toml(path)
    except ConfigError as error:
        _, _, mistakes = _assign({}, overrides)
        raise _combined(str(path), [str(error), *mistakes]) from None
    data, assigned, mistakes = _assign(data, overrides)
    return _build(cls, data, str(path), assigned, mistakes)


def override(data: Mapping[str, object], assignments: Sequence[str]) -> dict[str, object]:
    """Returns a copy of the data with assignments such as `model.size=300` applied in order.

    A value is read as TOML where it parses and is otherwise a plain string, so `model.encoder=lstm` needs no
    quotes. A table (`model={size = 300}`) replaces the whole section.

    Raises:
        ConfigError: With every malformed assignment, one a line.
    """
    changed, _, mistakes = _assign(data, assignments)
    if mistakes:
        raise _combined("overrides", mistakes)
    return changed


def to_toml(config: object, *, comments: bool = False) -> str:
    """Writes a configuration as TOML from which `build` makes an equal one.

    Args:
        config: An instance of a configuration dataclass. Fields that are None are left out.
        comments: Whether to write the docstring of each field above it.

    Raises:
        ConfigError: If a value cannot be read back: NaN, an infinity, or None where the default is not None.
    """
    return "\n".join(_toml_lines(config, "", None, comments)).lstrip("\n") + "\n"


def describe(cls: type) -> list[Entry]:
    """Lists every key of a configuration, sections included, in the order of declaration."""
    return [
        Entry(key, _type_name(field.hint), _default_text(key, field), _docs(owner).get(field.name, ""))
        for key, owner, field in _walk(cls)
    ]


_NAMES: dict[object, str] = {bool: "true or false", int: "integer", float: "number", str: "string"}


class _Field(NamedTuple):
    name: str
    hint: Any  # without its `| None`
    optional: bool
    default: Any  # MISSING where the key is required


def _fields(cls: Any, base: object = None) -> Iterator[_Field]:
    """Yields the fields of a dataclass, with defaults from the instance `base` where there is one."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        if not field.init:
            continue
        hint, optional = _without_none(hints[field.name])
        try:
            _type_name(hint)
        except TypeError as error:
            raise TypeError(f"{cls.__qualname__}.{field.name}: {error}") from None
        default: Any = field.default
        if base is not None:
            default = getattr(base, field.name)
        elif field.default_factory is not MISSING:
            default = field.default_factory()
        elif default is MISSING and optional:
            default = None
        yield _Field(field.name, hint, optional, default)


def _walk(cls: Any, prefix: str = "", base: object = None) -> Iterator[tuple[str, type, _Field]]:
    """Yields every dotted key below a dataclass, with the class that declares it."""
    for field in _fields(cls, base):
        key = _join(prefix, field.name)
        yield key, cls, field
        if is_dataclass(field.hint):
            yield from _walk(field.hint, key, _base(field))
        elif get_origin(field.hint) in (list, tuple) and is_dataclass(item := get_args(field.hint)[0]):
            yield from _walk(item, f"{key}[]")


def _base(field: _Field) -> object:
    """Returns the default of a section, or None for one without and for any other field."""
    return field.default if is_dataclass(field.default) else None


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        others = [member for member in get_args(hint) if member is not NoneType]
        if len(others) == 1:
            return others[0], True
    return hint, False


def _type_name(hint: Any) -> str:
    """Names a type for people, and so also decides which types are supported."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _NAMES:
        return _NAMES[hint]
    if is_dataclass(hint):
        return "section"
    if origin is Literal and all(isinstance(choice, str | int) for choice in arguments):
        return " or ".join(map(_text, arguments))
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return f"list[{_type_name(arguments[0])}]"
    raise TypeError(f"a configuration cannot hold the type {hint}")


def _join(prefix: str, name: str) -> str:
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return (f"{prefix}." if prefix else "") + (name if bare else _text(name))


@cache  # finding a class in its source is slow
def _docs(cls: type) -> dict[str, str]:
    """Reads the string literals under the fields of a class and its bases; Python itself drops them."""
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


def read_toml(path: Path | Traversable) -> dict[str, object]:
    """Reads a TOML file, a regular one of bounded size; `ConfigError` says what is wrong with it."""
    try:
        content = read_bounded(path, LONGEST) if isinstance(path, Path) else path.read_bytes()
        return tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # wrong TOML, not UTF-8, or an integer too long for Python
        end = "at end of document"
        reason = str(error).replace(end, f"{end}, line {len(content.splitlines())}")
        raise ConfigError(f"not valid TOML: {reason}") from None


def _assign(
    data: Mapping[str, object], assignments: Sequence[str]
) -> tuple[dict[str, object], dict[str, str], list[str]]:
    """Applies assignments; returns the changed copy, the text given for each dotted key, and the mistakes."""
    changed, assigned, mistakes = copy.deepcopy(dict(data)), dict[str, str](), list[str]()
    for assignment in assignments:
        left, equals, text = assignment.partition("=")
        *sections, name = [part.strip() for part in left.split(".")]
        if not equals or not all([*sections, name]):
            mistakes.append(f"--set {assignment!r}: expected key=value, such as model.size=300")
            continue
        table: Any = changed
        for depth, section in enumerate(sections, start=1):
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                outer = reduce(_join, sections[:depth], "")
                mistakes.append(f"--set {assignment!r}: {outer} is {_shown(table)}, not a section")
                break
        else:
            table[name] = _parsed(text)
            assigned[reduce(_join, [*sections, name], "")] = text.strip()
    return changed, assigned, mistakes


def _parsed(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
    except ValueError:
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()  # a line break must not start a second key


def _build(
    cls: type[T], data: Mapping[str, object], source: str, assigned: dict[str, str], mistakes: list[str]
) -> T:
    config = _Checker([key for key, _, _ in _walk(cls)], assigned, mistakes).section(cls, data, "", None)
    if mistakes:
        raise _combined(source, mistakes)
    return cast(T, config)


def _combined(source: str, mistakes: list[str]) -> ConfigError:
    if len(mistakes) == 1:
        return ConfigError(f"{source}: {mistakes[0]}")
    return ConfigError("\n  ".join([f"{source}: {len(mistakes)} mistakes", *mistakes]))


@dataclass(frozen=True)
class _Checker:
    """Turns plain values into typed ones; a value that does not fit adds to the mistakes and becomes None."""

    keys: list[str]
    assigned: dict[str, str]
    mistakes: list[str]

    def section(self, cls: Any, data: object, key: str, base: object) -> object:
        if not isinstance(data, Mapping):
            return self.refuse(cls, data, key)
        before = len(self.mistakes)
        known = {field.name: field for field in _fields(cls, base)}
        for name in data:
            if name not in known:
                self.refuse_key(
                    _join(key, str(name)[:100]), data[name], [_join(key, other) for other in known]
                )
        values = {name: self.field(field, data, _join(key, name)) for name, field in known.items()}
        if len(self.mistakes) == before:
            try:
                return cls(**values)
            except FieldsError as error:
                for name, text in error.mistakes.items():
                    self.tell(_join(key, name), text)
            except ValueError as error:  # raised by the dataclass's own __post_init__
                for line in re.findall(r"\S.*", str(error)) or ["refused without a reason"]:
                    self.tell(key, line + self.set_below(key))
        return None

    def field(self, field: _Field, data: Mapping[str, object], key: str) -> object:
        if field.name in data:
            value = data[field.name]
            left_out = value is None and field.optional
            return None if left_out else self.value(field.hint, value, key, _base(field))
        if field.default is not MISSING:
            return field.default
        if is_dataclass(field.hint):  # so that the keys missing inside it are named
            return self.section(field.hint, {}, key, None)
        return self.tell(key, f"missing; expected {_type_name(field.hint)}")

    def value(self, hint: Any, value: Any, key: str, base: object = None) -> object:
        origin = get_origin(hint)
        if is_dataclass(hint):
            return self.section(hint, value, key, base)
        if origin is Literal:
            fits = any(type(value) is type(choice) and value == choice for choice in get_args(hint))
            return value if fits else self.refuse(hint, value, key)
        if origin in (list, tuple):
            if not isinstance(value, list | tuple):
                return self.refuse(hint, value, key)
            item = get_args(hint)[0]
            return origin(self.value(item, each, f"{key}[{i}]") for i, each in enumerate(value))
        if type(value) is not hint and not (hint is float and type(value) is int):
            return self.refuse(hint, value, key)
        if hint is float and not abs(value) <= sys.float_info.max:  # written so as to catch NaN
            return self.tell(key, f"expected finite number, got {_shown(value)}")
        return hint(value)

    def refuse(self, hint: Any, value: object, key: str) -> Any:
        """Refuses a value of the wrong type, with advice where what was meant can be guessed."""
        text, advice = self.assigned.get(key), ""
        if hint is str and not isinstance(value, list | tuple | Mapping | None):
            quoted = _text(str(value).lower() if text is None else text)  # lower: true, not True
            advice = f"; quote it: {quoted}" if text is None else f"; quote it: --set '{key}={quoted}'"
        elif get_origin(hint) is Literal:
            choices = {str(choice): _text(choice) for choice in get_args(hint)}
            near = suggest(str(value), choices)
            advice = f"; did you mean {choices[near]}?" if near else ""
        elif get_origin(hint) in (list, tuple) and text is not None and text.startswith("["):
            advice = '; strings in a list need quotes: ["a", "b"]'
        self.tell(key, f"expected {_type_name(hint)}, got {_shown(value)}{advice}{self.set_below(key)}")

    def refuse_key(self, key: str, value: object, siblings: list[str]) -> None:
        """Refuses an unknown key: the assignments inside it one by one, all else in it once."""
        leaves = list(_leaves(key, value))
        from_set = [leaf for leaf in leaves if leaf in self.assigned]
        for unknown in from_set if len(from_set) == len(leaves) else [key, *from_set]:
            near = _nearest_key(unknown, [*self.keys, *siblings])
            known = f" (known: {', '.join(siblings)})" if siblings else ""
            self.tell(unknown, "no such key" + (f"; did you mean {near}?" if near else known))

    def tell(self, key: str, text: str) -> Any:
        from_set = any(key == whole or key.startswith((f"{whole}.", f"{whole}[")) for whole in self.assigned)
        self.mistakes.append(escape(("--set " if from_set else "") + (f"{key}: " if key else "") + text))

    def set_below(self, key: str) -> str:
        """Names the assignments inside a section, which may be what its mistake is due to."""
        below = [whole for whole in self.assigned if not key or whole.startswith(f"{key}.")]
        return f" (with --set {', '.join(below)})" if below else ""


def _leaves(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(_join(key, name), inner)
    else:
        yield key


def _nearest_key(key: str, keys: list[str]) -> str | None:
    """Finds the key most likely meant: first one of the same name elsewhere, then one spelled alike."""
    name = key.rpartition(".")[2]

    def closeness(other: str) -> float:
        return max(_similarity(name, other.rpartition(".")[2]), _similarity(name, other))

    def rank(other: str) -> tuple[bool, float]:
        return other.rpartition(".")[2] == name, closeness(other) + _similarity(key, other)

    return max((other for other in keys if closeness(other) >= 0.6), key=rank, default=None)


def _similarity(a: str, b: str) -> float:
    return SequenceMatcher(None, a.lower(), b.lower()).ratio()


def _text(value: object) -> str:
    """Writes a plain value on one line; the escapes of JSON strings are TOML's, but for the DEL character."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def _shown(value: object) -> str:
    """Names a value and its type in a message."""
    if value is None or isinstance(value, Mapping):
        return "none" if value is None else "section"
    kind = {**_NAMES, bool: "", tuple: "list"}.get(type(value), type(value).__name__)
    text = str(value) if isinstance(value, float) else _text(value)
    return f"{kind} {text if len(text) <= 60 else text[:57] + '...'}".strip()


def _toml_lines(config: Any, section: str, base: object, comments: bool) -> list[str]:
    values, sections = list[str](), list[str]()
    docs = _docs(config.__class__) if comments else {}
    for field, key, value in _present(config, section, base):
        comment = [f"# {line}".rstrip() for line in docs.get(field.name, "").splitlines()]
        if is_dataclass(value):
            sections += ["", *comment, f"[{key}]", *_toml_lines(value, key, _base(field), comments)]
        else:
            values += [*comment, f"{_join('', field.name)} = {_toml_value(key, value, None)}"]
    return values + sections  # in TOML a key below a section's heading belongs to that section


def _toml_value(key: str, value: object, base: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(f'{key}[{i}]', each, None) for i, each in enumerate(value))}]"
    if is_dataclass(value):  # inside a list, where only an inline table can stand
        pairs = [
            f"{_join('', field.name)} = {_toml_value(inner_key, inner, _base(field))}"
            for field, inner_key, inner in _present(value, key, base)
        ]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}: expected finite number, got {value}")
    return _text(value)


def _present(config: object, section: str, base: object) -> Iterator[tuple[_Field, str, object]]:
    """Yields the fields to write: those that are None are left out, if leaving them out means None."""
    for field in _fields(type(config), base):
        key, value = _join(section, field.name), getattr(config, field.name)
        if value is not None:
            yield field, key, value
        elif field.default is not None:
            raise ConfigError(f"{key}: TOML cannot say none where the default is something else")


def _default_text(key: str, field: _Field) -> str:
    if field.default is None:
        return "none"
    if is_dataclass(field.hint):
        return ""
    return "required" if field.default is MISSING else _toml_value(key, field.default, None)
