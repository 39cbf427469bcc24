"""Decoders of translators (section 4.5): one target word per step, with input feeding and attention.

`LSTMDecoder` has two LSTM layers. `NSEDecoder` is an NSE that reads and writes the encoder's memory. Both
start from the encoder's states and attend over its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.attention import Attention, attend
from nse.nn.encoder import NSE
from nse.ops import step as ops
from nse.ops.deferred import Linear, make_deferred_linear, make_linear
from nse.ops.step import LayerState
from nse.ops.types import LSTMLayer, Memory


class DecoderSource(NamedTuple):
    """Encoded source sentences, constant over the steps of a decoder."""

    outputs: Tensor  # [B, L, k], attended over
    keys: Tensor  # [B, L, k], `Attention.key` of the outputs
    score_mask: Tensor  # [B, 1, L], from `nse.ops.step.make_score_mask`
    memory_masks: tuple[Tensor, ...] = ()  # the same for each memory that an NSE reads

    def select(self, rows: Tensor) -> DecoderSource:
        """Select these sentences [N]."""
        outputs, keys, score_mask = (tensor[rows] for tensor in self[:3])
        return DecoderSource(outputs, keys, score_mask, tuple(mask[rows] for mask in self.memory_masks))


class DecoderState(NamedTuple):
    """State of a decoder between two steps, one row per sentence."""

    lower: LayerState  # of the first LSTM; of an NSE, the read LSTM
    upper: LayerState  # of the second; of an NSE, the write LSTM
    attended: Tensor  # [B, k], the last attentional vector, zero at first
    memories: tuple[Tensor, ...] = ()  # [B, L, k] each, of an NSE

    def select(self, rows: Tensor) -> DecoderState:
        """Select the states of these sentences [N]."""
        (h, c), (upper_h, upper_c) = self.lower, self.upper
        memories = tuple(memory[rows] for memory in self.memories)
        return DecoderState((h[rows], c[rows]), (upper_h[rows], upper_c[rows]), self.attended[rows], memories)


Recurrence = Callable[
    [Tensor, DecoderSource, DecoderState, Tensor | None],
    tuple[LayerState, LayerState, tuple[Tensor, ...], tuple[Tensor, ...]],
]
"""From an input [B, k] and a dropout mask to both LSTMs' states, the memories, and z [B, L] of each."""

Masks = tuple[Tensor | None, Tensor | None]
"""Dropout of one step: factors of both LSTMs' inputs [B, size], or `None`."""


class DecoderLinears(NamedTuple):
    """Linear maps of a decoder's step."""

    feed: Linear  # of the last attentional vector
    recurrence: Recurrence
    query: Linear
    score: Linear
    combine: Linear  # from [context ; h] to the attentional vector


