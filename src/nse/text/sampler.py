"""Indices of the rows of each batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nse.text.tensors import LabelledRows

LONG_SENTENCE = 64
"""Words per row that a batch of full size may have; longer rows make smaller batches, which bounds memory."""

POOL = 6400
"""Number of random examples that are sorted by length at a time."""


def draw_batches(
    size: int,
    batch: int,
    generator: torch.Generator | None = None,
    lengths: Tensor | None = None,
    groups: Tensor | None = None,
) -> list[Tensor]:
    """Return the indices of `size` examples in batches; the last may be smaller.

    A generator shuffles the examples. With `lengths` [size], batches have similar lengths: they are sorted
    `POOL` at a time, and the batches shuffled. With `groups` [size], examples of a group stand together, in
    the order in which the shuffled ones first meet them, and lengths are ignored.
    """
    order = torch.arange(size) if generator is None else torch.randperm(size, generator=generator)
    if groups is not None and size:
        first = torch.full((int(groups.max()) + 1,), size)
        first.scatter_reduce_(0, groups[order], torch.arange(size), "amin")
        return list(order[first[groups[order]].argsort(stable=True)].split(batch))
    if lengths is None:
        return list(order.split(batch))
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(max(POOL, batch))]
    batches = list(torch.cat(pools).split(batch))
    if generator is None:
        return batches
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def draw_bounded_batches(rows: LabelledRows, batch: int) -> Iterator[Tensor]:
    """Yield the indices of rows in batches of similar length and at most `batch * LONG_SENTENCE` words."""
    lengths, sizes = rows.lengths.cpu(), rows.sizes.cpu()
    for index in draw_batches(len(rows.labels), batch, lengths=lengths):
        if len(index):
            largest = max(1, int(sizes[index].max()))
            yield from index.split(max(1, batch * LONG_SENTENCE // largest))
