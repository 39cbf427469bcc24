"""Texts as tensors of ids, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nse.text.vocabulary import Vocabulary

MULTIPLE = 4
"""Bucket shapes are multiples of this: a little padding more, and few shapes."""

POOL = 6400
"""Batches of similar length are made out of so many random examples."""


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
        if ids.shape[1] < longest:
            ids = F.pad(ids, (0, longest - ids.shape[1]), value=Vocabulary.PAD)
        return Texts(ids, lengths.clamp(max=longest))

    def longest(self, index: Tensor, multiple: int = MULTIPLE) -> int:
        """How far to pad these texts: their longest, rounded up to a multiple where the ids go so far."""
        longest = int(self.lengths[index].max()) if len(index) else 0
        return min(-(-longest // multiple) * multiple, self.ids.shape[1])

    def to(self, device: torch.device) -> Texts:
        """The same texts on a device."""
        return Texts(self.ids.to(device), self.lengths.to(device))


class Labelled(NamedTuple):
    """Rows of one text or more, each with a label.

    Attributes:
        texts: The columns, in the order in which a model takes them.
        labels: [N].
        groups: [N], which question a row answers, where rows are ranked; `None` where each stands alone.
    """

    texts: tuple[Texts, ...]
    labels: Tensor
    groups: Tensor | None = None

    @property
    def inputs(self) -> list[Tensor]:
        """What a model is called with: ids and lengths of each column."""
        return [tensor for texts in self.texts for tensor in texts]

    @property
    def lengths(self) -> Tensor:
        """[N], of the longest text of each row."""
        return torch.stack([texts.lengths for texts in self.texts]).amax(dim=0)

    def select(self, index: Tensor, shape: tuple[int, ...] | None = None) -> Labelled:
        """These rows, as a batch.

        Args:
            index: [B], which ones.
            shape: How far to pad each column; `None` means to the longest text of each.
        """
        far: Sequence[int | None] = [None] * len(self.texts) if shape is None else shape
        texts = tuple(each.select(index, longest) for each, longest in zip(self.texts, far, strict=True))
        return Labelled(texts, self.labels[index], None if self.groups is None else self.groups[index])

    def shape(self, index: Tensor, multiple: int = MULTIPLE) -> tuple[int, ...]:
        """The bucket shape of these rows: how far to pad each column so that shapes are few.

        It looks at the lengths: ask rows that lie on the host, and no device is waited for.
        """
        return tuple(texts.longest(index, multiple) for texts in self.texts)

    def shapes(self, batches: Sequence[Tensor], multiple: int = MULTIPLE) -> list[tuple[int, ...]]:
        """The bucket shapes of many batches, none of them empty: as `shape` of each, but all at once."""
        sizes = np.array([len(batch) for batch in batches])
        order, starts = torch.cat(list(batches)).numpy(), sizes.cumsum() - sizes
        columns = []
        for texts in self.texts:
            longest = np.maximum.reduceat(texts.lengths.numpy()[order], starts)
            columns.append(np.minimum(-(-longest // multiple) * multiple, texts.ids.shape[1]).tolist())
        return list(zip(*columns, strict=True))

    def to(self, device: torch.device) -> Labelled:
        """The same rows on a device."""
        groups = None if self.groups is None else self.groups.to(device)
        return Labelled(tuple(texts.to(device) for texts in self.texts), self.labels.to(device), groups)


def batches(
    size: int,
    batch: int,
    generator: torch.Generator | None = None,
    lengths: Tensor | None = None,
    groups: Tensor | None = None,
) -> list[Tensor]:
    """Indices of examples in batches.

    Args:
        size: How many examples there are.
        batch: How many make a batch; the rest makes one more.
        generator: Shuffles them; `None` means as they come.
        lengths: [size], to make batches of similar length: the shuffled examples are sorted by length, some
            thousands at a time, and the batches are shuffled.
        groups: [size], to put examples of a group next to each other, so that most are in one batch, in the
            order in which the shuffled examples first meet them; then lengths do not count.
    """
    order = torch.arange(size) if generator is None else torch.randperm(size, generator=generator)
    if groups is not None and size:
        first = torch.full((int(groups.max()) + 1,), size).scatter_reduce(
            0, groups[order], torch.arange(size), "amin"
        )
        return list(order[first[groups[order]].argsort(stable=True)].split(batch))
    if lengths is None:
        return list(order.split(batch))
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(max(POOL, batch))]
    found = torch.cat(pools).split(batch)
    if generator is None:
        return list(found)
    return [found[i] for i in torch.randperm(len(found), generator=generator).tolist()]
