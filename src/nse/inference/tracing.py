"""Record what the memories of a model read and wrote, as a `MemoryTrace`."""

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

Calls = dict[str, Encoding]  # last output of each NSE, by module name, with the keys of all steps
DIRECTIONS = ("left to right", "right to left")
START, BLANK, PADDING, LAST = "<S>", "<blank>", "<pad>", "</S>"  # names of tokens that are not in the text


class OrderedReading(NamedTuple):
    """Reading, and the position of each of its slots in the memory tensor."""

    reading: Reading  # slots in the order of the text
    columns: list[int]  # positions in the memory tensor, which has the order of the steps


def record_memories(model: Model, texts: Sequence[str], beam: int | None, strict: bool) -> MemoryTrace:
    """Record what the memories of a model did with texts; see `nse.Model.trace`."""
    refuse_memoryless(model)
    items = model.kind.encode_inputs(model, texts, strict)
    request = model.kind.request(model, items, beam)
    values = model.compute(request)
    answers = [{name: row[name] for name in model.kind.trace_fields} for row in request.format(values)]
    rows = [[Text(t.name, t.text, t.words, t.unknown, t.cut) for t in item.texts] for item in items]
    inputs, answer = rows[0], answers[0]
    if model.kind.ranks:
        inputs, answer = [rows[0][1], *(candidate for candidate, _ in rows)], {"ranking": answers}
        rows = [[item, replace(question, name=f"question, for {item.name}")] for item, question in rows]
    readings = (
        reading
        for item, item_texts in zip(items, rows, strict=True)
        for reading in record_item(model, item, item_texts, values[0])
    )
    return MemoryTrace(describe_model(model), tuple(inputs), tuple(readings), answer)


def describe_model(model: Model) -> dict[str, Any]:
    """Return the fields of a trace that describe the model."""
    return {"name": model.name, "task": model.config.task, "kind": model.kind.name, "labels": model.labels}


def refuse_memoryless(model: Model) -> None:
    """Raise an `InputError` for a model without an NSE."""
    if not any(isinstance(module, NSE) for module in model.module.modules()):
        why = f"has no memory to trace: its encoder is {model.config.model.encoder!r}"
        raise InputError(f"model: {model.folder} {why}; give a model with an NSE")


@torch.no_grad()
def record_item(model: Model, item: Item, texts: Sequence[Text], value: Tensor) -> list[Reading]:
    """Run the module over an item and return its readings of the texts; `value` may be a translation."""
    module, first = model.module, torch.zeros(1, dtype=torch.long)
    inputs = stack_rows([item.row], model.kind.has_sentences).select(first).to(model.device).inputs
    with record_calls(module) as calls:
        (module.represent if isinstance(module, Translator) else module)(*inputs)
    later = [Text(f"{text.name}, compared", text.text, text.words) for text in texts]
    if model.kind.has_sentences:
        (document,), ends = texts, np.cumsum([0, *map(len, item.row[0])]).tolist()
        parts = enumerate(pairwise(ends), start=1)
        texts = [Text(f"sentence {n}", "", document.words[a:b]) for n, (a, b) in parts]
        titles = tuple(f"{n}: {' '.join(text.words[:2])}" for n, text in enumerate(texts, start=1))
        later = [Text(document.name, document.text, titles)]
    if any(name.startswith("second.") for name in calls):
        readings = make_encoder_readings(module, calls, "encoder", texts[:1])
        readings += make_encoder_readings(module, calls, "second.", texts[1:], readings)
    else:
        readings = make_encoder_readings(module, calls, "encoder", texts)
    readings += make_encoder_readings(module, calls, "reader.", later)
    return [*(part.reading for part in readings), *make_decoder_reading(model, inputs, value, readings)]


@contextmanager
def record_calls(module: nn.Module) -> Iterator[Calls]:
    """Request the keys of every NSE in the block, and keep its last output."""
    calls: Calls = {}
    names = {child: name for name, child in module.named_modules() if isinstance(child, NSE)}

    def request_keys(_: nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**options, "trace": "all"}

    def keep_output(nse: Any, args: Any, encoding: Encoding) -> None:
        calls[names[nse]] = encoding

    with ExitStack() as hooks:
        for nse in names:
            hooks.callback(nse.register_forward_pre_hook(request_keys, with_kwargs=True).remove)
            hooks.callback(nse.register_forward_hook(keep_output).remove)
        yield calls


