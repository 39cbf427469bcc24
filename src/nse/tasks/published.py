"""What tasks on published data have in common: ids, counts and word vectors of a prepared data set."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nse.data.cache import Column, Columns, Prepared
from nse.errors import ConfigError
from nse.nn.text_model import TextConfig, TextModel, left_padded
from nse.tasks.task import Examples
from nse.text.tensors import Labelled, Texts
from nse.text.vocabulary import Vocabulary


def as_examples(prepared: Prepared, splits: dict[str, Labelled], model: TextConfig) -> Examples:
    """A prepared data set, its rows as tensors, for a model of these sizes."""
    return Examples(splits, prepared.vocabulary, about(prepared, splits), vectors_for(model, prepared))


def vectors_for(model: TextConfig, prepared: Prepared) -> Tensor:
    """The vectors of a prepared data set's words, if a model of these sizes takes them."""
    assert prepared.vectors is not None
    vectors = torch.from_numpy(prepared.vectors).float()
    width = model.words or model.size
    if vectors.shape[1] != width:
        raise ConfigError(
            f"{prepared.information['vectors']} has vectors of {vectors.shape[1]} numbers and the model "
            f"takes {width}: set model.words={vectors.shape[1]}"
        )
    return vectors


def about(prepared: Prepared, splits: dict[str, Labelled]) -> dict[str, Any]:
    """What the data is, for the run's folder."""
    rows = prepared.information["rows"]
    return {
        "name": prepared.name,
        "fingerprint": f"{prepared.fingerprint}-{len(splits['train'].labels)}",
        "counts": {name: len(split.labels) for name, split in splits.items()},
        "published": {name: rows[name]["published"] for name in splits},
        "vectors": prepared.information["vectors"],
        "coverage": prepared.information["coverage"],
    }


def labelled(columns: Columns, names: tuple[str, ...], model: TextConfig) -> Labelled:
    """One split, its texts in the order of `names`, cut and padded as the model reads them."""

    def texts(column: Column) -> Texts:
        found = Texts.flat(torch.from_numpy(column.ids), torch.from_numpy(column.lengths), model.longest)
        return Texts(*left_padded(*found, model.longest)) if model.padding == "paper" else found

    groups = None if columns.groups is None else torch.from_numpy(columns.groups).long()
    labels = torch.from_numpy(columns.labels).long()
    return Labelled(tuple(texts(columns.texts[name]) for name in names), labels, groups)


def give_vectors(model: TextModel, examples: Examples) -> None:
    """Give a model the vectors of its words."""
    assert examples.vectors is not None
    with torch.no_grad():
        model.embedding.weight.copy_(examples.vectors)
        # as a model folder keeps it
        model.embedding.weight[Vocabulary.PAD] = padding(examples.vectors).half()


def padding(vectors: Tensor) -> Tensor:
    """The vector that fills a sentence up: random, the same for every seed, and about as long as a word's.

    The original pads with one fixed random vector, nobody knows which. Where pads are read, a short one is
    like no word and a little like each: words then read and write the pads as well as what they look for.
    """
    words = vectors[len(Vocabulary.SPECIAL) :]
    spread = words.square().mean().sqrt() if len(words) else vectors.new_ones(())
    always = torch.Generator().manual_seed(0)
    uniform = torch.rand(vectors.shape[1], generator=always) * 2 - 1
    return uniform * spread * math.sqrt(3)  # the standard deviation of a uniform number is 1 / sqrt(3)
