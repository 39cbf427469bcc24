"""From a model at work to a `MemoryTrace`: what each of its NSEs read and wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nse.errors import InputError
from nse.inference import folder as hub
from nse.nn.decoder import NSEDecoder
from nse.nn.encoder import NSE, Encoding
from nse.nn.search import BEGIN
from nse.nn.translator import Translator
from nse.text.vocabulary import Vocabulary
from nse.viz.trace import Access, Reading, Text

Calls = dict[str, Encoding]
"""What each NSE of a model returned, by its name in the model, with the keys of all steps."""

WAYS = ("left to right", "right to left")
START, BLANK, PADDING, LAST = "<S>", "<blank>", "<pad>", "</S>"
"""How words are shown that nobody wrote."""


class Left(NamedTuple):
    """A reading, and how to find its slots in the memory that it left.

    Attributes:
        reading: As it is shown: slots are in the order of the text.
        columns: For each slot its place in the memory, which is in the order of the steps.
    """

    reading: Reading
    columns: list[int]


@contextmanager
def recorded(model: nn.Module) -> Iterator[Calls]:
    """While it lasts, every NSE of a model is asked for its keys, and what it returned last is kept."""
    calls: Calls = {}
    hooks = []

    def ask(_: nn.Module, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**given, "trace": "all"}

    def keep_as(name: str) -> Any:
        return lambda _, args, found: calls.update({name: found})

    try:
        for name, each in model.named_modules():
            if isinstance(each, NSE):
                hooks.append(each.register_forward_pre_hook(ask, with_kwargs=True))
                hooks.append(each.register_forward_hook(keep_as(name)))
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def refuse_memoryless(loaded: hub.Model) -> None:
    """Refuse a model without an NSE."""
    if not any(isinstance(each, NSE) for each in loaded.model.modules()):
        raise InputError(
            f"model: {loaded.folder} has no memory to look into: its encoder is "
            f"{loaded.config.model.encoder!r}; give a model with an NSE"
        )


def about(loaded: hub.Model) -> dict[str, Any]:
    """What a trace tells of a model."""
    config = loaded.config
    return {"name": loaded.name, "task": config.task, "kind": config.kind, "labels": list(config.labels)}


def text_of(loaded: hub.Model, name: str, text: str, words: Sequence[str], cut: int) -> Text:
    """A text that was given, with its words as the model reads them."""
    ids = loaded.vocabulary.encode(list(words))
    unknown = tuple(at for at, each in enumerate(ids) if each == Vocabulary.UNKNOWN)
    return Text(name, text, tuple(words), unknown, cut)


def of_sentence(model: nn.Module, calls: Calls, text: Text) -> list[Reading]:
    """How a sentence was read, in each direction."""
    return [left.reading for left in read_by(model, calls, "encoder", [text])]


def of_pair(model: nn.Module, calls: Calls, first: Text, second: Text) -> list[Reading]:
    """How two sentences were read: by one encoder, or by a second one that shares the first's memory."""
    if "second.nse.0" in calls:
        found = read_by(model, calls, "encoder", [first])
        found += [
            read_once(model, calls, f"second.nse.{way}", second, way, len(found), (found[way],))
            for way in range(len(found))
        ]
    else:
        found = read_by(model, calls, "encoder", [first, second])
    compared = [Text(f"{each.name}, compared", each.text, each.words) for each in (first, second)]
    found += read_by(model, calls, "reader", compared)
    return [left.reading for left in found]


def of_document(model: nn.Module, calls: Calls, text: Text, lengths: Sequence[int]) -> list[Reading]:
    """How each sentence of a document was read, and then the sentences."""
    sentences, first = [], 0
    for number, length in enumerate(lengths, start=1):
        sentences.append(Text(f"sentence {number}", "", text.words[first : first + length]))
        first += length
    found = read_by(model, calls, "encoder", sentences)
    titles = tuple(f"{n}: {' '.join(each.words[:2])}" for n, each in enumerate(sentences, start=1))
    found += read_by(model, calls, "reader", [Text(text.name, text.text, titles)])
    return [left.reading for left in found]


