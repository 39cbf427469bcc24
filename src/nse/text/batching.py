"""Texts as tensors of ids, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nse.text.vocabulary import Vocabulary

MULTIPLE = 4
"""Bucket shapes are multiples of this: a little padding more, and few shapes."""

POOL = 50
"""Batches of similar length are made out of so many random ones."""


class Texts(NamedTuple):
    """Texts of different lengths, padded to the longest.

    Attributes:
        ids: [N, T].
        lengths: [N].
    """

    ids: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, texts: Sequence[Iterable[str]], vocabulary: Vocabulary, longest: int = 0) -> Texts:
        """Encode texts, each given as its words, cut to `longest` words where that is not 0."""
        encoded = [vocabulary.encode(words)[: longest or None] for words in texts]
        lengths = torch.tensor([len(ids) for ids in encoded], dtype=torch.long)
        flat = torch.tensor([each for ids in encoded for each in ids], dtype=torch.long)
        return cls.flat(flat, lengths)

    @classmethod
    def flat(cls, ids: Tensor, lengths: Tensor, longest: int = 0) -> Texts:
        """Texts from the ids of all, one after the other, and how many are whose.

        Args:
            ids: [sum of the lengths].
            lengths: [N].
            longest: Cut them to so many words, so that one long text does not lengthen all; 0 means never.
        """
        lengths = lengths.long()
        kept = lengths.clamp(max=longest) if longest else lengths
        t = torch.arange(int(kept.max()) if len(kept) else 0)
        first = lengths.cumsum(0) - lengths
        real = t < kept[:, None]
        padded = torch.full(real.shape, Vocabulary.PAD)
        padded[real] = ids.long()[(first[:, None] + t)[real]]
        return cls(padded, kept)

    def select(self, index: Tensor, longest: int | None = None) -> Texts:
        """Some of these texts.

        Args:
            index: [B], which ones.
            longest: Pad or cut all to this length, without looking at theirs, which on a GPU would wait for
                it; `None` means as long as the longest of them.
        """
        lengths = self.lengths[index]
        if longest is None:
            longest = int(lengths.max()) if len(lengths) else 0
            return Texts(self.ids[index, :longest], lengths)
        ids = self.ids[index, :longest]
        padded = F.pad(ids, (0, longest - ids.shape[1]), value=Vocabulary.PAD)
        return Texts(padded, lengths.clamp(max=longest))

    def longest(self, index: Tensor) -> int:
        """How far to pad these texts: their longest, rounded up to a multiple where the ids go so far."""
        longest = int(self.lengths[index].max()) if len(index) else 0
        return min(-(-longest // MULTIPLE) * MULTIPLE, self.ids.shape[1])

    def to(self, device: torch.device) -> Texts:
        """The same texts on a device."""
        return Texts(self.ids.to(device), self.lengths.to(device))


class Pairs(NamedTuple):
    """Labelled pairs of texts."""

    premise: Texts
    hypothesis: Texts
    labels: Tensor  # [N]

    @property
    def lengths(self) -> Tensor:
        """[N], of the longer text of each pair."""
        return torch.maximum(self.premise.lengths, self.hypothesis.lengths)

    def select(self, index: Tensor, shape: tuple[int, ...] | None = None) -> Pairs:
        """These pairs, as a batch.

        Args:
            index: [B], which ones.
            shape: How far to pad premises and hypotheses; `None` means to the longest of each.
        """
        premise, hypothesis = (None, None) if shape is None else shape
        return Pairs(
            self.premise.select(index, premise), self.hypothesis.select(index, hypothesis), self.labels[index]
        )

    def shape(self, index: Tensor) -> tuple[int, int]:
        """The bucket shape of these pairs: how far to pad premises and hypotheses so that shapes are few.

        It looks at the lengths: ask pairs that lie on the host, and no device is waited for.
        """
        return self.premise.longest(index), self.hypothesis.longest(index)

    def to(self, device: torch.device) -> Pairs:
        """The same pairs on a device."""
        return Pairs(self.premise.to(device), self.hypothesis.to(device), self.labels.to(device))


def batches(
    size: int, batch: int, generator: torch.Generator | None = None, lengths: Tensor | None = None
) -> list[Tensor]:
    """Indices of examples in batches.

    Args:
        size: How many examples there are.
        batch: How many make a batch; the rest makes one more.
        generator: Shuffles them; `None` means as they come.
        lengths: [size], to make batches of similar length: the shuffled examples are sorted by length, some
            batches' worth at a time, and the batches are shuffled.
    """
    order = torch.arange(size) if generator is None else torch.randperm(size, generator=generator)
    if lengths is None:
        return list(order.split(batch))
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(POOL * batch)]
    found = torch.cat(pools).split(batch)
    if generator is None:
        return list(found)
    return [found[i] for i in torch.randperm(len(found), generator=generator).tolist()]
