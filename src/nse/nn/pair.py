"""The paper's models of a pair of sentences (sections 4.1 and 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.attention import Alignment, Attention
from nse.nn.sentence_encoder import Encoded, NSESentence, at_end
from nse.nn.text_model import UNKNOWN, HeadConfig, HeadModel, initial, sentence_encoder
from nse.ops.types import real

Text = tuple[Tensor, Tensor]
"""Ids [B, T] and lengths [B] of sentences."""


@dataclass
class PairConfig(HeadConfig):
    """The model of a pair of sentences."""

    encoder: Literal["nse", "mma", "lstm", "bow"] = "nse"  # type: ignore[assignment]  # one choice more
    """What reads a sentence. mma: two NSEs, the second reads and writes the first one's memory too."""

    attention: Literal["none", "paper", "aligned"] = "none"
    """paper: the second sentence attends over the first. aligned: each word to the other sentence."""

    reader: Literal["none", "nse"] = "none"
    """What reads the aligned words once more before they are pooled."""

    counts: bool = False
    """Tell the head which share of the second sentence's words the first one has, also weighed by rarity."""

    def __post_init__(self) -> None:
        """Refuse what makes no model."""
        super().__post_init__()
        if self.reader != "none" and self.attention != "aligned":
            raise ValueError(f'reader = "{self.reader}" needs attention = "aligned"')
        if self.attention == "aligned" and self.pool == "last" and self.reader == "none":
            raise ValueError('attention = "aligned" without a reader needs pool = "max" or "mean-max"')
        if self.attention == "paper" and self.pool == "mean-max":
            raise ValueError('attention = "paper" needs pool = "last" or "max"')


class PairClassifier(HeadModel):
    """The paper's models of a sentence pair (sections 4.1 and 4.2): encoders, and an MLP over the pair.

    NSE: one encoder for both sentences. MMA-NSE: a second one for the second sentence, which reads and writes
    the memory of the first. MMA-NSE attention: the first is what the second attends to in it.

    Args:
        config: Encoder and sizes.
        words: Size of the vocabulary; id 0 is padding.
        labels: Number of scores: of classes, or one to rank by.
    """

    rarity: Tensor  # [words], what a shared word counts for, where words are counted

    def __init__(self, config: PairConfig, words: int, labels: int):
        super().__init__(config, words)
        self.config: PairConfig = config
        self.second = sentence_encoder(config, shared=1) if config.encoder == "mma" else None
        encoded = config.size * config.directions
        self.attention = Attention(encoded) if config.attention == "paper" else None
        self.alignment: Alignment | None = None
        self.reader: NSESentence | None = None
        if config.attention == "aligned":
            self.alignment = Alignment(config.size + encoded, config.size, config.dropout)
            encoded = config.size
        if config.reader != "none":
            self.reader = NSESentence(config.size, config.dropout, config.directions, **initial(config))
            encoded = config.size * config.directions
        if config.counts:
            self.register_buffer("rarity", torch.ones(words))
        self.head = self.make_head(4, encoded, labels, extra=2 if config.counts else 0)
        self.start(config)

    def forward(self, first: Tensor, first_lengths: Tensor, second: Tensor, second_lengths: Tensor) -> Tensor:
        """Compute scores [B, labels], from ids [B, T] of both sentences and their true lengths [B]."""
        first, first_lengths = self.cut(first, first_lengths)
        second, second_lengths = self.cut(second, second_lengths)
        x, y = self.vectors(first), self.vectors(second)
        one, two = self.encoded(x, first_lengths, y, second_lengths)
        if self.alignment is not None:
            one, two = self.aligned(self.alignment, one.beside(x), two.beside(y))
        return self.score(one, two, ((first, first_lengths), (second, second_lengths)))

    def score(self, one: Encoded, two: Encoded, texts: tuple[Text, Text]) -> Tensor:
        """Score the labels [B, labels] by both sentences, encoded; `texts` are their ids and lengths."""
        p, h = one.pooled(self.config.pool), two.pooled(self.config.pool)
        if self.attention is not None:
            p = self.attention(one.outputs, one.lengths, h)
        features = [p, h, p - h, p * h]
        if self.config.counts:
            features.append(shared_words(*texts, self.rarity).to(p.dtype))
        scores: Tensor = self.head(torch.cat(features, dim=-1))
        return scores

    def encoded(self, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor) -> tuple[Encoded, Encoded]:
        """Encode both sentences, from their words [B, T, k]."""
        if self.second is not None:
            first = self.encoder(x, x_lengths)
            return first, self.second(y, y_lengths, first.memories)
        return both(self.encoder, x, x_lengths, y, y_lengths)

    def aligned(self, alignment: Alignment, first: Encoded, second: Encoded) -> tuple[Encoded, Encoded]:
        """Compare each word of both sentences with its match in the other, and read them again."""
        a, b = alignment(first.outputs, first.lengths, second.outputs, second.lengths)
        if self.reader is None:
            return unread(a, first.lengths), unread(b, second.lengths)
        return both(self.reader, a, first.lengths, b, second.lengths)


def shared_words(first: Text, second: Text, rarity: Tensor) -> Tensor:
    """Count which share of the second sentence's words the first one has [B, 2]: alike, and by rarity [V].

    Unknown words do not count; of no words it is zero.
    """
    (here, knows), (there, asks) = (
        (ids, (ids > UNKNOWN) & real(lengths, ids.shape[1])) for ids, lengths in (first, second)
    )
    same = (here[:, :, None] == there[:, None, :]) & knows[:, :, None]  # [B, T of first, T of second]
    found = (same.any(dim=1) & asks).to(rarity.dtype)
    weights = asks.to(rarity.dtype), rarity[there] * asks
    shares = [(found * each).sum(dim=1) / each.sum(dim=1).clamp(min=1e-6) for each in weights]
    return torch.stack(shares, dim=1)


def unread(words: Tensor, lengths: Tensor) -> Encoded:
    """Take words [B, T, d] as they are for what an encoder leaves."""
    return Encoded(words, lengths, at_end(words, lengths))


def both(
    encoder: nn.Module, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor
) -> tuple[Encoded, Encoded]:
    """Encode two batches of sentences as one batch."""
    if torch.compiler.is_compiling():  # which would take the numbers that it is split by for fixed
        return encoder(x, x_lengths), encoder(y, y_lengths)
    longest = max(x.shape[1], y.shape[1])
    together = torch.cat([F.pad(each, (0, 0, 0, longest - each.shape[1])) for each in (x, y)])
    encoded: Encoded = encoder(together, torch.cat([x_lengths, y_lengths]))
    outputs, lengths, last = (each.split([len(x), len(y)]) for each in encoded[:3])
    first = Encoded(outputs[0][:, : x.shape[1]], lengths[0], last[0])
    return first, Encoded(outputs[1][:, : y.shape[1]], lengths[1], last[1])
