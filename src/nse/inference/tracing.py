"""From a model at work to a `MemoryTrace`: what each of its NSEs read and wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nse.errors import InputError
from nse.inference.inputs import Item, stack_rows
from nse.nn.decoder import NSEDecoder
from nse.nn.encoder import NSE, Encoding
from nse.nn.text_model import BEGIN
from nse.nn.translator import Translator
from nse.text.vocabulary import Vocabulary
from nse.viz.trace import Access, MemoryTrace, Reading, Text

if TYPE_CHECKING:
    from nse.inference.model import Model

Calls = dict[str, Encoding]  # what each NSE of a model returned, by its name, with the keys of all steps
WAYS = ("left to right", "right to left")
START, BLANK, PADDING, LAST = "<S>", "<blank>", "<pad>", "</S>"  # how words are shown that nobody wrote


class Left(NamedTuple):
    """A reading, and how to find its slots in the memory that it left."""

    reading: Reading  # as it is shown: slots are in the order of the text
    columns: list[int]  # for each slot its place in the memory, which is in the order of the steps


def record_memories(model: Model, texts: Sequence[str], beam: int | None, strict: bool) -> MemoryTrace:
    """Record what the memories of a model did with texts; see `nse.Model.trace`."""
    refuse_memoryless(model)
    items = model.kind.encode_given(model, texts, strict)
    request = model.kind.request(model, items, beam)
    values = model.compute(request)
    answers = [{name: row[name] for name in model.kind.shown} for row in request.format(values)]
    shown = [[Text(t.name, t.text, t.words, t.unknown, t.cut) for t in item.texts] for item in items]
    given, answer = shown[0], answers[0]
    if model.kind.ranks:
        given, answer = [shown[0][1], *(candidate for candidate, _ in shown)], {"ranking": answers}
        asked = [replace(question, name=f"question, for {each.name}") for each, question in shown]
        shown = [[candidate, question] for (candidate, _), question in zip(shown, asked, strict=True)]
    told = zip(items, shown, strict=True)
    readings = (each for item, texts in told for each in record_item(model, item, texts, values[0]))
    return MemoryTrace(describe_model(model), tuple(given), tuple(readings), answer)


def describe_model(model: Model) -> dict[str, Any]:
    """Describe a model as a trace does."""
    return {"name": model.name, "task": model.config.task, "kind": model.kind.name, "labels": model.labels}


def refuse_memoryless(model: Model) -> None:
    """Refuse a model without an NSE."""
    if not any(isinstance(each, NSE) for each in model.module.modules()):
        why = f"has no memory to look into: its encoder is {model.config.model.encoder!r}"
        raise InputError(f"model: {model.folder} {why}; give a model with an NSE")


@torch.no_grad()
def record_item(model: Model, item: Item, texts: Sequence[Text], value: Tensor) -> list[Reading]:
    """Run the module over an item and tell how it read these texts; `value` is a translation of them."""
    module, first = model.module, torch.zeros(1, dtype=torch.long)
    inputs = stack_rows([item.row], model.kind.has_sentences).select(first).to(model.device).inputs
    with record_calls(module) as calls:
        (module.represent if isinstance(module, Translator) else module)(*inputs)
    later = [Text(f"{text.name}, compared", text.text, text.words) for text in texts]
    if model.kind.has_sentences:
        (whole,), ends = texts, np.cumsum([0, *map(len, item.row[0])]).tolist()
        parts = enumerate(pairwise(ends), start=1)
        texts = [Text(f"sentence {n}", "", whole.words[a:b]) for n, (a, b) in parts]
        titles = tuple(f"{n}: {' '.join(each.words[:2])}" for n, each in enumerate(texts, start=1))
        later = [Text(whole.name, whole.text, titles)]
    if any(name.startswith("second.") for name in calls):
        found = read_by(module, calls, "encoder", texts[:1])
        found += read_by(module, calls, "second.", texts[1:], found)
    else:
        found = read_by(module, calls, "encoder", texts)
    found += read_by(module, calls, "reader.", later)
    return [*(left.reading for left in found), *read_decoder(model, inputs, value, found)]


@contextmanager
def record_calls(module: nn.Module) -> Iterator[Calls]:
    """While it lasts, every NSE of a model is asked for its keys, and what it returned last is kept."""
    calls: Calls = {}
    names = {each: name for name, each in module.named_modules() if isinstance(each, NSE)}

    def ask(_: nn.Module, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**given, "trace": "all"}

    def keep(nse: Any, args: Any, found: Encoding) -> None:
        calls[names[nse]] = found

    with ExitStack() as hooks:
        for each in names:
            hooks.callback(each.register_forward_pre_hook(ask, with_kwargs=True).remove)
            hooks.callback(each.register_forward_hook(keep).remove)
        yield calls


def read_decoder(
    model: Model, inputs: Sequence[Tensor], value: Tensor, found: Sequence[Left]
) -> list[Reading]:
    """Tell how an NSE wrote a translation [2, most], by writing it once more: search follows others too."""
    module, target = model.module, model.target
    if target is None or not isinstance(module, Translator) or not isinstance(module.decoder, NSEDecoder):
        return []
    ids = [each for each in value[0].tolist() if each != Vocabulary.PAD]
    words = tuple(target.words[each] for each in ids)
    ended = len(ids) < module.config.max_target_words  # or it was cut off there, and no step gave its end
    before, outputs = (ids, (*words, LAST)) if ended else (ids[:-1], words)
    source, now = module.decoder.begin(*module.encode_source(*inputs))
    steps = []
    for word in (BEGIN, *before):
        vector = module.target(torch.tensor([word], device=model.device))
        steps.append(module.decoder.compute_keys(vector, source, now))
        now, _ = module.decoder.step(vector, source, now)
    keys = (torch.cat(of_memory).cpu().numpy() for of_memory in zip(*steps, strict=True))
    memories = tuple(left_to(left, z) for left, z in zip(found, keys, strict=True))
    return [Reading("translation", (START, *words[: len(before)]), memories, outputs)]


def read_by(
    module: nn.Module, calls: Calls, encoder: str, texts: Sequence[Text], shared: Sequence[Left] = ()
) -> list[Left]:
    """Tell how the NSEs whose names begin by `encoder` read texts, and what others left in `shared`."""
    names, found = [name for name in calls if name.startswith(encoder)], []
    for row, text in enumerate(texts):
        for way, name in enumerate(names):
            as_read = replace(text, name=f"{text.name}, {WAYS[way]}") if len(names) > 1 else text
            nse: Any = module.get_submodule(name)
            found.append(read_once(nse, calls[name], row, as_read, way > 0, shared[way : way + 1]))
    return found


def read_once(
    nse: NSE, encoding: Encoding, row: int, text: Text, backwards: bool, shared: Sequence[Left]
) -> Left:
    """Tell how an NSE read a row of its batch: words from the last to the first if backwards."""
    assert encoding.keys is not None
    words, blanks, starts = text.words, name_learned(BLANK, nse.blank), name_learned(START, nse.start)
    if nse.padding == "paper":
        words = (*[PADDING] * (encoding.keys.shape[1] - len(starts) - len(words)), *words)
    front = len(blanks) + len(starts)
    order = list(range(len(words)))[:: -1 if backwards else 1]  # of the words, in which they are read
    steps = (*starts, *(words[place] for place in order))
    own = (*range(len(blanks), front), *(front + place for place in order))
    columns = [*range(front), *(front + place for place in order)]  # turning round twice is no turning
    z = encoding.keys[row, : len(steps), : front + len(words)].cpu().numpy()
    memories = [Access(text.name, (*blanks, *starts, *words), z[:, columns], own)]
    for left, keys in zip(shared, encoding.shared_keys, strict=True):
        memories.append(left_to(left, keys[row, : len(steps), : len(left.columns)].cpu().numpy()))
    return Left(Reading(text.name, steps, tuple(memories)), columns)


def left_to(left: Left, keys: NDArray[np.float32]) -> Access:
    """The memory that a reading left, as another one reads it with keys z [T, L] in the memory's order."""
    memory = left.reading.memories[0]
    return Access(memory.name, memory.slots, keys[:, left.columns], held=tuple(left.reading.final(memory)))


def name_learned(name: str, learned: nn.Parameter | None) -> tuple[str, ...]:
    """Name learned words or slots, if there are any."""
    count = 0 if learned is None else len(learned)
    return (name,) if count == 1 else tuple(f"{name[:-1]}{n}>" for n in range(1, count + 1))
