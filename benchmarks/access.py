"""Count the parts of speech of the most and the least accessed memory slots, over the sentences of SNLI.

    python benchmarks/access.py --data DATA

The paper says content words most, function words least (section 5.1). Each distinct sentence of the split
counts once; the access of a slot is the sum of its weights z over all steps.
"""

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from parts_of_speech import FUNCTION, find_group, find_part

import nse
from nse.data.prepare import load_or_prepare
from nse.files import write_text
from nse.inference.inputs import stack_rows
from nse.inference.tracing import START, record_calls
from nse.nn.pair import PairClassifier
from nse.text.sampler import draw_bounded_batches

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "access.json"


def read_sentences(split: str, data: Path | None) -> list[list[str]]:
    """Return the distinct sentences of a split, as words."""
    prepared = load_or_prepare("snli", None, data)
    sentences: dict[tuple[str, ...], None] = {}
    for column in prepared.splits[split].texts.values():
        ends = column.lengths.cumsum()
        for end, length in zip(ends.tolist(), column.lengths.tolist(), strict=True):
            ids = column.ids[end - length : end].tolist()
            sentences[tuple(prepared.vocabulary.words[word_id] for word_id in ids)] = None
    return [list(words) for words in sentences if words]


@torch.no_grad()
def compute_accesses(loaded: nse.Model, texts: list[list[str]], batch: int = 128) -> list[list[float]]:
    """Compute the access of each slot of each sentence, start words first."""
    model = loaded.module
    assert isinstance(model, PairClassifier)
    encoder = model.encoder
    starts = 0 if encoder.nse[0].start is None else len(encoder.nse[0].start)
    labelled = stack_rows([(tuple(loaded.vocabulary.encode(words)),) for words in texts], has_sentences=False)
    accesses: list[list[float]] = [[] for _ in texts]
    for index in draw_bounded_batches(labelled, batch):
        ids, lengths = labelled.texts[0].select(index)
        with record_calls(model) as calls:
            encoder(model.embed(ids), lengths)
        keys = calls["encoder.nse.0"].keys
        assert keys is not None
        for row, length, z in zip(index.tolist(), lengths.tolist(), keys, strict=True):
            size = starts + length
            accesses[row] = z[:size, :size].double().sum(dim=0).tolist()
    return accesses


def count_parts(texts: list[list[str]], accesses: list[list[float]]) -> dict[str, Any]:
    """Count slots by part of speech, sum their accesses, and count the most and the least accessed ones."""
    slots, most, least, sums = Counter(), Counter(), Counter(), defaultdict(float)
    for words, slot_accesses in zip(texts, accesses, strict=True):
        parts = [find_part(word) for word in [*[START] * (len(slot_accesses) - len(words)), *words]]
        for part, value in zip(parts, slot_accesses, strict=True):
            slots[part] += 1
            sums[part] += value
        most[parts[max(range(len(parts)), key=slot_accesses.__getitem__)]] += 1
        least[parts[min(range(len(parts)), key=slot_accesses.__getitem__)]] += 1
    parts = ["noun", "verb", "adjective", "adverb", "number", *FUNCTION, "punctuation", "start"]
    rows = {part: compute_shares([part], slots, sums, most, least) for part in parts if slots[part]}
    groups = {name: [part for part in rows if find_group(part) == name] for name in ("content", "function")}
    return {
        "groups": {name: compute_shares(parts, slots, sums, most, least) for name, parts in groups.items()},
        "parts": rows,
        "slots": sum(slots.values()),
        "sentences": len(texts),
    }


def compute_shares(
    parts: list[str], slots: Counter[str], sums: dict[str, float], most: Counter[str], least: Counter[str]
) -> dict[str, float]:
    """Compute the figures of some parts of speech together."""
    count = sum(slots[part] for part in parts)
    return {
        "share_of_slots": count / sum(slots.values()),
        "accesses_per_slot": sum(sums[part] for part in parts) / count,
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
    args = parser.parse_args()
    texts = read_sentences(args.split, args.data)
    counts = count_parts(texts, compute_accesses(nse.load(args.model), texts))
    result = {"model": args.model, "data": "snli", "split": args.split, **counts}
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    for name, row in {**counts["groups"], **counts["parts"]}.items():
        print(f"{name:12}", " ".join(f"{value:7.3f}" for value in row.values()))


if __name__ == "__main__":
    main()
