"""Evaluation of a trained model on a split of its data set, or on other data."""

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
from nse.inference.batches import Precision, compute_rows
from nse.inference.folder import load
from nse.inference.inputs import Request
from nse.inference.kinds import join_words, refuse_non_finite_scores
from nse.inference.model import Model
from nse.metrics import bleu, ranking
from nse.metrics.trec import write_trec
from nse.nn.translator import TranslationConfig
from nse.tasks import find_source
from nse.tasks.documents import mean_squared_error
from nse.tasks.source import OwnFiles
from nse.tasks.task import make_labelled_rows
from nse.tasks.translation import spell_pairs
from nse.text.subwords import Pieces
from nse.text.tensors import LabelledRows
from nse.text.vocabulary import Vocabulary
from nse.train.lock import find_run_folder, lock_run


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
    precision: Precision = "float32",
) -> dict[str, Any]:
    """Evaluate a model on a split of its data set, or on other data; return figures that JSON can hold.

    Args:
        name: A run, a model folder, or the name of a shipped model.
        split: Split to evaluate; by default test, or dev if the model's own data has no test split.
        data: Folder of the published data.
        batch: Number of rows per batch.
        device: Device to compute on.
        trec: For a ranking model, prefix of the files to write its scores to.
        on: For a translator, another data set; for a model of own data, another file.
        beam: For a translator, beam size.
        columns: For another file, its columns, such as `text=review,label=stars`.
        precision: Type in which matrices are multiplied, as for `nse.load`.

    Returns:
        model, task, data, split, precision, n, published, seconds (of scoring), longest (number of words of a
        sentence that are read), cut (number of sentences that are longer). For a classifier also accuracy,
        right, labels, by_label and confusion (a row per right answer); for documents mse, in stars; for a
        ranking model what `nse.metrics.ranking` computes; for a translator bleu (from 0 to 1), signature,
        sentences_per_second and beam.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    model = load(name, device, precision=precision)
    translates = model.kind.translates
    if trec and not model.kind.ranks:
        raise InputError(f"trec: {name} {model.does} and does not rank")
    source = find_source(model, on, columns)
    is_own_data = isinstance(source, OwnFiles)
    if is_own_data and on and split:
        raise InputError("split: a file given by `on` has no splits")
    if is_own_data and columns and not on:
        raise InputError("columns: those of the model's own data are known; give them with another file (on)")
    if not is_own_data and columns is not None:
        raise InputError(f"columns: {name} was trained on published data, whose columns are known")
    for argument, value in (("on", None if is_own_data else on), ("beam", beam)):
        if value is not None and not translates:
            raise InputError(f"{argument}: {name} {model.does}; only a translator takes it")
    if translates and not is_own_data and not get_data_set(source.name).translation:
        others = ", ".join(key for key, entry in DATA.items() if entry.translation)
        raise InputError(f"on: {source.name} has no translations; there are {others}")
    prepared, split = source.prepare_split(split, data, model.config)
    check_data(model, prepared, split)
    if translates:
        figures = score_translations(model, prepared, split, batch, beam)
    else:
        figures = score_rows(model, prepared, split, batch, trec)
    published = int(prepared.information["rows"][split]["published"])
    about = {"model": name, "task": model.config.task, "data": prepared.name, "split": split}
    about["precision"] = model.precision
    return about | figures | {"published": published}


def check_data(model: Model, prepared: PreparedData, split: str) -> None:
    """Raise an error if the data has no such split, or was tokenized in another way than the model's."""
    if split not in prepared.splits:
        suggestion = suggest(split, prepared.splits)
        hint = f"did you mean {suggestion}? " if suggestion else ""
        raise InputError(
            f"split: there is no {split!r}; {hint}there are {', '.join(sorted(prepared.splits))}"
        )
    tokenizer = prepared.information["tokenizer"]
    if model.config.tokenizer != tokenizer:
        raise ModelError(
            f"{model.folder}: the model uses the tokenizer {model.config.tokenizer}, and {prepared.name} was "
            f"prepared with {tokenizer}"
        )


def score_translations(
    model: Model, prepared: PreparedData, split: str, batch: int, beam: int | None
) -> dict[str, Any]:
    """Translate a split, and compute BLEU against its references."""
    config = model.config.model
    assert isinstance(config, TranslationConfig)
    beam = config.beam if beam is None else beam
    if beam < 1:
        raise InputError(f"beam: expected at least 1, got {beam}")
    pairs, max_words = spell_pairs(prepared, split), model.max_words
    sources = [source.split(" ") for source, _ in pairs]
    if model.config.pieces:
        sources = list(map(Pieces(model.vocabulary.words).split_all, sources))
    start_time = time.perf_counter()
    truncated = [tuple(words[:max_words]) for words in sources]
    rows = [(tuple(model.vocabulary.encode(words)),) for words in truncated]
    outputs = model.compute(Request("translations", rows, list, beam), batch).tolist()
    translations = [
        " ".join(join_words(model, words, *output)) for words, output in zip(truncated, outputs, strict=True)
    ]
    seconds = time.perf_counter() - start_time
    return {
        "bleu": bleu.bleu(translations, [target for _, target in pairs]),
        "signature": bleu.get_signature(),
        "beam": beam,
        "n": len(pairs),
        "seconds": round(seconds, 3),
        "sentences_per_second": round(len(pairs) / seconds, 1),
        "cut": sum(len(words) > max_words for words in sources),
        "longest": max_words,
    }