@torch.no_grad()
def of_translation(
    model: Translator, calls: Calls, text: Text, ids: tuple[int, ...], target: Vocabulary, given: Tensor
) -> list[Reading]:
    """How a sentence was read, and how its translation was written.

    Args:
        model: The translator.
        calls: What its encoders returned.
        text: The sentence.
        ids: Of the translation. What the decoder did for it is computed once more: search follows others too.
        target: The words that they stand for.
        given: [1, L], the ids of the sentence.
    """
    ways = len(model.encoders)
    found = [
        read_once(model, calls, f"encoders.{way}.nse", text, way, ways)
        for way in range(ways)
        if f"encoders.{way}.nse" in calls
    ]
    readings = [left.reading for left in found]
    if isinstance(model.decoder, NSEDecoder):
        words = tuple(target.words[each] for each in ids)
        ended = len(ids) < model.config.most  # or it was cut off there, and no step gave its end
        before, outputs = ((BEGIN, *ids), (*words, LAST)) if ended else ((BEGIN, *ids[:-1]), words)
        keys = keys_of_decoder(model, given, before)
        memories = [left_to(left, z) for left, z in zip(found, keys, strict=True)]
        readings.append(Reading("translation", (START, *words[: len(before) - 1]), tuple(memories), outputs))
    return readings


def keys_of_decoder(model: Translator, given: Tensor, before: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Of each memory z [T, L] at the steps from these words, the ids of what is translated given [1, L]."""
    assert isinstance(model.decoder, NSEDecoder)
    encoded, source = model.encoded(given, torch.tensor([given.shape[1]], device=given.device))
    now = model.decoder.begin(source, encoded.lower, encoded.upper)
    steps = []
    for word in before:
        vector = model.target(torch.tensor([word], device=given.device))
        steps.append(model.decoder.keys(vector, source, now))
        now, _ = model.decoder.step(vector, source, now)
    return [torch.cat(of_memory).cpu().numpy() for of_memory in zip(*steps, strict=True)]


def read_by(model: nn.Module, calls: Calls, encoder: str, texts: Sequence[Text]) -> list[Left]:
    """How an encoder read a batch of texts, in each direction; nothing if it is no NSE."""
    ways = sum(name.startswith(f"{encoder}.nse.") for name in calls)
    return [
        read_once(model, calls, f"{encoder}.nse.{way}", text, way, ways, row=row)
        for row, text in enumerate(texts)
        for way in range(ways)
    ]


def read_once(
    model: nn.Module,
    calls: Calls,
    at: str,
    text: Text,
    way: int,
    ways: int,
    shared: tuple[Left, ...] = (),
    row: int = 0,
) -> Left:
    """One NSE's pass over a text.

    Args:
        model: The model.
        calls: What its NSEs returned.
        at: Which NSE.
        text: What it read.
        way: In which direction.
        ways: Of how many.
        shared: What others left, whose memories it read too.
        row: Of its batch.
    """
    nse, found = model.get_submodule(at), calls[at]
    assert isinstance(nse, NSE)
    assert found.keys is not None
    words, blanks, starts = text.words, several(BLANK, nse.blank), several(START, nse.start)
    if nse.padding == "paper":
        words = (*[PADDING] * (found.keys.shape[1] - len(starts) - len(words)), *words)
    front = len(blanks) + len(starts)
    order = list(range(len(words)))[:: -1 if way else 1]  # of the words, in which they are read
    steps = (*starts, *(words[place] for place in order))
    own = (*range(len(blanks), front), *(front + place for place in order))
    columns = [*range(front), *(front + place for place in order)]  # turning round twice is no turning
    name = f"{text.name}, {WAYS[way]}" if ways > 1 else text.name
    z = found.keys[row, : len(steps), : front + len(words)].cpu().numpy()
    memories = [Access(name, (*blanks, *starts, *words), z[:, columns], own)]
    for left, keys in zip(shared, found.shared_keys, strict=True):
        memories.append(left_to(left, keys[row, : len(steps), : len(left.columns)].cpu().numpy()))
    return Left(Reading(name, steps, tuple(memories)), columns)


def left_to(left: Left, keys: NDArray[np.float32]) -> Access:
    """The memory that a reading left, as another one reads it with keys z [T, L] in the memory's order."""
    memory = left.reading.memories[0]
    return Access(memory.name, memory.slots, keys[:, left.columns], held=tuple(left.reading.final(memory)))


def several(name: str, learned: nn.Parameter | None) -> tuple[str, ...]:
    """What to call learned words or slots, if there are any."""
    count = 0 if learned is None else len(learned)
    return (name,) if count == 1 else tuple(f"{name[:-1]}{n}>" for n in range(1, count + 1))
