"""Models built on sentence encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nse.config import Probability, Range, check_ranges
from nse.nn.sentence_encoder import BagOfWords, Encoded, LSTMSentence, NSESentence, Pool

PAD, UNKNOWN, BEGIN, END = range(4)
"""The ids of padding, of every unknown word, and of what a translation begins and ends with."""

LONGEST = 10_000
"""Words of a sentence that a model may read, or write: time and memory grow with their square."""


@dataclass
class TextConfig:
    """What every model of texts has: an encoder of sentences, and the words in front of it."""

    encoder: Literal["nse", "lstm", "bow"] = "nse"
    """What reads a sentence."""

    size: Annotated[int, Range(1, 65_536)] = 300
    """k: of the encoder, in each direction."""

    layers: Annotated[int, Range(1, 64)] = 1
    """Of the encoder's LSTMs; of an NSE, both of its read and of its write LSTM."""

    words: Annotated[int, Range(0, 65_536)] = 0
    """Size of the word vectors, where it is not k: a linear map brings them to k. 0 means k."""

    trained: bool = True
    """Whether the word vectors are learned; false keeps them fixed, as in the paper."""

    directions: Annotated[int, Range(1, 2)] = 1
    """2 adds an encoder that reads from the last word to the first."""

    word_dropout: Probability = 0.0
    """On the word vectors, before the linear map and before they become the memory."""

    dropout: Probability = 0.0
    """On words as the encoder reads them, on compositions and on the hidden layer; never on the memory."""

    padding: Literal["masked", "paper"] = "masked"
    """masked: true lengths. paper: padded on the left to `longest`, and pads are words like any other."""

    longest: Annotated[int, Range(0, LONGEST)] = 0
    """Sentences are cut to so many words; 0 means never."""

    blanks: Annotated[int, Range(0, 1_000)] = 0
    """Learned blank slots in the memory of an NSE."""

    starts: Annotated[int, Range(0, 1_000)] = 0
    """Learned start words in front of a sentence, for an NSE."""

    init: Literal["uniform", "lookup"] = "uniform"
    """How an NSE starts: uniform, as in the paper; lookup: by looking each word up in its memory."""

    init_range: Annotated[float, Range(0, 10)] = 0.0
    """Weights and biases start uniform within this range, as in the original; 0 leaves it to each layer."""

    map: Literal["learned", "fixed"] = "learned"
    """The linear map to k. fixed: drawn once so that it keeps lengths and angles, and never learned."""

    def __post_init__(self) -> None:
        """Refuse sizes, probabilities and combinations that make no model."""
        check_ranges(self)
        if self.padding == "paper" and not self.longest:
            raise ValueError('padding = "paper" needs longest, such as 32: how far to pad')
        if self.encoder in ("lstm", "bow") and (self.blanks or self.starts):
            raise ValueError("blanks and starts need an NSE as the encoder")
        if self.encoder == "bow" and (self.directions == 2 or self.layers > 1):
            raise ValueError("a bag of words has no directions and no layers")
        if self.init != "uniform" and self.encoder in ("lstm", "bow"):
            raise ValueError(f'init = "{self.init}" needs an NSE as the encoder')
        if self.map == "fixed" and self.words in (0, self.size):
            raise ValueError('map = "fixed" needs words other than size, or there is no map')


@dataclass
class HeadConfig(TextConfig):
    """What a model has whose labels come out of a hidden layer over one vector of each sentence."""

    pool: Pool = "last"
    """One vector out of a sentence's outputs: the last, the largest of each unit, or mean and largest."""

    hidden: Annotated[int, Range(1, 65_536)] = 1024
    """Units of the head's hidden layer."""


