"""Decoders: one target word after the other, each fed with what the last one attended to (section 4.5).

`LSTMDecoder` is two LSTM layers. `NSEDecoder` is an NSE whose memory is the encoder's, which it reads and
goes on writing. Both start from the encoder's states and attend over its outputs.
"""

from __future__ import annotations

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
    """A source sentence as the encoder leaves it, for every step of a decoder.

    Attributes:
        outputs: [B, L, k], what is attended to.
        keys: [B, L, k], the same as attention compares them.
        closed: [B, 1, L], shuts the padding, as `nse.ops.step.closed` gives it.
        memories: The encoder's, for an NSE to go on with, each with what shuts its padding.
    """

    outputs: Tensor
    keys: Tensor
    closed: Tensor
    memories: tuple[tuple[Tensor, Tensor], ...] = ()

    def select(self, rows: Tensor) -> Source:
        """These sentences [N]. The memories stay: where they stand is the decoder's."""
        shut = tuple((slots, closed[rows]) for slots, closed in self.memories)
        return Source(self.outputs[rows], self.keys[rows], self.closed[rows], shut)


class Standing(NamedTuple):
    """Where a decoder stands; every tensor has a row for each sentence.

    Attributes:
        lower: State of the first LSTM, of an NSE the one that reads.
        upper: State of the second, of an NSE the one that writes.
        attended: [B, k], the last attentional vector, zero at first.
        memories: [B, L, k] each, as an NSE left them.
    """

    lower: Cell
    upper: Cell
    attended: Tensor
    memories: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> Standing:
        """Where these sentences [N] stand."""
        return Standing(
            (self.lower[0][rows], self.lower[1][rows]),
            (self.upper[0][rows], self.upper[1][rows]),
            self.attended[rows],
            tuple(memory[rows] for memory in self.memories),
        )


class Maps(NamedTuple):
    """What every decoder multiplies by in a step: of the last attentional vector, in attention, and after."""

    fed: Linear
    question: Linear
    score: Linear
    combine: Linear


class Masks(NamedTuple):
    """Dropout of one step: what is multiplied into both LSTMs' inputs [B, size]; `None` for nothing."""

    lower: Tensor | None = None
    upper: Tensor | None = None


class Decoder(nn.Module):
    """What both decoders have: input feeding, attention and the attentional vector.

    Args:
        size: k, of words, states and outputs.
        dropout: On the input of both LSTMs, a fresh mask each step.
        upper_size: Of the second LSTM's input.
    """

    def __init__(self, size: int, dropout: float, upper_size: int):
        super().__init__()
        self.size, self.dropout, self.upper_size = size, dropout, upper_size
        self.feed = nn.Linear(2 * size, size)  # of [word ; attentional vector before]
        self.attention = Attention(size)
        self.combine = nn.Linear(2 * size, size)  # of [context ; h]

    def prepared(self, outputs: Tensor, lengths: Tensor, memories: tuple[Memory, ...] = ()) -> Source:
        """What every step needs of the source, from the encoder's outputs [B, L, k] and its memories."""
        own = tuple((slots, closed(n, slots)) for slots, n in memories)
        return Source(outputs, self.attention.of_words(outputs), closed(lengths, outputs), own)

    def begin(self, source: Source, lower: Cell, upper: Cell) -> Standing:
        """Before the first word, from the encoder's states [B, k]."""
        nothing = torch.zeros_like(lower[0])
        return Standing(lower, upper, nothing, tuple(slots for slots, _ in source.memories))

    def maps(self, use: ops.Use) -> Maps:
        """The parameters of a step, for one step or for many."""
        attention = self.attention
        return Maps(
            fed=use(self.feed.weight[:, self.size :], None),
            question=use(attention.of_question.weight, attention.of_question.bias),
            score=use(attention.score.weight, attention.score.bias),
            combine=use(self.combine.weight, self.combine.bias),
        )

    def ahead(self, words: Tensor) -> Tensor:
        """What is known of the input [..., k] before the step: the part of the words [..., k]."""
        return F.linear(words, self.feed.weight[:, : self.size], self.feed.bias)

    def forced(self, words: Tensor, source: Source, now: Standing) -> Tensor:
        """The attentional vectors [B, T, k] where the words before each [B, T, k] are known."""
        ahead = self.ahead(words).transpose(0, 1)  # [T, B, k]
        maps, own, found = self.maps(many_times), self.cell(many_times), []
        for x, masks in zip(ahead.unbind(), self.masks(ahead), strict=True):
            now, _ = self.advance(x, source, now, maps, own, masks)
            found.append(now.attended)
        return torch.stack(found, dim=1)

    def masks(self, ahead: Tensor) -> list[Masks]:
        """Dropout of all steps [T, B, k], drawn at once; nothing while evaluating."""
        T, B, _ = ahead.shape
        if not (self.training and self.dropout):
            return [Masks()] * T
        sizes = (self.size, self.upper_size)
        drawn = [F.dropout(ahead.new_ones(T, B, size), self.dropout).unbind() for size in sizes]
        return [Masks(*both) for both in zip(*drawn, strict=True)]

    def step(self, word: Tensor, source: Source, now: Standing) -> tuple[Standing, Tensor]:
        """One step from the last word [B, k]; also which source words were attended to [B, L]."""
        return self.advance(self.ahead(word), source, now, self.maps(once), self.cell(once), Masks())

    def advance(
        self, ahead: Tensor, source: Source, now: Standing, maps: Maps, own: Any, masks: Masks
    ) -> tuple[Standing, Tensor]:
        """One step; `own` is what `cell` gave."""
        x = ahead + maps.fed(now.attended)
        x = x if masks.lower is None else x * masks.lower
        lower, upper, memories = self.recur(x, source, now, own, masks.upper)
        question = maps.question(upper[0])
        context, weights = attend(source.outputs, source.keys, source.closed, question, maps.score)
        attended = torch.relu(maps.combine(torch.cat([context, upper[0]], dim=-1)))
        return Standing(lower, upper, attended, memories), weights

    def cell(self, use: ops.Use) -> Any:
        """The parameters of both LSTMs and what is between, for one step or for many."""
        raise NotImplementedError

    def recur(
        self, x: Tensor, source: Source, now: Standing, own: Any, mask: Tensor | None
    ) -> tuple[Cell, Cell, tuple[Tensor, ...]]:
        """The states of both LSTMs after x [B, k], and the memories; `own` is what `cell` gave."""
        raise NotImplementedError


