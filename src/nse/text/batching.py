"""Texts as tensors of ids, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nse.text.vocabulary import Vocabulary


class Texts(NamedTuple):
    """Texts of different lengths, padded to the longest.

    Attributes:
        ids: [N, T].
        lengths: [N].
    """

    ids: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, texts: Sequence[str], vocabulary: Vocabulary) -> Texts:
        """Encode texts."""
        encoded = [vocabulary.encode(text) for text in texts]
        lengths = torch.tensor([len(ids) for ids in encoded], dtype=torch.long)
        padded = torch.full((len(texts), max(map(len, encoded), default=0)), vocabulary.PAD)
        for row, ids in zip(padded, encoded, strict=True):
            row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        return cls(padded, lengths)

    def select(self, index: Tensor) -> Texts:
        """These texts, padded only to the longest of them."""
        lengths = self.lengths[index]
        longest = int(lengths.max()) if len(lengths) else 0
        return Texts(self.ids[index, :longest], lengths)

    def to(self, device: torch.device) -> Texts:
        """The same texts on a device."""
        return Texts(self.ids.to(device), self.lengths.to(device))


class Pairs(NamedTuple):
    """Labelled pairs of texts."""

    premise: Texts
    hypothesis: Texts
    labels: Tensor  # [N]

    def select(self, index: Tensor) -> Pairs:
        """These pairs, as a batch."""
        return Pairs(self.premise.select(index), self.hypothesis.select(index), self.labels[index])

    def to(self, device: torch.device) -> Pairs:
        """The same pairs on a device."""
        return Pairs(self.premise.to(device), self.hypothesis.to(device), self.labels.to(device))


def batches(size: int, batch: int, generator: torch.Generator | None = None) -> list[Tensor]:
    """Indices of `size` examples in batches, shuffled when a generator is given."""
    order = torch.arange(size) if generator is None else torch.randperm(size, generator=generator)
    return list(order.split(batch))
