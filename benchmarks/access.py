"""Which parts of speech are the most and the least accessed slots of a memory, over the sentences of SNLI.

    python benchmarks/access.py --data DATA

The paper says content words most, function words least (section 5.1). Each different sentence of the split
counts once; how much a slot is accessed is the sum of its weights z over all steps.
"""

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from parts_of_speech import FUNCTION, group_of, part_of

import nse
from nse.data.prepare import load_or_prepare
from nse.files import write_text
from nse.inference.inputs import stack_rows
from nse.inference.tracing import START, record_calls
from nse.nn.pair import PairClassifier
from nse.text.sampler import draw_bounded_batches

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "access.json"


def sentences(split: str, data: Path | None) -> list[list[str]]:
    """The different sentences of a split, as words."""
    prepared = load_or_prepare("snli", None, data)
    found: dict[tuple[str, ...], None] = {}
    for column in prepared.splits[split].texts.values():
        ends = column.lengths.cumsum()
        for end, length in zip(ends.tolist(), column.lengths.tolist(), strict=True):
            ids = column.ids[end - length : end].tolist()
            found[tuple(prepared.vocabulary.words[each] for each in ids)] = None
    return [list(words) for words in found if words]


@torch.no_grad()
def accesses(loaded: nse.Model, texts: list[list[str]], batch: int = 128) -> list[list[float]]:
    """How much each slot of each sentence is accessed, the start word's first."""
    model = loaded.module
    assert isinstance(model, PairClassifier)
    encoder = model.encoder
    starts = 0 if encoder.nse[0].start is None else len(encoder.nse[0].start)
    labelled = stack_rows([(tuple(loaded.vocabulary.encode(words)),) for words in texts], has_sentences=False)
    found: list[list[float]] = [[] for _ in texts]
    for index in draw_bounded_batches(labelled, batch):
        ids, lengths = labelled.texts[0].select(index)
        with record_calls(model) as calls:
            encoder(model.embed(ids), lengths)
        keys = calls["encoder.nse.0"].keys
        assert keys is not None
        for row, length, z in zip(index.tolist(), lengths.tolist(), keys, strict=True):
            size = starts + length
            found[row] = z[:size, :size].double().sum(dim=0).tolist()
    return found


def counted(texts: list[list[str]], found: list[list[float]]) -> dict[str, Any]:
    """By part of speech: how many slots, how much they are accessed, how often the most and the least."""
    slots, most, least, sums = Counter(), Counter(), Counter(), defaultdict(float)
    for words, sums_of in zip(texts, found, strict=True):
        parts = [part_of(word) for word in [*[START] * (len(sums_of) - len(words)), *words]]
        for part, value in zip(parts, sums_of, strict=True):
            slots[part] += 1
            sums[part] += value
        most[parts[max(range(len(parts)), key=sums_of.__getitem__)]] += 1
        least[parts[min(range(len(parts)), key=sums_of.__getitem__)]] += 1
    parts = ["noun", "verb", "adjective", "adverb", "number", *FUNCTION, "punctuation", "start"]
    rows = {part: figures([part], slots, sums, most, least) for part in parts if slots[part]}
    groups = {name: [part for part in rows if group_of(part) == name] for name in ("content", "function")}
    return {
        "groups": {name: figures(parts, slots, sums, most, least) for name, parts in groups.items()},
        "parts": rows,
        "slots": sum(slots.values()),
        "sentences": len(texts),
    }


def figures(
    parts: list[str], slots: Counter[str], sums: dict[str, float], most: Counter[str], least: Counter[str]
) -> dict[str, float]:
    """Of some parts of speech together."""
    own = sum(slots[part] for part in parts)
    return {
        "share_of_slots": own / sum(slots.values()),
        "accesses_per_slot": sum(sums[part] for part in parts) / own,
        "share_of_most_accessed": sum(most[part] for part in parts) / sum(most.values()),
        "share_of_least_accessed": sum(least[part] for part in parts) / sum(least.values()),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="snli", help="a model of sentence pairs with an NSE")
    parser.add_argument("--split", default="test")
    parser.add_argument("--data", type=Path, help="folder of the published data (default: NSE_DATA, ./data)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    texts = sentences(given.split, given.data)
    found = counted(texts, accesses(nse.load(given.model), texts))
    result = {"model": given.model, "data": "snli", "split": given.split, **found}
    write_text(given.out, json.dumps(result, indent=1) + "\n")
    for name, row in {**found["groups"], **found["parts"]}.items():
        print(f"{name:12}", " ".join(f"{value:7.3f}" for value in row.values()))


if __name__ == "__main__":
    main()
