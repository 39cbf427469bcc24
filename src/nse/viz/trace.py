"""`MemoryTrace`: what a model read from its memories and wrote to them (appendix A of the paper)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nse.errors import InputError, explain_errors
from nse.files import write_text

NOWHERE = -1  # own slot of a word that has none in a memory


@dataclass(frozen=True, eq=False)
class Access:
    """Memory with L slots, as the T steps of one reading read and write it."""

    name: str  # text whose memory it is
    slots: tuple[str, ...]  # words that the slots were initialised with
    keys: np.typing.NDArray[np.float32]  # z [T, L]: weight of each slot at each step
    own: tuple[int, ...] = ()  # for each step, the slot initialised with that word, or NOWHERE (default)
    held: tuple[str, ...] = ()  # contents of the slots before the first step; default: `slots`

    def __post_init__(self) -> None:
        """Check the shapes and fill in the defaults."""
        keys, size, where = np.array(self.keys, dtype=np.float32), len(self.slots), f"of memory {self.name!r}"
        if keys.ndim != 2 or keys.shape[1] != size or not size:
            raise InputError(f"keys {where}: expected shape [T, {size}], got {list(keys.shape)}")
        if not (np.isfinite(keys).all() and (keys >= 0).all() and (abs(keys.sum(axis=1) - 1) < 1e-3).all()):
            raise InputError(f"keys {where}: expected rows of non-negative numbers that sum to 1")
        own, held = tuple(self.own) or (NOWHERE,) * len(keys), tuple(self.held) or tuple(self.slots)
        if len(own) != len(keys) or not all(NOWHERE <= slot < size for slot in own):
            raise InputError(f"own {where}: expected a slot or {NOWHERE} for each step")
        if len(held) != size:
            raise InputError(f"held {where}: expected the contents of {size} slots, got {len(held)}")
        keys.setflags(write=False)
        vars(self).update(slots=tuple(self.slots), keys=keys, own=own, held=held)

    @cached_property
    def read(self) -> tuple[int, ...]:
        """Slot with the largest weight at each step."""
        return tuple(self.keys.argmax(axis=1).tolist())

    @cached_property
    def composed(self) -> tuple[int, ...]:
        """Slot that each step is composed with: largest weight, other than the word's own slot."""
        others = self.keys.copy()
        for t, slot in enumerate(self.own):
            if slot != NOWHERE and len(self.slots) > 1:
                others[t, slot] = -1.0
        return tuple(others.argmax(axis=1).tolist())

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight z of the slot that each step is composed with."""
        return tuple(float(self.keys[t, slot]) for t, slot in enumerate(self.composed))

    @property
    def accessed(self) -> np.typing.NDArray[np.float64]:
        """Sum of the weights of each slot over all steps, [L]."""
        return np.asarray(self.keys.sum(axis=0, dtype=np.float64))

    def order(self) -> list[int]:
        """Sort the slots from the most to the least accessed; equal ones keep their order."""
        return [int(slot) for slot in np.argsort(-self.accessed, kind="stable")]


@dataclass(frozen=True, eq=False)
class Reading:
    """One pass of an encoder or a decoder over T words."""

    name: str  # the text, and how it is read if there are several ways
    words: tuple[str, ...]  # in the order of the steps
    memories: tuple[Access, ...]  # its own memory first
    outputs: tuple[str, ...] = ()  # word that each step of a decoder wrote

    def __post_init__(self) -> None:
        """Check that every memory and the outputs have T steps."""
        vars(self).update({name: tuple(getattr(self, name)) for name in ("words", "memories", "outputs")})
        steps, where = len(self.words), f"reading {self.name!r}:"
        if not self.memories:
            raise InputError(f"{where} expected at least one memory")
        for memory in self.memories:
            if (keys := len(memory.keys)) != steps:
                raise InputError(f"{where} {steps} words, but memory {memory.name!r} has keys for {keys}")
        if len(self.outputs) not in (0, steps):
            raise InputError(f"{where} {steps} words, but {len(self.outputs)} outputs")

    @property
    def own(self) -> Access | None:
        """Memory that was initialised with the words themselves, if there is one."""
        return next((memory for memory in self.memories if any(slot >= 0 for slot in memory.own)), None)

    @property
    def shared(self) -> tuple[Access, ...]:
        """Memories that were initialised with other words."""
        return tuple(memory for memory in self.memories if memory is not self.own)

    def title(self, memory: Access) -> str:
        """Name a picture of one of the memories."""
        return self.name if self.name == memory.name else f"{self.name}, memory of {memory.name}"

    def compositions(self, memory: Access) -> list[str]:
        """List what each step writes into the slot it is composed with: "(word contents)"."""
        states = self.states(memory)
        next(states)
        return [slots[slot] for slots, slot in zip(states, memory.composed, strict=True)]

    def states(self, memory: Access) -> Iterator[list[str]]:
        """Yield the contents of all slots before the first step and after each step."""
        slots = list(memory.held)
        yield list(slots)
        for word, slot in zip(self.words, memory.composed, strict=True):
            slots[slot] = f"({word} {slots[slot]})"
            yield list(slots)

    def final(self, memory: Access) -> list[str]:
        """Return the contents of all slots after the last step."""
        return list(self.states(memory))[-1]


@dataclass(frozen=True)
class Text:
    """Input text."""

    name: str  # its role, such as premise
    text: str  # as given
    words: tuple[str, ...]  # its tokens, truncated to the model's maximum
    unknown: tuple[int, ...] = ()  # indices of the words that are not in the vocabulary
    cut: int = 0  # number of truncated words


@dataclass(frozen=True, eq=False)
class MemoryTrace:
    """Words and numbers that every picture is drawn from; `Model.trace` makes one from texts."""

    model: Mapping[str, Any]  # name, task, kind, labels
    texts: tuple[Text, ...]
    readings: tuple[Reading, ...]  # in the order in which the model makes them
    prediction: Mapping[str, Any] = field(default_factory=dict)  # label, ranking or translation

    def __post_init__(self) -> None:
        """Check that there is a reading."""
        vars(self).update(texts=tuple(self.texts), readings=tuple(self.readings))
        if not self.readings:
            raise InputError("trace: expected at least one reading")

    def accesses(self) -> list[tuple[Reading, Access]]:
        """List every memory of every reading."""
        return [(reading, memory) for reading in self.readings for memory in reading.memories]

    def as_dict(self) -> dict[str, Any]:
        """Convert the trace to plain values, as `trace.schema.json` describes them."""
        from nse.viz import trace_json  # imports this module

        return trace_json.dump_trace(self)

    def to_json(self, indent: int | None = None) -> str:
        """Write the trace as JSON; `from_json` restores the same bits of every key."""
        return json.dumps(self.as_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> MemoryTrace:
        """Read a trace from JSON; raise `InputError` if it is invalid or of another version."""
        from nse.viz import trace_json

        return trace_json.parse_trace(text)

    @classmethod
    def from_dict(cls, data: Any) -> MemoryTrace:
        """Read a trace from plain values; see `from_json`."""
        from nse.viz import trace_json

        return trace_json.load_trace(data)

    def save(self, file: Path | str) -> None:
        """Write the trace to a JSON file atomically."""
        write_text(Path(file), self.to_json() + "\n")

    @classmethod
    def load(cls, file: Path | str) -> MemoryTrace:
        """Read a trace from a JSON file."""
        with explain_errors(f"{file}: cannot be read", InputError):
            return cls.from_json(Path(file).read_bytes())

    def _repr_html_(self) -> str:
        from nse.viz import notebook

        return notebook.render_html(self)
