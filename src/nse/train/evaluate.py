"""How well a model does on a split of its data set, or a translator on another one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nse.data.cache import Prepared
from nse.data.catalogue import DATA, data_set
from nse.errors import InputError, ModelError, explain_errors, suggest
from nse.inference import folder as hub
from nse.inference.batches import compute_rows
from nse.inference.inputs import limit
from nse.inference.kinds import refuse_not_finite, spell
from nse.inference.model import Model
from nse.inference.requests import Request
from nse.metrics import bleu, ranking
from nse.metrics.trec import write as write_trec
from nse.nn.translator import TranslationConfig
from nse.tasks import documents
from nse.tasks.model_data import find_source
from nse.tasks.source import DataSource, OwnFiles
from nse.tasks.task import read_rows
from nse.tasks.translation import spell_pairs
from nse.text.subwords import Pieces
from nse.text.tensors import Labelled
from nse.text.vocabulary import Vocabulary
from nse.train.lock import only_writer, run_of


class Asked(NamedTuple):
    """What a model is asked.

    Attributes:
        rows: As ids of the model's vocabulary; labels by their place among the model's.
        published: How many rows the split has when whole.
        longest: How many words of a sentence are read.
        cut: How many sentences were longer.
    """

    rows: Labelled
    published: int
    longest: int
    cut: int = 0


def evaluate(
    name: str,
    split: str | None = None,
    data: Path | None = None,
    batch: int = 512,
    device: str = "auto",
    trec: Path | None = None,
    on: str | None = None,
    beam: int | None = None,
    columns: str | None = None,
) -> dict[str, Any]:
    """Score a model on a split of the data set that it was trained on, or on another one.

    Args:
        name: A shipped model's name, a run or a model folder.
        split: Such as "dev" or "test", the default; dev where a user's own data has no test.
        data: The data folder; `None` means NSE_DATA, else ./data.
        batch: Rows at a time.
        device: "auto", "cpu" or "cuda".
        trec: For a model that ranks, write its scores to TREC.run and the right answers to TREC.qrels, for
            trec_eval.
        on: For a translator, another data set of translations; for a model of a user's own data, a file.
        beam: For a translator, how many translations of a sentence are followed at a time; as it is
            configured by default.
        columns: Of the file `on`, which column is what, as in `text=review,label=stars`; as in the model's
            run by default.

    Returns:
        Figures that JSON can hold: model, task, data, split, n, published, seconds (of scoring), longest (how
        many words of a sentence are read), cut (how many are longer). Of a classifier accuracy, right,
        labels, by_label, and confusion, in which each row is a right answer and each column the model's; of
        documents also mse, in stars. Of a model that ranks what `nse.metrics.ranking` gives, and how many
        questions that is over. Of a translator bleu (from 0 to 1), signature (how that is computed),
        sentences_per_second and beam.
    """
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    loaded = hub.load(name, device)
    if trec and not loaded.kind.ranks:
        raise InputError(f"trec: {name} {loaded.does} and ranks nothing")
    source = find_source(loaded, on, columns)
    own = isinstance(source, OwnFiles)
    if own and on and split:
        raise InputError("split: the file that --on names has none")
    if own and columns and not on:
        raise InputError("columns: those of the run are known; others go with a file that --on names")
    if not own and columns is not None:
        raise InputError(f"columns: {name} was trained on published data, whose columns are known")
    split = split or source.usual_split()
    if loaded.kind.translates:
        if not own and not data_set(source.name).translation:
            others = ", ".join(each for each, entry in DATA.items() if entry.translation)
            raise InputError(f"on: {source.name} holds no translations; there are {others}")
        prepared = prepare_split(loaded, source, split, data)
        return {"model": name, **evaluate_translator(loaded, split, prepared, batch, beam)}
    for option, value in (("on", None if own else on), ("beam", beam)):
        if value is not None:
            raise InputError(f"{option}: {name} {loaded.does}; only a translator takes it")
    prepared = prepare_split(loaded, source, split, data)
    asked = questions(loaded, split, prepared)
    ranks = asked.rows.groups is not None
    started = time.perf_counter()
    scores = compute_rows(loaded.module, asked.rows, batch, loaded.device)
    seconds = time.perf_counter() - started
    refuse_not_finite(scores, "rows counted from 0:", range(len(scores)))
    return {
        "model": name,
        "task": loaded.config.task,
        "data": prepared.name,
        "split": split,
        **(ranked(scores, asked.rows, trec) if ranks else told_apart(scores, asked.rows, loaded)),
        "n": len(asked.rows.labels),
        "published": asked.published,
        "seconds": round(seconds, 3),
        "cut": asked.cut,
        "longest": asked.longest,
    }


def evaluate_translator(
    loaded: Model, split: str, prepared: Prepared, batch: int, beam: int | None
) -> dict[str, Any]:
    """What is told of a translator: its translations are compared with the data's own words."""
    config = loaded.config.model
    assert isinstance(config, TranslationConfig)
    beam = config.beam if beam is None else beam
    if beam < 1:
        raise InputError(f"beam: expected at least 1, got {beam}")
    pairs, longest = spell_pairs(prepared, split), limit(loaded)
    sources = read_by(loaded, [source.split(" ") for source, _ in pairs])
    started = time.perf_counter()
    kept = [tuple(words[:longest]) for words in sources]
    rows = [(tuple(loaded.vocabulary.encode(words)),) for words in kept]
    found = loaded.compute(Request("translations", rows, list, beam), batch).tolist()
    written = [" ".join(spell(loaded, words, *row)) for words, row in zip(kept, found, strict=True)]
    seconds = time.perf_counter() - started
    return {
        "task": loaded.config.task,
        "data": prepared.name,
        "split": split,
        "bleu": bleu.bleu(written, [target for _, target in pairs]),
        "signature": bleu.signature(),
        "beam": beam,
        "n": len(pairs),
        "published": int(prepared.information["rows"][split]["published"]),
        "seconds": round(seconds, 3),
        "sentences_per_second": round(len(pairs) / seconds, 1),
        "cut": sum(len(words) > longest for words in sources),
        "longest": longest,
    }


