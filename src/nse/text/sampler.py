"""Which rows go together in a batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nse.text.tensors import LabelledRows

LONG_SENTENCE = 64
"""Words of a long sentence: a batch of longer ones has fewer of them, which bounds the memory."""

POOL = 6400
"""Batches of similar length are made out of so many random examples."""


def draw_batches(
    size: int,
    batch: int,
    generator: torch.Generator | None = None,
    lengths: Tensor | None = None,
    groups: Tensor | None = None,
) -> list[Tensor]:
    """Draw the indices of `size` examples in batches, of which the last may be smaller.

    With a generator they are shuffled. With lengths [size], batches are of similar length: shuffled examples
    are sorted some thousands at a time, and the batches shuffled. With groups [size], examples of a group
    stand together, in the order in which the shuffled ones first meet them; then lengths do not count.
    """
    order = torch.arange(size) if generator is None else torch.randperm(size, generator=generator)
    if groups is not None and size:
        first = torch.full((int(groups.max()) + 1,), size)
        first.scatter_reduce_(0, groups[order], torch.arange(size), "amin")
        return list(order[first[groups[order]].argsort(stable=True)].split(batch))
    if lengths is None:
        return list(order.split(batch))
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(max(POOL, batch))]
    found = torch.cat(pools).split(batch)
    if generator is None:
        return list(found)
    return [found[i] for i in torch.randperm(len(found), generator=generator).tolist()]


def draw_bounded_batches(rows: LabelledRows, batch: int) -> Iterator[Tensor]:
    """Draw rows of similar length, as they come, and no more words at once than a batch of usual ones has."""
    lengths, sizes = rows.lengths.cpu(), rows.sizes.cpu()
    for index in draw_batches(len(rows.labels), batch, lengths=lengths):
        if len(index):
            largest = max(1, int(sizes[index].max()))
            yield from index.split(max(1, batch * LONG_SENTENCE // largest))
