"""Packing of sequences of different lengths into one block of rows without padding, for `torch`.

Sequences are sorted by length, longest first, and laid out step by step: step t has one row for each sequence
that is still running, and these sequences are the first rows of step t - 1. So no step computes padding, no
state needs a mask to stop changing, and the rows of a step are contiguous.

    lengths 3, 1, 2  ->  rows  a1 c1 b1 | a2 c2 | a3
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor


class Packing:
    """Packed layout of a batch of padded sequences."""

    def __init__(self, batch: int, size: int, lengths: Tensor | None, device: torch.device):
        self.batch, self.size, self.device = batch, size, device
        self._order: Tensor | None = None
        self._rows: Tensor | None = None
        if lengths is None:
            self.counts = [batch] * size if batch else []  # running sequences at each step
        else:
            self._sort(lengths)
        ends, self.total = accumulate(self.counts), sum(self.counts)
        # Rows of each step.
        self.steps = [slice(end - n, end) for end, n in zip(ends, self.counts, strict=True)]

    def _sort(self, lengths: Tensor) -> None:
        ordered, self._order = lengths.sort(descending=True, stable=True)
        running = torch.arange(self.size, device=self.device)[:, None] < ordered  # [T, B]
        self.counts = [count for count in running.sum(dim=1).tolist() if count]
        step, rank = running.nonzero(as_tuple=True)
        self._rows = self._order[rank] * self.size + step
        self._back = self._order.argsort()

    def sort(self, per_sequence: Tensor, dim: int = 0) -> Tensor:
        """Sort one entry per sequence into packed order."""
        return per_sequence if self._order is None else per_sequence.index_select(dim, self._order)

    def unsort(self, per_sequence: Tensor, dim: int = 0) -> Tensor:
        """Undo `sort`."""
        return per_sequence if self._order is None else per_sequence.index_select(dim, self._back)

    def pack(self, padded: Tensor) -> Tensor:
        """Pack [B, T, ...] into [rows, ...]."""
        if self._rows is None:
            return padded.transpose(0, 1).flatten(0, 1)
        return padded.flatten(0, 1).index_select(0, self._rows)

    def unpack(self, rows: Tensor) -> Tensor:
        """Unpack [rows, ...] into [B, T, ...], zero in the padding."""
        if self._rows is None:
            return rows.view(self.size, self.batch, *rows.shape[1:]).transpose(0, 1).contiguous()
        padded = rows.new_zeros(self.batch * self.size, *rows.shape[1:])
        return padded.index_copy(0, self._rows, rows).view(self.batch, self.size, *rows.shape[1:])

    def shift(self, rows: Tensor, start: Tensor) -> Tensor:
        """Return its sequence's row one step earlier for each row; at the first step, that of `start`."""
        earlier = zip(self.steps, self.counts[1:], strict=False)
        return torch.cat([start[: self.counts[0]], *(rows[s.start : s.start + n] for s, n in earlier)])

    def take_last(self, rows: Tensor, start: Tensor) -> Tensor:
        """Return each sequence's last row; of an empty sequence, its row of `start` [B, ...]."""
        ends, done = [], 0
        for step, count in zip(reversed(self.steps), reversed(self.counts), strict=True):
            if count > done:
                ends.append(rows[step.start + done : step.stop])
                done = count
        return torch.cat([*ends, start[done:]])