def make_decoder_reading(
    model: Model, inputs: Sequence[Tensor], value: Tensor, encoders: Sequence[OrderedReading]
) -> list[Reading]:
    """Make the reading of a decoder: decode the translation [2, T] again, as beam search decodes others."""
    module, target = model.module, model.target
    if target is None or not isinstance(module, Translator) or not isinstance(module.decoder, NSEDecoder):
        return []
    ids = [word_id for word_id in value[0].tolist() if word_id != Vocabulary.PAD]
    words = tuple(target.words[word_id] for word_id in ids)
    ended = len(ids) < module.config.max_target_words  # otherwise it was truncated, and no step wrote an end
    previous, outputs = (ids, (*words, LAST)) if ended else (ids[:-1], words)
    source, state = module.decoder.begin(*module.encode_source(*inputs))
    steps = []
    for word_id in (BEGIN, *previous):
        vector = module.target(torch.tensor([word_id], device=model.device))
        steps.append(module.decoder.compute_keys(vector, source, state))
        state, _ = module.decoder.step(vector, source, state)
    keys = (torch.cat(of_memory).cpu().numpy() for of_memory in zip(*steps, strict=True))
    memories = tuple(make_shared_access(part, z) for part, z in zip(encoders, keys, strict=True))
    return [Reading("translation", (START, *words[: len(previous)]), memories, outputs)]


def make_encoder_readings(
    module: nn.Module,
    calls: Calls,
    encoder: str,
    texts: Sequence[Text],
    shared: Sequence[OrderedReading] = (),
) -> list[OrderedReading]:
    """Make the readings of the NSEs whose names begin with `encoder`, and of `shared` memories."""
    names, readings = [name for name in calls if name.startswith(encoder)], []
    for row, text in enumerate(texts):
        for i, name in enumerate(names):
            named = replace(text, name=f"{text.name}, {DIRECTIONS[i]}") if len(names) > 1 else text
            nse: Any = module.get_submodule(name)
            readings.append(make_reading(nse, calls[name], row, named, i > 0, shared[i : i + 1]))
    return readings


def make_reading(
    nse: NSE, encoding: Encoding, row: int, text: Text, backwards: bool, shared: Sequence[OrderedReading]
) -> OrderedReading:
    """Make the reading of one row of a batch, from the last word to the first if `backwards`."""
    assert encoding.keys is not None
    words, blanks, starts = text.words, name_slots(BLANK, nse.blank), name_slots(START, nse.start)
    if nse.padding == "paper":
        words = (*[PADDING] * (encoding.keys.shape[1] - len(starts) - len(words)), *words)
    front = len(blanks) + len(starts)
    order = list(range(len(words)))[:: -1 if backwards else 1]  # of the words in the steps
    steps = (*starts, *(words[position] for position in order))
    own_slots = (*range(len(blanks), front), *(front + position for position in order))
    columns = [*range(front), *(front + position for position in order)]  # a reversal is its own inverse
    z = encoding.keys[row, : len(steps), : front + len(words)].cpu().numpy()
    memories = [Access(text.name, (*blanks, *starts, *words), z[:, columns], own_slots)]
    for part, keys in zip(shared, encoding.shared_keys, strict=True):
        memories.append(make_shared_access(part, keys[row, : len(steps), : len(part.columns)].cpu().numpy()))
    return OrderedReading(Reading(text.name, steps, tuple(memories)), columns)


def make_shared_access(part: OrderedReading, keys: NDArray[np.float32]) -> Access:
    """Make the access to the memory of an earlier reading with keys z [T, L], in the order of the tensor."""
    memory = part.reading.memories[0]
    return Access(memory.name, memory.slots, keys[:, part.columns], held=tuple(part.reading.final(memory)))


def name_slots(name: str, learned: nn.Parameter | None) -> tuple[str, ...]:
    """Name learned words or slots, if there are any."""
    count = 0 if learned is None else len(learned)
    return (name,) if count == 1 else tuple(f"{name[:-1]}{n}>" for n in range(1, count + 1))
