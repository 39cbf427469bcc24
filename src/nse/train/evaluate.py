"""How well a model does on a split of its data set."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nse import hub
from nse.data.prepare import obtain
from nse.data.prepared import Column
from nse.errors import InputError, ModelError, RunError
from nse.tasks import load_recipe, logic
from nse.text.vocabulary import Vocabulary

LONGEST = 1_000
"""Words of a sentence that are read, which bounds the time; how many sentences were cut is told."""

USUAL = 64
"""Words of a long sentence: a batch of longer ones has fewer of them, which bounds the memory."""


class Split(NamedTuple):
    """What a model is asked.

    Attributes:
        premise: The ids of each premise, in the model's vocabulary.
        hypothesis: Likewise.
        labels: [N], the right answers by their place among the model's labels.
        published: How many pairs the split has when whole.
    """

    premise: list[Tensor]
    hypothesis: list[Tensor]
    labels: Tensor
    published: int


def evaluate(
    name: str, split: str = "test", data: Path | None = None, batch: int = 512, device: str = "auto"
) -> dict[str, Any]:
    """Score a model on a split of the data set that it was trained on.

    Args:
        name: A shipped model's name, a run or a model folder.
        split: Such as "dev" or "test".
        data: The data folder; `None` means NSE_DATA, else ./data.
        batch: Pairs at a time.
        device: "auto", "cpu" or "cuda".

    Returns:
        Figures that JSON can hold: model, task, data, split, accuracy, right, n, published, seconds (of
        scoring), cut (sentences that were too long), labels, by_label, and confusion, in which each row is a
        right answer and each column the model's.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    loaded = hub.load(name, device)
    asked = questions(loaded, split, data)
    started = time.perf_counter()
    answers = predicted(loaded.model, asked, batch)
    seconds = time.perf_counter() - started
    labels, n = loaded.config.labels, len(asked.labels)
    confusion = torch.zeros(len(labels), len(labels), dtype=torch.long)
    confusion.index_put_((asked.labels, answers), torch.ones(n, dtype=torch.long), accumulate=True)
    right = confusion.diagonal()
    return {
        "model": name,
        "task": loaded.config.task,
        "data": loaded.config.data,
        "split": split,
        "accuracy": share(int(right.sum()), n),
        "right": int(right.sum()),
        "n": n,
        "published": asked.published,
        "seconds": round(seconds, 3),
        "cut": sum(len(text) > LONGEST for text in (*asked.premise, *asked.hypothesis)),
        "labels": labels,
        "by_label": {
            label: {"n": int(row.sum()), "right": int(row[i]), "accuracy": share(int(row[i]), int(row.sum()))}
            for i, (label, row) in enumerate(zip(labels, confusion, strict=True))
        },
        "confusion": confusion.tolist(),
    }


def describe(result: dict[str, Any]) -> str:
    """The figures in a line."""
    accuracy = "no accuracy" if result["accuracy"] is None else f"{100 * result['accuracy']:.2f}%"
    whole = f" of {result['published']:,} published" if result["published"] != result["n"] else ""
    cut = f"; {result['cut']:,} sentences cut to {LONGEST:,} words" if result["cut"] else ""
    return (
        f"{result['model']}: {accuracy} on {result['data']} {result['split']}, "
        f"{result['right']:,} of {result['n']:,} pairs{whole}, {result['seconds']:.2f} s{cut}"
    )


def share(part: int, whole: int) -> float | None:
    """A part of a whole; `None` of nothing, which JSON can hold where NaN cannot be."""
    return part / whole if whole else None


