"""`MemoryTrace`: what every word read in a memory, and what the memory held then (appendix A of the paper).

A trace is data: words, numbers and what follows from them. `Model.trace` makes one from a model and a text,
`to_json` writes what `trace.schema.json` describes, and every picture is made from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nse.errors import InputError, explain_errors
from nse.files import write

NOWHERE = -1
"""The place of a word that has no slot of its own in a memory."""


@dataclass(frozen=True, eq=False)
class Access:
    """A memory, as one reading of a text reads and writes it."""

    name: str  # whose memory it is
    slots: tuple[str, ...]  # the words that the L slots began as
    keys: NDArray[np.float32]  # z [T, L], how much each step read and wrote each slot
    own: tuple[int, ...] = ()  # for each step, the slot that began as the word itself, or `NOWHERE`
    held: tuple[str, ...] = ()  # what the slots held before the first step; `slots` by default

    def __post_init__(self) -> None:
        """Refuse keys that are none, and fill in what is usual."""
        keys, size, of = np.array(self.keys, dtype=np.float32), len(self.slots), f"of memory {self.name!r}"
        if keys.ndim != 2 or keys.shape[1] != size or not size:
            wanted = f"[T, {size}], a number for each step and slot"
            raise InputError(f"keys {of}: expected {wanted}, got shape {list(keys.shape)}")
        if not (np.isfinite(keys).all() and (keys >= 0).all() and (abs(keys.sum(axis=1) - 1) < 1e-3).all()):
            raise InputError(f"keys {of}: expected rows from 0 up that add up to 1")
        keys.setflags(write=False)
        own, held = tuple(self.own) or (NOWHERE,) * len(keys), tuple(self.held) or tuple(self.slots)
        if len(own) != len(keys) or not all(NOWHERE <= place < size for place in own):
            raise InputError(f"own {of}: expected a slot or {NOWHERE} for each step")
        if len(held) != size:
            raise InputError(f"held {of}: expected one for each of {size} slots")
        vars(self).update(slots=tuple(self.slots), keys=keys, own=own, held=held)

    @cached_property
    def read(self) -> tuple[int, ...]:
        """The slot with the largest weight, for each step."""
        return tuple(int(best) for best in self.keys.argmax(axis=1))

    @cached_property
    def composed(self) -> tuple[int, ...]:
        """The slot that the word is said to be composed with, for each step, as the paper does it.

        It has the largest weight; where that is the word's own, it is the second best, if there is another.
        """
        others = self.keys.copy()
        if len(self.slots) > 1:
            for t, place in enumerate(self.own):
                if place != NOWHERE:
                    others[t, place] = -1.0
        return tuple(int(best) for best in others.argmax(axis=1))

    @property
    def weights(self) -> tuple[float, ...]:
        """How much each step read the slot that it is composed with."""
        return tuple(float(self.keys[t, slot]) for t, slot in enumerate(self.composed))

    @property
    def accessed(self) -> NDArray[np.float64]:
        """How much each slot was read over all steps [L]: the sum of its weights."""
        return np.asarray(self.keys.sum(axis=0, dtype=np.float64))

    def order(self) -> list[int]:
        """Sort the slots from the most to the least accessed; of equal ones the earlier first."""
        return [int(slot) for slot in np.argsort(-self.accessed, kind="stable")]


@dataclass(frozen=True, eq=False)
class Reading:
    """One pass over a sequence of words, by one encoder or decoder."""

    name: str  # what is read, and how if there are several ways
    words: tuple[str, ...]  # the T words, in the order of the steps
    memories: tuple[Access, ...]  # those that are read and written, the own one first
    outputs: tuple[str, ...] = ()  # of a decoder, the word that each step gave

    def __post_init__(self) -> None:
        """Refuse memories that others than these words have read."""
        vars(self).update({name: tuple(getattr(self, name)) for name in ("words", "memories", "outputs")})
        expected, words = f"reading {self.name!r}: expected", f"each of {len(self.words)} words"
        if not self.memories:
            raise InputError(f"{expected} at least one memory")
        for memory in self.memories:
            if len(memory.keys) != len(self.words):
                has = f"memory {memory.name!r} has {len(memory.keys)}"
                raise InputError(f"{expected} keys for {words}, {has}")
        if len(self.outputs) not in (0, len(self.words)):
            raise InputError(f"{expected} an output for {words}")

    @property
    def own(self) -> Access | None:
        """The memory that began as the words themselves, if there is one."""
        return next((each for each in self.memories if any(place != NOWHERE for place in each.own)), None)

    @property
    def shared(self) -> tuple[Access, ...]:
        """The memories that began as other words."""
        return tuple(each for each in self.memories if each is not self.own)

    def title(self, memory: Access) -> str:
        """Name a picture of this reading of a memory."""
        return self.name if self.name == memory.name else f"{self.name}, memory of {memory.name}"

    def compositions(self, memory: Access) -> list[str]:
        """Tell what each step left in the slot it is composed with: the word, then what the slot held."""
        now, found = list(memory.held), []
        for word, slot in zip(self.words, memory.composed, strict=True):
            now[slot] = f"({word} {now[slot]})"
            found.append(now[slot])
        return found

    def states(self, memory: Access) -> Iterator[list[str]]:
        """Tell what all slots hold before the first step, and after each."""
        now = list(memory.held)
        yield list(now)
        for slot, composition in zip(memory.composed, self.compositions(memory), strict=True):
            now[slot] = composition
            yield list(now)

    def final(self, memory: Access) -> list[str]:
        """Tell what all slots hold after the last step."""
        *_, last = self.states(memory)
        return last


@dataclass(frozen=True)
class Text:
    """A text that was given."""

    name: str  # its part, such as premise
    text: str  # as it was given
    words: tuple[str, ...]  # as the model takes it apart, no more than it reads
    unknown: tuple[int, ...] = ()  # those of them that the model does not know, by their place
    cut: int = 0  # how many more there were


@dataclass(frozen=True, eq=False)
class MemoryTrace:
    """What the memories of a model did while it read, and what came of it.

    Attributes:
        model: Its name, task, kind and labels.
        texts: What was given.
        readings: Every pass over words, in the order in which they were made.
        prediction: What the model says: label and probabilities, or ranking, or translation and words.
    """

    model: Mapping[str, Any]
    texts: tuple[Text, ...]
    readings: tuple[Reading, ...]
    prediction: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep tuples; a trace of nothing is none."""
        vars(self).update(texts=tuple(self.texts), readings=tuple(self.readings))
        if not self.readings:
            raise InputError("trace: expected at least one reading")

    def accesses(self) -> list[tuple[Reading, Access]]:
        """List every memory of every reading."""
        return [(reading, memory) for reading in self.readings for memory in reading.memories]

    def as_dict(self) -> dict[str, Any]:
        """Write the trace as plain values, as `trace.schema.json` describes them."""
        from nse.viz import trace_json  # which knows traces, and is known by nobody else

        return trace_json.as_dict(self)

    def to_json(self, indent: int | None = None) -> str:
        """Write the trace as JSON. Keys are written so that they come back to the bit."""
        return json.dumps(self.as_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> MemoryTrace:
        """Read a trace from JSON.

        Raises:
            InputError: It is no trace, or of a newer version; or what should follow from the keys does not.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"trace: expected JSON, {error}") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Any) -> MemoryTrace:
        """Read a trace from plain values; see `from_json`."""
        from nse.viz import trace_json

        return trace_json.from_dict(data)

    def save(self, file: Path | str) -> None:
        """Write the trace to a JSON file, whole or not at all."""
        write(Path(file), self.to_json() + "\n")

    @classmethod
    def load(cls, file: Path | str) -> MemoryTrace:
        """Read a trace from a JSON file."""
        with explain_errors(f"{file}: cannot be read", InputError):
            return cls.from_json(Path(file).read_bytes())

    def _repr_html_(self) -> str:
        """Show it in a notebook."""
        from nse.viz.notebook import html  # pictures are made of traces, not the other way round

        return html(self)