def prepare_split(loaded: Model, source: DataSource, split: str, data: Path | None) -> Prepared:
    """Read a split, which must be there, in the words that a model reads."""
    prepared = source.prepare_split(split, data, loaded.config)
    known(split, prepared.splits)
    refuse_other_words(loaded, prepared.information["tokenizer"], prepared.name)
    return prepared


def read_by(loaded: Model, sentences: list[list[str]]) -> list[list[str]]:
    """Sentences that are words already, cut into pieces where the model reads such."""
    if not loaded.config.pieces:
        return sentences
    return list(map(Pieces(loaded.vocabulary.words).cut_all, sentences))


def told_apart(scores: Tensor, rows: Labelled, loaded: Model) -> dict[str, Any]:
    """How often the highest score [N, labels] is at the right label, and of documents how far it is off."""
    n, labels = len(rows.labels), loaded.labels
    confusion = torch.zeros(len(labels), len(labels), dtype=torch.long)
    confusion.index_put_(
        (rows.labels, scores.argmax(dim=-1)), torch.ones(n, dtype=torch.long), accumulate=True
    )
    right = confusion.diagonal()
    return {
        "accuracy": share(int(right.sum()), n),
        **({"mse": squared_error(scores, rows.labels, labels)} if loaded.kind.has_sentences else {}),
        "right": int(right.sum()),
        "labels": list(labels),
        "by_label": {
            label: {"n": int(row.sum()), "right": int(row[i]), "accuracy": share(int(row[i]), int(row.sum()))}
            for i, (label, row) in enumerate(zip(labels, confusion, strict=True))
        },
        "confusion": confusion.tolist(),
    }


def squared_error(scores: Tensor, right: Tensor, labels: Sequence[str]) -> float | None:
    """The mean squared error of labels that are numbers of stars; `None` of no rows, or of other labels."""
    try:
        return documents.squared_error(scores, right, labels) if len(right) else None
    except ValueError:
        return None


