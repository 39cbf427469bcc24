"""Types that all backends share: weights, memories, states, results.

Letters are the paper's: B sequences, T steps, memories of L slots, size k, n shared memories,
and d = (2 + n) k, the size of c_t.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

LSTMState = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, each [layers, B, k]."""


class LSTMLayer(NamedTuple):
    """Weights of one LSTM layer, with the gates in PyTorch's order: input, forget, cell, output."""

    ih: Tensor  # [4k, size of the input]
    hh: Tensor  # [4k, k]
    bias_ih: Tensor  # [4k]
    bias_hh: Tensor  # [4k]


class Weights(NamedTuple):
    """Weights of an NSE."""

    read: tuple[LSTMLayer, ...]
    compose: Tensor  # [d, d], over [o ; m_own ; m_shared...]
    compose_bias: Tensor  # [d]
    write: tuple[LSTMLayer, ...]


class Memory(NamedTuple):
    """A memory: one slot per word, and the number of slots of each sequence.

    Attributes:
        slots: [B, L, k].
        lengths: [B]; the slots after them are padding, which is never read or written. `None` means L.
    """

    slots: Tensor
    lengths: Tensor | None = None

    def prepend(self, blank: Tensor) -> Memory:
        """Return the memory with extra slots in front, for example learned scratch space.

        In front, because sequences of different lengths have no common end.

        Args:
            blank: [n, k], the same for each sequence, or [B, n, k].
        """
        blank = blank.expand(self.slots.shape[0], -1, -1)
        lengths = None if self.lengths is None else self.lengths + blank.shape[1]
        return Memory(torch.cat([blank, self.slots], dim=1), lengths)


class State(NamedTuple):
    """State of an encoder after its last step, to continue from.

    Attributes:
        read: Hidden and cell state of the read LSTM, each [layers, B, k].
        write: The same of the write LSTM.
        memory: The own memory. `NSE.step` continues with it; calling the encoder does not (pass `memory=`).
        shared: The shared memories, used in the same way.
    """

    read: LSTMState
    write: LSTMState
    memory: Memory | None = None
    shared: tuple[Memory, ...] = ()


class Result(NamedTuple):
    """Result of a backend."""

    outputs: Tensor  # [B, T, k], h_t, zero past a sequence's end
    memories: tuple[Tensor, ...]  # the own one, then the shared ones, each [B, L, k], zero in the padding
    read: LSTMState
    write: LSTMState
    keys: tuple[Tensor, ...]  # z per memory, each [B, T, L]; () without `keys`


class Backend(Protocol):
    """Signature of all backends."""

    def __call__(
        self,
        x: Tensor,  # [B, T, k], input of the read LSTM, after dropout
        lengths: Tensor | None,  # [B], number of steps; `None` means T. A finished sequence stops changing
        memories: tuple[Memory, ...],  # initial memories: the own one, then n shared ones
        read: LSTMState | None,  # initial state of the read LSTM; `None` means zeros
        write: LSTMState | None,  # the same of the write LSTM
        weights: Weights,
        c_mask: Tensor | None = None,  # [B, T, d], multiplies c_t: dropout
        keys: bool = False,  # whether to return z
    ) -> Result:
        """Run the recurrence of equations 1-6, or 7-15 where memories are shared."""
        ...


def default_to_zeros(state: LSTMState | None, x: Tensor, layers: tuple[LSTMLayer, ...]) -> LSTMState:
    """Return the state, or zeros for an LSTM of these layers over x [B, T, k] if it is `None`."""
    if state is not None:
        return state
    zeros = layers[0].hh.new_zeros(len(layers), len(x), x.shape[2])
    return zeros, zeros


def make_mask(lengths: Tensor, size: int) -> Tensor:
    """Make a mask [B, size] that is true at the positions before each length."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def make_full_lengths(slots: Tensor) -> Tensor:
    """Make the lengths [B] of a memory [B, L, k] without padding."""
    return torch.full(slots.shape[:1], slots.shape[1], dtype=torch.long, device=slots.device)
