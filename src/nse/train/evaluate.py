"""How well a model does on a split of its data set."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nse import hub
from nse.data.prepare import obtain
from nse.errors import InputError, ModelError, RunError
from nse.tasks import load_recipe, logic
from nse.text.batching import Pairs, Texts, batches
from nse.text.vocabulary import Vocabulary

LONGEST = 1_000
"""Words of a sentence that a model reads if it sets no limit itself, which bounds the time."""

USUAL = 64
"""Words of a long sentence: a batch of longer ones has fewer of them, which bounds the memory."""


class Asked(NamedTuple):
    """What a model is asked.

    Attributes:
        pairs: As ids of the model's vocabulary; labels by their place among the model's.
        published: How many pairs the split has when whole.
        cut: How many sentences were longer than is read.
    """

    pairs: Pairs
    published: int
    cut: int = 0


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
        scoring), longest (how many words of a sentence are read), cut (how many are longer), labels,
        by_label, and confusion, in which each row is a right answer and each column the model's.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    loaded = hub.load(name, device)
    longest = loaded.config.model.longest or LONGEST
    asked = questions(loaded, split, data, longest)
    started = time.perf_counter()
    answers = predicted(loaded.model, asked.pairs, batch)
    seconds = time.perf_counter() - started
    labels, n = loaded.config.labels, len(asked.pairs.labels)
    confusion = torch.zeros(len(labels), len(labels), dtype=torch.long)
    confusion.index_put_((asked.pairs.labels, answers), torch.ones(n, dtype=torch.long), accumulate=True)
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
        "cut": asked.cut,
        "longest": longest,
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
    cut = f"; {result['cut']:,} sentences cut to {result['longest']:,} words" if result["cut"] else ""
    return (
        f"{result['model']}: {accuracy} on {result['data']} {result['split']}, "
        f"{result['right']:,} of {result['n']:,} pairs{whole}, {result['seconds']:.2f} s{cut}"
    )


def share(part: int, whole: int) -> float | None:
    """A part of a whole; `None` of nothing, which JSON can hold where NaN cannot be."""
    return part / whole if whole else None


def questions(loaded: hub.Model, split: str, data: Path | None, longest: int) -> Asked:
    """A split of the model's data set, as ids of the model's own vocabulary."""
    if loaded.config.data == "logic":
        return generated(loaded, split)
    if not loaded.config.data:
        raise ModelError(
            f"{loaded.folder}: config.json names no data set, so there is nothing to score it on"
        )
    prepared = obtain(loaded.config.data, None, data)
    known(split, prepared.splits)
    refuse_other_words(loaded, prepared.information["tokenizer"])
    ids = torch.tensor(loaded.vocabulary.encode(prepared.vocabulary.words))
    ids[Vocabulary.PAD] = Vocabulary.PAD
    columns = prepared.splits[split]
    lengths = {name: torch.from_numpy(column.lengths) for name, column in columns.texts.items()}
    texts = {
        name: Texts.flat(ids[torch.from_numpy(column.ids).long()], lengths[name], longest)
        for name, column in columns.texts.items()
    }
    labels = places(loaded, prepared.labels)[torch.from_numpy(columns.labels).long()]
    return Asked(
        Pairs(texts["premise"], texts["hypothesis"], labels),
        int(prepared.information["rows"][split]["published"]),
        sum(int((each > longest).sum()) for each in lengths.values()),
    )


def generated(loaded: hub.Model, split: str) -> Asked:
    """A split of the built-in corpus: of the run that the model belongs to, or else the default one."""
    recipe = loaded.folder.parent / "recipe.toml"
    run = load_recipe(str(recipe)) if recipe.is_file() else None
    sizes = run.data if isinstance(run, logic.LogicRecipe) else logic.LogicData()
    known(split, [name for name in vars(sizes) if name != "seed"])
    refuse_other_words(loaded, "whitespace")
    pairs = logic.tensors(logic.corpus(sizes)[split], loaded.vocabulary)
    labels = places(loaded, logic.LABELS)[pairs.labels]
    return Asked(pairs._replace(labels=labels), len(labels))


def refuse_other_words(loaded: hub.Model, tokenizer: str) -> None:
    """Refuse data whose words were made in another way than the model's."""
    if loaded.config.tokenizer != tokenizer:
        raise ModelError(
            f"{loaded.folder}: reads words as {loaded.config.tokenizer} makes them, and "
            f"{loaded.config.data} was prepared by {tokenizer}"
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
def predicted(model: nn.Module, pairs: Pairs, batch: int) -> Tensor:
    """The label with the highest score for each pair [N], in the order of the pairs."""
    device = next(model.parameters()).device
    answers = torch.zeros(len(pairs.labels), dtype=torch.long)
    finite = torch.ones(len(pairs.labels), dtype=torch.bool)
    for index in shares(pairs, batch):
        some = pairs.select(index).to(device)
        scores = model(*some.premise, *some.hypothesis).cpu()
        answers[index], finite[index] = scores.argmax(dim=-1), scores.isfinite().all(dim=-1)
    if not bool(finite.all()):
        first = (~finite).nonzero().flatten()[:5].tolist()
        raise RunError(f"the model's scores are NaN or infinite, first for the pairs {first}, counted from 0")
    return answers


def shares(pairs: Pairs, batch: int) -> Iterator[Tensor]:
    """Pairs of similar length, and no more words at once than a batch of usual ones has."""
    for index in batches(len(pairs.labels), batch, lengths=pairs.lengths):
        if len(index):
            longest = max(1, int(pairs.lengths[index].max()))
            yield from index.split(max(1, batch * USUAL // longest))