def ranked(scores: Tensor, rows: Labelled, trec: Path | None) -> dict[str, Any]:
    """How high right answers are ranked by their scores [N, 1]."""
    assert rows.groups is not None
    given = scores[:, 0].numpy(), rows.groups.numpy(), rows.labels.numpy()
    written: dict[str, str] = {}
    if trec:
        run = run_of(trec)
        with explain_errors(f"{trec} cannot be written"), only_writer(run) if run else nullcontext():
            written = {"scores": str(write_trec(trec, *given))}
    return ranking.figures(*given) | ranking.questions(*given[1:]) | written


def describe(result: dict[str, Any]) -> str:
    """The figures in a line."""
    whole = f" of {result['published']:,} published" if result["published"] > result["n"] else ""
    cut = f"; {result['cut']:,} sentences cut to {result['longest']:,} words" if result["cut"] else ""
    what = (
        f"{result['n']:,} pairs" if "right" not in result else f"{result['right']:,} of {result['n']:,} right"
    )
    speed = f" ({result['sentences_per_second']:,.0f} sentences/s)" if "bleu" in result else ""
    return (
        f"{result['model']}: {describe_figures(result)} on {result['data']} {result['split']}, "
        f"{what}{whole}, {result['seconds']:.2f} s{speed}{cut}"
    )


def describe_figures(result: dict[str, Any]) -> str:
    """Accuracy, of documents and the error in stars; MAP and MRR of both sets of questions; or BLEU."""
    if "bleu" in result:
        return f"BLEU {100 * result['bleu']:.2f} ({result['signature']}, beam {result['beam']})"
    if "questions" not in result:
        error = f", MSE {result['mse']:.3f}" if result.get("mse") is not None else ""
        return "no accuracy" if result["accuracy"] is None else f"{100 * result['accuracy']:.2f}%{error}"
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


def questions(loaded: Model, split: str, prepared: Prepared) -> Asked:
    """A split of a data set as ids of the model's own vocabulary."""
    ids = np.array(loaded.vocabulary.encode(prepared.vocabulary.words))
    ids[Vocabulary.PAD] = Vocabulary.PAD
    found, longest = prepared.splits[split], limit(loaded)
    if missing := [name for name in loaded.inputs if name not in found.texts]:
        raise ModelError(f"{loaded.folder}: takes a {missing[0]}, and there is none in {prepared.name}")
    if loaded.kind.has_sentences:  # read in pieces: no word is lost
        longest = loaded.config.model.longest
    given = {name: found.texts[name]._replace(ids=ids[found.texts[name].ids]) for name in loaded.inputs}
    cut = sum(int((each.lengths > longest).sum()) for each in given.values() if each.counts is None)
    rows = read_rows(found._replace(texts=given), loaded.inputs, longest)
    if rows.groups is None:
        rows = rows._replace(labels=places(loaded, prepared.labels)[rows.labels])
    return Asked(rows, int(prepared.information["rows"][split]["published"]), longest, cut)


def refuse_other_words(loaded: Model, tokenizer: str, data: str) -> None:
    """Refuse data whose words were made in another way than the model's."""
    if loaded.config.tokenizer != tokenizer:
        raise ModelError(
            f"{loaded.folder}: reads words as {loaded.config.tokenizer} makes them, and "
            f"{data} was prepared by {tokenizer}"
        )


def known(split: str, splits: Sequence[str] | dict[str, Any]) -> None:
    """Refuse a split that the data does not have."""
    if split not in splits:
        near = suggest(split, splits)
        hint = f"did you mean {near}? " if near else ""
        raise InputError(f"split: there is no {split!r}; {hint}there are {', '.join(sorted(splits))}")


def places(loaded: Model, labels: Sequence[str]) -> Tensor:
    """Where each label of the data stands among the model's."""
    if missing := [label for label in labels if label not in loaded.config.labels]:
        raise ModelError(f"{loaded.folder}: the model does not know the data's labels {', '.join(missing)}")
    return torch.tensor([loaded.config.labels.index(label) for label in labels])