def score_rows(
    model: Model, prepared: PreparedData, split: str, batch: int, trec: Path | None
) -> dict[str, Any]:
    """Score the rows of a split, and compute accuracy, or MAP and MRR."""
    columns, max_words = prepared.splits[split], model.max_words
    if model.kind.has_sentences:  # long sentences are split, not truncated
        max_words = model.config.model.max_words
    if missing := [name for name in model.inputs if name not in columns.texts]:
        raise ModelError(f"{model.folder}: the model needs a {missing[0]}, and {prepared.name} has none")
    ids = np.array(model.vocabulary.encode(prepared.vocabulary.words))
    ids[Vocabulary.PAD] = Vocabulary.PAD
    texts = {name: columns.texts[name]._replace(ids=ids[columns.texts[name].ids]) for name in model.inputs}
    rows = make_labelled_rows(columns._replace(texts=texts), model.inputs, max_words)
    if rows.groups is None:
        if missing := [label for label in prepared.labels if label not in model.labels]:
            raise ModelError(
                f"{model.folder}: the model does not have the data's labels {', '.join(missing)}"
            )
        label_ids = torch.tensor([model.labels.index(label) for label in prepared.labels])
        rows = rows._replace(labels=label_ids[rows.labels])
    start_time = time.perf_counter()
    scores = compute_rows(model.module, rows, batch, model.device, model.precision)
    seconds = time.perf_counter() - start_time
    refuse_non_finite_scores(scores, "rows counted from 0:", range(len(scores)))
    return {
        **(
            compute_accuracy(scores, rows.labels, model)
            if rows.groups is None
            else compute_ranking(scores, rows, trec)
        ),
        "n": len(rows.labels),
        "seconds": round(seconds, 3),
        "cut": sum(int((text.lengths > max_words).sum()) for text in texts.values() if text.counts is None),
        "longest": max_words,
    }


def compute_accuracy(scores: Tensor, labels: Tensor, model: Model) -> dict[str, Any]:
    """Compute accuracy, confusion matrix and, for documents, the squared error of scores [N, labels]."""
    n = len(model.labels)
    confusion = torch.bincount(labels * n + scores.argmax(dim=-1), minlength=n * n).view(n, n)
    by_label = {
        label: {"n": sum(row), "right": row[i], "accuracy": row[i] / sum(row) if any(row) else None}
        for i, (label, row) in enumerate(zip(model.labels, confusion.tolist(), strict=True))
    }
    hits = int(confusion.diagonal().sum())
    error: dict[str, float | None] = {"mse": None} if model.kind.has_sentences else {}
    if error and len(labels):
        with suppress(ValueError):  # labels that are not numbers of stars
            error["mse"] = mean_squared_error(scores, labels, model.labels)
    return {
        "accuracy": hits / len(labels) if len(labels) else None,  # JSON has no NaN
        **error,
        "right": hits,
        "labels": model.labels,
        "by_label": by_label,
        "confusion": confusion.tolist(),
    }


def compute_ranking(scores: Tensor, rows: LabelledRows, trec: Path | None) -> dict[str, Any]:
    """Compute MAP and MRR of scores [N, 1], and write the scores if a prefix is given."""
    assert rows.groups is not None
    columns = scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy()
    written = {}
    if trec:
        run = find_run_folder(trec)
        with explain_errors(f"{trec} cannot be written"), lock_run(run) if run else nullcontext():
            written = {"scores": str(write_trec(trec, *columns))}
    return ranking.compute_measures(*columns) | ranking.count_questions(*columns[1:]) | written


def describe_evaluation(result: dict[str, Any]) -> str:
    """Return the figures as a line of text."""
    n, counts, speed = result["n"], f"{result['n']:,} pairs", ""
    if "bleu" in result:
        figures = f"BLEU {100 * result['bleu']:.2f} ({result['signature']}, beam {result['beam']})"
        speed = f" ({result['sentences_per_second']:,.0f} sentences/s)"
    elif "questions" in result:
        figures = describe_means(result)
    else:
        counts = f"{result['right']:,} of {n:,} right"
        figures = "no accuracy" if result["accuracy"] is None else f"{100 * result['accuracy']:.2f}%"
        figures += f", MSE {result['mse']:.3f}" if result.get("mse") is not None else ""
    published = f" of {result['published']:,} published" if result["published"] > n else ""
    truncated = (
        f"; {result['cut']:,} sentences truncated to {result['longest']:,} words" if result["cut"] else ""
    )
    return (
        f"{result['model']}: {figures} on {result['data']} {result['split']}, {counts}{published}, "
        f"{result['seconds']:.2f} s{speed}{truncated}"
    )


def describe_means(figures: dict[str, Any]) -> str:
    """Return as text MAP and MRR of the questions with a right answer, and of those also with a wrong one."""
    mixed = f"{figures['map_mixed']:.4f}, {figures['mrr_mixed']:.4f} of the {figures['mixed']:,}"
    return (
        f"MAP {figures['map']:.4f}, MRR {figures['mrr']:.4f} of {figures['questions']:,} questions "
        f"({mixed} that also have wrong answers)"
    )
