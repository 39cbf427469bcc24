"""Decoders: one target word after the other, each fed with what the last one attended to (section 4.5).

`LSTMDecoder` is two LSTM layers. `NSEDecoder` is an NSE whose memory is the encoder's, which it reads and
goes on writing. Both start from the encoder's states and attend over its outputs.
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
from nse.ops.deferred import Linear, many_times, once
from nse.ops.step import Cell
from nse.ops.types import LSTMLayer, Memory


class Source(NamedTuple):
    """A source sentence as the encoder leaves it, for every step of a decoder."""

    outputs: Tensor  # [B, L, k], what is attended to
    keys: Tensor  # [B, L, k], the same as attention compares them
    closed: Tensor  # [B, 1, L], shuts the padding, as `nse.ops.step.closed` gives it
    shut: tuple[Tensor, ...] = ()  # likewise of each memory that an NSE goes on with

    def select(self, rows: Tensor) -> Source:
        """Take these sentences [N]."""
        outputs, keys, closed = (each[rows] for each in self[:3])
        return Source(outputs, keys, closed, tuple(each[rows] for each in self.shut))


class Standing(NamedTuple):
    """Where a decoder stands; every tensor has a row for each sentence."""

    lower: Cell  # of the first LSTM, of an NSE the one that reads
    upper: Cell  # of the second, of an NSE the one that writes
    attended: Tensor  # [B, k], the last attentional vector, zero at first
    memories: tuple[Tensor, ...] = ()  # [B, L, k] each, as an NSE left them

    def select(self, rows: Tensor) -> Standing:
        """Take where these sentences [N] stand."""
        (h, c), (g, d) = self.lower, self.upper
        memories = tuple(memory[rows] for memory in self.memories)
        return Standing((h[rows], c[rows]), (g[rows], d[rows]), self.attended[rows], memories)


class Maps(NamedTuple):
    """What a decoder multiplies by in a step."""

    fed: Linear  # the last attentional vector
    recur: Recur  # both LSTMs and what is between
    question: Linear  # in attention
    score: Linear
    combine: Linear  # after it


Recur = Callable[
    [Tensor, Source, Standing, Tensor | None], tuple[Cell, Cell, tuple[Tensor, ...], tuple[Tensor, ...]]
]
"""From an input [B, k] and a mask to the states of both LSTMs, the memories, and z [B, L] of each."""

Masks = tuple[Tensor | None, Tensor | None]
"""Dropout of one step: what is multiplied into both LSTMs' inputs [B, size]; `None` for nothing."""