class Decoder(nn.Module):
    """Input feeding, attention and the attentional vector, around two LSTMs that subclasses define.

    Dropout is on the input of both LSTMs (k and `upper_size` numbers), with a fresh mask each step.
    """

    def __init__(self, size: int, dropout: float, upper_size: int):
        super().__init__()
        self.size, self.dropout, self.upper_size = size, dropout, upper_size
        self.feed = nn.Linear(2 * size, size)  # of [word ; last attentional vector]
        self.attention = Attention(size)
        self.combine = nn.Linear(2 * size, size)  # of [context ; h]

    def begin(
        self,
        outputs: Tensor,
        lower: LayerState,
        upper: LayerState,
        lengths: Tensor,
        memories: tuple[Memory, ...] = (),
    ) -> tuple[DecoderSource, DecoderState]:
        """Make the state before the first word from an encoder's outputs [B, L, k], states and memories."""
        memory_masks = tuple(ops.make_score_mask(memory.lengths, memory.slots) for memory in memories)
        score_mask = ops.make_score_mask(lengths, outputs)
        source = DecoderSource(outputs, self.attention.key(outputs), score_mask, memory_masks)
        slots = tuple(memory.slots for memory in memories)
        return source, DecoderState(lower, upper, torch.zeros_like(lower[0]), slots)

    def make_linears(self, make: ops.MakeLinear) -> DecoderLinears:
        """Make the linear maps of a step, for one step or for a loop of steps."""
        attention = self.attention
        return DecoderLinears(
            feed=make(self.feed.weight[:, self.size :], None),
            query=make(attention.query.weight, attention.query.bias),
            score=make(attention.score.weight, attention.score.bias),
            combine=make(self.combine.weight, self.combine.bias),
            recurrence=self.make_recurrence(make),
        )

    def feed_words(self, words: Tensor) -> Tensor:
        """Compute the part of the input [..., k] that depends on the words alone."""
        return F.linear(words, self.feed.weight[:, : self.size], self.feed.bias)

    def teacher_force(self, words: Tensor, source: DecoderSource, state: DecoderState) -> Tensor:
        """Compute all attentional vectors [B, T, k] given the previous word of each step [B, T, k]."""
        inputs = self.feed_words(words).transpose(0, 1)  # [T, B, k]
        linears, attended = self.make_linears(make_deferred_linear), []
        for x, masks in zip(inputs.unbind(), self.draw_masks(inputs), strict=True):
            state, _ = self.advance(x, source, state, linears, masks)
            attended.append(state.attended)
        return torch.stack(attended, dim=1)

    def draw_masks(self, inputs: Tensor) -> list[Masks]:
        """Draw the dropout masks of all steps for inputs [T, B, k]; none while evaluating."""
        T, B, _ = inputs.shape
        if not (self.training and self.dropout):
            return [(None, None)] * T
        sizes = (self.size, self.upper_size)
        lower, upper = (F.dropout(inputs.new_ones(T, B, size), self.dropout).unbind() for size in sizes)
        return list(zip(lower, upper, strict=True))

    def step(self, word: Tensor, source: DecoderSource, state: DecoderState) -> tuple[DecoderState, Tensor]:
        """Take a step from the last word [B, k]; return the new state and the attention weights [B, L]."""
        return self.advance(
            self.feed_words(word), source, state, self.make_linears(make_linear), (None, None)
        )

    def advance(
        self, x: Tensor, source: DecoderSource, state: DecoderState, linears: DecoderLinears, masks: Masks
    ) -> tuple[DecoderState, Tensor]:
        """Take a step from `feed_words` of the last word [B, k]."""
        x = x + linears.feed(state.attended)
        x = x if masks[0] is None else x * masks[0]
        lower, upper, memories, _ = linears.recurrence(x, source, state, masks[1])
        query = linears.query(upper[0])
        context, weights = attend(source.outputs, source.keys, source.score_mask, query, linears.score)
        attended = torch.relu(linears.combine(torch.cat([context, upper[0]], dim=-1)))
        return DecoderState(lower, upper, attended, memories), weights

    def make_recurrence(self, make: ops.MakeLinear) -> Recurrence:
        """Make the function that takes a step of both LSTMs."""
        raise NotImplementedError


class LSTMDecoder(Decoder):
    """Two LSTM layers, as in the paper's baseline."""

    def __init__(self, size: int, dropout: float):
        super().__init__(size, dropout, upper_size=size)
        self.lower = nn.LSTM(size, size, batch_first=True)
        self.upper = nn.LSTM(size, size, batch_first=True)

    def make_recurrence(self, make: ops.MakeLinear) -> Recurrence:
        """Make the function that takes a step of both layers."""
        first, second = (
            ops.make_lstm_linears(LSTMLayer(*lstm.all_weights[0]), make) for lstm in (self.lower, self.upper)
        )

        def advance_layers(x: Tensor, _: DecoderSource, state: DecoderState, mask: Tensor | None) -> Any:
            lower = ops.lstm_cell(x, state.lower, first)
            h = lower[0] if mask is None else lower[0] * mask
            return lower, ops.lstm_cell(h, state.upper, second), (), ()

        return advance_layers


class NSEDecoder(Decoder):
    """An NSE that reads and writes the encoder's memories and has none of its own; gradients flow through.

    `memories` is the number of the encoder's memories, one per direction; `settings` are passed to `NSE`.
    """

    def __init__(self, size: int, dropout: float, memories: int = 1, **settings: object):
        super().__init__(size, dropout, upper_size=(1 + memories) * size)
        self.nse = NSE(size, shared=memories - 1, **settings)  # type: ignore[arg-type]

    def make_recurrence(self, make: ops.MakeLinear) -> Recurrence:
        """Make the function that takes a step of the NSE."""
        linears = ops.make_step_linears(self.nse.get_weights(), make)
        return lambda x, source, state, mask: ops.step(
            x, state.memories, source.memory_masks, state.lower, state.upper, linears, mask
        )

    def compute_keys(self, word: Tensor, source: DecoderSource, state: DecoderState) -> tuple[Tensor, ...]:
        """Compute z [B, L] of each memory in the step from the last word [B, k]."""
        linears = self.make_linears(make_linear)
        x = self.feed_words(word) + linears.feed(state.attended)
        return linears.recurrence(x, source, state, None)[3]