def questions(loaded: hub.Model, split: str, data: Path | None) -> Split:
    """A split of the model's data set, as ids of the model's own vocabulary."""
    if loaded.config.data == "logic":
        return generated(loaded, split)
    if not loaded.config.data:
        raise ModelError(
            f"{loaded.folder}: config.json names no data set, so there is nothing to score it on"
        )
    prepared = obtain(loaded.config.data, None, data)
    known(split, prepared.splits)
    if prepared.information["tokenizer"] != loaded.config.tokenizer:
        raise ModelError(
            f"{loaded.folder}: reads words as {loaded.config.tokenizer} makes them, and {prepared.name} was "
            f"prepared by {prepared.information['tokenizer']}"
        )
    ids = np.array(loaded.vocabulary.encode(prepared.vocabulary.words))
    ids[Vocabulary.PAD] = Vocabulary.PAD
    columns = prepared.splits[split]
    return Split(
        mapped(columns.texts["premise"], ids),
        mapped(columns.texts["hypothesis"], ids),
        places(loaded, prepared.labels)[torch.from_numpy(columns.labels).long()],
        int(prepared.information["rows"][split]["published"]),
    )


def mapped(column: Column, ids: Any) -> list[Tensor]:
    """The texts of a column, with these ids for those of the prepared file."""
    return list(torch.from_numpy(ids[column.ids]).split(column.lengths.tolist()))


def generated(loaded: hub.Model, split: str) -> Split:
    """A split of the built-in corpus: of the run that the model belongs to, or else the default one."""
    recipe = loaded.folder.parent / "recipe.toml"
    run = load_recipe(str(recipe)) if recipe.is_file() else None
    sizes = run.data if isinstance(run, logic.LogicRecipe) else logic.LogicData()
    known(split, [name for name in vars(sizes) if name != "seed"])
    pairs = logic.corpus(sizes)

    def encoded(text: str) -> Tensor:
        return torch.tensor(loaded.vocabulary.encode(loaded.tokenize(text)), dtype=torch.long)

    return Split(
        [encoded(pair.premise) for pair in pairs[split]],
        [encoded(pair.hypothesis) for pair in pairs[split]],
        places(loaded, logic.LABELS)[torch.tensor([pair.label for pair in pairs[split]], dtype=torch.long)],
        len(pairs[split]),
    )


def known(split: str, splits: Sequence[str] | dict[str, Any]) -> None:
    """Refuse a split that the data does not have."""
    if split not in splits:
        near = get_close_matches(split, splits, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"split: there is no {split!r}; {hint}there are {', '.join(sorted(splits))}")


def places(loaded: hub.Model, labels: Sequence[str]) -> Tensor:
    """Where each label of the data stands among the model's."""
    if missing := [label for label in labels if label not in loaded.config.labels]:
        raise ModelError(f"{loaded.folder}: the model does not know the data's labels {', '.join(missing)}")
    return torch.tensor([loaded.config.labels.index(label) for label in labels])


@torch.no_grad()
def predicted(model: nn.Module, asked: Split, batch: int) -> Tensor:
    """The label with the highest score for each pair [N], in the order of the pairs."""
    device = next(model.parameters()).device
    answers = torch.zeros(len(asked.labels), dtype=torch.long, device=device)
    finite = torch.ones(len(asked.labels), dtype=torch.bool, device=device)
    for rows in batches(asked, batch):
        index = torch.tensor(rows, device=device)
        scores = model(*padded(asked.premise, rows, device), *padded(asked.hypothesis, rows, device))
        answers[index], finite[index] = scores.argmax(dim=-1), scores.isfinite().all(dim=-1)
    if not bool(finite.all()):  # waits for the device, once
        first = (~finite).nonzero().flatten()[:5].tolist()
        raise RunError(f"the model's scores are NaN or infinite, first for the pairs {first}, counted from 0")
    return answers.cpu()


def batches(asked: Split, batch: int) -> Iterator[list[int]]:
    """Pairs of similar length, and no more words at once than a batch of usual ones has."""
    lengths = [
        min(max(map(len, pair)), LONGEST) for pair in zip(asked.premise, asked.hypothesis, strict=True)
    ]
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if len(rows) == batch or (len(rows) + 1) * lengths[row] > batch * USUAL:
            if rows:
                yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def padded(texts: list[Tensor], rows: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Some texts as ids [B, T] and lengths [B]."""
    chosen = [texts[row][:LONGEST] for row in rows]
    lengths = torch.tensor([len(text) for text in chosen])
    return pad_sequence(chosen, batch_first=True).to(device), lengths.to(device)