class LSTMDecoder(Decoder):
    """Two LSTM layers, as in the baseline of the paper."""

    def __init__(self, size: int, dropout: float):
        super().__init__(size, dropout, upper_size=size)
        self.lower = nn.LSTM(size, size, batch_first=True)
        self.upper = nn.LSTM(size, size, batch_first=True)

    def cell(self, use: ops.Use) -> tuple[ops.LSTMMaps, ops.LSTMMaps]:
        """Of both layers."""
        lower, upper = (LSTMLayer(*lstm.all_weights[0]) for lstm in (self.lower, self.upper))
        return ops.lstm_maps(lower, use), ops.lstm_maps(upper, use)

    def recur(
        self, x: Tensor, source: Source, now: Standing, own: Any, mask: Tensor | None
    ) -> tuple[Cell, Cell, tuple[Tensor, ...]]:
        """Both layers."""
        lower = ops.lstm(x, now.lower, own[0])
        h = lower[0] if mask is None else lower[0] * mask
        return lower, ops.lstm(h, now.upper, own[1]), ()


class NSEDecoder(Decoder):
    """An NSE that reads and writes the encoder's memory, gradients through it; no other memory is its own.

    Args:
        size: k.
        dropout: As for `NSE`.
        memories: How many memories the encoder leaves: one for each direction.
        settings: Of the `NSE`: how it starts.
    """

    def __init__(self, size: int, dropout: float, memories: int = 1, **settings: object):
        super().__init__(size, dropout, upper_size=(1 + memories) * size)
        self.nse = NSE(size, shared=memories - 1, **settings)  # type: ignore[arg-type]

    def cell(self, use: ops.Use) -> ops.StepMaps:
        """Of the NSE."""
        return ops.step_maps(self.nse.weights(), use)

    def recur(
        self, x: Tensor, source: Source, now: Standing, own: Any, mask: Tensor | None
    ) -> tuple[Cell, Cell, tuple[Tensor, ...]]:
        """Read, compose and write."""
        shut = tuple(each for _, each in source.memories)
        read, write, after, _ = ops.step(x, now.memories, shut, now.lower, now.upper, own, mask)
        return read, write, after

    def keys(self, word: Tensor, source: Source, now: Standing) -> tuple[Tensor, ...]:
        """What the step from the last word [B, k] reads and writes: z [B, L] of each memory."""
        x = self.ahead(word) + self.maps(once).fed(now.attended)
        shut = tuple(each for _, each in source.memories)
        return ops.step(x, now.memories, shut, now.lower, now.upper, self.cell(once))[3]


def closed(lengths: Tensor | None, slots: Tensor) -> Tensor:
    """What shuts the padding of slots [B, L, k]."""
    B, L, _ = slots.shape
    if lengths is None:
        return slots.new_zeros(B, 1, L)
    return ops.closed(lengths, L, slots.dtype)
