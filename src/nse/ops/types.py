"""What goes into and comes out of every backend: weights, memories, states, results.

Letters are the paper's: B sequences, T steps, memories of L slots, size k, n shared memories,
and d = (2 + n) k, the size of a composition.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

LSTMState = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, each [layers, B, k]."""


class LSTMLayer(NamedTuple):
    """Weights of one LSTM layer, gates in PyTorch's order: input, forget, cell, output."""

    ih: Tensor  # [4k, size of the input]
    hh: Tensor  # [4k, k]
    bias_ih: Tensor  # [4k]
    bias_hh: Tensor  # [4k]


class Weights(NamedTuple):
    """Everything an NSE learns."""

    read: tuple[LSTMLayer, ...]
    compose: Tensor  # [d, d], over [o ; m_own ; m_shared...]
    compose_bias: Tensor  # [d]
    write: tuple[LSTMLayer, ...]


class Memory(NamedTuple):
    """A memory: one slot per word, and how many slots of each sequence are real.

    Attributes:
        slots: [B, L, k].
        lengths: [B], slots beyond a sequence's length are padding: never read, never written.
            `None` means that all L are real.
    """

    slots: Tensor
    lengths: Tensor | None = None

    def prepend(self, blank: Tensor) -> Memory:
        """Put extra slots in front of every sequence's own, for example learned scratch space.

        They go in front because a padded memory has no common end.

        Args:
            blank: [n, k], the same for each sequence, or [B, n, k].
        """
        blank = blank.expand(self.slots.shape[0], -1, -1)
        lengths = None if self.lengths is None else self.lengths + blank.shape[1]
        return Memory(torch.cat([blank, self.slots], dim=1), lengths)


class Result(NamedTuple):
    """What a backend returns."""

    outputs: Tensor  # [B, T, k], h_t, zero past a sequence's end
    memories: tuple[Tensor, ...]  # own first, then the shared ones, each [B, L, k], zero in padded slots
    read: LSTMState
    write: LSTMState
    keys: tuple[Tensor, ...]  # z per memory, each [B, T, L]; empty unless asked for


class Backend(Protocol):
    """The signature that all backends share."""

    def __call__(
        self,
        x: Tensor,  # [B, T, k], the words as the read LSTM sees them (dropout on x_t already applied)
        lengths: Tensor | None,  # [B], true number of steps, or all T; a finished sequence stops changing
        memories: tuple[Memory, ...],  # where to start: the own memory, then n shared ones
        read: LSTMState | None,  # of the read LSTM before the first step; `None` for zeros
        write: LSTMState | None,  # likewise of the write LSTM
        weights: Weights,
        c_mask: Tensor | None = None,  # [B, T, d], multiplies c_t before the write LSTM: dropout, scaled
        keys: bool = False,  # whether to return z for every step
    ) -> Result:
        """Run the recurrence of equations 1-6, or 7-15 where memories are shared."""
        ...


def started(state: LSTMState | None, x: Tensor, layers: tuple[LSTMLayer, ...]) -> LSTMState:
    """Return the state of an LSTM of these layers before its first step: what is given, or zeros."""
    if state is not None:
        return state
    zeros = layers[0].hh.new_zeros(len(layers), len(x), x.shape[2])
    return zeros, zeros


def real(lengths: Tensor, size: int) -> Tensor:
    """Tell which of `size` positions lie within each length: [B, size], true or false."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
