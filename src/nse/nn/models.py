"""Models built on sentence encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.nn.attention import Alignment, Attention
from nse.nn.sentences import BagOfWords, Encoded, LSTMSentence, NSESentence, Pool, at_end

PAD = 0
"""The id of padding."""


@dataclass
class PairConfig:
    """The model of a pair of sentences."""

    encoder: Literal["nse", "mma", "lstm", "bow"] = "nse"
    """What reads a sentence. mma: two NSEs, the second reads and writes the first one's memory too."""

    size: int = 300
    """k: of the encoder, in each direction."""

    words: int = 0
    """Size of the word vectors, where it is not k: a linear map brings them to k. 0 means k."""

    trained: bool = True
    """Whether the word vectors are learned; false keeps them fixed, as in the paper."""

    directions: int = 1
    """2 adds an encoder that reads from the last word to the first."""

    pool: Pool = "last"
    """One vector out of a sentence's outputs: the last, the largest of each unit, or mean and largest."""

    attention: Literal["none", "paper", "aligned"] = "none"
    """paper: the hypothesis attends over the premise's outputs. aligned: each word to the other sentence."""

    reader: Literal["none", "nse"] = "none"
    """What reads the aligned words once more before they are pooled."""

    hidden: int = 1024
    """Units of the hidden layer that compares the two sentences."""

    dropout: float = 0.0
    """On words, on compositions and on the hidden layer."""

    padding: Literal["masked", "paper"] = "masked"
    """masked: true lengths. paper: padded on the left to `longest`, and pads are words like any other."""

    longest: int = 0
    """Sentences are cut to so many words; 0 means never."""

    blanks: int = 0
    """Learned blank slots in the memory of an NSE."""

    starts: int = 0
    """Learned start words in front of a sentence, for an NSE."""

    init: Literal["uniform", "lookup"] = "uniform"
    """How an NSE starts: uniform, as in the paper; lookup: by looking each word up in its memory."""

    init_range: float = 0.0
    """Weights and biases start uniform within this range, as in the original; 0 leaves it to each layer."""

    def __post_init__(self) -> None:
        """Refuse sizes, probabilities and combinations that make no model."""
        if self.size < 1 or self.hidden < 1:
            raise ValueError(f"size and hidden must be at least 1, got {self.size} and {self.hidden}")
        if min(self.words, self.longest, self.blanks, self.starts) < 0:
            raise ValueError("words, longest, blanks and starts must be at least 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.directions not in (1, 2):
            raise ValueError(f"directions must be 1 or 2, got {self.directions}")
        if self.padding == "paper" and not self.longest:
            raise ValueError('padding = "paper" needs longest, such as 32: how far to pad')
        if self.reader != "none" and self.attention != "aligned":
            raise ValueError(f'reader = "{self.reader}" needs attention = "aligned"')
        if self.attention == "aligned" and self.pool == "last" and self.reader == "none":
            raise ValueError('attention = "aligned" without a reader needs pool = "max" or "mean-max"')
        if self.attention == "paper" and self.pool == "mean-max":
            raise ValueError('attention = "paper" needs pool = "last" or "max"')
        if self.init_range < 0:
            raise ValueError(f"init_range must be at least 0, got {self.init_range}")
        if self.encoder not in ("nse", "mma") and (self.blanks or self.starts):
            raise ValueError("blanks and starts need an NSE as the encoder")
        if self.encoder == "bow" and self.directions == 2:
            raise ValueError("a bag of words has no directions")
        if self.init != "uniform" and self.encoder not in ("nse", "mma"):
            raise ValueError(f'init = "{self.init}" needs an NSE as the encoder')


class PairClassifier(nn.Module):
    """The paper's models of a sentence pair (section 4.1): encoders, and an MLP over the pair.

    NSE: one encoder for both sentences. MMA-NSE: a second one for the hypothesis, which reads and writes the
    premise's memory. MMA-NSE attention: the premise is what the hypothesis attends to in it.

    Args:
        config: Encoder and sizes.
        words: Size of the vocabulary; id 0 is padding.
        labels: Number of classes.
    """

    def __init__(self, config: PairConfig, words: int, labels: int):
        super().__init__()
        self.config = config
        width = config.words or config.size
        self.embedding = nn.Embedding(words, width, padding_idx=PAD)
        self.embedding.weight.requires_grad_(config.trained)
        self.bring = nn.Linear(width, config.size) if width != config.size else None
        self.encoder = sentence_encoder(config)
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
        sentence = encoded * (2 if config.pool == "mean-max" else 1)
        self.head = nn.Sequential(
            nn.Linear(4 * sentence, config.hidden),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, labels),
        )
        if config.init_range:
            for name, parameter in self.named_parameters():
                if not name.startswith("embedding.") and ".nse." not in name:  # an NSE knows how it starts
                    nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def forward(
        self, premise: Tensor, premise_lengths: Tensor, hypothesis: Tensor, lengths: Tensor
    ) -> Tensor:
        """Scores of the labels [B, labels], from ids [B, T] of both sentences and their true lengths [B]."""
        premise, premise_lengths = self.cut(premise, premise_lengths)
        hypothesis, lengths = self.cut(hypothesis, lengths)
        x, y = self.vectors(premise), self.vectors(hypothesis)
        first, second = self.encoded(x, premise_lengths, y, lengths)
        if self.alignment is not None:
            first, second = self.aligned(self.alignment, first.beside(x), second.beside(y))
        p, h = first.pooled(self.config.pool), second.pooled(self.config.pool)
        if self.attention is not None:
            p = self.attention(first.outputs, first.lengths, h)
        scores: Tensor = self.head(torch.cat([p, h, p - h, p * h], dim=-1))
        return scores

    def cut(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and lengths, cut and padded as the configuration says."""
        longest = self.config.longest
        if longest:
            ids, lengths = ids[:, :longest], lengths.clamp(max=longest)
        if not ids.shape[1]:  # a batch of empty sentences: one pad, which nobody reads
            ids = F.pad(ids, (0, 1), value=PAD)
        return left_padded(ids, lengths, longest) if self.config.padding == "paper" else (ids, lengths)

    def vectors(self, ids: Tensor) -> Tensor:
        """The words [B, T, k]."""
        vectors: Tensor = self.embedding(ids)
        return vectors if self.bring is None else self.bring(vectors)

    def encoded(self, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor) -> tuple[Encoded, Encoded]:
        """Both sentences, encoded, from their words [B, T, k]."""
        if self.second is not None:
            first = self.encoder(x, x_lengths)
            return first, self.second(y, y_lengths, first.memories)
        return both(self.encoder, x, x_lengths, y, y_lengths)

    def aligned(self, alignment: Alignment, first: Encoded, second: Encoded) -> tuple[Encoded, Encoded]:
        """Both sentences, each word compared with its match in the other, and read again."""
        a, b = alignment(first.outputs, first.lengths, second.outputs, second.lengths)
        if self.reader is None:
            return unread(a, first.lengths), unread(b, second.lengths)
        return both(self.reader, a, first.lengths, b, second.lengths)


def unread(words: Tensor, lengths: Tensor) -> Encoded:
    """Words as they are, [B, T, d]."""
    return Encoded(words, lengths, at_end(words, lengths))


def both(
    encoder: nn.Module, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor
) -> tuple[Encoded, Encoded]:
    """Two batches of sentences through one encoder, as one batch."""
    longest = max(x.shape[1], y.shape[1])
    together = torch.cat([F.pad(each, (0, 0, 0, longest - each.shape[1])) for each in (x, y)])
    encoded: Encoded = encoder(together, torch.cat([x_lengths, y_lengths]))
    first, second = encoded.split([len(x), len(y)])
    return first.shortened(x.shape[1]), second.shortened(y.shape[1])


def sentence_encoder(config: PairConfig, shared: int = 0) -> NSESentence | LSTMSentence | BagOfWords:
    """What reads a sentence, by its configuration."""
    if config.encoder == "lstm":
        return LSTMSentence(config.size, config.dropout, config.directions)
    if config.encoder == "bow":
        return BagOfWords(config.dropout)
    return NSESentence(
        config.size,
        config.dropout,
        config.directions,
        shared=shared,
        padding=config.padding,
        blanks=config.blanks,
        starts=config.starts,
        **initial(config),
    )


def initial(config: PairConfig) -> dict[str, Any]:
    """How an NSE starts, by its model's configuration."""
    return {"init": config.init} | ({"init_range": config.init_range} if config.init_range else {})


def left_padded(ids: Tensor, lengths: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Ids [B, T] with their padding in front, up to `longest`; and lengths that count all of it."""
    ids = F.pad(ids, (0, longest - ids.shape[1]), value=PAD)
    at = torch.arange(longest, device=ids.device) - (longest - lengths)[:, None]
    shifted = ids.gather(1, at.clamp(min=0)).masked_fill(at < 0, PAD)
    return shifted, torch.full_like(lengths, longest)