class TextModel(nn.Module):
    """Words as vectors: what comes before an encoder."""

    def __init__(self, config: TextConfig, words: int):
        super().__init__()
        width = config.words or config.size
        self.embedding = nn.Embedding(words, width, padding_idx=PAD)
        self.embedding.weight.requires_grad_(config.trained)
        self.drop = nn.Dropout(config.word_dropout)
        self.bring = nn.Linear(width, config.size) if width != config.size else None
        self.padding, self.longest = config.padding, config.longest

    def cut(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and lengths, cut and padded as the configuration says."""
        if self.longest:
            ids, lengths = ids[:, : self.longest], lengths.clamp(max=self.longest)
        if not ids.shape[1]:  # a batch of empty sentences: one pad, which nobody reads
            ids = F.pad(ids, (0, 1), value=PAD)
        return left_padded(ids, lengths, self.longest) if self.padding == "paper" else (ids, lengths)

    def vectors(self, ids: Tensor) -> Tensor:
        """Look up the words [B, T, k]."""
        vectors: Tensor = self.drop(self.embedding(ids))
        return vectors if self.bring is None else self.bring(vectors)

    def start(self, config: TextConfig) -> None:
        """Draw every weight anew where the configuration says how; an NSE knows how it starts."""
        if config.init_range:
            for name, parameter in self.named_parameters():
                if not name.startswith("embedding.") and ".nse." not in name:
                    nn.init.uniform_(parameter, -config.init_range, config.init_range)
        if self.bring is not None and config.map == "fixed":
            # Fewer numbers keep size / words of a vector's squares: lengthen it again.
            nn.init.orthogonal_(self.bring.weight, gain=max(1.0, config.words / config.size) ** 0.5)
            nn.init.zeros_(self.bring.bias)
            self.bring.requires_grad_(False)


class HeadModel(TextModel):
    """A text model whose labels come out of a hidden layer over one vector of each sentence."""

    def __init__(self, config: HeadConfig, words: int):
        super().__init__(config, words)
        self.config = config
        self.encoder = sentence_encoder(config)

    def represent(self, sentence: Tensor, lengths: Tensor) -> Tensor:
        """Encode each sentence by itself, pooled [B, d]; of a model of pairs, as the first one is read."""
        sentence, lengths = self.cut(sentence, lengths)
        encoded: Encoded = self.encoder(self.vectors(sentence), lengths)
        return encoded.pooled(self.config.pool)

    def make_head(self, vectors: int, size: int, labels: int, extra: int = 0) -> nn.Sequential:
        """Make the paper's MLP over so many vectors, pooled from `size` numbers each."""
        hidden, pooled = self.config.hidden, size * (2 if self.config.pool == "mean-max" else 1)
        into, out = nn.Linear(vectors * pooled + extra, hidden), nn.Linear(hidden, labels)
        return nn.Sequential(into, nn.ReLU(), nn.Dropout(self.config.dropout), out)


def sentence_encoder(config: TextConfig, shared: int = 0) -> NSESentence | LSTMSentence | BagOfWords:
    """Make what reads a sentence, by its configuration."""
    if config.encoder == "lstm":
        return LSTMSentence(config.size, config.dropout, config.directions, config.layers)
    if config.encoder == "bow":
        return BagOfWords(config.dropout)
    return NSESentence(
        config.size,
        config.dropout,
        config.directions,
        shared=shared,
        layers=config.layers,
        padding=config.padding,
        blanks=config.blanks,
        starts=config.starts,
        **initial(config),
    )


def initial(config: TextConfig) -> dict[str, Any]:
    """Tell how an NSE starts, by its model's configuration."""
    return {"init": config.init} | ({"init_range": config.init_range} if config.init_range else {})


def left_padded(ids: Tensor, lengths: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Put the padding of ids [B, T] in front, up to `longest`; with lengths that count all of it."""
    ids = F.pad(ids, (0, longest - ids.shape[1]), value=PAD)
    at = torch.arange(longest, device=ids.device) - (longest - lengths)[:, None]
    shifted = ids.gather(1, at.clamp(min=0)).masked_fill(at < 0, PAD)
    return shifted, torch.full_like(lengths, longest)