class Decoder(nn.Module):
    """What both decoders have: input feeding, attention and the attentional vector.

    Dropout is on the input of both LSTMs, of k numbers and of `upper_size`, a fresh mask each step.
    """

    def __init__(self, size: int, dropout: float, upper_size: int):
        super().__init__()
        self.size, self.dropout, self.upper_size = size, dropout, upper_size
        self.feed = nn.Linear(2 * size, size)  # of [word ; attentional vector before]
        self.attention = Attention(size)
        self.combine = nn.Linear(2 * size, size)  # of [context ; h]

    def begin(
        self, outputs: Tensor, lower: Cell, upper: Cell, lengths: Tensor, memories: tuple[Memory, ...] = ()
    ) -> tuple[Source, Standing]:
        """Begin before the first word, from what the encoder left: outputs [B, L, k], states, memories."""
        shut = tuple(ops.closed(each.lengths, each.slots) for each in memories)
        source = Source(outputs, self.attention.of_words(outputs), ops.closed(lengths, outputs), shut)
        return source, Standing(lower, upper, torch.zeros_like(lower[0]), tuple(m.slots for m in memories))

    def maps(self, use: ops.Use) -> Maps:
        """Make the parameters of a step, for one step or for many."""
        attention = self.attention
        return Maps(
            fed=use(self.feed.weight[:, self.size :], None),
            question=use(attention.of_question.weight, attention.of_question.bias),
            score=use(attention.score.weight, attention.score.bias),
            combine=use(self.combine.weight, self.combine.bias),
            recur=self.make_recur(use),
        )

    def ahead(self, words: Tensor) -> Tensor:
        """Compute what is known of the input [..., k] before the step: the part of the words [..., k]."""
        return F.linear(words, self.feed.weight[:, : self.size], self.feed.bias)

    def forced(self, words: Tensor, source: Source, now: Standing) -> Tensor:
        """Compute all attentional vectors [B, T, k] where the words before each [B, T, k] are known."""
        ahead = self.ahead(words).transpose(0, 1)  # [T, B, k]
        maps, found = self.maps(many_times), []
        for x, masks in zip(ahead.unbind(), self.masks(ahead), strict=True):
            now, _ = self.advance(x, source, now, maps, masks)
            found.append(now.attended)
        return torch.stack(found, dim=1)

    def masks(self, ahead: Tensor) -> list[Masks]:
        """Draw the dropout of all steps [T, B, k] at once; nothing while evaluating."""
        T, B, _ = ahead.shape
        if not (self.training and self.dropout):
            return [(None, None)] * T
        sizes = (self.size, self.upper_size)
        lower, upper = (F.dropout(ahead.new_ones(T, B, size), self.dropout).unbind() for size in sizes)
        return list(zip(lower, upper, strict=True))

    def step(self, word: Tensor, source: Source, now: Standing) -> tuple[Standing, Tensor]:
        """Take a step from the last word [B, k]; also which source words were attended to [B, L]."""
        return self.advance(self.ahead(word), source, now, self.maps(once), (None, None))

    def advance(
        self, ahead: Tensor, source: Source, now: Standing, maps: Maps, masks: Masks
    ) -> tuple[Standing, Tensor]:
        """Take a step."""
        x = ahead + maps.fed(now.attended)
        x = x if masks[0] is None else x * masks[0]
        lower, upper, memories, _ = maps.recur(x, source, now, masks[1])
        question = maps.question(upper[0])
        context, weights = attend(source.outputs, source.keys, source.closed, question, maps.score)
        attended = torch.relu(maps.combine(torch.cat([context, upper[0]], dim=-1)))
        return Standing(lower, upper, attended, memories), weights

    def make_recur(self, use: ops.Use) -> Recur:
        """Make the step of both LSTMs and what is between, for one step or for many."""
        raise NotImplementedError


class LSTMDecoder(Decoder):
    """Two LSTM layers, as in the baseline of the paper."""

    def __init__(self, size: int, dropout: float):
        super().__init__(size, dropout, upper_size=size)
        self.lower = nn.LSTM(size, size, batch_first=True)
        self.upper = nn.LSTM(size, size, batch_first=True)

    def make_recur(self, use: ops.Use) -> Recur:
        """Make the step of both layers."""
        first, second = (
            ops.lstm_maps(LSTMLayer(*each.all_weights[0]), use) for each in (self.lower, self.upper)
        )

        def recur(x: Tensor, _: Source, now: Standing, mask: Tensor | None) -> Any:
            lower = ops.lstm(x, now.lower, first)
            h = lower[0] if mask is None else lower[0] * mask
            return lower, ops.lstm(h, now.upper, second), (), ()

        return recur


class NSEDecoder(Decoder):
    """An NSE that reads and writes the encoder's memory, gradients through it; no other memory is its own.

    The encoder leaves so many `memories`, one for each direction; `settings` are of the `NSE`: how it starts.
    """

    def __init__(self, size: int, dropout: float, memories: int = 1, **settings: object):
        super().__init__(size, dropout, upper_size=(1 + memories) * size)
        self.nse = NSE(size, shared=memories - 1, **settings)  # type: ignore[arg-type]

    def make_recur(self, use: ops.Use) -> Recur:
        """Make the step of the NSE: read, compose and write."""
        maps = ops.step_maps(self.nse.weights(), use)
        return lambda x, source, now, mask: ops.step(
            x, now.memories, source.shut, now.lower, now.upper, maps, mask
        )

    def keys(self, word: Tensor, source: Source, now: Standing) -> tuple[Tensor, ...]:
        """Tell what the step from the last word [B, k] reads and writes: z [B, L] of each memory."""
        maps = self.maps(once)
        return maps.recur(self.ahead(word) + maps.fed(now.attended), source, now, None)[3]
