"""How well a model does on a split of its data set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nse import hub
from nse.api import columns, limit, refuse_not_finite, scored
from nse.data.prepare import obtain
from nse.errors import InputError, ModelError, RunError
from nse.metrics import ranking
from nse.tasks import load_recipe, logic
from nse.text.batching import Labelled, Texts
from nse.text.vocabulary import Vocabulary


class Asked(NamedTuple):
    """What a model is asked.

    Attributes:
        rows: As ids of the model's vocabulary; labels by their place among the model's.
        published: How many rows the split has when whole.
        cut: How many sentences were longer than is read.
    """

    rows: Labelled
    published: int
    cut: int = 0


def evaluate(
    name: str,
    split: str = "test",
    data: Path | None = None,
    batch: int = 512,
    device: str = "auto",
    trec: Path | None = None,
) -> dict[str, Any]:
    """Score a model on a split of the data set that it was trained on.

    Args:
        name: A shipped model's name, a run or a model folder.
        split: Such as "dev" or "test".
        data: The data folder; `None` means NSE_DATA, else ./data.
        batch: Rows at a time.
        device: "auto", "cpu" or "cuda".
        trec: For a model that ranks, write its scores to TREC.run and the right answers to TREC.qrels, for
            trec_eval; then it need not be installed here.

    Returns:
        Figures that JSON can hold: model, task, data, split, n, published, seconds (of scoring), longest (how
        many words of a sentence are read), cut (how many are longer). Of a classifier accuracy, right,
        labels, by_label, and confusion, in which each row is a right answer and each column the model's. Of a
        model that ranks what `nse.metrics.ranking` gives, and how many questions that is over.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    loaded = hub.load(name, device)
    longest = limit(loaded)
    asked = questions(loaded, split, data, longest)
    ranks = asked.rows.groups is not None
    if trec and not ranks:
        raise InputError(f"trec: {name} tells labels apart and ranks nothing")
    if ranks and not trec:
        ranking.needed()  # before minutes of scoring
    started = time.perf_counter()
    scores = scored(loaded.model, asked.rows, batch)
    seconds = time.perf_counter() - started
    refuse_not_finite(scores, "rows counted from 0:", range(len(scores)))
    return {
        "model": name,
        "task": loaded.config.task,
        "data": loaded.config.data,
        "split": split,
        **(
            ranked(scores, asked.rows, trec)
            if ranks
            else told_apart(scores, asked.rows, loaded.config.labels)
        ),
        "n": len(asked.rows.labels),
        "published": asked.published,
        "seconds": round(seconds, 3),
        "cut": asked.cut,
        "longest": longest,
    }


def told_apart(scores: Tensor, rows: Labelled, labels: Sequence[str]) -> dict[str, Any]:
    """How often the highest score [N, labels] is at the right label."""
    n = len(rows.labels)
    confusion = torch.zeros(len(labels), len(labels), dtype=torch.long)
    confusion.index_put_(
        (rows.labels, scores.argmax(dim=-1)), torch.ones(n, dtype=torch.long), accumulate=True
    )
    right = confusion.diagonal()
    return {
        "accuracy": share(int(right.sum()), n),
        "right": int(right.sum()),
        "labels": list(labels),
        "by_label": {
            label: {"n": int(row.sum()), "right": int(row[i]), "accuracy": share(int(row[i]), int(row.sum()))}
            for i, (label, row) in enumerate(zip(labels, confusion, strict=True))
        },
        "confusion": confusion.tolist(),
    }


def ranked(scores: Tensor, rows: Labelled, trec: Path | None) -> dict[str, Any]:
    """How high right answers are ranked by their scores [N, 1], where trec_eval is installed."""
    assert rows.groups is not None
    given = scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy()
    written = {}
    if trec:
        files = {ending: trec.with_name(f"{trec.name}.{ending}") for ending in ("run", "qrels")}
        try:
            ranking.write(files["run"], given[0], given[1])
            ranking.write_judgements(files["qrels"], given[1], given[2])
        except OSError as error:
            raise RunError(f"{trec} cannot be written: {error.strerror}") from None
        written = {"scores": str(files["run"])}
    figures = ranking.figures(*given) if ranking.available() else {}
    return figures | ranking.questions(*given[1:]) | written


def describe(result: dict[str, Any]) -> str:
    """The figures in a line."""
    whole = f" of {result['published']:,} published" if result["published"] != result["n"] else ""
    cut = f"; {result['cut']:,} sentences cut to {result['longest']:,} words" if result["cut"] else ""
    what = (
        f"{result['n']:,} pairs" if "right" not in result else f"{result['right']:,} of {result['n']:,} right"
    )
    return (
        f"{result['model']}: {describe_figures(result)} on {result['data']} {result['split']}, "
        f"{what}{whole}, {result['seconds']:.2f} s{cut}"
    )


def describe_figures(result: dict[str, Any]) -> str:
    """Accuracy, or MAP and MRR of both sets of questions."""
    if "questions" not in result:
        return "no accuracy" if result["accuracy"] is None else f"{100 * result['accuracy']:.2f}%"
    if "map" not in result:
        return f"scores in {result['scores']} (nse evaluate --scores, where trec_eval is installed)"
    return means(result)


def means(figures: dict[str, Any]) -> str:
    """MAP and MRR of the questions that have a right answer, and of those that also have a wrong one."""
    mixed = f"{figures['map_mixed']:.4f}, {figures['mrr_mixed']:.4f} of the {figures['mixed']:,}"
    return (
        f"MAP {figures['map']:.4f}, MRR {figures['mrr']:.4f} of {figures['questions']:,} questions "
        f"({mixed} with wrong ones too)"
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
    names = columns(loaded)
    prepared = obtain(loaded.config.data, None, data)
    known(split, prepared.splits)
    refuse_other_words(loaded, prepared.information["tokenizer"])
    ids = torch.tensor(loaded.vocabulary.encode(prepared.vocabulary.words))
    ids[Vocabulary.PAD] = Vocabulary.PAD
    found = prepared.splits[split]
    texts, cut = [], 0
    for name in names:
        lengths = torch.from_numpy(found.texts[name].lengths)
        texts.append(Texts.flat(ids[torch.from_numpy(found.texts[name].ids).long()], lengths, longest))
        cut += int((lengths > longest).sum())
    labels = torch.from_numpy(found.labels).long()
    groups = None if found.groups is None else torch.from_numpy(found.groups).long()
    if groups is None:
        labels = places(loaded, prepared.labels)[labels]
    published = int(prepared.information["rows"][split]["published"])
    return Asked(Labelled(tuple(texts), labels, groups), published, cut)


def generated(loaded: hub.Model, split: str) -> Asked:
    """A split of the built-in corpus: of the run that the model belongs to, or else the default one."""
    recipe = loaded.folder.parent / "recipe.toml"
    run = load_recipe(str(recipe)) if recipe.is_file() else None
    sizes = run.data if isinstance(run, logic.LogicRecipe) else logic.LogicData()
    known(split, [name for name in vars(sizes) if name != "seed"])
    refuse_other_words(loaded, "whitespace")
    rows = logic.tensors(logic.corpus(sizes)[split], loaded.vocabulary)
    labels = places(loaded, logic.LABELS)[rows.labels]
    return Asked(rows._replace(labels=labels), len(labels))


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
