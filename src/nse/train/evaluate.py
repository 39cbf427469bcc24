"""How well a model does on a split of its data set, or a translator on another one."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nse.data.cache import PreparedData
from nse.data.catalogue import DATA, get_data_set
from nse.errors import InputError, ModelError, explain_errors, suggest
from nse.inference.batches import compute_rows
from nse.inference.folder import load
from nse.inference.inputs import limit
from nse.inference.kinds import refuse_not_finite, spell
from nse.inference.model import Model
from nse.inference.requests import Request
from nse.metrics import bleu, ranking
from nse.metrics.trec import write as write_trec
from nse.nn.translator import TranslationConfig
from nse.tasks import find_source
from nse.tasks.documents import squared_error
from nse.tasks.source import OwnFiles
from nse.tasks.task import read_rows
from nse.tasks.translation import spell_pairs
from nse.text.subwords import Pieces
from nse.text.tensors import LabelledRows
from nse.text.vocabulary import Vocabulary
from nse.train.lock import only_writer, run_of


def evaluate(
    name: str,
    split: str | None = None,
    data: Path | None = None,
    batch: int = 512,
    device: str = "auto",
    *,
    trec: Path | None = None,
    on: str | None = None,
    beam: int | None = None,
    columns: str | None = None,
) -> dict[str, Any]:
    """Score a model on a split of its data set, or on another one; return figures that JSON can hold.

    The split is test by default, or dev where a user's own data has no test. A translator takes `on` (another
    data set) and `beam`, a model that ranks `trec` (where to write its scores), a model of a user's own data
    `on` (a file) and `columns` (which column of it is what, as in `text=review,label=stars`).

    Of every model there are model, task, data, split, n, published, seconds (of scoring), longest (how many
    words of a sentence are read), cut (how many are longer). Of a classifier accuracy, right, labels,
    by_label, and confusion (rows are right answers, columns the model's); of documents also mse, in stars. Of
    a model that ranks what `nse.metrics.ranking` gives. Of a translator bleu (from 0 to 1), signature,
    sentences_per_second and beam.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    model = load(name, device)
    translates = model.kind.translates
    if trec and not model.kind.ranks:
        raise InputError(f"trec: {name} {model.does} and ranks nothing")
    source = find_source(model, on, columns)
    own = isinstance(source, OwnFiles)
    if own and on and split:
        raise InputError("split: the file that `on` names has none")
    if own and columns and not on:
        raise InputError("columns: those of the run are known; others go with a file that `on` names")
    if not own and columns is not None:
        raise InputError(f"columns: {name} was trained on published data, whose columns are known")
    for option, value in (("on", None if own else on), ("beam", beam)):
        if value is not None and not translates:
            raise InputError(f"{option}: {name} {model.does}; only a translator takes it")
    if translates and not own and not get_data_set(source.name).translation:
        others = ", ".join(each for each, entry in DATA.items() if entry.translation)
        raise InputError(f"on: {source.name} holds no translations; there are {others}")
    prepared, split = source.prepare_split(split, data, model.config)
    refuse_other_data(model, prepared, split)
    if translates:
        figures = score_translations(model, prepared, split, batch, beam)
    else:
        figures = score_rows(model, prepared, split, batch, trec)
    published = int(prepared.information["rows"][split]["published"])
    about = {"model": name, "task": model.config.task, "data": prepared.name, "split": split}
    return about | figures | {"published": published}


def refuse_other_data(model: Model, prepared: PreparedData, split: str) -> None:
    """Refuse data without such a split, or with words that were made in another way than the model's."""
    if split not in prepared.splits:
        near = suggest(split, prepared.splits)
        hint = f"did you mean {near}? " if near else ""
        raise InputError(
            f"split: there is no {split!r}; {hint}there are {', '.join(sorted(prepared.splits))}"
        )
    tokenizer = prepared.information["tokenizer"]
    if model.config.tokenizer != tokenizer:
        raise ModelError(
            f"{model.folder}: reads words as {model.config.tokenizer} makes them, and "
            f"{prepared.name} was prepared by {tokenizer}"
        )


def score_translations(
    model: Model, prepared: PreparedData, split: str, batch: int, beam: int | None
) -> dict[str, Any]:
    """Compare translations of a split with the data's own words."""
    config = model.config.model
    assert isinstance(config, TranslationConfig)
    beam = config.beam if beam is None else beam
    if beam < 1:
        raise InputError(f"beam: expected at least 1, got {beam}")
    pairs, longest = spell_pairs(prepared, split), limit(model)
    sources = [source.split(" ") for source, _ in pairs]
    if model.config.pieces:
        sources = list(map(Pieces(model.vocabulary.words).split_all, sources))
    started = time.perf_counter()
    kept = [tuple(words[:longest]) for words in sources]
    rows = [(tuple(model.vocabulary.encode(words)),) for words in kept]
    found = model.compute(Request("translations", rows, list, beam), batch).tolist()
    written = [" ".join(spell(model, words, *row)) for words, row in zip(kept, found, strict=True)]
    seconds = time.perf_counter() - started
    return {
        "bleu": bleu.bleu(written, [target for _, target in pairs]),
        "signature": bleu.signature(),
        "beam": beam,
        "n": len(pairs),
        "seconds": round(seconds, 3),
        "sentences_per_second": round(len(pairs) / seconds, 1),
        "cut": sum(len(words) > longest for words in sources),
        "longest": longest,
    }


def score_rows(
    model: Model, prepared: PreparedData, split: str, batch: int, trec: Path | None
) -> dict[str, Any]:
    """Count how many labels of a split are right, or measure how high right answers are ranked."""
    columns, longest = prepared.splits[split], limit(model)
    if model.kind.has_sentences:  # read in pieces: no word is lost
        longest = model.config.model.longest
    if missing := [name for name in model.inputs if name not in columns.texts]:
        raise ModelError(f"{model.folder}: takes a {missing[0]}, and there is none in {prepared.name}")
    ids = np.array(model.vocabulary.encode(prepared.vocabulary.words))
    ids[Vocabulary.PAD] = Vocabulary.PAD
    texts = {name: columns.texts[name]._replace(ids=ids[columns.texts[name].ids]) for name in model.inputs}
    rows = read_rows(columns._replace(texts=texts), model.inputs, longest)
    if rows.groups is None:
        if missing := [label for label in prepared.labels if label not in model.labels]:
            raise ModelError(
                f"{model.folder}: the model does not know the data's labels {', '.join(missing)}"
            )
        places = torch.tensor([model.labels.index(label) for label in prepared.labels])
        rows = rows._replace(labels=places[rows.labels])
    started = time.perf_counter()
    scores = compute_rows(model.fast, rows, batch, model.device)
    seconds = time.perf_counter() - started
    refuse_not_finite(scores, "rows counted from 0:", range(len(scores)))
    return {
        **(count_right(scores, rows.labels, model) if rows.groups is None else rank(scores, rows, trec)),
        "n": len(rows.labels),
        "seconds": round(seconds, 3),
        "cut": sum(int((text.lengths > longest).sum()) for text in texts.values() if text.counts is None),
        "longest": longest,
    }


def count_right(scores: Tensor, right: Tensor, model: Model) -> dict[str, Any]:
    """Count how often the highest score [N, labels] is at the right label, and measure the error in stars."""
    n = len(model.labels)
    confusion = torch.bincount(right * n + scores.argmax(dim=-1), minlength=n * n).view(n, n)
    by_label = {
        label: {"n": sum(row), "right": row[place], "accuracy": row[place] / sum(row) if any(row) else None}
        for place, (label, row) in enumerate(zip(model.labels, confusion.tolist(), strict=True))
    }
    hits = int(confusion.diagonal().sum())
    error: dict[str, float | None] = {"mse": None} if model.kind.has_sentences else {}
    if error and len(right):
        with suppress(ValueError):  # labels that are no numbers of stars
            error["mse"] = squared_error(scores, right, model.labels)
    return {
        "accuracy": hits / len(right) if len(right) else None,  # which JSON can hold, and NaN not
        **error,
        "right": hits,
        "labels": model.labels,
        "by_label": by_label,
        "confusion": confusion.tolist(),
    }


def rank(scores: Tensor, rows: LabelledRows, trec: Path | None) -> dict[str, Any]:
    """Measure how high right answers are ranked by their scores [N, 1], and write those."""
    assert rows.groups is not None
    given = scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy()
    written = {}
    if trec:
        run = run_of(trec)
        with explain_errors(f"{trec} cannot be written"), only_writer(run) if run else nullcontext():
            written = {"scores": str(write_trec(trec, *given))}
    return ranking.figures(*given) | ranking.questions(*given[1:]) | written


def describe(result: dict[str, Any]) -> str:
    """Describe the figures in a line."""
    n, what, speed = result["n"], f"{result['n']:,} pairs", ""
    if "bleu" in result:
        figures = f"BLEU {100 * result['bleu']:.2f} ({result['signature']}, beam {result['beam']})"
        speed = f" ({result['sentences_per_second']:,.0f} sentences/s)"
    elif "questions" in result:
        figures = describe_means(result)
    else:
        what = f"{result['right']:,} of {n:,} right"
        figures = "no accuracy" if result["accuracy"] is None else f"{100 * result['accuracy']:.2f}%"
        figures += f", MSE {result['mse']:.3f}" if result.get("mse") is not None else ""
    whole = f" of {result['published']:,} published" if result["published"] > n else ""
    cut = f"; {result['cut']:,} sentences cut to {result['longest']:,} words" if result["cut"] else ""
    place = f"{result['data']} {result['split']}"
    return f"{result['model']}: {figures} on {place}, {what}{whole}, {result['seconds']:.2f} s{speed}{cut}"


def describe_means(figures: dict[str, Any]) -> str:
    """Describe MAP and MRR of the questions with a right answer, and of those that also have a wrong one."""
    mixed = f"{figures['map_mixed']:.4f}, {figures['mrr_mixed']:.4f} of the {figures['mixed']:,}"
    return (
        f"MAP {figures['map']:.4f}, MRR {figures['mrr']:.4f} of {figures['questions']:,} questions "
        f"({mixed} with wrong ones too)"
    )
